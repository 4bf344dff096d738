/*
 * Calls during and after dibs_close: threads use a runtime as hard as they can while another thread closes it, and go
 * on afterwards. Each call succeeds, or says that the runtime is closed or that the lock is lost; none reads memory
 * that was freed.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "support/fixture.h"

enum { WORKERS = 6, CALLS = 30 }; /* so many calls of each before the close, and after it */

#define BIT(status) (1u << (status))

struct crowd {
    dibs_runtime *rt;             /* of this round: written by the test's thread, read after `round` */
    atomic_int round;             /* 0: between two of them; -1: the end */
    atomic_bool closed;           /* the dibs_close of this round has returned */
    atomic_int calls[WORKERS];    /* rounds of calls, since the round began, or was closed */
    atomic_int left;              /* workers that have left this round */
    atomic_uint wrong;            /* the bit of a status that a call must not have returned */
    const char *_Atomic wrong_at; /* the call that returned it */
};

struct worker {
    struct crowd *crowd;
    int number;
};

/*
 * A call that began after dibs_close had returned may return only some statuses; one that began before may return any.
 */
static dibs_status judge(struct crowd *c, const char *call, bool late, unsigned good, unsigned good_late,
                         dibs_status status)
{
    if (!(BIT(status) & (late ? good_late : good | good_late))) {
        atomic_fetch_or(&c->wrong, BIT(status));
        atomic_store(&c->wrong_at, call);
    }
    return status;
}

#define JUDGE(good, good_late, call) judge(c, #call, late, good, good_late, call)

static const dibs_lock_options fair = {.flags = DIBS_FAIR};

static void use_once(struct crowd *c, int number, int turn)
{
    dibs_runtime *rt = c->rt;
    bool late =
        atomic_load(&c->closed); /* a nested lock finds the runtime closing, or, a moment later, its lease lost */
    const unsigned ok = BIT(DIBS_OK), closed = BIT(DIBS_CLOSED), lost = BIT(DIBS_LOST), none = BIT(DIBS_NOT_HELD);
    dibs_hold hold;
    dibs_owner owner;
    dibs_stats stats;

    const char *own = formatted("own-%d", number);
    JUDGE(ok, closed | lost, dibs_lock(rt, own));
    JUDGE(ok, closed | lost, dibs_lock_with(rt, own, DIBS_WAIT_FOREVER, &fair)); /* looks at how many URLs there are */
    JUDGE(ok | BIT(DIBS_BUSY), closed | lost, dibs_trylock(rt, "common"));
    JUDGE(ok | BIT(DIBS_TIMEOUT), closed | lost, dibs_timedlock(rt, "common", 1));
    JUDGE(ok, lost | none, dibs_check(rt, own));
    JUDGE(ok, lost | none, dibs_hold_of(rt, own, &hold));
    JUDGE(ok, closed, dibs_query(rt, "common", &owner));
    JUDGE(ok, closed, dibs_force_unlock(rt, "nobody's", NULL));
    JUDGE(ok, closed | lost | none, dibs_extend(rt, own, LONG_LEASE_MS));
    dibs_stats_get(rt, &stats);
    if (late && (stats.acquired > 0 || stats.store_commands > 0))
        atomic_fetch_or(&c->wrong, BIT(31));
    JUDGE(ok, lost | none, dibs_unlock(rt, own));
    if (turn % 2) {
        JUDGE(ok, lost | none, dibs_unlock(rt, own));
        JUDGE(ok, lost | none, dibs_unlock(rt, "common"));
    }
    if (turn % 3)
        JUDGE(ok, ok | lost,
              dibs_unlock_all(rt)); /* otherwise the thread keeps its holds until its end, or into the next round */
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct crowd *c = w->crowd;

    for (int round = 1; atomic_load(&c->round) != -1; round++) {
        while (atomic_load(&c->round) != round && atomic_load(&c->round) != -1)
            pause_ms(0);
        for (int turn = 0; atomic_load(&c->round) == round; turn++) {
            use_once(c, w->number, turn);
            atomic_fetch_add(&c->calls[w->number], 1);
        }
        atomic_fetch_add(&c->left, 1);
    }
    return NULL;
}

/* Whether all workers have made so many rounds of calls since the counts were set to 0. */
static bool have_called(struct crowd *c)
{
    for (int i = 0; i < WORKERS; i++)
        if (atomic_load(&c->calls[i]) < CALLS)
            return false;
    return true;
}

static void await_calls(struct crowd *c)
{
    for (int i = 0; i < WORKERS; i++)
        atomic_store(&c->calls[i], 0);
    await_that(have_called(c));
    assert_that(atomic_load(&c->wrong) == 0, "%s says the status of bit 0x%x", atomic_load(&c->wrong_at),
                atomic_load(&c->wrong));
}

static void play_round(struct crowd *c, int round, const dibs_config *config, const char *url)
{
    assert_status(DIBS_OK, open_status(url, config, &c->rt));
    atomic_store(&c->closed, false);
    atomic_store(&c->left, 0);
    atomic_store(&c->round, round);
    await_calls(c);
    dibs_close(c->rt);
    atomic_store(&c->closed, true);
    await_calls(c);
    dibs_shutdown(c->rt);
    dibs_close(c->rt);
    assert_status(DIBS_CLOSED, dibs_lock(c->rt, "x"));
    assert_status(DIBS_NOT_HELD, dibs_unlock(c->rt, "x"));
    /* A call that began before the close has the old handle: the next round must not change what it reads. */
    atomic_store(&c->round, 0);
    await_that(atomic_load(&c->left) == WORKERS);
}

static void close_under_a_crowd(const char *url, int rounds)
{
    const dibs_config config = {.connect_timeout_ms = LIMIT_MS, .command_timeout_ms = LIMIT_MS};
    static struct crowd c; /* static, because the threads go on when the test fails */
    static struct worker workers[WORKERS];
    pthread_t threads[WORKERS];

    atomic_store(&c.round, 0);

    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){&c, i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int round = 1; round <= rounds; round++)
        play_round(&c, round, &config, url);
    atomic_store(&c.round, -1);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
}

TEST(calls_after_close_are_safe_on_a_store_in_memory)
{
    close_under_a_crowd("mem:", 60);
}

/* Arguments are checked first, against what dibs_open was given: dibs_close does not change that. */
TEST(a_closed_quorum_refuses_the_same_arguments)
{
    static const char *const urls[] = {"mem:one", "mem:two", "mem:three"};
    dibs_runtime *rt;

    assert_status(DIBS_OK, dibs_open(&rt, &(dibs_config){.urls = urls, .url_count = 3}));
    assert_status(DIBS_INVALID, dibs_lock_with(rt, "x", 0, &fair));
    dibs_close(rt);
    assert_status(DIBS_INVALID, dibs_lock_with(rt, "x", 0, &fair));
    assert_status(DIBS_CLOSED, dibs_lock(rt, "x"));
}

TEST_WITH(calls_after_close_are_safe_on_a_server, fixture_setup, fixture_teardown, fixture *f)
{
    close_under_a_crowd(f->server->url, 20);
    server_assert_no_locks(f->server);
}

TESTS(NULL, NULL)
