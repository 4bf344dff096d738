/* A call of a script: its words, a script that the server has lost; and waiting for replicas and the disk. */
#include "redis/call.h"
#include "unit/channel_setup.h"

#define NOSCRIPT "-NOSCRIPT No matching script. Please use EVAL.\r\n"

struct asked {
    struct dibs__link_view view;
    struct dibs__call call;
    struct dibs__error error;
    struct dibs__request *request;
    unsigned texts; /* scripts that the greeting sent as text */
};

/* Sends the query of key "k" with the argument 42, and comes back when the reply is there. */
static void ask(struct rig *r, struct asked *a)
{
    assert_status(DIBS_OK, dibs__channel_open(r->channel, after(r, CONNECT_MS), &a->view, &a->error));
    a->texts = fake_redis_count(r->fake, "EVAL ");
    a->call = (struct dibs__call){.script = DIBS__SCRIPT_query, .key_count = 1};
    dibs__words_add_text(&a->call.words, "k");
    dibs__words_add_number(&a->call.words, 42);
    a->request = dibs__call_begin(&a->call, r->channel, &a->view, after(r, COMMAND_MS), &a->error);
    assert_non_null(a->request);
    assert_true(await_reply(r, a->request, after(r, COMMAND_MS)));
}

static dibs_status finish(struct rig *r, struct asked *a, struct dibs__exchange *exchange)
{
    *exchange = (struct dibs__exchange){.deadline = after(r, COMMAND_MS), .unknown = true, .error = &a->error};
    dibs_status status = dibs__call_finish(&a->call, r->channel, &a->view, a->request, exchange);
    dibs__words_free(&a->call.words);
    return status;
}

static void expect_integer(struct rig *r, struct asked *a, int expected)
{
    struct dibs__exchange exchange;

    assert_status(DIBS_OK, finish(r, a, &exchange));
    assert_int_equal(exchange.reply->integer, expected);
    freeReplyObject(exchange.reply);
}

TEST_ON(a_call_is_sent_by_its_sha, struct rig *r)
{
    struct asked asked;
    char expected[64];

    fake_redis_answer(r->fake, "EVALSHA", ":7\r\n");
    ask(r, &asked);
    expect_integer(r, &asked, 7);
    snprintf(expected, sizeof expected, "EVALSHA %s 1 k 42", dibs__scripts[DIBS__SCRIPT_query].sha);
    assert_int_equal(fake_redis_count(r->fake, expected), 1);
    assert_int_equal(fake_redis_count(r->fake, "EVAL "), asked.texts);
}

/* What goes before a call, in that order, and right before it. */
TEST_ON(a_call_goes_behind_what_it_needs, struct rig *r)
{
    static const struct {
        bool tells_first, asking, untracked;
        const char *before[2];
    } rows[] = {
        {true, false, false, {"PING"}},
        {false, true, false, {"ASKING"}},
        {false, true, true, {"ASKING"}},
        {true, true, false, {"PING", "ASKING"}},
        {false, false, true, {"CLIENT CACHING NO"}},
    };
    struct dibs__link_view view;
    struct dibs__error error;

    fake_redis_answer(r->fake, "EVAL", ":7\r\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dibs__call call = {.script = DIBS__SCRIPT_query,
                                  .key_count = 1,
                                  .tells_first = rows[i].tells_first,
                                  .asking = rows[i].asking,
                                  .untracked = rows[i].untracked};
        struct dibs__exchange exchange = {.deadline = after(r, COMMAND_MS), .error = &error};
        const char *sent = rows[i].asking ? "EVAL local more" : "EVALSHA";
        assert_status(DIBS_OK, dibs__channel_open(r->channel, after(r, CONNECT_MS), &view, &error));
        dibs__words_add_text(&call.words, "k");
        struct dibs__request *request = dibs__call_begin(&call, r->channel, &view, after(r, COMMAND_MS), &error);
        assert_non_null(request);
        assert_status(DIBS_OK, dibs__call_finish(&call, r->channel, &view, request, &exchange));
        assert_int_equal(exchange.reply->integer, 7);
        freeReplyObject(exchange.reply);
        dibs__words_free(&call.words);
        int place = fake_redis_place(r->fake, sent, fake_redis_count(r->fake, sent));
        for (size_t k = rows[i].before[1] ? 2 : 1; k-- > 0;) {
            unsigned times = fake_redis_count(r->fake, rows[i].before[k]);
            assert_int_equal(fake_redis_place(r->fake, rows[i].before[k], times), --place);
        }
    }
}

TEST_ON(a_script_that_the_server_may_lack_is_sent_as_text_once, struct rig *r)
{
    struct asked asked;

    fake_redis_answer(r->fake, "EVAL ", ":7\r\n");
    fake_redis_answer(r->fake, "EVALSHA", ":8\r\n");
    open_now(r);
    atomic_store(&r->endpoint.scripts, 0);
    for (int i = 7; i <= 8; i++) {
        ask(r, &asked);
        expect_integer(r, &asked, i);
    }
    assert_int_equal(r->endpoint.scripts, 1u << DIBS__SCRIPT_query);
}

TEST_ON(a_script_that_the_server_has_lost_is_sent_as_text, struct rig *r)
{
    struct asked asked;

    fake_redis_answer(r->fake, "EVALSHA", NOSCRIPT);
    fake_redis_answer(r->fake, "EVAL ", ":8\r\n");
    ask(r, &asked);
    expect_integer(r, &asked, 8);
    assert_int_equal(fake_redis_count(r->fake, "EVAL "), asked.texts + 1);
}

