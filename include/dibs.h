/*
 * dibs - a distributed, reentrant lock for threads of many processes.
 *
 * The model
 *
 *   A lock is a name. Its owner is a thread of a runtime (dibs_runtime; one a
 *   process is the normal use). The store, a Redis server, keeps who owns it,
 *   for a limited time: the lease. While a thread holds the lock, the
 *   runtime's scheduler thread renews the lease; when the process dies, nobody
 *   does, and the lock is free again after at most one lease.
 *
 *   A lock is reentrant. What a thread holds is counted in thread-local
 *   storage: the store is asked by the first acquire and by the last unlock of
 *   a thread, not in between.
 *
 * An example
 *
 *   #include <dibs.h>
 *
 *   dibs_runtime *rt;
 *   if (dibs_open(&rt, NULL) != DIBS_OK)          // $DIBS_URL or redis://127.0.0.1:6379
 *       die(dibs_last_error());
 *   if (dibs_lock(rt, "sku:25") == DIBS_OK) {     // waits for it
 *       ...
 *       if (dibs_unlock(rt, "sku:25") == DIBS_LOST)
 *           ...                                   // another may have been inside as well
 *   }
 *   dibs_close(rt);
 *
 * The caveats
 *
 *   - A lease is a promise for a time. A thread that was stopped for longer
 *     than its lease, or whose store could not be reached for that long, has
 *     lost the lock. dibs_check() says so, without asking anybody, before the
 *     store may give the lock to another: call it before what can't be undone.
 *     Between that check and the effect there is always a gap, so give the
 *     resource itself the fence (dibs_hold_of) and let it refuse a smaller one
 *     than it has seen: only that is safe whatever happens.
 *   - A store that forgets (a key deleted by hand, a restart without
 *     persistence, the failover to a replica that had not heard of the lock)
 *     may give the lock to two. The old holder learns of it at its next
 *     renewal, which comes after a third of the lease; until then only the
 *     fence protects. After a restart or a failover the leases are renewed at
 *     once, and set again where nobody was granted the lock since.
 *   - After fork(2) the child holds nothing that its parent holds and may use
 *     the runtime at once.
 *   - Nothing here may be called from a signal handler.
 *
 * Unless a function says otherwise: every function may be called from any
 * thread; a NULL runtime or name is DIBS_INVALID; strings that are passed in
 * are copied and stay the caller's; arguments are checked before anything
 * else; no call is a cancellation point, returns early for a signal, or raises
 * SIGPIPE. Times are milliseconds.
 *
 * A thread with a stack of 16 KiB (PTHREAD_STACK_MIN) may make every call, as
 * long as the library is built with optimization: 7 KiB is the most that a call
 * takes, the rest is what the C library keeps there of each thread, and the
 * caller's. A host name that is not an address takes what getaddrinfo(3) does,
 * in dibs_open and in each call that connects anew: have 64 KiB there.
 */
#ifndef DIBS_H
#define DIBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define DIBS_API __attribute__((visibility("default")))
#else
#define DIBS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ version */

#define DIBS_VERSION_MAJOR 0
#define DIBS_VERSION_MINOR 1
#define DIBS_VERSION_PATCH 0

/* The version of the library that runs, "0.1.0": it may be another than the header's. */
DIBS_API const char *dibs_version(void);

/* ----------------------------------------------------------------- statuses */

/* One line per status: its name without DIBS_, and what dibs_status_text() says of it. */
#define DIBS_STATUS_MAP(XX)                                                                                            \
    XX(OK, "Done.")                                                                                                    \
    XX(BUSY, "Somebody else holds the lock.")                                                                          \
    XX(TIMEOUT, "The lock did not become free in the time given.")                                                     \
    XX(NOT_HELD, "The calling thread does not hold the lock.")                                                         \
    XX(LOST, "The lease ended while the calling thread held the lock.")                                                \
    XX(UNAVAILABLE, "The store, or a majority of the stores, cannot be reached.")                                      \
    XX(DENIED, "The store refused the credentials, or its access rules forbid the command.")                           \
    XX(STORE_ERROR, "The store answered with an error.")                                                               \
    XX(INVALID, "An argument is out of range.")                                                                        \
    XX(NO_MEMORY, "Memory is exhausted.")                                                                              \
    XX(CLOSED, "The runtime is closing.")                                                                              \
    XX(OVERFLOW, "The hold count is at its maximum.")

