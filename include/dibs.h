/*
 * dibs - a distributed, reentrant lock for threads of many processes.
 *
 * The model
 *
 *   A lock is a name. Its owner is a thread of a runtime (dibs_runtime; one runtime per
 *   process is the normal use). The store, a Redis server, records the owner for a limited
 *   time: the lease. While a thread holds the lock, the runtime's scheduler thread renews
 *   the lease. When the process dies, nobody renews the lease, and the lock is free again
 *   after at most one lease.
 *
 *   A lock may be shared (DIBS_SHARED): by readers, while no writer has it, or by as many
 *   threads as a limit allows, like the permits of a semaphore. Each of them has a lease of its
 *   own.
 *
 *   A lock is reentrant. A thread's holds are counted in thread-local storage: only the
 *   thread's first acquire and its last unlock ask the store.
 *
 *   Where work is not one thread from beginning to end (an event loop, coroutines, a pool
 *   whose jobs move between threads), the owner is a task (dibs_task). Whatever is said of
 *   a thread that owns locks applies to tasks, too.
 *
 * An example
 *
 *   #include <dibs.h>
 *
 *   dibs_runtime *rt;
 *   if (dibs_open(&rt, NULL) != DIBS_OK)          // $DIBS_URL or redis://127.0.0.1:6379
 *       die(dibs_last_error());
 *   if (dibs_lock(rt, "sku:25") == DIBS_OK) {     // waits for the lock
 *       ...
 *       if (dibs_unlock(rt, "sku:25") == DIBS_LOST)
 *           ...                                   // another thread may have been inside as well
 *   }
 *   dibs_close(rt);
 *
 * The caveats
 *
 *   - A lease is a promise for a time. A thread that was stopped for longer than its lease,
 *     or whose store could not be reached for that long, has lost the lock. dibs_check()
 *     says so, without any I/O, before the store may give the lock to another thread: call
 *     it before anything that can't be undone. Between that check and the effect there is
 *     always a gap. Therefore give the fence (dibs_hold_of) to the resource, and let the
 *     resource refuse a fence smaller than the largest it has seen: only that keeps a late
 *     holder out. A server gives a later holder a smaller fence only if it lost its fences
 *     while its clock was set back (GUARANTEES.md).
 *   - A store that forgets may give the lock to two threads. It forgets when a key is
 *     deleted by hand, when it restarts without persistence, or when it fails over to a
 *     replica that had not heard of the lock. The old holder learns of it at its next
 *     renewal, at most a third of a lease later, or within some milliseconds where the
 *     server tells of changes (dibs_stats.tracking); until then only the fence protects.
 *     After a restart or a failover the leases are renewed at once, and restored where
 *     nobody else was granted the lock in the meantime.
 *   - When a thread ends, its locks are released in the background, except one that it acquires
 *     in the last round of its thread-specific destructors. When the process ends,
 *     by exit(3) or by the return from main, the locks of the thread that called exit are
 *     released, and the leases that the process keeps while nobody uses them (keep_ms) are
 *     given back. That comes after all handlers of atexit(3), and exit waits up to 500 ms for it.
 *     Locks of other threads stay until their leases end, because these threads may be in
 *     the midst of what their locks are for. All locks of the process stay that long if it
 *     ends in another way (_exit, quick_exit, abort, a signal), if exit was called by the
 *     handler of a signal that came during a call of dibs, if the store is reached by TLS,
 *     or if it does not answer. So does a lock that another thread or a task of the process
 *     waits for with DIBS_FAIR or DIBS_SHARED, or behind a sharer, and is granted on the way out.
 *     exit flushes the buffers of stdio only after the release: where that matters, call fflush
 *     first, or unlock.
 *   - A process whose threads have all ended by pthread_exit goes on with the threads of its
 *     open runtimes, which block all signals: close them, or call exit.
 *   - After fork(2) the child holds nothing that its parent holds. The child may use the
 *     runtime at once.
 *   - No function may be called from a signal handler.
 *
 * What holds of every function, unless it says otherwise
 *
 *   - It may be called from any thread.
 *   - A NULL runtime or name is DIBS_INVALID. Arguments are checked before anything else.
 *   - Strings that are passed in are copied and remain the caller's.
 *   - It is no cancellation point, does not return early because of a signal, and raises no
 *     SIGPIPE.
 *   - Times are in milliseconds.
 *
 * In a program compiled with -fsanitize=thread the library tells ThreadSanitizer of acquires
 * and releases, so it reports no race on data that a lock guards. Link the shared library, and
 * set TSAN_OPTIONS=ignore_noninstrumented_modules=1, because otherwise ThreadSanitizer
 * reports false races in a library that was not compiled with it.
 *
 * If the library is built with optimization, a stack of 16 KiB (PTHREAD_STACK_MIN) is
 * enough for every call: a call takes 7 KiB at most, and the rest is for the C library and
 * the caller. Resolving a host name (not a numeric address) needs more, because of
 * getaddrinfo(3): a thread that calls dibs_open, or any function that may reconnect,
 * then needs 64 KiB. With TLS every thread that calls needs that much, because of OpenSSL.
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

/* For functions whose result the caller must check: compilers warn where it is ignored. */
#if defined(__cplusplus) && __cplusplus >= 201703L
#define DIBS_API_CHECKED [[nodiscard]] DIBS_API
#elif defined(__GNUC__)
#define DIBS_API_CHECKED DIBS_API __attribute__((warn_unused_result))
#else
#define DIBS_API_CHECKED DIBS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ version */

#define DIBS_VERSION_MAJOR 0
#define DIBS_VERSION_MINOR 1
#define DIBS_VERSION_PATCH 0

/* The version of the library that is running, "0.1.0". It may differ from the header's. */
DIBS_API const char *dibs_version(void);

/* ----------------------------------------------------------------- statuses */

/* One line per status: its name without DIBS_, and its text for dibs_status_text(). */
#define DIBS_STATUS_MAP(XX)                                                                                            \
    XX(OK, "Done.")                                                                                                    \
    XX(BUSY, "The lock is taken, or the task is in use.")                                                              \
    XX(TIMEOUT, "The lock did not become free in the time given.")                                                     \
    XX(NOT_HELD, "The calling thread or task does not hold the lock.")                                                 \
    XX(LOST, "The lease ended while the calling thread or task held the lock.")                                        \
    XX(UNAVAILABLE, "The store, or a majority of the stores, cannot be reached.")                                      \
    XX(DENIED, "The store refused the credentials, or its access rules forbid the command.")                           \
    XX(STORE_ERROR, "The store answered with an error.")                                                               \
    XX(INVALID, "An argument is out of range.")                                                                        \
    XX(NO_MEMORY, "Memory is exhausted.")                                                                              \
    XX(CLOSED, "The runtime is closing.")                                                                              \
    XX(OVERFLOW, "The hold count is at its maximum.")                                                                  \
    XX(CANCELLED, "The task was cancelled.")

typedef enum dibs_status {
#define DIBS_STATUS_ENUM(name, text) DIBS_##name,
    DIBS_STATUS_MAP(DIBS_STATUS_ENUM)
#undef DIBS_STATUS_ENUM
} dibs_status;

/* The name, such as "DIBS_LOST"; "DIBS_?" for a number that is no status. A constant, never NULL. */
DIBS_API const char *dibs_status_name(dibs_status status);

/* One English sentence about the status. A constant, never NULL. */
DIBS_API const char *dibs_status_text(dibs_status status);

/*
 * Details of the calling thread's last call that failed (returned anything but DIBS_OK); ""
 * if none has failed yet. Never NULL. One line, without passwords. The text belongs to the
 * thread: it is valid until the thread's next call into dibs, or its end.
 */
DIBS_API const char *dibs_last_error(void);

/* ------------------------------------------------------------------ runtime */

typedef struct dibs_runtime dibs_runtime;

typedef enum dibs_event_kind {
    DIBS_EVENT_LOST,       /* a lease ended under its holder */
    DIBS_EVENT_ORPHANED,   /* a thread ended while it held a lock, which was released */
    DIBS_EVENT_AT_RISK,    /* half of a lease has passed without a successful renewal */
    DIBS_EVENT_STORE_DOWN, /* the store can't be reached */
    DIBS_EVENT_STORE_UP,   /* the store can be reached again */
    DIBS_EVENT_NOT_HELD    /* a thread called dibs_unlock for a lock that it did not hold; fence is 0 */
} dibs_event_kind;         /* later versions may add kinds: have a default case */

typedef struct dibs_event {
    dibs_event_kind kind;
    const char *name;   /* of the lock; NULL for an event of the store */
    uint64_t fence;     /* of the lease concerned; 0 if there is none */
    const char *detail; /* one line for a log, never NULL */
} dibs_event;