/* An account that may not use EVAL has the server load the script, right before it is called. */
TEST_ON(a_lost_script_is_loaded_for_an_account_without_eval, struct rig *r)
{
    struct asked asked;
    char text[64];

    fake_redis_answer(r->fake, "EVALSHA", ":7\r\n");
    open_now(r);
    atomic_store(&r->endpoint.scripts, 0);
    assert_true(dibs__channel_view(r->channel, &asked.view));
    asked.view.no_eval = true;
    asked.call = (struct dibs__call){.script = DIBS__SCRIPT_query, .key_count = 1, .tells_first = true};
    dibs__words_add_text(&asked.call.words, "k");
    asked.request = dibs__call_begin(&asked.call, r->channel, &asked.view, after(r, COMMAND_MS), &asked.error);
    assert_non_null(asked.request);
    expect_integer(r, &asked, 7);
    snprintf(text, sizeof text, "SCRIPT LOAD %.40s", dibs__scripts[DIBS__SCRIPT_query].text);
    int place = fake_redis_place(r->fake, "EVALSHA", 1);
    assert_int_equal(fake_redis_place(r->fake, "PING", 1), place - 1);
    assert_int_equal(fake_redis_place(r->fake, text, 1), place - 2);
    assert_int_equal(r->endpoint.scripts, 1u << DIBS__SCRIPT_query);
}

TEST_ON(a_lost_script_that_cannot_be_sent_has_not_run, struct rig *r)
{
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

/* ------------------------------------------------------------ replicas, disk */

static const struct dibs__copies two_replicas = {.count = 2, .timeout_ms = 500, .shown = "the server"};
static const struct dibs__copies disk = {.on_disk = true, .count = 1, .timeout_ms = 700, .shown = "the server"};

/* What dibs__call_wait returns where the server answers so; *count is what it says. */
static dibs_status wait_answered(struct rig *r, const struct dibs__copies *wait, const char *answer, int64_t *count)
{
    struct dibs__error error;
    uint64_t serial = open_now(r);

    *count = -7;
    fake_redis_answer(r->fake, wait->on_disk ? "WAITAOF 1 0 700" : "WAIT 2 500", answer);
    dibs_status status = dibs__call_wait(r->channel, serial, wait, after(r, COMMAND_MS), count, &error);
    assert_true(status == DIBS_OK || strstr(error.detail, "the server "));
    return status;
}

static void expect_count(struct rig *r, const struct dibs__copies *wait, const char *answer, int64_t expected)
{
    int64_t count;

    assert_status(DIBS_OK, wait_answered(r, wait, answer, &count));
    assert_int_equal(count, expected);
}

TEST(replicas_that_acknowledge_are_counted)
{
    expect_count(*state, &two_replicas, ":1\r\n", 1);
    expect_count(*state, &two_replicas, ":0\r\n", 0);
    expect_count(*state, &two_replicas, ":3\r\n", 3);
    expect_count(*state, &two_replicas, ":-1\r\n", 0);
}

/* The disks of replicas do not count. */
TEST(the_servers_own_disk_counts)
{
    expect_count(*state, &disk, "*2\r\n:1\r\n:0\r\n", 1);
    expect_count(*state, &disk, "*2\r\n:0\r\n:3\r\n", 0);
}

static const struct refused {
    bool on_disk;
    const char *answer;
    dibs_status status;
} refusals[] = {
    {false, "-NOPERM User u has no permissions to run the 'wait' command\r\n", DIBS_DENIED},
    {false, "-ERR unknown command 'WAIT', with args beginning with: '2' \r\n", DIBS_STORE_ERROR},
    {false, "-ERR WAIT cannot be used with replica instances.\r\n", DIBS_UNAVAILABLE},
    {false, "-UNBLOCKED force unblock from blocking operation, instance state changed\r\n", DIBS_UNAVAILABLE},
    {false, "+OK\r\n", DIBS_STORE_ERROR},
    {true, "-NOPERM User u has no permissions to run the 'waitaof' command\r\n", DIBS_DENIED},
    {true, "-ERR unknown command 'WAITAOF', with args beginning with: '1' '0' \r\n", DIBS_STORE_ERROR},
    {true, "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n", DIBS_STORE_ERROR},
    {true, "-ERR WAITAOF cannot be used with replica instances.\r\n", DIBS_UNAVAILABLE},
    {true, ":1\r\n", DIBS_STORE_ERROR},
    {true, "*0\r\n", DIBS_STORE_ERROR},
};

TEST(a_refusal_to_wait_is_told)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refused *row = &refusals[i];
        int64_t count;
        dibs_status status = wait_answered(*state, row->on_disk ? &disk : &two_replicas, row->answer, &count);
        assert_that(status == row->status, "%s %s", row->answer, dibs_status_name(status));
        assert_int_equal(count, 0);
    }
}

TEST_ON(a_missing_answer_gives_no_count, struct rig *r)
{
    struct dibs__error error;
    uint64_t serial = open_now(r);
    int64_t count = -7;

    assert_status(DIBS_UNAVAILABLE,
                  dibs__call_wait(r->channel, serial + 1, &two_replicas, after(r, COMMAND_MS), &count, &error));
    fake_redis_hold(r->fake, true);
    assert_status(DIBS_UNAVAILABLE,
                  dibs__call_wait(r->channel, serial, &two_replicas, moved_clock_now(&r->clock), &count, &error));
    assert_int_equal(count, 0);
}

TESTS(setup, teardown)
