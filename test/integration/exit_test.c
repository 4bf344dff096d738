/*
 * A process that ends while its threads lock, wait and renew: it does end, releases what the thread holds that calls
 * exit, and leaves the other locks to end with their leases.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "support/fixture.h"
#include "support/process.h"
#include "support/queue.h"
#include "support/script_server.h"

TEST_WITH(a_process_may_end_in_each_way, fixture_setup, fixture_teardown, fixture *f)
{
    enum { WAYS = 4, TIMES = 4 };

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < WAYS * TIMES; i++) {
        queue_entry entry;

        assert_status(DIBS_OK, dibs_timedlock(f->rt, "held", LIMIT_MS));
        process *p = process_start((const char *const[]){program_path("leaver"), f->server->url,
                                                         formatted("%d", i % WAYS), formatted("%d", 1 + i * i), NULL});
        assert_int_equal(process_wait(p, LIMIT_MS), 0);
        process_free(p);
        /* As soon as the server has noticed, nobody listens any more: the waiter is passed over. */
        if (queue_find(f->server, "held", 0, &entry))
            queue_await_no_listener(f->server, entry.channel);
        unlock_for_good(f, "held");
        queue_assert_gone(f->server, "held");
    }
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "kept", LIMIT_MS));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "busy", LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

enum { MAIN = 1, OTHER = 2, TOLD = 4 };

static bool is_left(fixture *f, const char *name)
{
    return server_has(f->server, formatted("lock:%s", name));
}

static bool has_none_of_main(fixture *f)
{
    bool left = is_left(f, "main");

    for (int i = 0; i < 20; i++)
        left = left || is_left(f, formatted("main-%d", i));
    return !left;
}

/* Leases of ten minutes outlive the test; a release at the end of the process may take effect a moment later. */
static void end_and_expect(fixture *f, const char *how, unsigned kept)
{
    process *p = process_start((const char *const[]){program_path("quitter"), f->server->url, how, NULL});

    assert_string_equal(process_read(p), "ready");
    assert_true(is_left(f, "main") && is_left(f, "main-19") && is_left(f, "other"));
    process_write(p, "go");
    int status = process_wait(p, LIMIT_MS);
    assert_that(status == 0, "%s: exit status %d", how, status);
    process_free(p);
    assert_that((kept & MAIN) || within(LIMIT_MS, has_none_of_main(f)), "%s: main's are left", how);
    assert_that((kept & OTHER) || within(LIMIT_MS, !is_left(f, "other")), "%s: the other's is left", how);
    assert_that((kept & TOLD) || within(LIMIT_MS, !is_left(f, "told")), "%s: the callback's is left", how);
    assert_that(!(kept & MAIN) || (is_left(f, "main") && is_left(f, "main-19")), "%s: main's were released", how);
    assert_that(!(kept & OTHER) || is_left(f, "other"), "%s: the other's was released", how);
    server_do(f->server, "FLUSHALL");
}

TEST_ON(exit_releases_what_its_thread_holds, fixture *f)
{
    end_and_expect(f, "return", OTHER);
    end_and_expect(f, "exit", OTHER);
    end_and_expect(f, "elsewhere", MAIN);
    end_and_expect(f, "callback", MAIN);
    end_and_expect(f, "late", 0); /* closing the runtime releases all */
}

static void keep_and_end(fixture *f, const char *how)
{
    process *p = process_start((const char *const[]){program_path("quitter"), f->server->url, how, NULL});

    assert_string_equal(process_read(p), "ready");
    assert_true(is_left(f, "kept"));
    process_write(p, "go");
    assert_int_equal(process_wait(p, LIMIT_MS), 0);
    process_free(p);
}

/* Nobody uses it: to leave it to the end of its lease, ten minutes, would help nobody. */
TEST_ON(exit_gives_back_what_the_process_keeps, fixture *f)
{
    keep_and_end(f, "kept");
    await_that(!is_left(f, "kept"));
    keep_and_end(f, "kept child");
    assert_true(is_left(f, "kept"));
    server_do(f->server, "FLUSHALL");
}

/* Its release goes to the background, and need not be sent yet. */
TEST_ON(the_locks_of_a_thread_that_has_ended_are_released_at_exit, fixture *f)
{
    for (int i = 0; i < 20; i++) {
        process *p = process_start((const char *const[]){program_path("quitter"), f->server->url, "ended", NULL});
        assert_string_equal(process_read(p), "ready");
        process_write(p, "go");
        assert_int_equal(process_wait(p, LIMIT_MS), 0);
        process_free(p);
        await_that(!is_left(f, "other"));
    }
}