typedef enum dibs_status {
#define DIBS_STATUS_ENUM(name, text) DIBS_##name,
    DIBS_STATUS_MAP(DIBS_STATUS_ENUM)
#undef DIBS_STATUS_ENUM
} dibs_status;

/* "DIBS_LOST"; "DIBS_?" for a number that is no status. A constant, never NULL. */
DIBS_API const char *dibs_status_name(dibs_status status);

/* One English sentence about the status. A constant, never NULL. */
DIBS_API const char *dibs_status_text(dibs_status status);

/*
 * The detail of the calling thread's last call that failed (returned anything
 * but DIBS_OK), "" if none did yet. Never NULL; one line; holds no password.
 * Belongs to the thread: valid until its next call into dibs, or its end.
 */
DIBS_API const char *dibs_last_error(void);

/* ------------------------------------------------------------------ runtime */

typedef struct dibs_runtime dibs_runtime;

typedef enum dibs_event_kind {
    DIBS_EVENT_LOST,       /* a lease ended under its holder */
    DIBS_EVENT_ORPHANED,   /* a thread ended while holding; its locks were released */
    DIBS_EVENT_AT_RISK,    /* half of a lease has gone without a renewal that succeeded */
    DIBS_EVENT_STORE_DOWN, /* the store can't be reached */
    DIBS_EVENT_STORE_UP    /* it can be reached again */
} dibs_event_kind;         /* more may come: have a default case */

typedef struct dibs_event {
    dibs_event_kind kind;
    const char *name;   /* the lock's, or NULL for an event of the store */
    uint64_t fence;     /* of the lease concerned, else 0 */
    const char *detail; /* one line for a log, never NULL */
} dibs_event;

/*
 * Called for one event after another, in order, on a thread of the runtime
 * that does nothing else; that thread exists only where on_event is set. The
 * callback may block, and may call anything but dibs_close and dibs_shutdown
 * of its own runtime. It may be called before dibs_open has returned (not
 * where that fails). The pointers live until it returns. The queue of events
 * is bounded; what does not fit is dropped and counted in
 * dibs_stats.events_dropped.
 */
typedef void dibs_event_fn(const dibs_event *event, void *arg);

/*
 * All zero is a good configuration: zero or NULL in a field means its default,
 * which the comment names first. dibs_open copies what it needs.
 */
typedef struct dibs_config {
    const char *const *urls;     /* the words of $DIBS_URL, else redis://127.0.0.1:6379 */
    size_t url_count;            /* of urls. 1: that store. 3, 5, 7...: a quorum of independent masters */
    const char *key_prefix;      /* "lock:"; "" is allowed; one that begins with "dibs:" is not */
    const char *label;           /* the program's name; part of the token that others see; 1..48 printable bytes */
    uint32_t lease_ms;           /* 30000; 20..86400000 */
    uint32_t renew_ms;           /* every lease is renewed at min(renew_ms, a third of itself); at most lease_ms / 2 */
    uint32_t connect_timeout_ms; /* 1000 */
    uint32_t command_timeout_ms; /* 1000 */
    uint32_t outage_ms;          /* 5000: how long a waiting call rides out an unreachable store */
    uint32_t handoff_ms;         /* 10: how long threads of this process may pass a lease on among themselves */
    uint32_t min_replicas;       /* 0: how many replicas must acknowledge a first acquire */
    uint32_t replica_timeout_ms; /* 500: how long they may take */
    const char *tls_ca_file;     /* these four only with a TLS url, else DIBS_INVALID */
    const char *tls_cert_file;
    const char *tls_key_file;
    const char *tls_server_name;
    const char *sentinel_user; /* these two only with a Sentinel url, else DIBS_INVALID */
    const char *sentinel_password;
    dibs_event_fn *on_event; /* none */
    void *on_event_arg;
    uint64_t reserved[8]; /* zero */
} dibs_config;

#define DIBS_NO_HANDOFF UINT32_MAX /* handoff_ms: every hand-over goes through the store */

