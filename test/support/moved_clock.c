/*
 * Lock discipline: `mutex` guards the list of sleepers. A thread calls wait() with a mutex of the library held, so the
 * library's mutexes come before `mutex`. A thread that wakes sleepers holds `mutex`, and only tries to lock their
 * mutexes. A sleeper leaves the list with `mutex` held; so while `mutex` is held, the condition variable and the mutex
 * of each sleeper on the list exist. A sleeper in poll() wakes by itself every millisecond, and looks at the time.
 */
#include "support/moved_clock.h"

#include <sched.h>

#include "support/test.h"

#define START INT64_C(1000000000000)
#define FDS_MOST 32

struct sleeper {
    struct sleeper *next;
    int64_t deadline;
    pthread_cond_t *cond; /* in wait() */
    struct dibs__mutex *mutex;
    atomic_uint *word; /* in sleep(), */
    unsigned value;    /* as long as the word has this value */
    struct pollfd fds[FDS_MOST];
    nfds_t count;
};

static struct moved_clock *of(const struct dibs__clock *clock)
{
    return (struct moved_clock *)(uintptr_t)clock; /* the first member of what the test made */
}

static int64_t now(const struct dibs__clock *clock)
{
    return atomic_load(&of(clock)->time);
}

/* Enters the sleeper into the list. False: the deadline has come, so there is no need to sleep. */
static bool enter(struct moved_clock *c, struct sleeper *sleeper)
{
    pthread_mutex_lock(&c->mutex);
    bool early = atomic_load(&c->time) < sleeper->deadline;
    if (early) {
        sleeper->next = c->sleepers;
        c->sleepers = sleeper;
    }
    pthread_mutex_unlock(&c->mutex);
    return early;
}

static void leave(struct moved_clock *c, struct sleeper *sleeper)
{
    pthread_mutex_lock(&c->mutex);
    struct sleeper **at = &c->sleepers;
    while (*at != sleeper)
        at = &(*at)->next;
    *at = sleeper->next;
    pthread_mutex_unlock(&c->mutex);
}

static bool is_asleep(const struct sleeper *sleeper)
{
    return sleeper->cond || sleeper->word;
}

/* mutex: of the library, which the thread holds before and afterwards; NULL: none. */
static void stand(struct moved_clock *c, struct dibs__mutex *mutex)
{
    pthread_mutex_lock(&c->mutex);
    if (!c->stopped) {
        pthread_mutex_unlock(&c->mutex);
        return;
    }
    if (mutex)
        dibs__mutex_unlock(mutex);
    c->standing++;
    while (c->stopped)
        pthread_cond_wait(&c->go, &c->mutex);
    c->standing--;
    pthread_mutex_unlock(&c->mutex);
    if (mutex)
        dibs__mutex_lock(mutex);
}

static void wait_on(const struct dibs__clock *clock, pthread_cond_t *cond, struct dibs__mutex *mutex, int64_t deadline)
{
    struct sleeper sleeper = {.deadline = deadline, .cond = cond, .mutex = mutex};

    if (!enter(of(clock), &sleeper))
        return;
    dibs__mutex_wait(mutex, cond);
    leave(of(clock), &sleeper);
    stand(of(clock), mutex);
}

static void sleep_on(const struct dibs__clock *clock, atomic_uint *word, unsigned value, int64_t deadline)
{
    struct sleeper sleeper = {.deadline = deadline, .word = word, .value = value};

    if (!enter(of(clock), &sleeper))
        return;
    do
        dibs__futex_wait(word, value, INT64_MAX);
    while (atomic_load(word) == value && now(clock) < deadline); /* woken for no reason, it goes on sleeping */
    leave(of(clock), &sleeper);
    stand(of(clock), NULL);
}

static int poll_on(const struct dibs__clock *clock, struct pollfd *fds, nfds_t count, int64_t deadline)
{
    struct sleeper sleeper = {.deadline = deadline, .count = count};
    int ready = poll(fds, count, 0);

    if (count > FDS_MOST)
        abort();
    memcpy(sleeper.fds, fds, count * sizeof *fds);
    if (ready > 0 || !enter(of(clock), &sleeper))
        return ready > 0 ? ready : 0;
    do {
        ready = poll(fds, count, 1);
    } while (ready <= 0 && now(clock) < deadline);
    leave(of(clock), &sleeper);
    return ready > 0 ? ready : 0;
}

/*
 * Requires mutex. A thread that was woken sleeps no more, though the system may let it run only later: it counts again
 * when it sleeps again. So a test that waits for sleepers does not take one that has work to do for one that has done
 * it.
 */
