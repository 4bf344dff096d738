/*
 * "dibs run" and "dibs hold": their options, and how they acquire the lock.
 *
 * "dibs run" is four processes, each the parent of the next. The front (run_front.c) is the one that was started: it
 * represents the job to the shell and the terminal, passes on signals, and watches the holder. The guard adopts the
 * processes that a killed holder leaves, and kills them. The holder (run_holder.c) holds the lock, has its lease
 * renewed, and ends COMMAND in time if the lease can't be renewed. COMMAND is in a process group of its own. The front
 * and the holder tell each other what they do (run_hear.h). So
 *   - if the front is stopped by Ctrl-Z, the lease is still renewed;
 *   - if the front is killed, or stopped in any other way, the holder ends COMMAND;
 *   - if the holder is stopped, the front ends COMMAND;
 *   - if the holder is killed, even together with the front, the guard ends COMMAND;
 *   - if the guard is killed, the others go on as before.
 * "dibs hold" is one process.
 */
#ifndef DIBS_CLI_RUN_H
#define DIBS_CLI_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/cli.h"

/* What the help texts of both have in common. */
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

/*
 * What the options and arguments say; run_settle completes it. Afterwards only the main thread changes it, and only the
 * times, by run_inside_fit and run_fit_times: other threads do not read them.
 */
extern struct run_plan {
    const char *names[RUN_NAMES_MAX]; /* NAME, then those of --also */
    size_t name_count;
    const char *shown;         /* the names, for messages */
    const char *shell_command; /* of -c, or NULL */
    char **command;            /* NULL: "dibs hold" */
    const char *label;         /* for the token; NULL: the library's own */
    const char *on_lost;       /* or NULL */
    bool once;                 /* -n */
    int64_t wait_ms;           /* as for dibs_lock_with */
    int64_t wait_until;        /* when the wait ends, by cli_now_ms, if wait_ms > 0 */
    int64_t at_least_ms;       /* 0: none */
    int64_t lease_ms;          /* of --lease; the lease in the store is at_least_ms if that is longer */
    int64_t grace_ms;          /* from SIGTERM to SIGKILL */
    int64_t outage_ms;         /* how long a wait rides out an outage of the store; less than 0: as long as the wait */
    int min_replicas;
    bool durable;
    int64_t margin_ms; /* how long SIGKILL may take: COMMAND must be dead before the lease ends */
    int not_acquired;  /* exit status */
    bool no_inherit;   /* hides the variables that lead to the store from COMMAND */
    int while_pid;     /* "dibs hold" ends with this process; 0: there is none */
    bool while_stdin;  /* "dibs hold" ends with standard input */
    bool leave;        /* what COMMAND leaves running is not ended */
    bool no_reentry;   /* fails if a dibs around this one holds the lock */
    bool fair;
    bool shared; /* shares the locks */
    int slots;   /* with shared: how many may hold a lock at a time; 0: any number */
} run_plan;

#define RUN_DAY_MS INT64_C(86400000)

/* The options that "dibs run" and "dibs hold" have in common, for run_plan. */
extern const struct cli_option run_options[];

/*
 * Adds to run_plan what the arguments say (words: NAME, and what follows it) and what follows from the options
 * together. Returns CLI_OK, or CLI_USAGE after a message.
 */
int run_settle(char **words, bool with_command);

/* Makes the times fit a lease that is shorter than that of the plan. False: it is not shorter. */
bool run_fit_times(int64_t lease_ms);

/* What such times leave of a lease for the end of COMMAND, at most: grace time and margin. */
int64_t run_end_ms(int64_t lease_ms);

/* The lock, or the locks of several names, that the main thread holds. */
struct run_lock {
    dibs_runtime *rt;                 /* NULL if the lock was not acquired */
    const char *names[RUN_NAMES_MAX]; /* names of the locks that this process holds */
    size_t count;                     /* 0: a dibs around this one holds them all */
    uint64_t fence;
    char token[192];
};

/*
 * Opens the store and waits for the lock. A signal, one that the front passes on through wire, or the end of what dibs
 * is tied to ends the wait at once (run_hear.h). wire -1: there is no front. Returns RUN_HOLDS if the calling thread
 * holds the lock; otherwise nothing is left in the store, and the result is the exit status. May also end the process,
 * with that exit status.
 */
#define RUN_HOLDS (-1) /* not an exit status, which -E may set to any other number */
int run_acquire(int wire, struct run_lock *lock);

#define RUN_AGAIN_MS 200 /* between two attempts to reach the store */

/* Whether a store that could not be reached since that time, by cli_now_ms, must be tried again. */
bool run_goes_on(int64_t since);

/*
 * Releases the lock and closes the runtime. keep_ms more than 0: leaves the lock, whose lease then ends after that
 * time. Returns false if the lease was lost before. The process must end soon.
 */
bool run_release(struct run_lock *lock, int64_t keep_ms);

/* Says that the lease was lost, and why; if the reason is not known yet, that is said once it is. */
void run_tell_loss(void);

/*
 * Calls dibs_extend for each lock, but for no more of them where the store did not answer and for_ms have passed.
 * Returns DIBS_LOST if one was lost, else DIBS_OK or another failure.
 */
dibs_status run_extend(const struct run_lock *lock, int64_t lease_ms, int64_t for_ms);

/* How long all leases are sure to last; less than 0: one of them is lost. */
int64_t run_remaining_ms(const struct run_lock *lock);

/* Runs the holder until its end. wire: leads to the front, whose process id is `front`. */
_Noreturn void run_holder(int wire, pid_t front);

#endif
