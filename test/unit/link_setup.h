/* A link to a server that follows a script: shared by the tests of link, greeting and socket. */
#ifndef DIBS_TEST_LINK_SETUP_H
#define DIBS_TEST_LINK_SETUP_H

#include "redis/link.h"
#include "support/fake_redis.h"
#include "support/test.h"

#define SUBSCRIBED "*3\r\n$9\r\nsubscribe\r\n$9\r\ndibs:test\r\n:1\r\n"

struct rig {
    fake_redis *fake;
    struct dibs__endpoint endpoint;
    atomic_uint_fast64_t commands, errors;
    struct dibs__error error; /* of the last try */
};

static inline void use_url(struct rig *r, const char *text)
{
    dibs__endpoint_free(&r->endpoint);
    fake_redis_endpoint(&r->endpoint, text, &r->commands, &r->errors);
}

/* That of the server, for a user and with a path. */
static inline void use_url_with(struct rig *r, const char *user, const char *path)
{
    char url[96];

    snprintf(url, sizeof url, "redis://%s@127.0.0.1:%u%s", user, fake_redis_port(r->fake), path);
    use_url(r, url);
}

static inline int setup(void **state)
{
    static struct rig rig;
    struct rig *r = &rig;
    struct dibs__url none = {0};

    memset(r, 0, sizeof *r);
    r->fake = fake_redis_start(true);
    dibs__endpoint_init(&r->endpoint, &none);
    use_url(r, fake_redis_url(r->fake));
    *state = r;
    return 0;
}

static inline int teardown(void **state)
{
    struct rig *r = *state;

    dibs__endpoint_free(&r->endpoint);
    fake_redis_stop(r->fake);
    return 0;
}

/* Connects. NULL: it failed, r->error says why. */
static inline struct dibs__link *try_connect_for(struct rig *r, enum dibs__link_use use,
                                                 const struct dibs__link_id *before)
{
    int64_t until = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);
    struct dibs__link *link = dibs__link_start(&r->endpoint, use, before, &r->error);

    if (!link)
        return NULL;
    dibs_status status = dibs__link_finish(link, until, until, &r->error);
    assert_that(status != DIBS_TIMEOUT, "it never gets ready");
    if (status == DIBS_OK) {
        assert_int_equal(link->state, DIBS__LINK_READY);
        return link;
    }
    assert_int_equal(r->error.status, status);
    assert_true(r->error.detail[0]);
    dibs__link_free(link);
    return NULL;
}

static inline struct dibs__link *try_connect(struct rig *r, const struct dibs__link_id *before)
{
    return try_connect_for(r, DIBS__LINK_COMMANDS, before);
}

static inline struct dibs__link *connected(struct rig *r, const struct dibs__link_id *before)
{
    struct dibs__link *link = try_connect(r, before);

    assert_that(link, "%s", r->error.detail);
    return link;
}

static inline struct dibs__link_view connect_and_leave(struct rig *r, const struct dibs__link_id *before)
{
    struct dibs__link *link = connected(r, before);
    struct dibs__link_view view = link->view;

    dibs__link_free(link);
    return view;
}

#endif