/*
 * Opens a runtime and connects to its store.
 *
 * config may be NULL: the defaults. The runtime is the caller's, to be given
 * to dibs_close; on failure *out is NULL. Blocks for at most
 * connect_timeout_ms (and what the resolver takes for a host name).
 *
 * URLs: redis://[user[:password]@]host[:port][/db]
 *       unix://[user[:password]@]/path/to.sock[?db=N]
 *       mem: or mem:NAME    a store inside the process, private to the runtime
 *                           or shared by all that open the same NAME: for the
 *                           unit tests of programs that use dibs
 * User, password and path are percent-decoded; an IPv6 address is in brackets.
 *
 * DIBS_OK; DIBS_INVALID: an argument, a field or a URL is not right, and
 * dibs_last_error() names the one at fault; DIBS_UNAVAILABLE: nobody answers;
 * DIBS_DENIED: the credentials, or the right to run scripts;
 * DIBS_STORE_ERROR: it answers, but not as Redis does; DIBS_NO_MEMORY (also:
 * no thread, descriptor, mutex or key for data of threads could be had; with
 * enough of it the next call succeeds).
 */
DIBS_API dibs_status dibs_open(dibs_runtime **out, const dibs_config *config);

/*
 * From now on waiting and later acquires return DIBS_CLOSED; dibs_unlock and
 * dibs_check go on, and leases are still renewed. Does not block. NULL is fine.
 */
DIBS_API void dibs_shutdown(dibs_runtime *rt);

/*
 * Shuts down, waits for the calls that are inside (connect_timeout_ms +
 * command_timeout_ms at most, and a callback that is running), releases every
 * hold of every thread, ends the runtime's threads and frees what it has. NULL
 * is fine; dibs_close from on_event is undefined. No callback runs after it.
 *
 * Other threads need not know. A call of theirs that begins meanwhile, or later,
 * says DIBS_CLOSED, or, of a lock that its thread held, DIBS_LOST (dibs_check
 * and dibs_hold_of from when it was released, each dibs_unlock), then DIBS_NOT_HELD;
 * dibs_stats_get fills in zeros; dibs_shutdown and a second dibs_close do
 * nothing. For that the handle itself, some 150 bytes, is never freed. Threads
 * that still had holds may end, and may use other runtimes, without harm.
 */
DIBS_API void dibs_close(dibs_runtime *rt);

/* ------------------------------------------------------------------ locking */

#define DIBS_WAIT_FOREVER (-1)
#define DIBS_NAME_MAX 512 /* bytes; a name is 1..512 bytes, any byte but NUL */

enum {
    DIBS_FAIR = 1u,       /* first come, first served over all processes and threads, see dibs_lock_with */
    DIBS_FIXED_LEASE = 2u /* never renewed: ends lease_ms after it was granted */
};

typedef struct dibs_lock_options { /* all zero: the defaults */
    uint32_t lease_ms;             /* the runtime's; 20..86400000 */
    uint32_t flags;                /* none; an unknown bit is DIBS_INVALID */
} dibs_lock_options;

/*
 * Acquires the lock of name for the calling thread.
 *
 * wait_ms is DIBS_WAIT_FOREVER, 0 (one try) or a time. dibs_lock waits for
 * ever, dibs_trylock tries once; options may be NULL: the defaults.
 *
 * A thread that holds the lock already adds one to its hold count, whatever
 * the options; that costs no I/O. Otherwise the store is asked in one round
 * trip, by one thread of the process at a time for each name, and the call
 * sleeps while somebody else holds the lock. The store keeps a queue of those
 * who wait, in the order in which it heard of them; a release grants the lock
 * to the first who is still there, and tells it. A client that locks without
 * dibs tells nobody: while such a one holds the lock, waiters ask every 50 to
 * 100 ms. An acquire that fails leaves nothing behind: where its outcome is
 * unknown the runtime retracts it in the background until the store confirms,
 * or nothing of it can be left.
 *
 * While threads of this process wait, a last unlock leaves the lease in the
 * process for up to handoff_ms since it came from the store: a running thread
 * may then take the lock before one that sleeps, but not before one that has
 * waited for over 1 ms. That costs no I/O, and others wait no longer for it
 * than handoff_ms and one critical section. A lease is handed on only to a
 * thread that wants one of the same length, and never a fixed one.
 *
 * DIBS_FAIR: each thread has its own place in the store's queue, and gets the
 * lock in its turn, from the store. That needs the right to subscribe to the
 * runtime's channel (without it DIBS_DENIED; others then ask every 50 to 100
 * ms). Who did not ask for half of its lease, because its machine stopped or
 * can't be reached, loses its place. DIBS_FIXED_LEASE: a lease that was waited
 * for counts from the waiter's last ask, up to a third of it before the grant.
 *
 * A waiting call rides out a store that can't be reached (or answers LOADING,
 * READONLY, MASTERDOWN, CLUSTERDOWN or TRYAGAIN) for outage_ms since the
 * store was last heard, never past its own wait. One try is bounded by
 * command_timeout_ms. Beside another thread of the process that asks for the
 * same name, and has not been told anything yet, one try waits for what that
 * thread is told: DIBS_BUSY where the name is taken or was granted to that
 * thread, the same failure where the ask failed.
 *
 * With min_replicas, a grant that too few replicas acknowledged is given back,
 * and a waiting call tries again. It returns DIBS_UNAVAILABLE at the first such
 * grant that comes outage_ms or more after the first one, also where others
 * have the lock in between; and at the end of its wait, if the last one came
 * within outage_ms before.
 *
 * DIBS_OK: held, dibs_unlock it once for each time; DIBS_BUSY: wait_ms was 0
 * and somebody else holds it; DIBS_TIMEOUT: not granted within wait_ms
 * (dibs_last_error() says whether somebody else held it for all that time, or
 * the store had not answered); DIBS_LOST: the thread held it and lost the
 * lease, it must first unlock; DIBS_UNAVAILABLE; DIBS_DENIED;
 * DIBS_STORE_ERROR: the store refuses in a way that waiting can't mend;
 * DIBS_INVALID: an argument, or, on a server with cluster_enabled:1, a key that
 * has a } but no hash tag, because what belongs to that lock would lie in
 * several slots; DIBS_NO_MEMORY; DIBS_CLOSED; DIBS_OVERFLOW: held UINT32_MAX
 * times.
 */
