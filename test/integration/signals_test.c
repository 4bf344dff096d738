/* Signals: SIGPIPE is never raised, EINTR never shows. */
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "support/fixture.h"
#include "support/script_server.h"
#include "support/test.h"
#include "support/wait.h"

static volatile sig_atomic_t pipe_signals;
static volatile sig_atomic_t alarms;

static void count_pipe_signal(int signal)
{
    (void)signal;
    pipe_signals++;
}

static void count_alarm(int signal)
{
    (void)signal;
    alarms++;
}

static void handle(int signal, void (*function)(int))
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = function; /* without SA_RESTART: every call it meets says EINTR */
    assert_int_equal(sigaction(signal, &action, NULL), 0);
}

static void broken_connections_raise_no_sigpipe(void **state)
{
    fixture *f = *state;
    script_server *net = script_server_start(&(script_options){.backend = f->server->socket_path, .tcp = true});
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .renew_ms = 20, .outage_ms = 100};
    dibs_runtime *rt = open_url(script_server_url(net), &config);

    handle(SIGPIPE, count_pipe_signal);
    for (int i = 0; i < 20; i++) {
        assert_status(DIBS_OK, dibs_timedlock(rt, "x", LIMIT_MS));
        script_server_set_down(net, true);
        dibs_unlock(rt, "x");
        dibs_trylock(rt, "y");
        dibs_trylock(rt, "y");
        script_server_set_down(net, false);
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
        /* The outage counts from when the store was last heard. */
        while (dibs_trylock(rt, "y") != DIBS_OK)
            pause_ms(5);
        assert_status(DIBS_OK, dibs_unlock(rt, "y"));
    }
    dibs_close(rt);
    script_server_stop(net);
    handle(SIGPIPE, SIG_DFL);
    assert_int_equal(pipe_signals, 0);
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

/* Under a signal each millisecond, to this thread. */
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

static void eintr_never_shows(void **state)
{
    fixture *f = *state;
    dibs_runtime *second;
    dibs_runtime *third = NULL;
    int wrong = 0;
    int64_t begin;

    fixture_open(f, 0);
    second = open_runtime(f->server, 0);
    alarms = 0;
    handle(SIGALRM, count_alarm);
    set_timer(1000);
    wrong += calls_under_signals(f->rt, second);
    for (int i = 0; i < 10; i++) {
        dibs_config config = f->config;

        wrong += differs(DIBS_OK, dibs_open(&third, &config));
        dibs_close(third);
    }
    wrong += differs(DIBS_OK, dibs_lock(f->rt, "x"));
    begin = now_ms();
    wrong += differs(DIBS_TIMEOUT, dibs_timedlock(second, "x", 500));
    wrong += now_ms() - begin < 499;
    wrong += differs(DIBS_OK, dibs_unlock(f->rt, "x"));
    set_timer(0);
    handle(SIGALRM, SIG_DFL);
    dibs_close(second);
    assert_int_equal(wrong, 0);
    assert_true(alarms > 100);
    assert_int_equal(stats_of(f->rt).reconnects, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(broken_connections_raise_no_sigpipe),
        TEST(eintr_never_shows),
    };

    return cmocka_run_group_tests_name("signals", tests, NULL, NULL);
}
