/*
 * A process that has no descriptor left, or gets no thread: a call that needs one reports it and leaves nothing behind,
 * the others go on, and everything works again once there are some.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/agent.h"
#include "support/child.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/self.h"

/* ------------------------------------------------------------------- threads */

static atomic_int thread_to_fail; /* counted from now, 0: none */

/* Replaces the function of the C library, and that of the sanitizers. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    if (atomic_load(&thread_to_fail) > 0 && atomic_fetch_sub(&thread_to_fail, 1) == 1)
        return EAGAIN;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, run, arg);
}

TEST_ON(open_survives_failed_thread_creation, fixture *f)
{
    fixture_open(f, 0); /* so that the C library has allocated what it keeps */
    dibs_close(f->rt);
    server_do(f->server, "PING");
    struct self before = self_now();
    for (int i = 0; i < 2 * 3; i++) { /* two threads with on_event, one without */
        dibs_runtime *rt = (dibs_runtime *)f;
        dibs_status status;

        f->config.on_event = i < 3 ? events_record : NULL;
        atomic_store(&thread_to_fail, i % 3 + 1);
        status = dibs_open(&rt, &f->config);
        if (atomic_exchange(&thread_to_fail, 0) == 0) {
            assert_status(DIBS_NO_MEMORY, status);
            assert_null(rt);
            assert_that(strstr(dibs_last_error(), "thread"), "%s", dibs_last_error());
        } else {
            assert_status(DIBS_OK, status);
            assert_true(i % 3 + 1 > (i < 3 ? 2 : 1));
            expect_works(f, rt, "x");
            dibs_close(rt);
        }
        self_assert_as(before);
    }
    f->config.on_event = events_record;
    fixture_open(f, 0);
    expect_works(f, f->rt, "x");
}

/* --------------------------------------------------------------- descriptors */

static atomic_bool no_sockets; /* a process without descriptors, for the library alone */

int socket(int family, int type, int protocol)
{
    static int (*real)(int, int, int);

    if (atomic_load(&no_sockets)) {
        errno = EMFILE;
        return -1;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "socket");
    return real(family, type, protocol);
}

enum { DESCRIPTORS_MAX = 256 };

static int taken[DESCRIPTORS_MAX];
static size_t taken_count;

/* Takes all descriptors but `left`. False: there are more than it can take. */
static bool take_descriptors_but(size_t left)
{
    int fd;

    while (taken_count < DESCRIPTORS_MAX && (fd = dup(0)) >= 0)
        taken[taken_count++] = fd;
    if (taken_count == DESCRIPTORS_MAX || errno != EMFILE || left > taken_count)
        return false;
    while (left-- > 0)
        close(taken[--taken_count]);
    return true;
}

static void take_descriptors(size_t left)
{
    assert_true(take_descriptors_but(left));
}

static void give_descriptors_back(void)
{
    while (taken_count > 0)
        close(taken[--taken_count]);
}

static int setup(void **state)
{
    int result = fixture_setup(state);

    server_do(((fixture *)*state)->server, "PING"); /* so that the test's own connection is open */
    return result;
}

static int teardown(void **state)
{
    give_descriptors_back();
    atomic_store(&no_sockets, false);
    return fixture_teardown(state);
}

/* Each time one more is left, until there are enough. */
TEST_ON(open_survives_a_lack_of_descriptors, fixture *f)
{
    dibs_status status = DIBS_NO_MEMORY;
    size_t left = 0;

    fixture_open(f, 0);
    close_runtime(&f->rt);
    struct self before = self_now();
    for (; status != DIBS_OK; left++) {
        dibs_runtime *rt = (dibs_runtime *)f;

        take_descriptors(left);
        status = dibs_open(&rt, &f->config);
        if (status == DIBS_OK) {
            f->rt = rt;
            break;
        }
        assert_status(DIBS_NO_MEMORY, status);
        assert_null(rt);
        assert_that(strstr(dibs_last_error(), "descriptor"), "%s", dibs_last_error());
        for (size_t i = 0; i < left; i++) /* the failed call gave back what it had */
            taken[taken_count++] = dup(0);
        assert_int_equal(dup(0), -1);
        give_descriptors_back();
        self_assert_as(before);
    }
    print_message("# opened with %zu\n", left);
    assert_in_range(left, 2, 10);
    /* The open connections are enough for the rest. */
    expect_works(f, f->rt, "x");
    give_descriptors_back();
    expect_works(f, f->rt, "x");
}

static bool works(dibs_runtime *rt)
{
    dibs_status status = dibs_trylock(rt, "y");

    return status == DIBS_OK && dibs_unlock(rt, "y") == DIBS_OK;
}

