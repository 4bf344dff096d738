/* Signals: SIGPIPE is never raised, EINTR never shows. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "support/fixture.h"
#include "support/script_server.h"

static volatile sig_atomic_t pipe_signals;
static atomic_int alarms; /* of all threads */

static void count_pipe_signal(int signal)
{
    pipe_signals++;
}

static void count_alarm(int signal)
{
    atomic_fetch_add(&alarms, 1);
}

static void handle(int signal, void (*function)(int))
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = function; /* without SA_RESTART: every call it meets says EINTR */
    assert_int_equal(sigaction(signal, &action, NULL), 0);
}

TEST_ON(broken_connections_raise_no_sigpipe, fixture *f)
{
    script_server *net = script_server_start(&(script_options){.backend = f->server->socket_path, .tcp = true});
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .renew_ms = 20, .outage_ms = 100};
    dibs_runtime *rt = open_url(script_server_url(net), &config);

    handle(SIGPIPE, count_pipe_signal);
    for (int i = 0; i < 20; i++) {
        assert_status(DIBS_OK, dibs_timedlock(rt, "x", LIMIT_MS));
        script_server_set_down(net, true);
        dibs_unlock(rt, "x");
        (void)(dibs_trylock(rt, "y") == DIBS_OK);
        (void)(dibs_trylock(rt, "y") == DIBS_OK);
        script_server_set_down(net, false);
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
        /* Waits for a new reply of the store, because an outage counts from its last reply. */
        while (dibs_trylock(rt, "y") != DIBS_OK)
            pause_ms(5);
        assert_status(DIBS_OK, dibs_unlock(rt, "y"));
    }
    dibs_close(rt);
    script_server_stop(net);
    handle(SIGPIPE, SIG_DFL);
    assert_int_equal(pipe_signals, 0);
}

/* Opens the fixture's runtime, and returns another. A server that stands still for a second ends no call of theirs. */
static dibs_runtime *open_patient(fixture *f)
{
    f->config.command_timeout_ms = f->config.connect_timeout_ms = LIMIT_MS / 4;
    fixture_open(f, 0);
    return open_url(f->server->url, &(dibs_config){.command_timeout_ms = LIMIT_MS / 4});
}

