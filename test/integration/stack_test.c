/*
 * How much stack the calls need. Each is made by a thread that has the least which dibs.h names, painted before and
 * with a forbidden page below it: one that needs more ends the program. What each has used is printed.
 *
 * Sanitizers need more, so there the threads have what is usual.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/fixture.h"
#include "support/queue.h"

#if defined(TEST_UNDER_ASAN) || defined(TEST_UNDER_TSAN)
#define STACK_LEAST (1024 * 1024)
#else
#define STACK_LEAST 16384
#endif
#define PAGE 65536 /* the size of a page divides it */
#define PAINT 0xa5

static size_t stack_size; /* more where the system has no thread with less */

struct play {
    fixture *f;
    dibs_runtime *other; /* a runtime that owns what the other waits for */
    const char *url;
    char name[DIBS_NAME_MAX + 1];
    dibs_runtime *rt;
    dibs_status status;
};

typedef dibs_status act_of(struct play *play);

struct role {
    act_of *scene;
    struct play *play;
};

static void *act(void *arg)
{
    struct role *role = arg;

    role->play->status = role->scene(role->play);
    return NULL;
}

/* ------------------------------------------------------------ such a thread */

struct small_thread {
    unsigned char *memory;
    pthread_t thread;
    struct role role;
};

static void begin(struct small_thread *t, struct play *play, act_of *scene)
{
    pthread_attr_t attributes;

    t->role = (struct role){scene, play};
    t->memory = mmap(NULL, PAGE + stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(t->memory, MAP_FAILED);
    assert_int_equal(mprotect(t->memory, PAGE, PROT_NONE), 0);
    memset(t->memory + PAGE, PAINT, stack_size);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, t->memory + PAGE, stack_size), 0);
    assert_int_equal(pthread_create(&t->thread, &attributes, act, &t->role), 0);
    pthread_attr_destroy(&attributes);
}

static void end(struct small_thread *t, const char *what)
{
    size_t untouched = 0;

    pthread_join(t->thread, NULL);
    while (untouched < stack_size && t->memory[PAGE + untouched] == PAINT)
        untouched++;
    print_message("# %6zu bytes: %s\n", stack_size - untouched, what);
    munmap(t->memory, PAGE + stack_size);
    assert_status(DIBS_OK, t->role.play->status);
}

static void perform(struct play *play, act_of *scene, const char *what)
{
    struct small_thread t;

    begin(&t, play, scene);
    end(&t, what);
}

/* ------------------------------------------------------------------ scenes */

#define GOOD(call)                                                                                                     \
    do {                                                                                                               \
        dibs_status status_ = (call);                                                                                  \
        if (status_ != DIBS_OK)                                                                                        \
            return status_;                                                                                            \
    } while (0)

static dibs_status expect(dibs_status expected, dibs_status status)
{
    return status == expected ? DIBS_OK : status == DIBS_OK ? DIBS_INVALID : status;
}

static dibs_status nothing(struct play *play)
{
    return DIBS_OK;
}

static dibs_status open_it(struct play *play)
{
    dibs_config config = play->f->config;

    config.urls = &play->url;
    return dibs_open(&play->rt, &config);
}

static dibs_status lock_and_unlock(struct play *play)
{
    GOOD(dibs_lock(play->rt, play->name));
    return dibs_unlock(play->rt, play->name);
}

static dibs_status nest(struct play *play)
{
    dibs_hold hold;
    dibs_stats stats;

    GOOD(dibs_trylock(play->rt, play->name));
    GOOD(dibs_lock(play->rt, play->name));
    GOOD(dibs_check(play->rt, play->name));
    GOOD(dibs_hold_of(play->rt, play->name, &hold));
    GOOD(dibs_extend(play->rt, play->name, LONG_LEASE_MS));
    dibs_stats_get(play->rt, &stats);
    return dibs_unlock_all(play->rt);
}

static dibs_status look(struct play *play)
{
    dibs_owner owner;

    GOOD(dibs_query(play->rt, play->name, &owner));
    GOOD(dibs_force_unlock(play->rt, play->name, NULL));
    return dibs_force_unlock(play->rt, play->name, "nobody's");
}

static bool take_name(const char *name, const dibs_owner *owner, void *arg)
{
    return true;
}

static dibs_status list(struct play *play)
{
    GOOD(dibs_lock(play->rt, play->name));
    GOOD(dibs_list(play->rt, "n*", take_name, NULL));
    return dibs_unlock(play->rt, play->name);
}

static void take_finding(const dibs_finding *finding, void *arg)
{
}

static dibs_status examine(struct play *play)
{
    return dibs_examine(play->rt, take_finding, NULL);
}

/* Waits for a lock that another holds all the time. */
static dibs_status wait_and_fail(struct play *play)
{
    GOOD(expect(DIBS_BUSY, dibs_trylock(play->rt, play->name)));
    return expect(DIBS_TIMEOUT, dibs_timedlock(play->rt, play->name, 50));
}

static dibs_status wait_fairly(struct play *play)
{
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};

    GOOD(dibs_lock_with(play->rt, play->name, DIBS_WAIT_FOREVER, &fair));
    return dibs_unlock(play->rt, play->name);
}

