/*
 * The scheduler of the simulation: threads that take turns, a clock that stands still while any of them can run, and
 * events that happen at set times. Every random choice is drawn from the seed of the run.
 */
#ifndef SIM_SCHED_H
#define SIM_SCHED_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MS INT64_C(1000000)
#define SIM_S (1000 * SIM_MS)
#define SIM_NEVER INT64_MAX
#define SIM_KEYS 16 /* of thread-specific data, in all processes */

/* ------------------------------------------------------------------- chance */

/* The numbers drawn for one purpose do not depend on how many were drawn for others, so that a run can be shortened. */
enum sim_stream { SIM_SCHEDULE, SIM_NETWORK, SIM_FAULTS, SIM_WORK, SIM_ENTROPY, SIM_STREAMS };

void sim_seed(uint64_t seed);
uint64_t sim_draw(enum sim_stream stream);
int64_t sim_between(enum sim_stream stream, int64_t low, int64_t high);     /* both included */
int64_t sim_between_log(enum sim_stream stream, int64_t low, int64_t high); /* each order of magnitude as likely */
bool sim_chance(enum sim_stream stream, double probability);

/* ------------------------------------------------------------ time and events */

extern int64_t sim_now; /* ns since the run began */

typedef void sim_event_fn(void *arg, uint64_t number);
void sim_at(int64_t time, sim_event_fn *fn, void *arg, uint64_t number);

/* ------------------------------------------------------------------- threads */

struct sim_proc;

struct sim_thread {
    void *context; /* the stack pointer of one that does not run */
    int number;    /* of the run */
    struct sim_proc *proc;
    struct sim_thread *next; /* of the process */
    uint32_t priority;       /* the largest of those that can run runs */
    enum { SIM_READY, SIM_ASLEEP, SIM_ENDED } state;
    const void *address; /* what it sleeps on: a mutex, a condition variable, a word; NULL: on descriptors */
    const struct pollfd *fds;
    size_t fd_count;
    uint64_t sleeps; /* how often it slept: the end of an earlier sleep does not end this one */
    bool timed_out;  /* the last sleep was ended by its deadline */
    int64_t stalled; /* until then it does not run, though it could */
    void *(*run)(void *);
    void *arg;
    void *tls; /* its copy of the library's thread-local variables */
    void *specific[SIM_KEYS];
    char name[16];
};

#define SIM_SCHEDULE_MAP(XX)                                                                                           \
    XX(double, point_mean)   /* how many points lie between two changes of the order, on average */                    \
    XX(double, stall_chance) /* that a thread is kept from running at a change */                                      \
    XX(int64_t, stall_most)  /* ns */                                                                                  \
    XX(double, spurious)     /* that a sleep ends soon for no reason */

struct sim_schedule {
#define SIM_SCHEDULE_FIELD(type, name) type name;
    SIM_SCHEDULE_MAP(SIM_SCHEDULE_FIELD)
};
extern struct sim_schedule sim_schedule;
extern struct sim_thread *sim_current; /* NULL: events run, or the judge */
extern long sim_budget;                /* points until the order may change */

struct sim_thread *sim_start(struct sim_proc *proc, const char *name, void *(*run)(void *), void *arg);

/* Sleeps until the deadline or a wake. False: the deadline came. */
bool sim_sleep(const void *address, const struct pollfd *fds, size_t fd_count, int64_t deadline);
int64_t sim_early(void); /* when a sleep that begins now ends for no reason; mostly SIM_NEVER */
void sim_wake(struct sim_proc *proc, const void *address, bool all);
void sim_wake_fd(struct sim_proc *proc, int fd);
void sim_pass(int64_t ns); /* the calling thread does nothing for so long */
void sim_end_thread(struct sim_thread *thread);

/* Another thread may run here. */
void sim_slow_point(void);
static inline void sim_maybe(void)
{
    if (--sim_budget <= 0)
        sim_slow_point();
}

/* Runs threads and events until `is_over`, or until the time. False: no event is left. */
bool sim_run(bool (*is_over)(void), int64_t until);

/* ------------------------------------------------------------------ the trace */

extern uint64_t sim_hash;
extern int sim_telling; /* the story is printed; 2: with all that is sent */
extern uint64_t sim_switches;
extern long sim_clock_reads; /* since the judge looked last, without those that the calls may have made */
#define SIM_SPINNING 300000
#define SIM_READS_OF_A_CALL 200 /* by all threads; in some runs thousands of calls fail in a moment */
void sim_judge_spins(void);

void sim_note(const void *bytes, size_t size); /* into the hash alone */
static inline void sim_mix(uint64_t value)
{
    sim_hash = (sim_hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    sim_hash ^= sim_hash >> 29;
}
void sim_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Makes the run a failure. */
void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern char sim_failure[256]; /* "": none */

#endif