static void set_timer(long microseconds)
{
    struct itimerval timer = {.it_interval.tv_usec = microseconds, .it_value.tv_usec = microseconds};

    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

static int differs(dibs_status expected, dibs_status actual)
{
    if (expected != actual)
        print_error("%s, should be %s: %s\n", dibs_status_name(actual), dibs_status_name(expected), dibs_last_error());
    return expected != actual;
}

enum { ENOUGH = 1000 }; /* signals; on a busy machine several become one */

/* Makes all calls while this thread gets a signal each millisecond. */
static int calls_under_signals(dibs_runtime *rt, dibs_runtime *second)
{
    dibs_owner owner;
    int wrong = 0;

    for (int i = 0; i < 30; i++) {
        wrong += differs(DIBS_OK, dibs_lock(rt, "x"));
        wrong += differs(DIBS_BUSY, dibs_trylock(second, "x"));
        wrong += differs(DIBS_TIMEOUT, dibs_timedlock(second, "x", 60));
        wrong += differs(DIBS_OK, dibs_extend(rt, "x", 60000));
        wrong += differs(DIBS_OK, dibs_query(rt, "x", &owner));
        wrong += differs(DIBS_OK, dibs_unlock(rt, "x"));
    }
    return wrong;
}

TEST_ON(calls_never_fail_with_eintr, fixture *f)
{
    dibs_runtime *third = NULL;
    int wrong = 0;

    dibs_runtime *second = open_patient(f);
    atomic_store(&alarms, 0);
    handle(SIGALRM, count_alarm);
    set_timer(1000);
    for (int64_t end = now_ms() + LIMIT_MS; atomic_load(&alarms) <= ENOUGH && now_ms() < end;)
        wrong += calls_under_signals(f->rt, second);
    for (int i = 0; i < 10; i++) {
        dibs_config config = f->config;

        wrong += differs(DIBS_OK, dibs_open(&third, &config));
        dibs_close(third);
    }
    wrong += differs(DIBS_OK, dibs_lock(f->rt, "x"));
    int64_t begin = now_ms();
    wrong += differs(DIBS_TIMEOUT, dibs_timedlock(second, "x", 500));
    wrong += now_ms() - begin < 499;
    wrong += differs(DIBS_OK, dibs_unlock(f->rt, "x"));
    set_timer(0);
    handle(SIGALRM, SIG_DFL);
    dibs_close(second);
    assert_int_equal(wrong, 0);
    assert_true(atomic_load(&alarms) > ENOUGH);
    assert_int_equal(stats_of(f->rt).reconnects, 0);
}

/* --------------------------------------------- threads under a stream of signals */

enum { PESTERED = 5 };

struct pestered {
    pthread_t thread;
    dibs_runtime *rt;
    unsigned flags;
    atomic_bool *stop;
    atomic_int *inside, *wrong;
    atomic_uint cycles;
};

static void *lock_in_a_loop(void *arg)
{
    struct pestered *p = arg;
    dibs_lock_options options = {.flags = p->flags};

    while (!atomic_load(p->stop)) {
        dibs_status status = dibs_lock_with(p->rt, "x", DIBS_WAIT_FOREVER, &options);
        int wrong = differs(DIBS_OK, status) + (atomic_fetch_add(p->inside, 1) != 0);

        atomic_fetch_sub(p->inside, 1);
        wrong += differs(DIBS_OK, dibs_unlock(p->rt, "x"));
        atomic_fetch_add(p->wrong, wrong);
        atomic_fetch_add(&p->cycles, 1);
    }
    return NULL;
}

static bool have_seen_all(dibs_runtime *rt)
{
    return atomic_load(&alarms) > ENOUGH && stats_of(rt).granted > 0 && stats_of(rt).handed_off > 0;
}

/*
 * Each thread gets a signal every millisecond, while it waits in the process, fairly, or in the store's queue, and
 * while it is granted.
 */
TEST_ON(waiting_calls_never_fail_with_eintr, fixture *f)
{
    struct pestered all[PESTERED];
    atomic_bool stop = false;
    atomic_int inside = 0, wrong = 0;

    dibs_runtime *second = test_runtime(open_patient(f));
    atomic_store(&alarms, 0);
    handle(SIGALRM, count_alarm);
    for (int i = 0; i < PESTERED; i++) {
        all[i] = (struct pestered){.rt = i < 3 ? f->rt : second,
                                   .flags = i % 3 == 0 ? (unsigned)DIBS_FAIR : 0,
                                   .stop = &stop,
                                   .inside = &inside,
                                   .wrong = &wrong};
        assert_int_equal(pthread_create(&all[i].thread, NULL, lock_in_a_loop, &all[i]), 0);
    }
    int64_t limit = now_ms() + LIMIT_MS;
    for (int ms = 0; ms < 1500 || (!have_seen_all(f->rt) && now_ms() < limit); ms++) {
        for (int i = 0; i < PESTERED; i++)
            pthread_kill(all[i].thread, SIGALRM);
        pause_ms(1);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < PESTERED; i++) {
        pthread_join(all[i].thread, NULL);
        assert_true(atomic_load(&all[i].cycles) > 0);
    }
    handle(SIGALRM, SIG_DFL);
    assert_int_equal(atomic_load(&wrong), 0);
    assert_true(have_seen_all(f->rt));
    assert_int_equal(stats_of(f->rt).reconnects + stats_of(second).reconnects, 0);
}

/* What the program does about SIGPIPE, and which signals it blocks, stays as it was. */
TEST_ON(signal_dispositions_and_masks_stay_unchanged, fixture *f)
{
    static void (*const ways[])(int) = {SIG_DFL, SIG_IGN, count_pipe_signal};

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct sigaction action;
        sigset_t before;
        sigset_t after;

        handle(SIGPIPE, ways[i]);
        pthread_sigmask(SIG_BLOCK, NULL, &before);
        fixture_open(f, LONG_LEASE_MS);
        expect_works(f, f->rt, "x");
        server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        close_runtime(&f->rt);
        assert_int_equal(sigaction(SIGPIPE, NULL, &action), 0);
        assert_ptr_equal(action.sa_handler, ways[i]);
        pthread_sigmask(SIG_BLOCK, NULL, &after);
        for (int signal = 1; signal < 32; signal++)
            assert_int_equal(sigismember(&before, signal), sigismember(&after, signal));
        assert_int_equal(sigpending(&after), 0);
        assert_int_equal(sigismember(&after, SIGPIPE), 0);
    }
    handle(SIGPIPE, SIG_DFL);
}

TESTS(fixture_setup, fixture_teardown)