DIBS_API dibs_status dibs_lock(dibs_runtime *rt, const char *name);
DIBS_API dibs_status dibs_trylock(dibs_runtime *rt, const char *name);
DIBS_API dibs_status dibs_timedlock(dibs_runtime *rt, const char *name, int64_t wait_ms);
DIBS_API dibs_status dibs_lock_with(dibs_runtime *rt, const char *name, int64_t wait_ms,
                                    const dibs_lock_options *options);

/*
 * Takes one off the calling thread's hold count; the last one releases the
 * lock in the store, in one round trip of at most command_timeout_ms.
 *
 * DIBS_OK; DIBS_NOT_HELD: nothing changed; DIBS_LOST: the lease had ended, so
 * another may have been inside since (the count is one less all the same);
 * DIBS_UNAVAILABLE: the store can't be reached; the hold is gone, renewal has
 * stopped, and the runtime goes on deleting the key in the background;
 * DIBS_DENIED, DIBS_STORE_ERROR: the same, and the store's refusal is in
 * dibs_last_error(); DIBS_NO_MEMORY: the same, for want of memory or of a
 * descriptor for a new connection; DIBS_INVALID.
 */
DIBS_API dibs_status dibs_unlock(dibs_runtime *rt, const char *name);

/*
 * Gives up every hold that the calling thread has of rt, whatever their
 * counts: for threads of a pool, between two tasks. Blocks like one
 * dibs_unlock after another.
 *
 * DIBS_OK, also where nothing was held; otherwise the first status that is
 * not DIBS_OK, as dibs_unlock would return it, after all of them were given up.
 */
DIBS_API dibs_status dibs_unlock_all(dibs_runtime *rt);

/*
 * The lease of a lock that the calling thread holds ends lease_ms
 * (20..86400000) from now; later renewals keep that length. A fixed lease is
 * extended this once. One round trip, at most command_timeout_ms: longer than
 * one only where an earlier extension to a shorter time was never answered and
 * may still arrive, because the account may not use CLIENT KILL. Until it can't,
 * the lease is not taken to last longer than that one would leave it.
 *
 * DIBS_OK; DIBS_NOT_HELD; DIBS_LOST: the lease had ended; DIBS_UNAVAILABLE:
 * not known whether it was done, the hold goes on (with the shorter of both
 * ends); DIBS_DENIED; DIBS_STORE_ERROR; DIBS_INVALID; DIBS_NO_MEMORY;
 * DIBS_CLOSED: dibs_close has begun, and is about to release the lock.
 */
DIBS_API dibs_status dibs_extend(dibs_runtime *rt, const char *name, uint32_t lease_ms);

/* ----------------------------------------------- the holder's view (no I/O) */

