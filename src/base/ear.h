/*
 * How a thread waits to be told something: it sleeps by its sleeper, or in
 * poll(2) where it receives meanwhile what all are told. Whoever tells it need
 * not know which.
 *
 * What the thread is told is guarded by a mutex of the caller's. Under that
 * mutex the thread resets its ear and then looks; whoever changes something
 * does that, and then rouses the ear, under the same mutex. So the thread
 * misses nothing when it waits without the mutex, and an ear that is roused
 * still exists.
 */
#ifndef DIBS_BASE_EAR_H
#define DIBS_BASE_EAR_H

#include <stdatomic.h>

#include "base/sleeper.h"
#include "base/wake.h"

struct dibs__ear {
    struct dibs__sleeper sleeper;        /* has its own guard */
    atomic_bool roused;                  /* atomic; since the last reset */
    _Atomic(struct dibs__wake *) bell;   /* atomic; ends the poll(2) of the thread; NULL: the thread does not poll */
    void (*tell)(struct dibs__ear *ear); /* read-only; called instead, by whoever rouses the ear, where no thread waits
                                            with it; else NULL */
};

void dibs__ear_init(struct dibs__ear *ear);

/* Any thread, with or without locks: the wait ends, or the next one does not begin, until the ear is reset. */
void dibs__ear_rouse(struct dibs__ear *ear);

static inline void dibs__ear_reset(struct dibs__ear *ear)
{
    atomic_store(&ear->roused, false);
}

static inline bool dibs__ear_is_roused(struct dibs__ear *ear)
{
    return atomic_load(&ear->roused);
}

/* Waits until the ear is roused, at most until the time. */
void dibs__ear_wait(struct dibs__ear *ear, const struct dibs__clock *clock, int64_t until);

/*
 * Waits until the ear is roused, the bell is rung or the descriptor is ready,
 * at most until the time; or less. One thread at a time uses a bell here. fd:
 * as of poll(2); its revents are set.
 */
void dibs__ear_poll(struct dibs__ear *ear, const struct dibs__clock *clock, struct dibs__wake *bell, struct pollfd *fd,
                    int64_t until);

#endif
