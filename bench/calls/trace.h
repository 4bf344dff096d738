/* Counts the system calls of a program, by strace(1). */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stdbool.h>

struct trace {
    double writes, reads, polls, futexes, others;
};

/* Whether strace is there and may trace. */
bool trace_possible(void);

/* Runs the command of the shell, and counts the system calls of all its threads. What fails ends the program. */
struct trace trace_run(const char *command);

#endif