static dibs_status hold_until_the_end(struct play *play)
{
    char name[3] = "a0";

    for (; name[1] <= '9'; name[1]++)
        GOOD(dibs_lock(play->rt, name));
    return DIBS_OK;
}

static dibs_status make_mistakes(struct play *play)
{
    dibs_runtime *rt;
    const char *url = "redis://user:password@[::1]:1/3";
    const dibs_config config = {.urls = &url, .url_count = 1};

    GOOD(expect(DIBS_NOT_HELD, dibs_unlock(play->rt, play->name)));
    GOOD(expect(DIBS_NOT_HELD, dibs_check(play->rt, play->name)));
    GOOD(expect(DIBS_STORE_ERROR, dibs_trylock(play->rt, "wrong-type")));
    return expect(DIBS_UNAVAILABLE, dibs_open(&rt, &config));
}

static dibs_status close_it(struct play *play)
{
    dibs_shutdown(play->rt);
    dibs_close(play->rt);
    return expect(DIBS_CLOSED, dibs_lock(play->rt, play->name));
}

/* ------------------------------------------------------------------ the tests */

static void lose_connections(struct play *play)
{
    server_do(play->f->server, "CLIENT KILL TYPE normal SKIPME yes");
}

/* A name and a prefix of the greatest length. */
static void prepare(struct play *play, fixture *f, const char *url)
{
    static char prefix[513];

    memset(prefix, 'p', sizeof prefix - 1);
    memset(play, 0, sizeof *play);
    memset(play->name, 'n', sizeof play->name - 1);
    play->f = f;
    play->url = url;
    f->config.key_prefix = prefix;
    f->config.lease_ms = LONG_LEASE_MS;
    f->config.handoff_ms = DIBS_NO_HANDOFF;
    play->other = open_url(url, &f->config);
    server_do(f->server, "RPUSH %swrong-type x", prefix);
    server_do(f->server, "EXPIRE %swrong-type 600", prefix);
}

/* The call waits for a thread of this process, or of another; or one of them waits for the lock of the call. */
static void wait_for_others(struct play *play, dibs_runtime *holder, act_of *wait, const char *what)
{
    struct small_thread t;
    uint64_t contended = stats_of(play->rt).contended;

    assert_status(DIBS_OK, dibs_lock(holder, play->name));
    begin(&t, play, wait);
    while (stats_of(play->rt).contended == contended)
        pause_ms(1);
    actor *behind = actor_locking(play->rt, play->name, DIBS_WAIT_FOREVER);
    actor_await_asleep(behind);
    assert_status(DIBS_OK, dibs_unlock(holder, play->name));
    end(&t, what);
    actor_gets(behind, play->rt, play->name);
    actor_end(behind);
}

static void play_all(fixture *f, const char *url)
{
    struct play play;

    prepare(&play, f, url);
    perform(&play, nothing, "a thread that does nothing");
    perform(&play, open_it, "dibs_open");
    perform(&play, lock_and_unlock, "lock, unlock");
    lose_connections(&play);
    perform(&play, lock_and_unlock, "lock, unlock, with a new connection");
    perform(&play, nest, "trylock, lock, check, hold_of, extend, stats, unlock_all");
    perform(&play, look, "query, force_unlock");
    lose_connections(&play);
    perform(&play, look, "query, force_unlock, with a new connection");
    perform(&play, list, "list");
    perform(&play, examine, "examine");
    assert_status(DIBS_OK, dibs_lock(play.other, play.name));
    perform(&play, wait_and_fail, "trylock, timedlock that fail");
    assert_status(DIBS_OK, dibs_unlock(play.other, play.name));
    wait_for_others(&play, play.other, lock_and_unlock, "wait for another process, unlock for the next thread");
    wait_for_others(&play, play.rt, lock_and_unlock, "wait for a thread, unlock for the next");
    wait_for_others(&play, play.other, wait_fairly, "wait fairly");
    perform(&play, hold_until_the_end, "a thread's end with ten locks");
    perform(&play, make_mistakes, "what is refused");
    perform(&play, close_it, "shutdown, close, and a call that is too late");
    dibs_close(play.other);
}

TEST_ON(calls_over_a_unix_socket_fit_the_smallest_stack, fixture *f)
{
    play_all(f, f->server->url);
}

static int setup_tcp(void **state)
{
    static const server_options tcp = {.tcp = true};
    int result = fixture_setup(state);
    fixture *f = *state;

    server_stop(f->server);
    f->server = server_start(&tcp);
    return result;
}

TEST_WITH(calls_over_tcp_fit_the_smallest_stack, setup_tcp, fixture_teardown_expiring, fixture *f)
{
    play_all(f, f->server->url);
}

static size_t least_stack(void)
{
    long least = sysconf(_SC_THREAD_STACK_MIN);

    return getenv("DIBS_TEST_TLS") ? 65536 : least > STACK_LEAST ? (size_t)least : STACK_LEAST;
}

int main(int argc, char **argv)
{
    stack_size = argc > 1 ? strtoul(argv[1], NULL, 10) : least_stack(); /* a number: to measure what is needed */
    return test_run_all(fixture_setup, fixture_teardown_expiring, NULL, NULL);
}