/* All connections break, and no other can be made. Requires a hold of x. */
static void break_connections(fixture *f, uint32_t lease_ms)
{
    /* Over the scheduler's connection: one that is being made might not be ended. */
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", lease_ms));
    atomic_store(&no_sockets, true);
    server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
}

/* Nothing is granted, nothing hangs, nothing is lost. */
TEST_ON(reconnecting_survives_a_lack_of_descriptors, fixture *f)
{
    dibs_owner owner;

    f->config.outage_ms = 300;
    fixture_open_holding(f, LONG_LEASE_MS, "kept");
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    break_connections(f, LONG_LEASE_MS);
    int64_t begin = now_ms();
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_NO_MEMORY, dibs_trylock(f->rt, "z"));
        assert_that(strstr(dibs_last_error(), "descriptor"), "%s", dibs_last_error());
        assert_status(DIBS_NO_MEMORY, dibs_timedlock(f->rt, "z", LIMIT_MS)); /* waiting would not help */
        assert_status(DIBS_NO_MEMORY, dibs_query(f->rt, "x", &owner));
        assert_status(DIBS_NO_MEMORY, dibs_force_unlock(f->rt, "x", NULL));
        assert_status(DIBS_OK, dibs_check(f->rt, "kept"));
    }
    assert_true(now_ms() - begin < SLACK_MS);
    /* The hold is gone, and the key as soon as there is a descriptor. */
    assert_status(DIBS_NO_MEMORY, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "x"));
    assert_true(server_has(f->server, "lock:x"));
    atomic_store(&no_sockets, false);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    await_that(works(f->rt));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "kept"));
    assert_false(server_has(f->server, "lock:z"));
    assert_int_equal(stats_of(f->rt).lost, 0);
}

/* Without a connection for the scheduler, a lock counts as lost in time. */
TEST_ON(a_lease_without_descriptors_is_lost_in_time, fixture *f)
{
    fixture_open_holding(f, SAFE_LEASE_MS, "x");
    break_connections(f, SAFE_LEASE_MS);
    events_await(&f->events, DIBS_EVENT_LOST, "x");
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    atomic_store(&no_sockets, false);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    await_that(works(f->rt));
}

/* Nobody can tell the waiter of a grant: it polls, and gets the lock. */
static void expect_polling(fixture *f, process *holder, actor *waiter)
{
    uint64_t granted = stats_of(f->rt).granted;

    server_await_ask(f->server, server_asks(f->server) + 5);
    assert_status(DIBS_TIMEOUT, dibs_timedlock(f->rt, "x", 200));
    assert_status(DIBS_NO_MEMORY, dibs_lock_with(f->rt, "x", LIMIT_MS, &(dibs_lock_options){.flags = DIBS_FAIR}));
    assert_true(actor_busy(waiter));
    assert_status(DIBS_OK, agent_unlock(holder, "x"));
    assert_status(DIBS_OK, actor_result(waiter));
    assert_int_equal(stats_of(f->rt).granted, granted);
    assert_status(DIBS_OK, actor_unlock(waiter, f->rt, "x"));
    queue_await(f->server, "x", 0);
    assert_false(server_has(f->server, "lock:x"));
}

static void begin_waiting(fixture *f, process *holder, actor *waiter)
{
    assert_status(DIBS_OK, agent_lock(holder, "x", LIMIT_MS));
    actor_begin_lock(waiter, f->rt, "x", DIBS_WAIT_FOREVER);
}

/* A waiter asks once more when it begins to listen, and may get the lock so: then once more. */
static void expect_push(fixture *f, process *holder, actor *waiter)
{
    uint64_t granted = stats_of(f->rt).granted;
    int64_t limit = now_ms() + LIMIT_MS;

    do {
        assert_that(now_ms() < limit, "the lock is never granted by a push");
        begin_waiting(f, holder, waiter);
        queue_await(f->server, "x", 1);
        queue_await_listening(f->server, queue_at(f->server, "x", 0).channel);
        assert_status(DIBS_OK, agent_unlock(holder, "x"));
        actor_gets(waiter, f->rt, "x");
    } while (stats_of(f->rt).granted == granted);
    assert_int_equal(stats_of(f->rt).granted, granted + 1);
}

/*
 * No descriptor for a subscription, at the first wait and when the subscription of a waiter breaks. As soon as there
 * are some again, the waiter listens.
 */
