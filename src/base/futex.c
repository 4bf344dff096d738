#include "base/futex.h"

#if defined(__linux__) && !defined(DIBS_WITHOUT_FUTEX)

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

void dibs__futex_wait(atomic_uint *word, unsigned value, int64_t ns)
{
    /* As the kernel's: two words each, also where time_t is longer. */
    struct {
        long s, ns;
    } timeout = {(long)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns == DIBS__FUTEX_FOR_EVER ? NULL : (void *)&timeout, NULL, 0);
}

void dibs__futex_wake(const atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#else

#include "base/mutex.h"
#include "base/once.h"

/*
 * Lock discipline: a room is for the words whose addresses fall to it. A thread
 * looks at its word under the room's mutex, which is a leaf; a wake takes that
 * mutex, after the word was changed, so none is lost.
 */
#define ROOMS 16

DIBS__MUTEX_CLASS(room_mutex);

static struct room {
    struct dibs__mutex mutex;
    pthread_cond_t cond; /* waited on with the mutex */
} rooms[ROOMS];

static struct dibs__once making; /* guards itself; runs set_up */

/* In a forked child as well, where the threads that slept are not there. */
static void make_rooms(void)
{
    for (int i = 0; i < ROOMS; i++) {
        dibs__mutex_init(&rooms[i].mutex);
        dibs__cond_init(&rooms[i].cond);
    }
}

/* Where memory runs out, the rooms still serve, and the next thread that sleeps or wakes another tries again. */
static bool set_up(void)
{
    static bool made; /* of the thread that runs this */

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
    if (atomic_load(word) == value && ns == DIBS__FUTEX_FOR_EVER)
        dibs__mutex_wait(&room->mutex, &room->cond);
    else if (atomic_load(word) == value)
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
