/*
 * "dibs run" and "dibs hold": what they were told, and how they come by the lock.
 *
 * "dibs run" is four processes, each the parent of the next. The front (run_front.c) is the one that was started: it
 * stands for the whole towards the shell and the terminal, passes on signals, and watches the holder. The guard
 * (run_guard.c) adopts what a killed holder leaves, and kills it. The holder (run_holder.c) has the lock, keeps its
 * lease, and ends COMMAND in time where the lease can't be kept. COMMAND is in a process group of its own. The front
 * and the holder tell each other what they do (run_wire.h). So
 *   - a front that was stopped by Ctrl-Z does not keep the holder from renewing the lease;
 *   - where the front is killed, or stopped in any other way, the holder ends COMMAND;
 *   - where the holder is stopped, the front ends COMMAND;
 *   - where the holder is killed, also together with the front, the guard does;
 *   - where the guard is killed, the others go on as before.
 * "dibs hold" is one process.
 */
#ifndef DIBS_CLI_RUN_H
#define DIBS_CLI_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/cli.h"

/* What their helps have in common. */
/* clang-format off */
#define RUN_COMMON_HELP                                                                                                \
    "  -n, --nonblock      does not wait: fails if somebody else holds the lock\n"                                     \
    "  -w, --wait TIME     waits for at most TIME (default: for ever)\n"                                               \
    "  -t, --lease TIME    the lock is free TIME after its host fails (default 30)\n"                                  \
    "  -E, --conflict-exit-code CODE   exits with CODE if the lock was not acquired\n"                                 \
    "                      (default 1)\n"                                                                              \
    "      --also NAME     locks this NAME as well: all of them or none, whatever the\n"                               \
    "                      order; may be given again\n"                                                                \
    "      --shared        shares the lock with all who use it too: readers. Whoever\n"                                \
    "                      locks NAME without it, a writer, is alone\n"                                                \
    "      --slots N       shares the lock, which at most N hold at a time; all who\n"                                 \
    "                      use NAME give the same N\n"                                                                 \
    "      --fair          first come, first served\n"                                                                 \
    "      --no-reentry    inside a COMMAND of a dibs that holds the lock: fails,\n"                                   \
    "                      instead of running under that lock\n"                                                       \
    "      --outage TIME   while it waits, bears with a server that can't be reached\n"                                \
    "                      for at most TIME (default: as long as it waits)\n"                                          \
    "      --min-replicas N   the lock counts once N replicas have it (default 0)\n"                                   \
    "      --durable       the lock counts once the server has it on its disk\n"
#define RUN_TIMES_HELP                                                                                                 \
    "A TIME is in seconds, with decimals, or has units: 90, 0.5, 5m, 1h30m, 2d.\n"
/* clang-format on */

#define RUN_NAMES_MAX 64

/* What the options and arguments say. */
struct run_plan {
    const char *names[RUN_NAMES_MAX]; /* the first is NAME, the others are those of --also */
    size_t name_count;
    const char *shown;   /* the names, for messages */
    char **command;      /* NULL: none ("dibs hold") */
    const char *label;   /* for the token; NULL: the library's own */
    const char *url;     /* or NULL, as for cli_open */
    const char *on_lost; /* or NULL */
    int64_t wait_ms;     /* as for dibs_lock_with */
    int64_t wait_until;  /* where wait_ms is a time: when it ends, by cli_now_ms */
    int64_t at_least_ms; /* 0: none */
    int64_t lease_ms;    /* of --lease; that of the store is longer with a longer at_least_ms */
    int64_t grace_ms;    /* between TERM and KILL */
    int64_t outage_ms;   /* how long a wait rides out a store that can't be reached; less than 0: as long as the wait */
    int min_replicas;
    bool durable;
    int64_t margin_ms; /* how long KILL may take: COMMAND must be dead before the lease ends */
    int not_acquired;  /* exit status */
    bool no_inherit;   /* of the variables that lead to the store */
    int while_pid;     /* 0: none ("dibs hold") */
    bool while_stdin;  /* until standard input ends ("dibs hold") */
    bool leave;        /* what COMMAND leaves running lives on */
    bool no_reentry;   /* inside a dibs that holds the lock: refuses */
    bool fair;
    bool shared; /* others may hold the locks as well, if they share them */
    int slots;   /* so many at a time, with this one; 0: any number */
};

/* Returns false where the process must end with *status. argv[0] is the command's name. */
bool run_options(int argc, char **argv, const char *help, bool with_command, struct run_plan *plan, int *status);

/* Sets what COMMAND and --on-lost find in the environment. */
void run_environment(const struct run_plan *plan, uint64_t fence, const char *token);

/* The lock, as the main thread has it. */
struct run_lock {
    dibs_runtime *rt;                 /* NULL if the lock was not acquired */
    bool entered;                     /* a dibs around this one holds all locks, and keeps them */
    const char *names[RUN_NAMES_MAX]; /* those that are held here */
    size_t count;
    uint64_t fence;
    char token[192];
};

/*
 * Opens the store and waits for the lock. Signals (run_signals.h), those that the front passes on through wire, and the
 * end of what dibs is tied to (run_tie.h) end that at once; wire is -1 where there is no front. Returns true if the
 * calling thread holds the lock; else nothing is left of it, and *status is the exit status. May end the process with
 * such a status.
 */
bool run_acquire(const struct run_plan *plan, int wire, struct run_lock *lock, int *status);

#define RUN_AGAIN_MS 200 /* between two attempts to reach the store */

/* Whether a store that can't be reached since then, by cli_now_ms, is tried again. */
bool run_goes_on(const struct run_plan *plan, int64_t since);

/*
 * Gives the lock up and closes the runtime. With keep_ms more than 0 the lock is left to end by itself, in that time.
 * Returns false if the lease had been lost. The process must end soon.
 */
bool run_release(const struct run_plan *plan, struct run_lock *lock, int64_t keep_ms);

/* Says that the lease was lost, and why; later, where that is not known yet. */
void run_tell_loss(const struct run_plan *plan);

/* The outcome of dibs_extend for each of them that is not DIBS_OK, if there is one. */
dibs_status run_extend(const struct run_lock *lock, int64_t lease_ms);

/* COMMAND is inside of what is held beside NAME. */
void run_tell_inside(const struct run_plan *plan, const struct run_lock *lock);

/* Whether an owner that is in the store, while this process has lost the lock, keeps this one from having it. */
bool run_is_taken(const struct run_plan *plan, const dibs_owner *owner);

/* How long the leases are sure to last; less than 0 once it is lost. */
int64_t run_remaining_ms(const struct run_lock *lock);

/* The holder's whole life; wire leads to the process front. Returns the exit status. */
struct run_terminal;
int run_holder(const struct run_plan *plan, const struct run_terminal *terminal, int wire, pid_t front);

/* The guard's whole life, from the fork of its only child on. Ends as the holder ends. */
_Noreturn void run_guard(pid_t holder);

/* The front's whole life. Returns the exit status. */
int run_front(struct run_plan *plan);

#endif
