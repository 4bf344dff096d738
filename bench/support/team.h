/* Child processes that do a work together, and the memory that they share. */
#ifndef BENCH_TEAM_H
#define BENCH_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Zeroed memory that the children started later share with the program and with each other. Never freed. */
void *team_memory(size_t size);

/*
 * Runs work(number, memory) in `size` children at once, numbered from 0, and
 * waits for them. False, after a line on stderr, when one failed or some had
 * not ended after limit_s; then all are killed. The program itself should have
 * no thread or runtime that the work could miss in a child.
 */
bool team_run(unsigned size, void (*work)(unsigned number, void *memory), void *memory, unsigned limit_s);

/* In the children: waits until value is at least that much. */
void team_await(const atomic_uint *value, unsigned least);

/* In the children: adds one to *arrived and waits until so many have. */
void team_meet(atomic_uint *arrived, unsigned count);

/*
 * Starts a child beside the teams, which does work(number, memory) until helper_stop kills it. What fails ends the
 * program. Returns its process id.
 */
int helper_start(unsigned number, void (*work)(unsigned number, void *memory), void *memory);
void helper_stop(int pid);

/* Kills the children that still run, helpers as well. From any thread. */
void team_kill(void);

#endif
