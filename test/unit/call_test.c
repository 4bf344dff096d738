/* A call of a script: its words, a script that the server has lost, and the count of replicas. */
#include "redis/call.h"
#include "support/test.h"
#include "unit/channel_setup.h"

#define NOSCRIPT "-NOSCRIPT No matching script. Please use EVAL.\r\n"

struct asked {
    struct dibs__link_view view;
    struct dibs__call call;
    struct dibs__error error;
    struct dibs__request *request;
    unsigned texts; /* scripts that had been sent as text before, by the greeting */
};

/* Sends the query of key "k" with the argument 42, and comes back when the reply is there. */
static void ask(struct rig *r, struct asked *a)
{
    assert_status(DIBS_OK, dibs__channel_open(r->channel, after(r, CONNECT_MS), &a->view, &a->error));
    a->texts = fake_redis_count(r->fake, "EVAL ");
    dibs__call_init(&a->call, DIBS__SCRIPT_query, 1);
    dibs__call_add(&a->call, "k");
    dibs__call_add_number(&a->call, 42);
    a->request = dibs__call_begin(&a->call, r->channel, &a->view, after(r, COMMAND_MS), &a->error);
    assert_non_null(a->request);
    assert_true(dibs__channel_await(r->channel, a->request, after(r, COMMAND_MS)));
}

static dibs_status finish(struct rig *r, struct asked *a, struct dibs__exchange *exchange)
{
    *exchange = (struct dibs__exchange){.deadline = after(r, COMMAND_MS), .unknown = true, .error = &a->error};
    return dibs__call_finish(&a->call, r->channel, &a->view, a->request, exchange);
}

static void a_call_is_sent_by_its_sha(void **state)
{
    struct rig *r = *state;
    struct asked asked;
    struct dibs__exchange exchange;
    char expected[64];

    fake_redis_answer(r->fake, "EVALSHA", ":7\r\n");
    ask(r, &asked);
    assert_status(DIBS_OK, finish(r, &asked, &exchange));
    assert_int_equal(exchange.reply->integer, 7);
    dibs__reply_free(exchange.reply);
    snprintf(expected, sizeof expected, "EVALSHA %s 1 k 42", dibs__script_sha(DIBS__SCRIPT_query));
    assert_int_equal(fake_redis_count(r->fake, expected), 1);
    assert_int_equal(fake_redis_count(r->fake, "EVAL "), asked.texts);
}

static void a_script_that_the_server_has_lost_is_sent_as_text(void **state)
{
    struct rig *r = *state;
    struct asked asked;
    struct dibs__exchange exchange;

    fake_redis_answer(r->fake, "EVALSHA", NOSCRIPT);
    fake_redis_answer(r->fake, "EVAL ", ":8\r\n");
    ask(r, &asked);
    assert_status(DIBS_OK, finish(r, &asked, &exchange));
    assert_int_equal(exchange.reply->integer, 8);
    dibs__reply_free(exchange.reply);
    assert_int_equal(fake_redis_count(r->fake, "EVAL "), asked.texts + 1);
}

static void a_lost_script_that_cannot_be_sent_has_not_run(void **state)
{
    struct rig *r = *state;
    struct asked asked;
    struct dibs__exchange exchange;

    fake_redis_answer(r->fake, "EVALSHA", NOSCRIPT);
    ask(r, &asked);
    fake_redis_cut(r->fake);
    attend_until_broken(r);
    assert_status(DIBS_UNAVAILABLE, finish(r, &asked, &exchange));
    assert_false(exchange.unknown);
    assert_true(asked.error.detail[0]);
}

/* What dibs__call_wait says where the server answers so. */
static int64_t replicas(struct rig *r, const char *answer)
{
    uint64_t serial = open_now(r);

    fake_redis_answer(r->fake, "WAIT 2 500", answer);
    return dibs__call_wait(r->channel, serial, 2, 500, after(r, COMMAND_MS));
}

static void replicas_that_acknowledge_are_counted(void **state)
{
    assert_int_equal(replicas(*state, ":1\r\n"), 1);
    assert_int_equal(replicas(*state, ":0\r\n"), 0);
    assert_int_equal(replicas(*state, ":3\r\n"), 3);
}

static void an_answer_that_is_no_count_counts_none(void **state)
{
    assert_int_equal(replicas(*state, ":-1\r\n"), 0);
    assert_int_equal(replicas(*state, "-ERR WAIT cannot be used with replica instances\r\n"), 0);
    assert_int_equal(replicas(*state, "+OK\r\n"), 0);
}

static void no_answer_is_no_count(void **state)
{
    struct rig *r = *state;
    uint64_t serial = open_now(r);

    assert_int_equal(dibs__call_wait(r->channel, serial + 1, 2, 500, after(r, COMMAND_MS)), DIBS__NO_COUNT);
    fake_redis_hold(r->fake, true);
    assert_int_equal(dibs__call_wait(r->channel, serial, 2, 500, moved_clock_now(&r->clock)), DIBS__NO_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_call_is_sent_by_its_sha, setup, teardown),
        cmocka_unit_test_setup_teardown(a_script_that_the_server_has_lost_is_sent_as_text, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_script_that_cannot_be_sent_has_not_run, setup, teardown),
        cmocka_unit_test_setup_teardown(replicas_that_acknowledge_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(an_answer_that_is_no_count_counts_none, setup, teardown),
        cmocka_unit_test_setup_teardown(no_answer_is_no_count, setup, teardown),
    };

    return cmocka_run_group_tests_name("call", tests, NULL, NULL);
}
