/* A link: it goes on where a deadline left it, knows its server, and takes no bytes that are no replies. */
#include "unit/link_setup.h"

/* ------------------------------------------------------------------- driving */

TEST_ON(a_link_goes_on_after_a_deadline, struct rig *r)
{
    int64_t until = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);

    fake_redis_hold(r->fake, true);
    struct dibs__link *link = dibs__link_start(&r->endpoint, DIBS__LINK_COMMANDS, NULL, &r->error);
    assert_non_null(link);
    /* no answer has come by the deadline, but the try may go on */
    assert_int_equal(dibs__link_finish(link, 0, until, &r->error), DIBS_TIMEOUT);
    while (fake_redis_count(r->fake, "EVAL return 1") == 0)
        assert_int_equal(dibs__link_finish(link, 0, until, &r->error), DIBS_TIMEOUT);
    assert_int_equal(link->state, DIBS__LINK_GREETING);
    fake_redis_hold(r->fake, false);
    assert_status(DIBS_OK, dibs__link_finish(link, until, until, &r->error));
    assert_int_equal(link->state, DIBS__LINK_READY);
    dibs__link_free(link);
}

/* A thread that sleeps for bytes leaves them in the socket until it takes them. */
TEST_ON(a_sleeping_reader_takes_nothing, struct rig *r)
{
    struct dibs__link *link = connected(r, NULL);

    assert_true(dibs__link_sleep(link)); /* with nothing to come: it ends by itself */
    assert_int_equal(dibs__link_look(link), DIBS__SIGHT_NOTHING);
    fake_redis_push(r->fake, "+OK\r\n");
    for (int64_t limit = now_ms() + LIMIT_MS; dibs__link_look(link) == DIBS__SIGHT_NOTHING; dibs__link_sleep(link))
        assert_true(now_ms() < limit);
    assert_int_equal(dibs__link_look(link), DIBS__SIGHT_BYTES);
    assert_int_equal(dibs__link_receive(link, &r->error), strlen("+OK\r\n"));
    fake_redis_cut(r->fake);
    while (dibs__link_look(link) != DIBS__SIGHT_END)
        dibs__link_sleep(link);
    assert_int_equal(dibs__link_receive(link, &r->error), -1);
    dibs__link_free(link);
}

/* ------------------------------------------------------- the server's number */

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define RUN(id) "$49\r\nrun_id:" id "\r\n\r\n"
#define REPLICATION(id) "$69\r\nrole:master\r\nmaster_replid:" id "\r\n\r\n"

static uint64_t server_of(struct rig *r, const char *info_server, const char *info_replication)
{
    fake_redis_answer(r->fake, "INFO server", info_server);
    fake_redis_answer(r->fake, "INFO replication", info_replication);
    struct dibs__link *link = connected(r, NULL);
    uint64_t server = link->view.server;
    dibs__link_free(link);
    return server;
}

/* The number tells a lease that a restart or a failover may have cost from one that was deleted. */
TEST_ON(another_server_has_another_number, struct rig *r)
{
    uint64_t first = server_of(r, RUN(ID_A), REPLICATION(ID_A));

    assert_true(first != 0);
    assert_true(server_of(r, RUN(ID_A), REPLICATION(ID_A)) == first);
    uint64_t others[] = {
        server_of(r, RUN(ID_B), REPLICATION(ID_A)), /* restarted, or a replica that was promoted */
        server_of(r, RUN(ID_A), REPLICATION(ID_B)), /* with the data of another server */
        server_of(r, RUN(ID_B), REPLICATION(ID_B)),
        server_of(r, RUN(ID_A), "-NOPERM no right\r\n"),
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_true(others[i] != 0 && others[i] != first);
        for (size_t j = 0; j < i; j++)
            assert_true(others[i] != others[j]);
    }
    assert_true(server_of(r, RUN(ID_A), REPLICATION(ID_A)) == first);
}

TEST_ON(a_server_that_is_not_known_has_no_number, struct rig *r)
{
    assert_true(server_of(r, "-NOPERM no right\r\n", REPLICATION(ID_A)) == 0);
    assert_true(server_of(r, "$13\r\nrun_id:short\n\r\n", REPLICATION(ID_A)) == 0);
    fake_redis_answer(r->fake, "SUBSCRIBE", SUBSCRIBED);
    struct dibs__link *link = try_connect_for(r, DIBS__LINK_SUBSCRIPTIONS, NULL);
    assert_true(link && link->view.server == 0);
    dibs__link_free(link);
}

/* --------------------------------------------------- what is no Redis server */

static void expect_no_reply(struct rig *r, const char *prefix, const char *bytes)
{
    fake_redis_answer(r->fake, prefix, bytes);
    assert_null(try_connect(r, NULL));
    assert_that(r->error.status == DIBS_STORE_ERROR, "%s: %s", bytes, r->error.detail);
}

TEST_ON(a_huge_array_is_not_allocated, struct rig *r)
{
    expect_no_reply(r, "TIME", "*1000000000\r\n");
    expect_no_reply(r, "TIME", "*16385\r\n");
}

TEST_ON(a_server_of_another_kind_is_reported, struct rig *r)
{
    expect_no_reply(r, "CLIENT", "HTTP/1.1 400 Bad Request\r\n");
}

TEST_ON(a_server_that_hangs_up_counts_as_absent, struct rig *r)
{
    fake_redis_refuse(r->fake, true);
    assert_null(try_connect(r, NULL));
    assert_int_equal(r->error.status, DIBS_UNAVAILABLE);
}

TESTS(setup, teardown)
