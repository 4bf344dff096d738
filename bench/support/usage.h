/* What processes have used so far: time, the processors, context switches. */
#ifndef BENCH_USAGE_H
#define BENCH_USAGE_H

/* Two of them, subtracted, are the use in between. */
struct usage {
    double wall_ns;
    double client_ns; /* the calling process, all its threads */
    double server_ns; /* bench_server; NAN where the system does not tell (not Linux) */
    double switches;  /* of all threads of the calling process that have not been waited for, and of those that have */
};

struct usage usage_now(void);
struct usage usage_between(struct usage before, struct usage after);

/* How many connections the server has, without the one that asks. */
double usage_connections(void);

#endif