TEST_ON(exit_releases_also_of_a_runtime_that_was_opened_beside_another, fixture *f)
{
    script_server *net = fixture_between(f);

    script_server_add(net, (script_rule){.match = "", .nth = 1, .action = SCRIPT_STALL_REQUEST});
    unsigned fired = script_server_fired(net);
    process *p = process_start((const char *const[]){program_path("quitter"), script_server_url(net), "crossed", NULL});
    script_server_await_fired(net, fired);
    process_write(p, "open");
    assert_string_equal(process_read(p), "opened");
    script_server_release(net);
    assert_string_equal(process_read(p), "ready");
    assert_true(is_left(f, "main") && is_left(f, "other"));
    process_write(p, "go");
    assert_int_equal(process_wait(p, LIMIT_MS), 0);
    process_free(p);
    await_that(has_none_of_main(f));
    await_that(!is_left(f, "other"));
}

TEST_ON(an_end_other_than_exit_releases_nothing, fixture *f)
{
    end_and_expect(f, "at once", MAIN | OTHER);
    end_and_expect(f, "child", MAIN | OTHER);
#ifndef TEST_UNDER_TSAN /* which keeps signals back while a thread waits in the library */
    server_do(f->server, "SET lock:held foreign PX 600000");
    end_and_expect(f, "signal", MAIN | OTHER);
#endif
}

static _Thread_local int strike_at; /* the call of the functions below at which the signal comes, from now; 0: none */

static void strike(void)
{
    if (strike_at > 0 && --strike_at == 0)
        raise(SIGUSR1);
}

/* Stands in front of the C library's. The runtime calls it while it makes itself anew, outside of the allocator. */
int pthread_condattr_setclock(pthread_condattr_t *attributes, clockid_t clock)
{
    static __typeof__(pthread_condattr_setclock) *real;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_condattr_setclock");
    strike();
    return real(attributes, clock);
}

/* The library calls it with its list of descriptors locked. */
int pipe2(int ends[2], int flags)
{
    static __typeof__(pipe2) *real;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pipe2");
    strike();
    return real(ends, flags);
}

static void leave(int number)
{
    exit(0);
}

static bool is_child;

/*
 * Runs after the library's own, which has no priority. What a sanitizer looks for at the end, it would look for in half
 * of a runtime.
 */
static void end_child(void) __attribute__((destructor(101)));

static void end_child(void)
{
    if (is_child)
        _exit(0);
}

enum { NOT_STRUCK = 1 };

/* Its first call makes the runtime anew for it; the signal comes meanwhile. */
static void use_until_signalled(fixture *f, int nth)
{
    is_child = true;
    signal(SIGUSR1, leave);
    strike_at = nth;
    if (dibs_trylock(f->rt, "x") == DIBS_OK)
        (void)(dibs_unlock(f->rt, "x") == DIBS_OK); /* or the lease has ended */
    _exit(NOT_STRUCK);
}

TEST_ON(a_forked_child_may_exit_from_a_signal_in_its_first_call, fixture *f)
{
    int status = 0;
    int struck = 0;

    fixture_open(f, LONG_LEASE_MS);
    while (status == 0) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            use_until_signalled(f, struck + 1);
        status = child_wait(pid);
        struck += status == 0;
    }
    assert_int_equal(status, NOT_STRUCK);
    assert_true(struck > 0);
}

TEST_ON(a_process_may_exit_from_a_signal_while_a_descriptor_is_opened, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    pid_t pid = fork();
    if (pid == 0) {
        dibs_queue *queue;
        is_child = true;
        signal(SIGUSR1, leave);
        if (dibs_queue_new(&queue) == DIBS_OK) {
            strike_at = 1;
            (void)dibs_queue_fd(queue);
        }
        _exit(NOT_STRUCK);
    }
    assert_int_equal(child_wait(pid), 0);
}

/* The store does not answer: the process ends nevertheless, though the command timeout is a second. */
TEST_ON(exit_does_not_wait_long_for_the_store, fixture *f)
{
    process *p = process_start((const char *const[]){program_path("quitter"), f->server->url, "return", NULL});

    assert_string_equal(process_read(p), "ready");
    server_pause(f->server);
    process_write(p, "go");
    assert_int_equal(process_wait(p, SLACK_MS), 0);
    process_free(p);
    server_resume(f->server);
}

TESTS(fixture_setup, fixture_teardown_expiring)
