/*
 * The processes of the simulation. Each has its own copy of the library's variables, which is in place while one of its
 * threads runs; its own memory; and threads, which stop when the process is killed.
 */
#ifndef SIM_PROC_H
#define SIM_PROC_H

#include "dibs.h"
#include "sched.h"

struct sim_proc {
    struct sim_proc *next;
    int number;
    int64_t stopped_until;
    struct sim_thread *threads;
    char *data;      /* its variables of the library, while another runs */
    size_t blocks;   /* of memory, that are allocated */
    int descriptors; /* that are open */
    unsigned keys;   /* of thread-specific data */
    void (*destructors[SIM_KEYS])(void *);
    int runtimes;      /* that the workload has opened in it */
    uint64_t retaken;  /* kept leases that the last of them took again */
    uint64_t not_held; /* unlocks through that runtime of what was not held */
    bool ended;        /* its work has */
};

extern struct sim_proc *sim_procs;

/* Makes that thread the current one, in its process. NULL: none runs. */
void sim_become(struct sim_thread *thread);

/* Loads the library in this file. Once, before any run. */
void sim_proc_load(const char *library);

struct sim_proc *sim_proc_start(int number);
void sim_proc_kill(struct sim_proc *proc); /* also at its end: nothing of it is left */

extern double sim_scarce;                    /* how often there is no memory */
void *sim_calloc(size_t count, size_t size); /* the running process's */
void sim_free(void *bytes);
int sim_poll(struct pollfd *fds, nfds_t count, int ms);

/* Of the scheduler. */
void *sim_proc_tls(void);
void sim_proc_thread_ends(struct sim_thread *thread);
int64_t sim_proc_clock(const struct sim_proc *proc);

#endif