/*
 * Called for one event after another, in order, on a thread of the runtime that does
 * nothing else. That thread exists only if on_event is set. The callback may block. It may
 * call any function except dibs_close and dibs_shutdown of its own runtime. It may be
 * called before dibs_open returns, unless dibs_open fails. The pointers are valid until the
 * callback returns. The queue of events is bounded: events that do not fit are dropped, and
 * counted in dibs_stats.events_dropped. A callback that calls dibs_unlock for the lock of the event
 * does not hold it: that brings a DIBS_EVENT_NOT_HELD, and events without end if the callback does so
 * for that kind as well.
 */
typedef void dibs_event_fn(const dibs_event *event, void *arg);

/*
 * Zero-initialised, it selects every default: zero or NULL in a field stands for the default
 * that the field's comment names first. dibs_open copies what it needs.
 */
typedef struct dibs_config {
    const char *const *urls;       /* the words of $DIBS_URL; without it redis://127.0.0.1:6379 */
    size_t url_count;              /* of urls. 1: one store. 3, 5, ... 15: a quorum of masters, see dibs_open */
    const char *key_prefix;        /* "lock:"; may be ""; at most 512 bytes; must not begin with "dibs:" */
    const char *label;             /* the program's name; part of the token that others see; 1..48 printable bytes */
    uint32_t lease_ms;             /* 30000; 20..86400000 */
    uint32_t renew_ms;             /* a third of each lease: when to renew it, at the latest; at most lease_ms / 2 */
    uint32_t connect_timeout_ms;   /* 1000 */
    uint32_t command_timeout_ms;   /* 1000; with durable 3000 */
    uint32_t outage_ms;            /* 5000: how long a waiting call rides out an unreachable store */
    uint32_t handoff_ms;           /* 10: how long threads of this process may hand a lease over among themselves */
    uint32_t min_replicas;         /* 0: how many replicas must acknowledge a first acquire */
    uint32_t replica_timeout_ms;   /* 500; with durable 2500: how long replicas and disk may take */
    const char *tls_ca_file;       /* the system's authorities; a PEM file. tls_...: DIBS_INVALID without a TLS url */
    const char *tls_cert_file;     /* none; a PEM file: the client's certificate, followed by its chain */
    const char *tls_key_file;      /* none; a PEM file, not encrypted: the key of that certificate */
    const char *tls_server_name;   /* the URL's host; the name that the certificate must bear, sent as SNI, too */
    const char *sentinel_user;     /* none; for the sentinels. sentinel_...: DIBS_INVALID without a Sentinel url */
    const char *sentinel_password; /* none: the sentinels want no password; those of the URL are the data servers' */
    dibs_event_fn *on_event;       /* none */
    void *on_event_arg;
    uint32_t spin_us;     /* 100; 1..10000: how long a waiting thread polls before it sleeps; see DIBS_NO_SPIN */
    uint32_t durable;     /* 0; 1: a first acquire waits until the server has it on its disk; see below */
    uint32_t keep_ms;     /* 0: off; 1..60000: how long a lease that nobody here uses stays with this process, unless
                             another asks for the lock; see below */
    uint64_t reserved[6]; /* zero */
} dibs_config;

/*
 * For durable: 1.
 *
 * A server that writes its append-only file to the disk once a second (appendonly yes,
 * appendfsync everysec) forgets up to two seconds when its machine fails. With durable a
 * first acquire returns DIBS_OK only once the server has the grant on its disk, so no lock
 * that was granted is forgotten. That takes up to a second with appendfsync everysec, for
 * each grant by the store; with appendfsync always there is nothing to wait for. A grant
 * that is not on the disk within replica_timeout_ms is given back, as with min_replicas,
 * which may be set as well. At most eight grants of a process wait for the disk or for
 * replicas at a time, of tasks, whether their calls were begun or block, at most two: with
 * everysec that makes about as many a second. Calls beyond that wait for their turn, and may
 * return DIBS_UNAVAILABLE where it does not come in time.
 *
 * The server must be Redis 7.2, or 7.4.3 and later, with appendonly yes and appendfsync
 * everysec or always (with appendfsync no, no lock is granted), and must let the account use
 * WAITAOF and INFO. (Redis 7.4.0 to 7.4.2 and Valkey 8 say that the disk has
 * what it does not have yet: set appendfsync always there instead.) Otherwise dibs_open
 * returns DIBS_STORE_ERROR, or DIBS_DENIED if WAITAOF is not allowed; so does an acquire if
 * the server can't do it any more.
 *
 * Nothing waits until a renewal or an extension is on the disk. A server that forgot the last
 * renewal of a lease, and is away until the lease would have ended without it, may grant the
 * lock to another thread.
 *
 * Kept leases. With keep_ms the process keeps the lease of a name after the last unlock, if it has
 * locked that name four times in a row and nobody else asked for it. The next first acquire of the
 * name by any thread or task of the runtime, with the same lease_ms, takes that lease with a larger
 * fence, and costs no round trip. Whoever asks for the lock elsewhere recalls the lease, and has the
 * lock after one message and one release; one try (wait_ms 0) waits for that, for at most 50 ms and two
 * round trips, and is DIBS_UNAVAILABLE where the server does not answer meanwhile. A lease that nobody
 * used for keep_ms is given back. A name that was recalled is not kept for 100 ms, and for longer each
 * time, up to 10 s.
 *
 * What that costs others: an acquire of a kept name takes one message and one release more than that
 * of a free one. A keeper that died or was stopped is in the way for at most max(4 x keep_ms, 200 ms),
 * or for what is left of the lease if that is less; in the first 20 ms after an unlock, for what is left
 * of the lease. A client without dibs finds the name taken for at most 20 x keep_ms at a stretch; after
 * that no lease of the name is kept for 5 x keep_ms.
 *
 * Never kept: a lease taken with DIBS_FAIR, DIBS_SHARED or DIBS_FIXED_LEASE, or extended; one for which
 * others are known to wait; one that the server took longer than max(keep_ms, 50 ms) to grant; any
 * lease with min_replicas, durable or DIBS_NO_HANDOFF, on a quorum, or in memory. An acquire that
 * wants another kind of lease has the kept one given back first. Leases are kept only while the server
 * (on a cluster, the node that has the lock's slot) tells at once of locks that change
 * (dibs_stats.tracking). When it no longer does, or when slots move, all kept leases are given back.
 * Where the server can't tell of changes, keep_ms has no effect.
 *
 * The loss of a kept lease brings no event and is not counted as lost, because nobody held the lock.
 * Right after a kept lease was taken again, less of it may be certain than its full length:
 * remaining_ms says how much is.
 */

#define DIBS_NO_HANDOFF UINT32_MAX /* for handoff_ms: no thread hands a lease over to another of this process */

/*
 * For spin_us: no thread polls.
 *
 * A thread that waits for the server looks for the reply again and again for a
 * while before it sleeps, because to sleep and to be woken takes longer than a
 * server nearby takes to answer. It polls for at most spin_us, and only where
 * that pays: dibs goes on measuring what waits take with polling and without. It
 * does not pay where replies take longer than spin_us, or where other threads
 * want the processors. Of the threads of a process, at most one fewer than there are
 * processors poll at a time, but one always may.
 *
 * That costs processor time, about as much as sleeping does, and on a battery
 * some energy. Set spin_us higher where the server is a little further away and
 * time counts more than processors; switch polling off where processors are
 * paid for, or are shared with what must not be disturbed at all.
 */
#define DIBS_NO_SPIN UINT32_MAX

