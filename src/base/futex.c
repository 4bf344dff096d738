#include "base/futex.h"

#if defined(__linux__) && !defined(DIBS_WITHOUT_FUTEX)

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

void dibs__futex_wait(atomic_uint *word, unsigned value, int64_t ns)
{
    /* The kernel's struct timespec: two longs, even where time_t is longer than a long. */
    struct {
        long s, ns;
    } timeout = {(long)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns == INT64_MAX ? NULL : (void *)&timeout, NULL, 0);
}

void dibs__futex_wake(const atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#else

#include "base/mutex.h"
#include "base/once.h"

/*
 * Lock discipline: each room serves the words whose addresses fall to it. A thread checks its word under the room's
 * mutex, which is a leaf. A wake takes that mutex after the word has changed, so no wake is lost.
 */
#define ROOMS 16

DIBS__MUTEX_CLASS(room_mutex);

static struct room {
    struct dibs__mutex mutex;
    pthread_cond_t cond; /* waited on with `mutex`, until a word of this room may have changed */
} rooms[ROOMS];

static struct dibs__once making; /* guards itself; runs set_up */

/* Also called in a forked child, where the threads that slept no longer exist. */
static void make_rooms(void)
{
    for (int i = 0; i < ROOMS; i++) {
        dibs__mutex_init(&rooms[i].mutex);
        dibs__cond_init(&rooms[i].cond);
    }
}

/* If memory runs out, the rooms still work, and the next thread that sleeps or wakes another tries again. */
static bool set_up(void)
{
    static bool made; /* used by the one thread that runs this function */

    if (!made)
        make_rooms();
    made = true;
    return pthread_atfork(NULL, NULL, make_rooms) == 0;
}

static struct room *room_of(const atomic_uint *word)
{
    dibs__once(&making, set_up);
    return &rooms[((uintptr_t)word / 64) % ROOMS];
}

void dibs__futex_wait(atomic_uint *word, unsigned value, int64_t ns)
{
    struct room *room = room_of(word);

    room_mutex_lock(&room->mutex);
    if (atomic_load(word) == value)
        dibs__mutex_wait_for(&room->mutex, &room->cond, ns);
    room_mutex_unlock(&room->mutex);
}

void dibs__futex_wake(const atomic_uint *word)
{
    struct room *room = room_of(word);

    room_mutex_lock(&room->mutex);
    pthread_cond_broadcast(&room->cond);
    room_mutex_unlock(&room->mutex);
}

#endif
