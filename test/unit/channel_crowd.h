/* Threads that send echoes over one channel at the same time: each must get its own replies. */
#ifndef DIBS_TEST_CHANNEL_CROWD_H
#define DIBS_TEST_CHANNEL_CROWD_H

#include "unit/channel_setup.h"

enum { CROWD_MOST = 16 };

struct crowd {
    struct rig *r;
    uint64_t serial;
    const char *text;       /* what each echo begins with */
    unsigned number;        /* of the thread */
    unsigned rounds, right; /* echoes, and those that were answered rightly */
    atomic_uint *at_work;   /* how many threads still work */
};

static inline void *run_crowd(void *arg)
{
    struct crowd *c = arg;
    char text[64];

    for (unsigned i = 0; i < c->rounds; i++) {
        snprintf(text, sizeof text, "%s%u-%u", c->text, c->number, i);
        c->right += echoes(c->r, c->serial, text);
    }
    atomic_fetch_sub(c->at_work, 1);
    return NULL;
}

/* attend_channel: what the scheduler does meanwhile, whenever no thread does; NULL: nothing. */
static inline void let_threads_echo(struct rig *r, unsigned count, unsigned rounds, const char *text,
                                    void (*attend_channel)(struct rig *r))
{
    struct crowd crowd[CROWD_MOST];
    pthread_t threads[CROWD_MOST];
    uint64_t serial = open_now(r);
    atomic_uint at_work = count;

    assert_true(count <= CROWD_MOST);
    for (unsigned i = 0; i < count; i++) {
        crowd[i] = (struct crowd){r, serial, text, i, rounds, 0, &at_work};
        assert_int_equal(pthread_create(&threads[i], NULL, run_crowd, &crowd[i]), 0);
    }
    while (attend_channel && atomic_load(&at_work) > 0)
        attend_channel(r);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < count; i++)
        assert_that(crowd[i].right == rounds, "%u of thread %u", crowd[i].right, i);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
    assert_int_equal(dibs__channel_load(r->channel), 0);
    assert_int_equal(r->opened, 1);
    assert_int_equal(r->reopened, 0);
}

#endif