/*
 * Opens a runtime and connects to its store.
 *
 * config may be NULL: the defaults. The runtime belongs to the caller, who gives it to
 * dibs_close. On failure *out is NULL. Blocks for at most connect_timeout_ms, and for as
 * long as the resolver takes for a host name.
 *
 * URLs: redis://[user[:password]@]host[:port][/db]
 *       rediss://...        the same over TLS
 *       unix://[user[:password]@]/path/to.sock[?db=N]
 *       redis-sentinel://[user[:password]@]host[:port][,host...]/master-name[/db]
 *                           the master that these sentinels name; rediss-sentinel://...
 *                           the same over TLS, also to the sentinels
 *       redis-cluster://[user[:password]@]host[:port][,host...]
 *                           a cluster, named by some of its nodes; rediss-cluster://...
 *                           the same over TLS
 *       mem: or mem:NAME    a store inside the process, private to the runtime
 *                           or shared by all runtimes that open the same NAME:
 *                           for unit tests of programs that use dibs
 * User, password and path are percent-decoded. An IPv6 address is written in brackets.
 *
 * With a cluster the nodes of the URL are asked in turn, until one tells which node has which
 * slot; dibs_open needs one that does. Each name is kept by the node that has the slot of its
 * key, which a hash tag in the name decides. Nodes are connected to when they are needed, by
 * the account of the URL. A slot that has moved is followed.
 *
 * An odd number of URLs, 3 to 15, is a quorum (the Redlock algorithm). Each URL is one
 * master, given once, that knows nothing of the others: no replica of another, no Sentinel,
 * no cluster, and no other database of the same server. All clients give the same URLs. A
 * majority grants, renews and releases each lock, so any minority may be down, slow or
 * wiped. A master that lost its data grants nothing until the longest lease that was ever
 * announced to the others is over. dibs_open needs a majority.
 *
 * With TLS (1.2 or later) a server is accepted only if its certificate leads to an
 * authority of tls_ca_file (if that is not set, of the system), and is made out to the URL's
 * host, or to its IP address where the URL has one. If tls_server_name is set, that name is
 * expected instead. Only dibs_open reads the files. A field tls_... without a URL with TLS, a
 * certificate without its key, and a key without its certificate are DIBS_INVALID. Where
 * the library was built with a hiredis that has no hiredis_ssl (before 1.0), a URL with
 * TLS is DIBS_INVALID, and dibs_last_error() says so.
 *
 * If a static hiredis was there when libdibs.so was built, libdibs.so contains it, and the
 * program may use any hiredis of its own. libdibs.a, and a libdibs.so without a hiredis inside,
 * use the hiredis that the program is linked with, or finds when it starts. If that is from
 * before 1.0 and the one that dibs was built with is not, or the other way round, every URL but
 * mem: is DIBS_INVALID, and dibs_last_error() says so. A plug-in that contains libdibs.a must not
 * be unloaded, because a thread that has used dibs runs a function of it when the thread ends:
 * link the plug-in with -Wl,-z,nodelete. libdibs.so is never unloaded.
 *
 * With Sentinel the sentinels of the URL, and those that they tell of, are asked side by
 * side, and a majority of them decides; where only a minority answers, see GUARANTEES.md. The
 * runtime stays subscribed to all of them. When another server becomes the master, or the
 * master is lost, the runtime asks again, gives up its connections to the old master even
 * where that one still answers, and renews or restores its leases at once. A server that is
 * not a master (ROLE) is never used. New connections need a sentinel that answers; existing
 * ones do not.
 *
 * DIBS_OK; DIBS_INVALID: an argument, a field or a URL is wrong, and dibs_last_error()
 * names it; DIBS_UNAVAILABLE: no server answers, or no sentinel names one that is a master,
 * and dibs_last_error() says why for each sentinel, as far as there is room; DIBS_DENIED: the
 * server refuses the credentials, or the account may not run scripts (where the server has the
 * scripts already, the first acquire returns it instead), or lacks a right that the URL,
 * min_replicas or durable needs; or one side refuses the other's certificate;
 * DIBS_STORE_ERROR: the server answers, but not as Redis does, or lacks what the URL (TLS, a
 * database, a cluster), min_replicas or durable wants; DIBS_NO_MEMORY: there is no memory,
 * thread, descriptor, mutex or thread-specific key to be had; a later call can succeed.
 */
DIBS_API_CHECKED dibs_status dibs_open(dibs_runtime **out, const dibs_config *config);

/*
 * From now on, waiting and later acquires return DIBS_CLOSED. dibs_unlock and dibs_check
 * still work, and so do the calls that only ask the store, as dibs_query, or end a hold there,
 * as dibs_force_unlock. Leases are still renewed; leases that are only kept are given back, and
 * none is kept any more. Does not block. NULL does nothing.
 */
DIBS_API void dibs_shutdown(dibs_runtime *rt);

/*
 * Shuts the runtime down, waits for the calls that are inside, releases every hold of every
 * thread, ends the runtime's threads, and frees its memory. The wait is at most
 * connect_timeout_ms + command_timeout_ms, plus the time of a callback that is running.
 * Events for which no callback has begun after half of that time are dropped. No callback runs
 * after dibs_close. Calling dibs_close from on_event is undefined. NULL does nothing.
 *
 * Other threads, and tasks, need not know that the runtime is closed. A call that one of them
 * begins during or after dibs_close returns DIBS_CLOSED, even an acquire of a lock that the
 * thread held. Five functions are exceptions. As soon as dibs_close has released a lock that
 * the thread held, dibs_check, dibs_hold_of, dibs_token_of and dibs_extend return DIBS_LOST for
 * it, and dibs_unlock returns DIBS_LOST once for each hold. (While dibs_close still waits for
 * other calls, dibs_unlock and dibs_token_of do so already.) After these unlocks, and for a lock
 * that the thread did not hold, the five return DIBS_NOT_HELD; in the thread that called
 * dibs_close they do so at once. dibs_unlock_names and dibs_unlock_all return what dibs_unlock
 * would return.
 * dibs_stats_get fills in zeros; dibs_shutdown and a second dibs_close do nothing. To make
 * this possible, the handle itself, some 440 bytes, is never freed. Threads that still had
 * holds may end, and may use other runtimes, without harm.
 */
DIBS_API void dibs_close(dibs_runtime *rt);

/* ------------------------------------------------------------------ locking */

#define DIBS_WAIT_FOREVER (-1)
#define DIBS_NAME_MAX 512   /* bytes; 1..512 of any value but NUL; key_prefix and name together don't begin "dibs:" */
#define DIBS_NAMES_MAX 1024 /* names of one call */

enum {
    DIBS_FAIR = 1u,        /* first come, first served among all processes and threads: see dibs_lock_with */
    DIBS_FIXED_LEASE = 2u, /* the lease is never renewed: it ends lease_ms after its grant */
    DIBS_NO_REENTRY = 4u,  /* DIBS_BUSY if the calling thread holds the lock already: see dibs_lock_with */
    DIBS_SHARED = 8u       /* others may hold the lock as well, if they hold it shared: see dibs_lock_with */
};

typedef struct dibs_lock_options { /* all zero: the defaults */
    uint32_t lease_ms;             /* the runtime's lease_ms; 20..86400000 */
    uint32_t flags;                /* none; an unknown bit is DIBS_INVALID */
    uint32_t limit;                /* with DIBS_SHARED: how many may hold the lock at a time; 0: any number */
} dibs_lock_options;

