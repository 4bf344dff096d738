/*
 * The processes of the simulation. Each has its own copy of the library's variables, which is in place while one of its
 * threads runs; its own memory; and threads, which stop when the process is killed.
 */
#ifndef SIM_PROC_H
#define SIM_PROC_H

#include "dibs.h"
#include "sched.h"

#define SIM_PROCS 12 /* at a time */

/* One line for each function of dibs.h that a workload calls. */
#define SIM_API(XX)                                                                                                    \
    XX(dibs_open)                                                                                                      \
    XX(dibs_close)                                                                                                     \
    XX(dibs_shutdown)                                                                                                  \
    XX(dibs_lock_with)                                                                                                 \
    XX(dibs_unlock)                                                                                                    \
    XX(dibs_unlock_all)                                                                                                \
    XX(dibs_lock_names)                                                                                                \
    XX(dibs_unlock_names)                                                                                              \
    XX(dibs_lock_names_begin)                                                                                          \
    XX(dibs_extend)                                                                                                    \
    XX(dibs_check)                                                                                                     \
    XX(dibs_hold_of)                                                                                                   \
    XX(dibs_query_waiters)                                                                                             \
    XX(dibs_forget)                                                                                                    \
    XX(dibs_query)                                                                                                     \
    XX(dibs_task_new)                                                                                                  \
    XX(dibs_task_enter)                                                                                                \
    XX(dibs_task_leave)                                                                                                \
    XX(dibs_task_cancel)                                                                                               \
    XX(dibs_task_free)                                                                                                 \
    XX(dibs_queue_new)                                                                                                 \
    XX(dibs_queue_fd)                                                                                                  \
    XX(dibs_queue_take)                                                                                                \
    XX(dibs_queue_free)                                                                                                \
    XX(dibs_lock_begin)                                                                                                \
    XX(dibs_unlock_begin)                                                                                              \
    XX(dibs_force_unlock)                                                                                              \
    XX(dibs_list)                                                                                                      \
    XX(dibs_stats_get)                                                                                                 \
    XX(dibs_last_error)                                                                                                \
    XX(dibs_status_name)

struct sim_api {
#define SIM_API_FIELD(name) __typeof__(name) *name;
    SIM_API(SIM_API_FIELD)
#undef SIM_API_FIELD
};
extern struct sim_api sim_api;

struct sim_proc {
    struct sim_proc *next;
    int number;
    bool stopped;
    struct sim_thread *threads;
    char *data; /* its variables of the library, while another runs */
    struct sim_memory *memory;
    double rate;     /* of its clock */
    int64_t offset;  /* of its clock */
    int descriptors; /* that are open */
    unsigned keys;   /* of thread-specific data */
    void (*destructors[SIM_KEYS])(void *);
    int runtimes;      /* that the workload has opened in it */
    uint64_t retaken;  /* kept leases that the last of them took again */
    uint64_t not_held; /* unlocks through that runtime of what was not held */
    void *user;        /* of the workload */
};

extern struct sim_proc *sim_procs;

/* Makes that thread the current one, in its process. NULL: none runs. */
void sim_become(struct sim_thread *thread);

/* Loads the library in this file. Once, before any run. */
void sim_proc_load(const char *library);

struct sim_proc *sim_proc_start(int number);
void sim_proc_kill(struct sim_proc *proc);           /* also at its end: nothing of it is left */
size_t sim_proc_blocks(const struct sim_proc *proc); /* of memory, that are allocated */

extern double sim_scarce;                    /* how often there is no memory */
void *sim_calloc(size_t count, size_t size); /* the running process's */
void sim_free(void *bytes);
int sim_poll(struct pollfd *fds, nfds_t count, int ms);

/* Of the scheduler. */
void *sim_proc_tls(void);
void sim_proc_thread_ends(struct sim_thread *thread);
int64_t sim_proc_clock(const struct sim_proc *proc);

#endif
