/*
 * A program that a test starts, and with which it exchanges lines. The program dies with the test. Used by the test's
 * own thread only. A failure here fails the test.
 */
#ifndef DIBS_TEST_PROCESS_H
#define DIBS_TEST_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct process {
    pid_t pid; /* 0: it has been waited for */
    int in;    /* its standard input, -1 once closed */
    int out;   /* its standard output */
    bool paused;
    size_t length; /* of the text in buffer: read, but not a whole line yet */
    char buffer[4096];
    char line[4096]; /* the last line read, without its newline */
} process;

/* Where test/support/prog/NAME.c was built to. */
const char *program_path(const char *name);

/* Where that file of the source tree is; `file` is named from the top of the tree. */
const char *source_path(const char *file);

/* arguments: NULL at the end, the first is the program (looked up in PATH). Freed by process_free. */
process *process_start(const char *const *arguments);

/* Writes a line; reads one (in the process's line) within LIMIT_MS. process_ask does both. */
void process_write(process *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *process_read(process *p);
const char *process_ask(process *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether a whole line can be read now; then it is read, as by process_read. */
bool process_try_read(process *p);

/* SIGSTOP, on return it has stopped; SIGCONT. */
void process_pause(process *p);
void process_resume(process *p);

/* kill -9, and waits for its end. */
void process_kill(process *p);

/*
 * Closes the program's input, waits for its end and returns its exit status, or 128 + the signal. Fails the test after
 * limit_ms.
 */
int process_wait(process *p, int64_t limit_ms);

/* Kills the program where it still runs. NULL is fine. */
void process_free(process *p);

/*
 * Waits for a forked child of the test and returns its exit status, or 128 + the signal. After limit_ms the child is
 * killed, and -1 returned; child_wait fails the test after LIMIT_MS.
 */
int child_wait_for(pid_t pid, int64_t limit_ms);
int child_wait(pid_t pid);

#endif