/*
 * Acquires the lock of name for the calling thread.
 *
 * wait_ms is DIBS_WAIT_FOREVER, 0 (one try), or a time. dibs_lock waits for ever;
 * dibs_trylock tries once. options may be NULL: the defaults.
 *
 * If the calling thread already holds the lock, its hold count rises by one, whatever the
 * options are (but see DIBS_NO_REENTRY and DIBS_SHARED); that costs no I/O. Otherwise the store is asked in
 * one round trip, by one thread of the process at a time for each name, and the call sleeps
 * while somebody else holds the lock. The store queues the waiters in the order in which it
 * heard of them; a release grants the lock to the first waiter that is still there, and
 * notifies it. A client that locks without dibs notifies nobody: while such a client holds
 * the lock, waiters ask every 50 to 100 ms or, if the server tells of changes (dibs_stats.tracking),
 * when the key has changed. An acquire that fails leaves nothing behind. A
 * waiter whose time is over leaves the queue before the call returns, if the server answers
 * within 3 ms. If it does not, if the owner is a task, if the store is a quorum, or if the
 * outcome of the acquire is unknown, the runtime retracts the acquire in the background. It
 * goes on until the store confirms the retraction, or until nothing of the acquire can be left.
 *
 * If other threads of the process wait for the lock at its last unlock, the lease stays in
 * the process, for up to handoff_ms after the store granted it, and one of them takes it over.
 * A running thread may then take the lock before a sleeping one, but not before one that has
 * waited for more than 1 ms. Such a hand-over costs no I/O, and makes other processes wait no
 * longer than handoff_ms and one critical section. A lease is handed over only to a thread that
 * wants a lease of the same length. A fixed lease is never handed over.
 *
 * DIBS_FAIR: each thread has its own place in the store's queue, and is granted the lock by
 * the store when its turn comes. A waiter that has not re-asked within half its lease,
 * because its machine stopped or can't be reached, loses its place; on a cluster so may one
 * whose slot moves, if the lock is released meanwhile (GUARANTEES.md). Without the right to
 * subscribe to the runtime's channel, a fair call returns DIBS_DENIED, and other waiters
 * ask every 50 to 100 ms. A quorum has no common queue: DIBS_FAIR is DIBS_INVALID there.
 *
 * With a quorum the call takes two round trips, to the slowest of the fastest majority.
 * Whoever comes first to a majority has the lock, so waiters may pass one another: a
 * release tells the first waiter of each master, and waiters also ask every 50 to 100 ms.
 * min_replicas and durable apply to each master; what they wait for is waited for at one
 * master after the other, until a majority has it.
 *
 * DIBS_FIXED_LEASE: a lease that was waited for counts from the waiter's last ask, which
 * may precede the grant by up to a third of the lease.
 *
 * DIBS_NO_REENTRY: if the calling thread already holds the lock, the call returns DIBS_BUSY
 * at once, whatever wait_ms is. That costs no I/O, and changes neither the hold nor
 * dibs_stats. If the hold is lost, or the runtime is closing, the call returns DIBS_LOST or
 * DIBS_CLOSED, as it does without the flag. If the thread does not hold the lock, the flag
 * has no effect. The thread's later calls without the flag are counted as usual. The flag
 * is for coroutines and callbacks that share a thread, where a second acquire is a bug:
 * without the flag, both of them would be inside. The hold remains the thread's, so
 * dibs_check and dibs_unlock do not tell the thread's coroutines apart.
 *
 * DIBS_SHARED: others may hold the lock at the same time, if they hold it shared. Without a
 * limit that is the read lock of a read-write lock, and a call without the flag is its write
 * lock. With a limit of N the lock is a semaphore of N permits: the call waits until fewer than
 * N hold the lock. All who use a name should give the same limit; where they do not, each call
 * goes by its own. A limit without DIBS_SHARED is DIBS_INVALID. Each thread that shares asks the
 * store by itself, and has a lease of its own, which is renewed, extended, lost and released by
 * itself, and a fence of its own, which is larger than that of every thread that held the lock
 * alone before. (Of two that share, the fence says nothing: a resource compares it with the
 * fences of writers alone.) A sharer that dies keeps its place no longer than its lease.
 *
 * Both kinds are served first come, first served: a waiter that wants the lock alone, or whose
 * limit is reached, is passed by nobody who comes later to share it, whatever the later limit,
 * not even by a single try. When the lock becomes free,
 * all who wait to share it are granted it together, up to the first behind them that wants it
 * alone, or up to the limit. A re-entry never waits. A hand-over inside a process may pass
 * those who wait, as said above; a lease that is shared is never handed over. Without DIBS_FAIR,
 * a thread that wants the lock alone has no place in the store's queue as long as another thread
 * of its process holds the lock alone, or came earlier and waits for it alone. If the lease is
 * then not handed over to the waiting thread, that thread comes behind those who asked to share
 * the lock in the meantime.
 *
 * A thread that holds the lock shared may acquire it again with DIBS_SHARED, whatever the
 * limit. Without the flag the call returns DIBS_BUSY at once, whatever wait_ms is, because
 * waiting for the lock alone while sharing it could only end in a deadlock; this is not counted
 * in dibs_stats. A thread that holds the lock alone may acquire it again with or without the
 * flag, and goes on holding it alone. DIBS_SHARED with DIBS_FAIR does what DIBS_SHARED does,
 * but is DIBS_DENIED where the waiter can't be told of its turn, and DIBS_INVALID on a quorum.
 * On a quorum the limit may be 1 at most, because majorities can't count: a larger one is
 * DIBS_INVALID. A quorum does not keep the order of the waiters either. But a master at which
 * somebody waits for the lock alone grants it to nobody else who wants to share it, so an endless
 * stream of readers does not keep a writer out for ever.
 *
 * A waiter that died is passed over once it has not asked for half of its lease, but nobody is
 * notified of that. Those behind it who could share the lock are granted it when one of them
 * asks again, at most a third of its own lease later.
 *
 * If the store can't be reached, or answers LOADING, READONLY, MASTERDOWN, CLUSTERDOWN or
 * TRYAGAIN, a waiting call rides that out for outage_ms after the store was last heard, or after
 * the call began if that is later, and then ends with the try that is under way; but never past
 * its own wait. One try is bounded by command_timeout_ms. If another thread of
 * the process is asking for the same name and has no answer yet, one try waits for that
 * answer: it returns DIBS_BUSY if the name is taken or was granted to that thread, and the
 * same failure if the ask failed.
 *
 * With min_replicas, a grant that too few replicas acknowledge is given back, and a waiting
 * call tries again. The call returns DIBS_UNAVAILABLE at the first such grant that comes
 * outage_ms or more after the first one, even if others had the lock in between; and at the
 * end of its wait, if the last such grant came less than outage_ms before.
 *
 * DIBS_OK: held; each such call needs one dibs_unlock. DIBS_BUSY: wait_ms was 0, and
 * somebody else holds the lock, or came before and waits for it; or DIBS_NO_REENTRY was
 * given, and the calling thread holds the lock; or the thread holds the lock shared, and
 * DIBS_SHARED was not given; dibs_last_error() says which. DIBS_TIMEOUT: not granted within
 * wait_ms; dibs_last_error() says which was so: somebody else held the lock all that time, or the
 * store did not answer and wait_ms is shorter than command_timeout_ms. DIBS_LOST: the thread held
 * the lock and lost its lease; it must unlock first. DIBS_STORE_ERROR: the store refuses, for a
 * reason that is not ridden out: it is out of memory, for example.
 * DIBS_INVALID: an argument is wrong; or the server has cluster_enabled:1, and the lock's
 * key has a } but no hash tag, so that the lock's keys would lie in several slots.
 * DIBS_OVERFLOW: the thread holds the lock UINT32_MAX times. DIBS_CANCELLED: the calling
 * thread acts for a task that was cancelled. DIBS_UNAVAILABLE; DIBS_DENIED; DIBS_NO_MEMORY;
 * DIBS_CLOSED.
 */
DIBS_API_CHECKED dibs_status dibs_lock(dibs_runtime *rt, const char *name);
DIBS_API_CHECKED dibs_status dibs_trylock(dibs_runtime *rt, const char *name);
DIBS_API_CHECKED dibs_status dibs_timedlock(dibs_runtime *rt, const char *name, int64_t wait_ms);
DIBS_API_CHECKED dibs_status dibs_lock_with(dibs_runtime *rt, const char *name, int64_t wait_ms,
                                            const dibs_lock_options *options);

/*
 * Takes one off the calling thread's hold count. The last unlock releases the lock in the
 * store, in one round trip of at most command_timeout_ms.
 *
 * DIBS_OK. DIBS_NOT_HELD: nothing changed; if another thread of the process holds the lock,
 * it still does. Such an unlock is counted in dibs_stats.not_held and brings
 * DIBS_EVENT_NOT_HELD, unless the runtime was closed, or a forked child unlocks before it
 * has used the runtime. DIBS_LOST: the lease had ended, so another thread may have been
 * inside since; the count is still one less. The store may keep the lock from everybody, also from
 * the calling thread, for the margin that dibs_check leaves. DIBS_UNAVAILABLE: the store can't be
 * reached; the hold is gone, renewal has stopped, and the runtime goes on deleting the key
 * in the background. DIBS_DENIED, DIBS_STORE_ERROR: as DIBS_UNAVAILABLE, and
 * dibs_last_error() tells why the store refused. DIBS_NO_MEMORY: as DIBS_UNAVAILABLE, for
 * lack of memory or of a descriptor for a new connection; where there is no memory to go on
 * in the background either, the lease ends by itself. DIBS_INVALID.
 */
DIBS_API dibs_status dibs_unlock(dibs_runtime *rt, const char *name);

/*
 * Gives up every hold that the calling thread has of rt, whatever the counts: for threads
 * of a pool, between two jobs. Blocks as long as one dibs_unlock after another does.
 *
 * DIBS_OK, also if nothing was held. Otherwise, after all holds were given up, the first
 * status other than DIBS_OK that a dibs_unlock among them would have returned.
 */
DIBS_API dibs_status dibs_unlock_all(dibs_runtime *rt);

/*
 * Makes the lease of a lock that the calling thread holds end lease_ms (20..86400000) from
 * now; later renewals keep that length. A fixed lease is extended this once.
 *
 * Takes one round trip, and some 10 ms more where something must come first: the connection
 * in the background, right after dibs_open; or, on a quorum, an announcement to the masters
 * that leases may be that long, the first time. All of it takes at most command_timeout_ms. An
 * earlier extension to a shorter time that was never answered may still arrive if the account
 * may not use CLIENT KILL: then this one takes longer, and as long as that may arrive,
 * dibs_check counts on no more of the lease than it would leave.
 *
 * DIBS_OK. DIBS_NOT_HELD. DIBS_LOST: the lease had ended. DIBS_UNAVAILABLE: it is not known
 * whether the lease was extended; the hold goes on, with the earlier of both ends.
 * DIBS_CLOSED: dibs_close has begun, and is about to release the lock. DIBS_DENIED;
 * DIBS_STORE_ERROR; DIBS_INVALID; DIBS_NO_MEMORY.
 */
DIBS_API dibs_status dibs_extend(dibs_runtime *rt, const char *name, uint32_t lease_ms);

/* --------------------------------------------------------- several locks at once */

