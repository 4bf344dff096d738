/*
 * What the C library may refuse: handlers for forks, mutexes, condition variables, threads. dibs_open says
 * DIBS_NO_MEMORY, leaves nothing behind, and succeeds as soon as there is enough again.
 *
 * The calls are made by way of the functions below, which stand in front of the C library's. Where a sanitizer has put
 * its own there, the runs go without refusals.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/failing_malloc.h"
#include "support/fixture.h"
#include "support/process.h"
#include "support/self.h"

static void ignore(const dibs_event *event, void *arg)
{
}

static dibs_status open_at(const char *url, dibs_runtime **rt)
{
    const dibs_config config = {.on_event = ignore, .connect_timeout_ms = 10000, .command_timeout_ms = 10000};

    return open_status(url, &config, rt);
}

static void expect_good(const char *url)
{
    dibs_runtime *rt;

    assert_status(DIBS_OK, open_at(url, &rt));
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    assert_status(DIBS_OK, dibs_unlock_all(rt));
    dibs_close(rt);
}

#if CAN_FAIL
static atomic_long refuse_at;  /* the call to refuse, counted from now; 0: none */
static atomic_int fork_guards; /* handlers that were registered */

static bool is_refused(void)
{
    return atomic_load(&refuse_at) > 0 && atomic_fetch_sub(&refuse_at, 1) == 1;
}

/* The C library's function of that name, of the same type. */
#define REAL(name)                                                                                                     \
    static __typeof__(name) *real;                                                                                     \
    if (!real)                                                                                                         \
        *(void **)&real = dlsym(RTLD_NEXT, #name);

int pthread_key_create(pthread_key_t *key, void (*destructor)(void *))
{
    REAL(pthread_key_create)
    return is_refused() ? EAGAIN : real(key, destructor);
}

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    REAL(pthread_mutex_init)
    return is_refused() ? ENOMEM : real(mutex, attributes);
}

int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes)
{
    REAL(pthread_cond_init)
    return is_refused() ? ENOMEM : real(cond, attributes);
}

int pthread_condattr_init(pthread_condattr_t *attributes)
{
    REAL(pthread_condattr_init)
    return is_refused() ? ENOMEM : real(attributes);
}

int pthread_condattr_setclock(pthread_condattr_t *attributes, clockid_t clock)
{
    REAL(pthread_condattr_setclock)
    return is_refused() ? EINVAL : real(attributes, clock);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    REAL(pthread_create)
    return is_refused() ? EAGAIN : real(thread, attributes, run, arg);
}

/* The C library links this one into each program. */
extern int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void), void *object);

int pthread_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
    if (is_refused())
        return ENOMEM;
    atomic_fetch_add(&fork_guards, 1);
    return __register_atfork(before, in_parent, in_child, NULL);
}

static void expect_refused(const char *url)
{
    dibs_runtime *rt;

    assert_status(DIBS_NO_MEMORY, open_at(url, &rt));
    assert_null(rt);
    assert_true(dibs_last_error()[0] != '\0');
}

/* What is set up once for the process goes on where it failed before: no handler is registered twice. This must be
 * the first test. */
TEST(open_reports_refused_fork_handlers)
{
    dibs_runtime *rt;

    assert_int_equal(atomic_load(&fork_guards), 0);
    for (int guards = 0; guards < 2;
         guards++) { /* the handlers are refused; then they succeed, and the key is refused */
        atomic_store(&refuse_at, 1 + guards);
        expect_refused("mem:");
        assert_int_equal(atomic_load(&refuse_at), 0);
        assert_int_equal(atomic_load(&fork_guards), guards);
    }
    expect_good("mem:");
    expect_good("mem:");
    assert_int_equal(atomic_load(&fork_guards), 1);
    assert_status(DIBS_OK, open_at("mem:", &rt));
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool good = dibs_check(rt, "a") == DIBS_NOT_HELD && dibs_trylock(rt, "a") == DIBS_OK;
        dibs_close(rt);
        _exit(good ? 0 : 2);
    }
    assert_int_equal(child_wait(pid), 0);
    dibs_close(rt);
}

static void refuse_each(const char *url)
{
    struct self before = self_now();
    long nth;

    expect_good(url);
    long memory = atomic_load(&living);
    for (nth = 1; nth < 10000; nth++) {
        dibs_runtime *rt;
        atomic_store(&refuse_at, nth);
        dibs_status status = open_at(url, &rt);
        if (atomic_exchange(&refuse_at, 0) > 0) {
            assert_status(DIBS_OK, status);
            dibs_close(rt);
            break;
        }
        assert_that(status == DIBS_NO_MEMORY && !rt, "call %ld: %s", nth, dibs_status_name(status));
        assert_true(dibs_last_error()[0] != '\0');
        self_assert_as(before);
        assert_that(atomic_load(&living) <= memory, "call %ld left %ld behind", nth, atomic_load(&living) - memory);
    }
    assert_true(nth > 5);
    expect_good(url);
}

TEST(each_pthread_call_may_fail_on_a_store_in_memory)
{
    refuse_each("mem:");
    refuse_each("mem:named");
}

TEST_WITH(each_pthread_call_may_fail_on_a_server, fixture_setup, fixture_teardown, fixture *f)
{
    refuse_each(f->server->url);
}
#else
TEST_WITH(a_cycle_succeeds_where_no_call_is_refused, fixture_setup, fixture_teardown, fixture *f)
{
    expect_good("mem:");
    expect_good(f->server->url);
}
#endif

TESTS(NULL, NULL)