TEST_ON(a_waiter_without_descriptors_polls, fixture *f)
{
    process *holder = agent_start(f->server->url, LONG_LEASE_MS);
    actor *waiter = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    assert_true(works(f->rt)); /* its connection is open, and it has not waited yet */
    for (int i = 0; i < 3; i++) {
        if (i == 0) {
            atomic_store(&no_sockets, true);
            begin_waiting(f, holder, waiter);
        } else {
            begin_waiting(f, holder, waiter);
            queue_await(f->server, "x", 1);
            atomic_store(&no_sockets, true);
            server_do(f->server, "CLIENT KILL TYPE pubsub");
        }
        expect_polling(f, holder, waiter);
        atomic_store(&no_sockets, false);
        expect_push(f, holder, waiter);
    }
    actor_end(waiter);
    agent_stop(holder);
    queue_assert_gone(f->server, "x");
}

/* ------------------------------------------------------------ after a fork */

static int nth_thread; /* that the child doesn't get */

static void child_fails(const char *why)
{
    fprintf(stderr, "in the child: %s: %s\n", why, dibs_last_error());
    _exit(1);
}

static int descriptors(void)
{
    int count = 0;

    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void child_works(dibs_runtime *rt)
{
    CHILD_WANTS(DIBS_BUSY, dibs_trylock(rt, "x"));
    CHILD_WANTS(DIBS_OK, dibs_timedlock(rt, "own", LIMIT_MS));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "own"));
}

/* Restarting the runtime in the child fails, and the next call tries again. */
static void child_gets_no_thread(dibs_runtime *rt)
{
    int before = descriptors();

    atomic_store(&thread_to_fail, nth_thread);
    CHILD_WANTS(DIBS_NO_MEMORY, dibs_trylock(rt, "own"));
    if (atomic_load(&thread_to_fail) != 0)
        child_fails("it wanted fewer threads");
    if (!strstr(dibs_last_error(), "thread"))
        child_fails("no word of a thread");
    if (descriptors() != before)
        child_fails("it kept descriptors");
    child_works(rt);
}

static void child_never_gets_a_thread(dibs_runtime *rt)
{
    dibs_owner owner;

    for (int i = 0; i < 3; i++) {
        atomic_store(&thread_to_fail, nth_thread);
        CHILD_WANTS(DIBS_NO_MEMORY, dibs_query(rt, "x", &owner));
        CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "x"));
        CHILD_WANTS(DIBS_NOT_HELD, dibs_unlock(rt, "x"));
    }
    dibs_close(rt);
}

TEST_ON(a_child_survives_failed_thread_creation, fixture *f)
{
    fixture_open_holding(f, LONG_LEASE_MS, "x");
    for (nth_thread = 1; nth_thread <= 2; nth_thread++) { /* that of the events, and the scheduler */
        run_child(child_gets_no_thread, f->rt);
        run_child(child_never_gets_a_thread, f->rt);
    }
    expect_works(f, f->rt, "y");
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_int_equal(stats_of(f->rt).reconnects, 0);
}

/* Each time one more is left, until there are enough. */
static void child_has_no_descriptor(dibs_runtime *rt)
{
    dibs_status status = DIBS_NO_MEMORY;
    size_t left;

    for (left = 0; status != DIBS_OK && left <= 10; left++) {
        if (!take_descriptors_but(left))
            child_fails("descriptors can't be taken");
        status = dibs_trylock(rt, "own");
        if (status != DIBS_OK) {
            CHILD_WANTS(DIBS_NO_MEMORY, status);
            if (!strstr(dibs_last_error(), "descriptor"))
                child_fails("no word of a descriptor");
        }
        give_descriptors_back();
    }
    CHILD_WANTS(DIBS_OK, status);
    if (left < 3)
        child_fails("it needed no descriptors");
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "own"));
    child_works(rt);
}

static void child_gets_descriptors_later(dibs_runtime *rt)
{
    if (!take_descriptors_but(0))
        child_fails("descriptors can't be taken");
    CHILD_WANTS(DIBS_NO_MEMORY, dibs_trylock(rt, "own"));
    if (!strstr(dibs_last_error(), "descriptor"))
        child_fails("no word of a descriptor");
    give_descriptors_back();
    child_works(rt);
}

TEST_ON(a_child_survives_a_lack_of_descriptors, fixture *f)
{
    fixture_open_holding(f, LONG_LEASE_MS, "x");
    run_child(child_has_no_descriptor, f->rt);
    run_child(child_gets_descriptors_later, f->rt);
    expect_works(f, f->rt, "y");
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_int_equal(stats_of(f->rt).reconnects, 0);
}

int main(void)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 100;
    setrlimit(RLIMIT_NOFILE, &limit);
    return test_run_all(setup, teardown, NULL, NULL);
}
