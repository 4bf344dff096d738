#include "support/fifo_lock.h"

#include <stddef.h>

struct fifo_waiter {
    pthread_cond_t granted;
    bool is_granted;          /* guarded by the lock's mutex */
    struct fifo_waiter *next; /* guarded by the lock's mutex */
};

void fifo_lock(struct fifo_lock *lock)
{
    struct fifo_waiter waiter = {.granted = PTHREAD_COND_INITIALIZER};

    pthread_mutex_lock(&lock->mutex);
    if (!lock->held) {
        lock->held = true;
    } else {
        if (!lock->first)
            lock->behind = &lock->first;
        *lock->behind = &waiter;
        // cppcheck-suppress autoVariables ; the waiter leaves the queue before it returns
        lock->behind = &waiter.next;
        while (!waiter.is_granted)
            pthread_cond_wait(&waiter.granted, &lock->mutex);
    }
    pthread_mutex_unlock(&lock->mutex);
    pthread_cond_destroy(&waiter.granted);
}

void fifo_unlock(struct fifo_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    struct fifo_waiter *next = lock->first;
    if (next) {
        lock->first = next->next;
        next->is_granted = true;
        pthread_cond_signal(&next->granted);
    } else {
        lock->held = false;
    }
    pthread_mutex_unlock(&lock->mutex);
}
