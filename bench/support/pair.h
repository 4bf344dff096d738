/* One acquire and one release of a lock that nobody else wants: with dibs, or with plain hiredis. */
#ifndef BENCH_PAIR_H
#define BENCH_PAIR_H

#include "support/bench.h"
#include "support/plain.h"

enum pair_kind {
    PAIR_PLAIN,
    PAIR_DIBS,
    PAIR_SLEEPING, /* dibs that never polls for its replies */
    PAIR_POLLING,  /* plain hiredis that always polls for them first */
    PAIR_LEAST     /* the least that a lock with a fence and a queue takes, with plain hiredis */
};

extern const char *const pair_kind_name[];

/* What a thread needs for its pairs. */
struct pair {
    enum pair_kind kind;
    dibs_runtime *runtime; /* shared by the threads of a process */
    struct plain plain;    /* a connection of its own */
    char name[32];
    char token[32];
    unsigned number;
    unsigned long count;
};

/* For the threads of a process, the caller's to close with dibs_close. NULL for plain hiredis, which needs none. */
dibs_runtime *pair_runtime(enum pair_kind kind);

/* The lock of thread `number`. */
void pair_open(struct pair *pair, enum pair_kind kind, dibs_runtime *runtime, unsigned number);
void pair_close(struct pair *pair);

/* A lock that is not free, or lost, ends the program. */
void pair_run(struct pair *pair);

#endif
