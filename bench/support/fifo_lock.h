/* A lock between threads that is granted in the order of asking, made of a mutex and condition variables. */
#ifndef BENCH_FIFO_LOCK_H
#define BENCH_FIFO_LOCK_H

#include <pthread.h>
#include <stdbool.h>

struct fifo_waiter;

struct fifo_lock {
    pthread_mutex_t mutex;
    bool held;                   /* guarded by mutex */
    struct fifo_waiter *first;   /* guarded by mutex */
    struct fifo_waiter **behind; /* guarded by mutex; where the next waiter goes, once fifo_lock was called */
};

#define FIFO_LOCK_INITIALIZER                                                                                          \
    {                                                                                                                  \
        .mutex = PTHREAD_MUTEX_INITIALIZER                                                                             \
    }

void fifo_lock(struct fifo_lock *lock);
void fifo_unlock(struct fifo_lock *lock);

#endif