typedef struct dibs_hold {
    uint32_t count;       /* how many times the calling thread holds it */
    uint64_t fence;       /* larger for every later hold of the name by any thread anywhere; never 0, below 2^63 */
    int64_t remaining_ms; /* how long the lease is sure to last; 0 once lost */
    bool lost;
    uint64_t reserved[4];
} dibs_hold;

/*
 * Whether the calling thread holds the lock of name, from what this process
 * knows: no I/O, waits for no thread. A lease counts from before its request
 * was sent, on a clock that runs through suspend, less a margin for drift of
 * 1 % + 2 ms: DIBS_LOST comes before the store may grant the name to another.
 *
 * DIBS_OK, DIBS_LOST, DIBS_NOT_HELD, DIBS_INVALID. dibs_hold_of also fills
 * *out on DIBS_OK and DIBS_LOST, and zeroes it on DIBS_NOT_HELD.
 */
DIBS_API dibs_status dibs_check(dibs_runtime *rt, const char *name);
DIBS_API dibs_status dibs_hold_of(dibs_runtime *rt, const char *name, dibs_hold *out);

/* ---------------------------------------- everybody's view (asks the store) */

typedef struct dibs_owner {
    bool held;
    char token[192];      /* host, pid, thread, runtime, acquisition; what is not of dibs is cut and escaped */
    int64_t remaining_ms; /* -1: a foreign key that never expires */
    uint64_t fence;       /* of the store's newest grant, 0 if none is known */
    uint32_t waiters;     /* in the queue, all processes; the threads of one that don't want DIBS_FAIR are one entry */
    uint64_t reserved[4];
} dibs_owner;

/*
 * Asks the store who holds the lock of name. One round trip, at most
 * command_timeout_ms. Fills *out on DIBS_OK (held or not), else zeroes it.
 *
 * DIBS_OK; DIBS_UNAVAILABLE; DIBS_DENIED; DIBS_STORE_ERROR; DIBS_INVALID (see
 * dibs_lock_with); DIBS_NO_MEMORY; DIBS_CLOSED.
 */
DIBS_API dibs_status dibs_query(dibs_runtime *rt, const char *name, dibs_owner *out);

/*
 * Takes the lock of name from the holder of token, as dibs_query showed it,
 * or from any holder where token is NULL. The next who waits is granted it at
 * once; the old holder learns of it by its next renewal. One round trip, with
 * NULL two (the first finds out whose hold is meant, so that a request which is
 * late never ends another's), at most command_timeout_ms.
 *
 * DIBS_OK: taken away, or it was free; DIBS_NOT_HELD: another token holds it;
 * DIBS_UNAVAILABLE: not known whether it was done; DIBS_DENIED;
 * DIBS_STORE_ERROR; DIBS_INVALID (see dibs_lock_with); DIBS_NO_MEMORY;
 * DIBS_CLOSED.
 */
DIBS_API dibs_status dibs_force_unlock(dibs_runtime *rt, const char *name, const char *token);

/* -------------------------------------------------------------- diagnostics */

typedef struct dibs_stats {  /* since dibs_open; they only grow, but for holds and leases */
    uint64_t acquired;       /* first acquires that were granted */
    uint64_t reentered;      /* acquires by a thread that held the lock already */
    uint64_t released;       /* final unlocks */
    uint64_t busy;           /* single tries that found the lock taken */
    uint64_t timed_out;      /* waits that ended without the lock */
    uint64_t contended;      /* acquires that had to wait, whatever came of it */
    uint64_t granted;        /* ... that got the lock by a push from the store */
    uint64_t handed_off;     /* acquires that got the lock from a thread of this process */
    uint64_t renewed;        /* leases renewed */
    uint64_t renew_failed;   /* renewals that were not answered, or with an error; they are tried again */
    uint64_t lost;           /* leases that ended under their holder */
    uint64_t orphaned;       /* locks released because their thread had ended */
    uint64_t store_commands; /* commands sent to the store for any reason */
    uint64_t store_errors;   /* error replies */
    uint64_t reconnects;     /* connections made anew after one had broken */
    uint64_t holds;          /* now: locks held by threads, each counted once */
    uint64_t leases;         /* now: leases kept alive */
    uint64_t events_dropped; /* events that did not fit the queue */
    uint64_t reserved[7];
} dibs_stats;

/* Fills *out; no I/O. The counters are read one by one, not at one instant. NULL in either place does nothing. */
DIBS_API void dibs_stats_get(dibs_runtime *rt, dibs_stats *out);

#ifdef __cplusplus
}
#endif

#endif
