/*
 * What must hold in every run. The judge knows what the workload has done, looks at the servers, and asks the library,
 * in the place of a thread, whether that thread holds a lock: dibs_check needs no I/O, so time stands still meanwhile.
 */
#ifndef SIM_JUDGE_H
#define SIM_JUDGE_H

#include "plan.h"

#define SIM_HOLDS 8 /* of a thread at a time */

struct sim_hold {
    int name;
    uint64_t fence;
    uint32_t count;
    bool fixed, told;
    bool shared;
    bool begun;         /* its first acquire was: a loss is told by a completion */
    int64_t lost_since; /* dibs_check has said so; 0: not yet */
    bool lost_told;     /* the completion came */
    int64_t since;      /* the call that acquired it began, */
    int64_t held_at;    /* and returned */
    int64_t sure_until; /* as dibs_hold_of said */
};

/* One thread of the workload, and the task that owns in its place. */
struct sim_worker {
    struct sim_thread *thread;
    dibs_task *task;      /* NULL: the thread owns */
    dibs_queue *queue;    /* of its begun calls */
    bool entered;         /* the thread is in the task */
    bool pending, freed;  /* a begun call is not complete; its task was freed meanwhile */
    dibs_completion done; /* of that call */
    bool cancel_begun;
    int64_t cancelled_at; /* dibs_task_cancel returned; SIM_NEVER: not yet */
    int users;            /* threads that cancel the task */
    struct sim_proc *proc;
    dibs_runtime *runtime;
    struct sim_hold holds[SIM_HOLDS];
    int hold_count;
    bool inside;       /* a call of dibs */
    bool ends;         /* next, without an unlock */
    bool fair;         /* what it waits for */
    uint32_t lease_ms; /* which it wants to have */
    bool shares;       /* so it wants the lock */
    const char *call;  /* which, */
    int on;            /* and the name it is about; -1: none, or several */
    int wants;         /* a name it waits for; -1: none */
    int asks;          /* the name that the call under way wants, also with one try; -1: none */
    unsigned several;  /* a bit for each name that it locks in one call: it may have some before others */
    int64_t began;     /* the call */
    int64_t limit;     /* when it must have ended, if nothing goes wrong from then on; SIM_NEVER: never */
    struct sim_worker *next;
};

extern struct sim_worker *sim_workers;

void sim_judge_begin(const struct sim_plan *plan);
const char *sim_name(int name);                       /* of a lock */
const char *sim_who(const struct sim_worker *worker); /* good until two more are asked for */

struct sim_hold *sim_hold_of(struct sim_worker *worker, int name); /* NULL: it holds none */
void sim_judge_acquired(struct sim_worker *worker, int name, const dibs_lock_options *options, bool again);
void sim_judge_forced(int name);
void sim_judge_grants(void);
void sim_judge_took(int name);  /* another client took the lock, or all of them (-1), at the server */
void sim_judge_came_back(void); /* a server, in an older state */
void sim_judge_foreign(int name, int64_t until);
void sim_judge_wanted(const struct sim_worker *worker, int name); /* and does not want the lock any more */
bool sim_has_fault(enum sim_fault_kind kind);
bool sim_judge_is_gone(struct sim_worker *worker, int name); /* the process must know that by now */
void sim_judge_sure(struct sim_worker *worker, int name);
void sim_judge_lost(struct sim_worker *worker, int name);
void sim_judge_told(struct sim_worker *worker, const dibs_completion *loss);
void sim_judge_released(struct sim_worker *worker, int name, dibs_status status);
/* A call begins, of that name. -1: of none, or several. */
void sim_judge_call(struct sim_worker *worker, const char *call, int name, int64_t most_ms);
void sim_judge_return(struct sim_worker *worker, dibs_status status);
void sim_judge_killed(struct sim_proc *proc);
void sim_judge_closed(const struct sim_proc *proc); /* all that it had must be gone */
void sim_judge_close(int64_t began);                /* dibs_close, which returned */
void sim_judge_end(void);

extern struct sim_counts {
    long grants, shared, retaken, losses, calls, begun, cancelled;
} sim_counts;

/* ------------------------------------------------------------------ the workload */

void sim_work_begin(const struct sim_plan *plan);
void sim_work_kill(int proc);             /* the process is killed; another begins in its place */
struct sim_proc *sim_work_proc(int proc); /* NULL: the process has ended */
bool sim_work_is_over(void);

#endif