/*
 * Acquires the locks of all names for the calling thread, or none of them.
 *
 *   const char *const accounts[] = {"account:alice", "account:bob"};
 *
 *   if (dibs_lock_names(rt, accounts, 2, 5000, NULL) == DIBS_OK) {
 *       ...                                                       // move the money
 *       if (dibs_unlock_names(rt, accounts, 2) == DIBS_LOST)
 *           ...                                                   // somebody else may have been inside
 *   }
 *
 * names has count entries, at most DIBS_NAMES_MAX, in any order; none is DIBS_OK. A name
 * that is given twice is locked once. wait_ms is the time of the whole call, options are
 * those of each lock: see dibs_lock_with. Each name is an ordinary hold afterwards, with a
 * lease, a count and a fence of its own: dibs_check, dibs_hold_of, dibs_extend and
 * dibs_unlock concern one of them.
 *
 * The names are taken in the order of their bytes, whatever order they are given in: while
 * the call waits for a name it holds only those before it, renewed. So callers that hold
 * nothing else can't deadlock, and each gets its turn. Free names are locked in one round trip
 * to each server (with min_replicas or durable, one name after the other): the call asks for
 * all names, and if one of them is taken, gives back those behind it before it waits. So for
 * moments it holds names that it gives back again, and a single try elsewhere may find them taken.
 * DIBS_FAIR: the call has a place in one queue at a time, that of the name that it waits for.
 *
 * A name that the thread holds already is entered again, which costs no I/O. If that can't
 * be (DIBS_NO_REENTRY, or a hold that is shared and wanted alone: DIBS_BUSY; a hold that is
 * lost: DIBS_LOST; DIBS_OVERFLOW), the call fails before anything is asked. The leases of the
 * other names run while the last one is waited for: with DIBS_FIXED_LEASE they may end. If one
 * of the names is known to be lost before the call returns, even one that was held before, the
 * call returns DIBS_LOST, also where it would have returned DIBS_BUSY or DIBS_TIMEOUT, but not
 * instead of DIBS_CANCELLED or DIBS_CLOSED. A loss does not end the wait for another name: give
 * wait_ms a bound where that matters.
 *
 * After a failure nothing of this call is held, what was held before is held as often as
 * before, and dibs_last_error() names the lock that was the reason. What was granted has
 * been given back, or is given back in the background where the store does not confirm that
 * within the time of the call.
 *
 * The statuses of dibs_lock_with. DIBS_TIMEOUT: somebody else held the lock that is named when
 * wait_ms had passed, or the store had not answered. DIBS_INVALID: also where names is NULL and
 * count is not 0, where a name is not valid, or where there are too many.
 */
DIBS_API_CHECKED dibs_status dibs_lock_names(dibs_runtime *rt, const char *const *names, size_t count, int64_t wait_ms,
                                             const dibs_lock_options *options);

/*
 * Takes one off the calling thread's hold count of each name, as dibs_unlock does, in one
 * round trip to each server, of at most command_timeout_ms. A name that is given twice is
 * given up once.
 *
 * DIBS_OK. Otherwise the first status other than DIBS_OK, in the order in which the names are
 * given, that dibs_unlock would have returned; dibs_last_error() names that lock, and the
 * others were given up nevertheless. DIBS_INVALID: an argument is wrong, and nothing was
 * given up.
 */
DIBS_API dibs_status dibs_unlock_names(dibs_runtime *rt, const char *const *names, size_t count);

/* ----------------------------------- a lock for a scope (GNU C: gcc and clang) */

/*
 * DIBS_GUARD(rt, name, status) is for the body of a block. It declares the variable status,
 * a const dibs_status; acquires the lock of name as dibs_lock does; and unlocks where the
 * enclosing block ends, however it is left: at its end, or by return, break, continue or
 * goto. status is what dibs_lock returned. If that is not DIBS_OK, nothing is held and
 * nothing will be unlocked.
 *
 *   int sell(dibs_runtime *rt, const char *sku)
 *   {
 *       DIBS_GUARD(rt, sku, locked);
 *       if (locked != DIBS_OK)
 *           return -1;                          // nothing to unlock
 *       ...
 *       return DIBS_UNGUARD(locked) == DIBS_OK ? 0 : -1;
 *   }
 *
 * DIBS_UNGUARD(status) unlocks before the block ends, and returns what dibs_unlock returns:
 * DIBS_LOST if another thread may have been inside. If the lock was not acquired, or
 * DIBS_UNGUARD has unlocked it already, it returns DIBS_NOT_HELD and does nothing. Without it a
 * loss goes unnoticed at the end of the block: call dibs_check before what can't be undone.
 *
 * A compiler warns of a status that is not looked at (-Wall). Each argument is evaluated
 * once. The name is copied, so the caller may change it meanwhile. A guard is a declaration,
 * so that no "if" without braces can have it for its body, and a block may have several:
 * they are unlocked in the opposite order. Do not jump over a guard into its block, by goto
 * or by a case label. If a block is left by longjmp, exit or pthread_exit, its locks are not
 * unlocked, except that pthread_exit and cancellation unlock them in a program compiled with
 * -fexceptions; the caveats at the top say what becomes of the locks otherwise.
 *
 * Where the compiler has no attribute cleanup, the macros are not defined.
 */
#if defined(__GNUC__)
struct dibs__guard {  /* of DIBS_GUARD alone */
    dibs_runtime *rt; /* NULL: there is nothing to unlock */
    char name[DIBS_NAME_MAX + 1];
};

static inline dibs_status dibs__guard_lock(struct dibs__guard *guard, dibs_runtime *rt, const char *name)
{
    const dibs_status status = dibs_lock(rt, name);

    guard->rt = status == DIBS_OK && name ? rt : NULL; /* with DIBS_OK name is not NULL, which compilers can't know */
    if (guard->rt)
        __builtin_memcpy(guard->name, name, __builtin_strlen(name) + 1);
    return status;
}

static inline dibs_status dibs__guard_unlock(struct dibs__guard *guard)
{
    dibs_runtime *rt = guard->rt;

    guard->rt = NULL;
    return rt ? dibs_unlock(rt, guard->name) : DIBS_NOT_HELD;
}

static inline void dibs__guard_end(struct dibs__guard *guard)
{
    (void)dibs__guard_unlock(guard);
}