static bool is_waiting(const struct sleeper *sleeper)
{
    return sleeper->cond || (sleeper->word && atomic_load(sleeper->word) == sleeper->value);
}

void moved_clock_init(struct moved_clock *c)
{
    memset(c, 0, sizeof *c);
    c->clock = (struct dibs__clock){now, wait_on, poll_on, sleep_on};
    atomic_init(&c->time, START);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->go, NULL);
}

void moved_clock_destroy(struct moved_clock *c)
{
    pthread_cond_destroy(&c->go);
    pthread_mutex_destroy(&c->mutex);
}

int64_t moved_clock_now(const struct moved_clock *c)
{
    return atomic_load(&c->time);
}

/* Requires mutex. Wakes the sleepers whose deadline has come, and returns how many of those are still on the list. */
static size_t wake_due(struct moved_clock *c)
{
    int64_t time = atomic_load(&c->time);
    size_t due = 0;

    for (struct sleeper *at = c->sleepers; at; at = at->next) {
        if (at->deadline > time)
            continue;
        due++;
        if (at->word)
            dibs__futex_wake(at->word);
        if (at->cond && pthread_mutex_trylock(&at->mutex->native) ==
                            0) { /* the mutex is free: so the sleeper is in pthread_cond_wait */
            pthread_cond_broadcast(at->cond);
            pthread_mutex_unlock(&at->mutex->native);
        }
    }
    return due;
}

static bool nobody_is_due(struct moved_clock *c)
{
    pthread_mutex_lock(&c->mutex);
    size_t due = wake_due(c);
    pthread_mutex_unlock(&c->mutex);
    sched_yield();
    return due == 0;
}

void moved_clock_set(struct moved_clock *c, int64_t time)
{
    pthread_mutex_lock(&c->mutex);
    assert_true(time >= atomic_load(&c->time));
    atomic_store(&c->time, time);
    pthread_mutex_unlock(&c->mutex);
    await_or_say(nobody_is_due(c), "a sleeper does not wake at its deadline");
}

void moved_clock_advance(struct moved_clock *c, int64_t ns)
{
    moved_clock_set(c, moved_clock_now(c) + ns);
}

size_t moved_clock_waiting(struct moved_clock *c)
{
    size_t count = 0;

    pthread_mutex_lock(&c->mutex);
    for (struct sleeper *at = c->sleepers; at; at = at->next)
        count += is_waiting(at);
    pthread_mutex_unlock(&c->mutex);
    return count;
}

void moved_clock_await_waiting(struct moved_clock *c, size_t count)
{
    await_or_say(moved_clock_waiting(c) == count, "never do %zu threads wait", count);
}

static void set_stopped(struct moved_clock *c, bool stopped)
{
    pthread_mutex_lock(&c->mutex);
    c->stopped = stopped;
    pthread_cond_broadcast(&c->go);
    pthread_mutex_unlock(&c->mutex);
}

void moved_clock_stop_the_woken(struct moved_clock *c)
{
    set_stopped(c, true);
}

void moved_clock_let_the_woken_go(struct moved_clock *c)
{
    set_stopped(c, false);
}

static bool that_many_stand(struct moved_clock *c, size_t count)
{
    pthread_mutex_lock(&c->mutex);
    bool reached = c->standing == count;
    pthread_mutex_unlock(&c->mutex);
    return reached;
}

void moved_clock_await_standing(struct moved_clock *c, size_t count)
{
    await_or_say(that_many_stand(c, count), "never are %zu threads woken", count);
}

static bool has_nothing_to_do(struct moved_clock *c, const struct sleeper *sleeper)
{
    struct pollfd fds[FDS_MOST];

    memcpy(fds, sleeper->fds, sleeper->count * sizeof *fds);
    return sleeper->deadline > atomic_load(&c->time) && poll(fds, sleeper->count, 0) == 0;
}

static bool that_many_are_idle(struct moved_clock *c, size_t schedulers)
{
    size_t count = 0;

    pthread_mutex_lock(&c->mutex);
    for (struct sleeper *at = c->sleepers; at; at = at->next)
        count += !is_asleep(at) && has_nothing_to_do(c, at);
    pthread_mutex_unlock(&c->mutex);
    return count == schedulers;
}

void moved_clock_settle(struct moved_clock *c, size_t schedulers)
{
    await_or_say(that_many_are_idle(c, schedulers), "the schedulers never come to rest");
}