#define DIBS_GUARD(rt, name, status)                                                                                   \
    struct dibs__guard dibs__guard_of_##status __attribute__((cleanup(dibs__guard_end)));                              \
    const dibs_status status = dibs__guard_lock(&dibs__guard_of_##status, rt, name)

#define DIBS_UNGUARD(status) dibs__guard_unlock(&dibs__guard_of_##status)
#endif

/* ----------------------------------------------- the holder's view (no I/O) */

typedef struct dibs_hold {
    uint32_t count;       /* how many times the calling thread holds the lock */
    uint64_t fence;       /* larger for every later hold of the name, by any thread anywhere; never 0, below 2^63 */
    int64_t remaining_ms; /* how long the lease is sure to last; 0 once it is lost */
    bool lost;            /* the lease has ended */
    bool shared;          /* it was acquired with DIBS_SHARED: others may hold the lock as well */
    uint64_t reserved[4];
} dibs_hold;

/*
 * Whether the calling thread holds the lock of name, as far as this process knows: no I/O,
 * and no waiting for another thread. A lease counts from before its request was sent, on a
 * clock that runs through suspend, less a margin of 1 % + 2 ms for drift: these calls
 * return DIBS_LOST before the store may grant the name to another thread.
 *
 * DIBS_OK, DIBS_LOST, DIBS_NOT_HELD, DIBS_INVALID. dibs_hold_of also fills *out on DIBS_OK
 * and DIBS_LOST, and zeroes *out on DIBS_NOT_HELD and DIBS_INVALID.
 */
DIBS_API_CHECKED dibs_status dibs_check(dibs_runtime *rt, const char *name);
DIBS_API dibs_status dibs_hold_of(dibs_runtime *rt, const char *name, dibs_hold *out);

/*
 * The token by which the store, and so everybody, knows the calling thread's hold of name:
 * what dibs_query shows of the owner, and dibs_query_sharers of one who shares. out has room
 * for 192 bytes. No I/O. A later hold has another token, unless it took over the lease of an
 * earlier one, which was handed over or kept within the process. DIBS_OK, DIBS_LOST: *out is
 * the token, ended by a NUL. DIBS_NOT_HELD, DIBS_INVALID, and DIBS_LOST after dibs_close: *out
 * is "".
 */
DIBS_API dibs_status dibs_token_of(dibs_runtime *rt, const char *name, char out[192]);

/* ------------------------------------- tasks: owners of locks that are not threads */

/*
 * A task owns locks as a thread does, but it may move from thread to thread: a request of a
 * server, a coroutine, a job of a pool. Two tasks exclude each other, even on one thread.
 * A task belongs to one runtime, and does one thing at a time.
 *
 * Between dibs_task_enter and dibs_task_leave the calling thread acts for the task: the calls
 * that lock, unlock, extend and check (dibs_lock to dibs_unlock_names, dibs_check, dibs_hold_of
 * and dibs_token_of) concern the locks of the task if their runtime is that of the task. The
 * locks of the thread are untouched meanwhile. A thread may enter a second task inside the
 * first: a call concerns the innermost task of its runtime that the thread has entered, else
 * the thread.
 *
 * A program that uses a task from several threads must not free the task while one of them may
 * still use it.
 */
typedef struct dibs_task dibs_task;

/*
 * Makes a task that owns nothing. No I/O. DIBS_OK: *out is the task, for dibs_task_free.
 * Otherwise *out is NULL: DIBS_INVALID: rt or out is NULL; DIBS_NO_MEMORY; DIBS_CLOSED:
 * dibs_shutdown or dibs_close was called.
 */
DIBS_API_CHECKED dibs_status dibs_task_new(dibs_runtime *rt, dibs_task **out);

/*
 * The calling thread acts for the task until it leaves it. No I/O, no waiting, no
 * allocation. Works even after dibs_shutdown and dibs_close, so that a loss can be read.
 *
 * DIBS_OK. DIBS_BUSY: a thread, perhaps the calling one, is in the task, or a begun call of
 * the task (dibs_lock_begin) is not complete. DIBS_INVALID: the task is NULL. DIBS_NO_MEMORY:
 * the program uses so many keys for thread-specific data that pthread_setspecific, by which the
 * end of the thread is noticed, needs memory, and there is none.
 */
DIBS_API_CHECKED dibs_status dibs_task_enter(dibs_task *task);

/*
 * The calling thread leaves the task, which keeps what it holds. A thread that ends leaves
 * its tasks. DIBS_OK. DIBS_INVALID: the task is NULL, or is not the one that the calling
 * thread entered last of those that it has not left.
 */
DIBS_API dibs_status dibs_task_leave(dibs_task *task);

/*
 * First acquires of the task, those that wait now and those that come later, single tries too,
 * return DIBS_CANCELLED, unless the lock was granted before. A call whose ask has no answer
 * yet still returns at once, and what it asked for is retracted in the background. A try that
 * is under way may also return what it would have returned without this. The task stays
 * cancelled.
 *
 * What the task holds it goes on holding. Unlocks, checks, extensions and re-entries work
 * as before. Renewals, releases and retractions are never cancelled.
 *
 * Any thread, whoever is in the task; does not block. NULL does nothing.
 */
DIBS_API void dibs_task_cancel(dibs_task *task);

/*
 * Cancels what the task waits for (the completion of a begun call still comes), gives up
 * all that the task holds, in the background, and frees the task. dibs_close waits for what
 * is left of that. If the calling thread is in the task, it leaves it, wherever that is in
 * its nesting; no other thread may be in it. Does not block. May come after dibs_close.
 * NULL does nothing.
 */
DIBS_API void dibs_task_free(dibs_task *task);

/* ---------------------------------------------- queues: calls that do not block */

/*
 * A queue is where the ends of begun calls arrive. It serves any number of tasks and
 * runtimes, and outlives them. Any thread may take from it. No callback of the program ever
 * runs on a thread of dibs.
 *
 * A call that was begun (dibs_lock_begin, dibs_lock_names_begin, dibs_unlock_begin) needs no
 * thread: as many of them may wait as there is memory for.
 *
 * In a forked child the queue is empty, no begun call of the parent is the child's, and
 * dibs_queue_fd must be called again.
 */
typedef struct dibs_queue dibs_queue;

typedef enum dibs_done_kind {
    DIBS_DONE_LOCK,   /* of dibs_lock_begin and dibs_lock_names_begin */
    DIBS_DONE_UNLOCK, /* of dibs_unlock_begin */
    DIBS_DONE_LOST    /* a hold that a begun call acquired lost its lease: see dibs_lock_begin */
} dibs_done_kind;

typedef struct dibs_completion {
    dibs_done_kind kind;
    dibs_status status; /* what the blocking call would have returned; of DIBS_DONE_LOST: DIBS_LOST */
    dibs_task *task;    /* whose call it was; the task may have been freed meanwhile */
    void *arg;          /* given when the call was begun; of DIBS_DONE_LOST: when the lock was */
    uint64_t fence;     /* of the hold, also if it can't be entered again; of an unlock: of the hold that was given up;
                           0: there is none, or the call is for several */
    const char *name;   /* of DIBS_DONE_LOST: which lock; valid until the task's next begin returns, or its end; else
                           NULL */
    char detail[256];   /* as dibs_last_error() would tell it; "" with DIBS_OK */
    uint64_t reserved[3];
} dibs_completion;

/* DIBS_OK: *out is an empty queue. Otherwise *out is NULL: DIBS_INVALID: out is NULL; DIBS_NO_MEMORY. */
DIBS_API_CHECKED dibs_status dibs_queue_new(dibs_queue **out);

/*
 * A descriptor that is readable while a completion waits in the queue: for poll(2), epoll(7)
 * and their like alone, never to be read, written or closed. The same at each call, except
 * in a forked child, where another may come back. -1: the queue is NULL, or no descriptor
 * could be had; a later call can succeed.
 */
DIBS_API int dibs_queue_fd(dibs_queue *queue);

/*
 * Takes up to max completions, in the order in which they arrived; those of one task arrive
 * in the order of its calls. If there is none, waits for one: wait_ms is DIBS_WAIT_FOREVER, 0
 * (not at all), or a time. Returns how many were taken; 0: none came in time, or queue or
 * out is NULL, or max is 0, or wait_ms is another negative number.
 */
DIBS_API size_t dibs_queue_take(dibs_queue *queue, dibs_completion *out, size_t max, int64_t wait_ms);

/*
 * Frees the queue. Begun calls go on; their completions are dropped. No thread may be in
 * another call for this queue. NULL does nothing.
 */
DIBS_API void dibs_queue_free(dibs_queue *queue);

/*
 * Begins what dibs_lock_with does, for the task, and returns at once: no I/O is waited for.
 * All that dibs_lock_with says of name, wait_ms and options holds, and the completion has
 * the status that dibs_lock_with would have returned, or DIBS_CANCELLED (dibs_task_cancel).
 * An acquire of a lock that the task holds, and one of a cancelled task, are complete when
 * the call returns. Fair acquires that one thread begins reach the store in that order, as
 * long as no connection breaks, the server keeps its scripts (no SCRIPT FLUSH), and each can be
 * sent within command_timeout_ms; but on a cluster, one that a node redirects (MOVED, ASK,
 * TRYAGAIN) may be overtaken by later ones.
 *
 * If a hold whose first acquire was begun is lost, one DIBS_DONE_LOST comes to the same
 * queue, with the same arg, unless the last unlock of the hold has begun, or dibs_close or
 * dibs_task_free has given it up. dibs_close first waits for the calls that are under way; a
 * lease that ends during that wait, because the server does not answer, is still told as lost.
 *
 * DIBS_OK: exactly one completion will come, even after dibs_task_cancel or dibs_task_free, and
 * at the latest before dibs_close returns (DIBS_CLOSED). Otherwise none will come. DIBS_BUSY: a
 * thread, perhaps the calling one, is in the task, or an earlier begun call of the task is not
 * complete: it is complete once its completion is in the queue, taken or not.
 * DIBS_INVALID: task, name or queue is NULL, or an argument is wrong; DIBS_CLOSED;
 * DIBS_NO_MEMORY: that is found out now, so that completing never fails for lack of memory.
 */
DIBS_API_CHECKED dibs_status dibs_lock_begin(dibs_task *task, const char *name, int64_t wait_ms,
                                             const dibs_lock_options *options, dibs_queue *queue, void *arg);

/*
 * The same for dibs_unlock. A nested unlock, and one of a lock that the task does not hold,
 * are complete when the call returns. After dibs_close has begun, it completes with what
 * dibs_unlock returns then. DIBS_OK, DIBS_BUSY, DIBS_INVALID, DIBS_NO_MEMORY: as
 * dibs_lock_begin; with DIBS_NO_MEMORY the hold stays.
 */
DIBS_API_CHECKED dibs_status dibs_unlock_begin(dibs_task *task, const char *name, dibs_queue *queue, void *arg);

/*
 * Begins what dibs_lock_names does, for the task: one completion (DIBS_DONE_LOCK) for all
 * names, whose fence is 0. Each hold that it acquires and that is lost brings a
 * DIBS_DONE_LOST of its own, which says the name and the fence. Where all names are held
 * already, or a hold can't be entered again, the call is complete when dibs_lock_names_begin
 * returns. All else, and what is returned, as dibs_lock_begin.
 *
 * DIBS_FAIR: fair calls that are begun later do not ask before this call knows which of its
 * names is the first one taken. So the call's place in the queue of that name is in front of
 * theirs. At a name that the call asks for only after a wait, its place is behind those who wait
 * there by then.
 */
DIBS_API_CHECKED dibs_status dibs_lock_names_begin(dibs_task *task, const char *const *names, size_t count,
                                                   int64_t wait_ms, const dibs_lock_options *options, dibs_queue *queue,
                                                   void *arg);

/* ---------------------------------------- everybody's view (asks the store) */

typedef struct dibs_owner {
    bool held;
    char token[192];      /* host, pid, thread, runtime, acquisition; the text of a foreign client is cut and escaped */
    int64_t remaining_ms; /* -1: the key of a foreign client, which never expires */
    uint64_t fence;       /* of the store's newest grant; 0 if none is known */
    uint32_t waiters;     /* entries in the queue; all waiters of a process without DIBS_FAIR and DIBS_SHARED are one */
    int64_t held_ms;      /* how long ago the store granted the lock to the owner; -1: not known; see dibs_query */
    uint32_t sharers;     /* how many hold the lock shared; 0: nobody does */
    bool kept;            /* a process keeps the lock, and nobody uses it: known within 20 ms of the last unlock */
    uint64_t reserved[2];
} dibs_owner;

/*
 * Asks the store who holds the lock of name, in one round trip of at most
 * command_timeout_ms. Fills *out on DIBS_OK, whether the lock is held or not; zeroes *out
 * otherwise. Of a quorum: the owner on whom a majority agrees, how long a majority has the
 * lock for that owner, the largest fence, and the most waiters that one master knows of.
 *
 * kept says that a process keeps the lock (dibs_config.keep_ms) and nobody uses it; the store knows that
 * within 20 ms of the last unlock. A query does not recall the lease. For a lock that is kept, or was kept
 * before, fence may be a little larger than that of any hold so far, and held_ms may be less than the age
 * of the lease. If a process took a kept lease again without asking the store, the fence of its hold may
 * be larger than the one in out, by less than 1,024, or smaller.
 *
 * held_ms is reckoned from the fence, which is the time of the grant by the server's clock.
 * Renewals, extensions and restores do not change held_ms, nor does a hand-over within the
 * owner's process. So held_ms may be more than the time for which the owner's present thread
 * has held the lock: by handoff_ms at most, or by 20 ms at most where the process released the
 * lock and locked it again while nobody else had it. A process that keeps the lock may have
 * had it since long before its present thread. held_ms is -1 where a client without dibs has
 * the lock, and where the server's clock was set back since the grant. Of a quorum: the
 * longest time that one of the agreeing masters tells, as exact as the masters' clocks agree.
 *
 * Where the lock is shared, sharers says by how many; token, fence and held_ms are those of
 * the one who came last, and remaining_ms is that of the longest lease. If sharers is 0 and
 * token is "dibs:shared", the lock is shared, but the store has lost the list of its sharers.
 *
 * DIBS_OK; DIBS_UNAVAILABLE; DIBS_DENIED; DIBS_STORE_ERROR; DIBS_INVALID (see
 * dibs_lock_with); DIBS_NO_MEMORY; DIBS_CLOSED.
 */
DIBS_API dibs_status dibs_query(dibs_runtime *rt, const char *name, dibs_owner *out);

/* One entry of a lock's queue. */
typedef struct dibs_waiter {
    char token[192];  /* as of dibs_owner: of the thread that asked first, where several of a process share an entry */
    int64_t asked_ms; /* how long ago the entry asked last; -1: not known */
    uint64_t reserved[3];
} dibs_waiter;

#define DIBS_WAITERS_MAX 1024

/*
 * Asks the store who waits for the lock of name, in one round trip of at most
 * command_timeout_ms, or two of a quorum. Fills out with the first entries of the queue, in
 * their order, and *count with the number of these entries: at most max, which is from 1 to
 * DIBS_WAITERS_MAX. The elements of out beyond *count are zeroed.
 *
 * All waiters of a process without DIBS_FAIR and DIBS_SHARED are one entry. An entry that asks no more, such
 * as that of a process that died, stays until it is passed over; a live one asks at least every
 * third of its lease. Clients without dibs do not queue. Of a quorum: the queue of the master
 * that has the most entries. If more than 2,000 wait, those behind 6,000 places whose waiters have
 * left are not found.
 *
 * DIBS_OK, also if nobody waits. Otherwise *count is 0, with the statuses of dibs_query;
 * DIBS_INVALID also where out or count is NULL, or max is out of range.
 */
DIBS_API dibs_status dibs_query_waiters(dibs_runtime *rt, const char *name, dibs_waiter *out, size_t max,
                                        size_t *count);

/* One of those who share a lock. */
typedef struct dibs_sharer {
    char token[192];      /* as of dibs_owner */
    int64_t remaining_ms; /* of this sharer's lease */
    uint64_t fence;       /* of the store's newest grant to its process; 0: not known */
    int64_t held_ms;      /* how long ago that was; -1: not known */
    uint64_t reserved[2];
} dibs_sharer;

#define DIBS_SHARERS_MAX 1024

/*
 * Asks the store who shares the lock of name, in one round trip of at most command_timeout_ms.
 * Fills out with those who share it, the newest first, and *count with their number: at most
 * max, which is from 1 to DIBS_SHARERS_MAX. The elements of out beyond *count are zeroed. Where
 * somebody has the lock alone, nobody shares it. A quorum takes one more round trip for each
 * master that says that the lock is shared. Its list may include somebody who is only just
 * asking to share the lock, and grants that came within milliseconds of one another may be listed
 * in another order.
 *
 * DIBS_OK, also if nobody shares it. Otherwise *count is 0, with the statuses of dibs_query;
 * DIBS_INVALID also where out or count is NULL, or max is out of range.
 */
DIBS_API dibs_status dibs_query_sharers(dibs_runtime *rt, const char *name, dibs_sharer *out, size_t max,
                                        size_t *count);

/*
 * Takes the lock of name from the holder with that token, as dibs_query showed it, or from any
 * holder if token is NULL; where the lock is shared, from the one with that token, or from all
 * who share it. The next waiter is granted the lock at once. The old holder learns of it at
 * its next renewal, at the latest. Takes one round trip, or two if token is NULL: the first
 * one looks up the holder, so that a request which arrives late never ends the hold of
 * somebody else (but for one who took over the lease of that holder in the same process). Both
 * together take at most command_timeout_ms. Of a quorum: takes the lock on all masters, one
 * after the other; DIBS_OK, DIBS_NOT_HELD and DIBS_UNAVAILABLE are what a majority says. If
 * token is NULL, the holder is the one that has a majority of the masters. The lock stays
 * where only a minority has it for somebody, who may be a thread that is just acquiring it.
 * Where masters that do not answer may know of a holder, the result is DIBS_UNAVAILABLE.
 *
 * DIBS_OK: the lock was taken away, or was free. DIBS_NOT_HELD: the holder has another
 * token. DIBS_UNAVAILABLE: it is not known whether the lock was taken away. DIBS_DENIED;
 * DIBS_STORE_ERROR; DIBS_INVALID (see dibs_lock_with); DIBS_NO_MEMORY; DIBS_CLOSED.
 */
DIBS_API dibs_status dibs_force_unlock(dibs_runtime *rt, const char *name, const char *token);

/*
 * Deletes what the store remembers of the lock of name while nobody holds it: the fence of
 * its newest grant, which otherwise stays for an hour or more. Meant for names that are not
 * used again, such as that of a job with a number. The fence of a later grant is the time of the
 * server's clock, so it is still larger, unless that clock is set back meanwhile; of a quorum,
 * unless it comes sooner than the time by which the masters' clocks differ.
 * Takes one round trip of at most command_timeout_ms; of a quorum, one to each master, and more
 * within that time where only a minority has the lock, because it may not know of a release yet.
 *
 * DIBS_OK: nothing is left of the lock. DIBS_BUSY: somebody holds the lock, keeps it, or waits for
 * it, and nothing was deleted (on a quorum: at the masters where that is so). DIBS_UNAVAILABLE: the store,
 * or a master of a quorum, did not answer. DIBS_DENIED; DIBS_STORE_ERROR; DIBS_INVALID (see
 * dibs_lock_with); DIBS_NO_MEMORY; DIBS_CLOSED.
 */
DIBS_API dibs_status dibs_forget(dibs_runtime *rt, const char *name);

/*
 * Called for one held lock. Both pointers are valid until the callback returns. The callback
 * runs on the thread that called dibs_list, with nothing of dibs locked, so it may call any
 * function; it must return. false ends the list.
 */
typedef bool dibs_list_fn(const char *name, const dibs_owner *owner, void *arg);

#define DIBS_PATTERN_MAX 1024 /* bytes of a pattern */

/*
 * Calls fn for each lock that somebody holds and whose name matches the pattern, once for
 * each name, in no order. The owner is what dibs_query fills in.
 *
 * pattern is a glob as Redis has it, at most DIBS_PATTERN_MAX bytes, and is compared with the
 * whole name: * stands for any bytes, ? for one, [ab] [^ab] [a-c] for one of a set, and a
 * backslash takes the meaning from what follows. NULL stands for all names.
 *
 * First the names of all keys are gone through (SCAN, about a thousand keys in one round
 * trip), then the locks are looked up, 64 in one round trip. So no command takes the server
 * long, and 10,000 locks are some 200 round trips. A round trip takes at most
 * command_timeout_ms; all of them together have no limit. The list is not a consistent snapshot:
 * a lock that is held from the beginning of the call to its end is in it; a lock that is
 * granted or released meanwhile may be in it or not, and each owner is as it was a moment
 * before its callback. All names are kept in memory until the call returns.
 *
 * A lock of a client without dibs is listed, too. Left out are keys that can't be locks: of
 * another type than string, with a NUL in the name, or with a name longer than DIBS_NAME_MAX.
 * On a cluster, the masters of all slots are gone through; a lock whose slot moves meanwhile
 * may be missed, and a lock whose name dibs_lock_with refuses there is left out. Of a quorum:
 * the locks that a majority has for the same owner.
 *
 * The account needs the right to SCAN.
 *
 * DIBS_OK, also if fn ended the list. Otherwise fn may have been called for some of the locks:
 * DIBS_UNAVAILABLE: the store, one master of the cluster, or a majority of the masters can't
 * be reached; DIBS_DENIED; DIBS_STORE_ERROR; DIBS_INVALID: fn is NULL, or the pattern is too
 * long; DIBS_NO_MEMORY; DIBS_CLOSED: dibs_shutdown or dibs_close was called.
 */
DIBS_API dibs_status dibs_list(dibs_runtime *rt, const char *pattern, dibs_list_fn *fn, void *arg);

/* -------------------------------------------------------------- diagnostics */

typedef enum dibs_verdict {
    DIBS_VERDICT_OK,
    DIBS_VERDICT_WARN, /* locks are less safe, later or slower than they could be */
    DIBS_VERDICT_BAD   /* locks are refused, or can be lost or granted twice as things are */
} dibs_verdict;

/* What dibs_examine found out about one subject. The strings are one line each, never NULL, and show no password. */
typedef struct dibs_finding {
    const char *server;  /* "127.0.0.1:6379", the path of a socket, "mem:"; or what stands for several servers */
    const char *subject; /* "connection" and so on, see dibs_examine; later versions may add some */
    dibs_verdict verdict;
    const char *text;   /* what was found: a sentence or two */
    const char *remedy; /* what to do: a sentence or two; "" where the verdict is DIBS_VERDICT_OK */
    uint64_t reserved[4];
} dibs_finding;

/* Called for one finding. All pointers are valid until the callback returns. As for dibs_list_fn, it may call anything.
 */
typedef void dibs_finding_fn(const dibs_finding *finding, void *arg);

/*
 * Looks for what endangers locks in the store, with the settings that the runtime has, and
 * calls fn for each finding: server by server, and then for what concerns all of them. The
 * subjects come in this order, "rights" and "commands" once for each that is missing:
 *
 *   connection   whether the server can be reached; if not, that is all about this server
 *   version      servers that are too old, or have known troubles
 *   role         a server that is no master
 *   eviction     a maxmemory-policy that lets the server drop locks
 *   persistence  what the server forgets when it restarts
 *   replicas     grants that a failover would forget
 *   clock        the server's clock compared with the one of this host
 *   rights       what the account may not use, and what dibs can't do because of that
 *   commands     what the server does not know, and what dibs can't do because of that
 *   tracking     whether the server tells at once of locks that change
 *   round trip   its median, compared with command_timeout_ms and lease_ms
 *   cluster, sentinels, quorum   what concerns the servers together
 *
 * Nothing is written to the store, except that a master of a quorum notes (dibs:vote) that it
 * was asked whether it may vote. Commands that need a key get one that does not exist:
 * key_prefix and random digits. Each right is tried by a command that changes nothing; a command
 * that the server denies appears in its ACL LOG. If the account may not ask for something, that
 * is itself a finding, and so is a server that can't be reached.
 *
 * Takes some ten round trips to each server, one server after the other: for each server at
 * most connect_timeout_ms, plus command_timeout_ms for each round trip.
 *
 * DIBS_OK: all findings were told. Otherwise none was: DIBS_INVALID: fn is NULL;
 * DIBS_NO_MEMORY; DIBS_CLOSED: dibs_shutdown or dibs_close was called.
 */
DIBS_API dibs_status dibs_examine(dibs_runtime *rt, dibs_finding_fn *fn, void *arg);

/*
 * For operators: admits masters of a quorum that lost their data or were restarted, so that they
 * vote again. It is for cases in which only the operator knows that this is safe. The caller
 * vouches for two things:
 *
 *   - No program that uses these masters has leases longer than longest_ms. Otherwise a master
 *     that is away might know of longer leases, and where those that know the leases are no
 *     majority without it, the masters that lost their data would have to wait for 24 hours.
 *   - All of these masters, and no others, are one quorum. Otherwise, where a majority lost its
 *     data and every process was opened since, the masters that still know which quorum they
 *     belong to would not be believed.
 *
 * If one of the two is wrong, two threads may hold the same lock. An admitted master votes after
 * longest_ms, or after the longest lease that one of the masters knows of, whichever is longer,
 * plus 1 % + 20 ms. A runtime that is open then must also have told it which fences were given; it
 * does so 10 s later if a majority of the other masters can't be asked for them. A master that
 * already votes, does not answer, or belongs to another quorum is not admitted.
 *
 * Calls fn for each master, as dibs_examine does: what was done, and when it votes. The subject is
 * "quorum"; DIBS_VERDICT_BAD: a master was refused.
 *
 * Blocks for at most twice command_timeout_ms for each master.
 *
 * DIBS_OK: all findings were told. Otherwise none was: DIBS_INVALID: fn is NULL, longest_ms is not
 * the length of a lease, or the store is no quorum; DIBS_UNAVAILABLE: no majority of the masters
 * answers; DIBS_DENIED or DIBS_STORE_ERROR: so many refuse to say whether they vote that the others are
 * no majority; DIBS_NO_MEMORY; DIBS_CLOSED.
 */
DIBS_API dibs_status dibs_admit(dibs_runtime *rt, uint32_t longest_ms, dibs_finding_fn *fn, void *arg);

/*
 * A call for several names counts as an acquire of each name that it tries: as contended, busy,
 * granted, handed_off or retaken also where it gives the name back because it lacks another.
 */
typedef struct dibs_stats {  /* counted since dibs_open; all only grow, except where "now" is said */
    uint64_t acquired;       /* first acquires that were granted */
    uint64_t reentered;      /* acquires by a thread or task that already held the lock */
    uint64_t released;       /* final unlocks */
    uint64_t busy;           /* single tries that found the lock taken */
    uint64_t timed_out;      /* waits that ended without the lock */
    uint64_t contended;      /* acquires that had to wait, whatever their outcome */
    uint64_t granted;        /* acquires that got the lock by a push from the store */
    uint64_t handed_off;     /* acquires that got the lock from a thread or task of this process */
    uint64_t renewed;        /* leases renewed */
    uint64_t renew_failed;   /* renewals without an answer, or answered by an error; they are repeated */
    uint64_t lost;           /* leases that ended under their holder */
    uint64_t orphaned;       /* locks released because their thread ended */
    uint64_t store_commands; /* commands sent to the store, for any reason; what makes one answer counts once */
    uint64_t store_errors;   /* error replies */
    uint64_t reconnects;     /* connections made in place of broken ones */
    uint64_t holds;          /* now: locks held by threads and tasks, each counted once */
    uint64_t leases;         /* now: leases that are kept alive */
    uint64_t events_dropped; /* events that did not fit in the queue */
    uint64_t tracking; /* now: 1: the server tells at once of locks that change; 0: it does not, or no lock was held
                          or waited for so long that this was needed */
    uint64_t invalidations; /* how often it told that a lock, or any, may have changed */
    uint64_t not_held;      /* unlocks by threads or tasks that did not hold the lock */
    uint64_t begun;         /* calls that dibs_lock_begin, dibs_lock_names_begin and dibs_unlock_begin began */
    uint64_t cancelled;     /* acquires that returned DIBS_CANCELLED */
    uint64_t untaken;       /* now: completions of this runtime that lie in queues */
    uint64_t kept;          /* now: leases that are kept, and that nobody here uses */
    uint64_t retaken;       /* first acquires that took a kept lease, without a word to the store */
    uint64_t reserved[1];
} dibs_stats;

/*
 * Fills *out, without I/O. The counters are read one by one, not at one instant. If rt is NULL, *out is zeroed; if out
 * is NULL, nothing is done.
 */
DIBS_API void dibs_stats_get(dibs_runtime *rt, dibs_stats *out);

#ifdef __cplusplus
}
#endif

#endif
