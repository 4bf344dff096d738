/* The words that the scripts take, and what their replies say. */
#include "store/redis/codec.h"
#include "support/test.h"

/* A reply as a server would send it; freed by the reader. */
struct read {
    redisReader *reader;
    redisReply *reply;
};

static struct read read_of(const char *bytes)
{
    struct read read = {redisReaderCreate(), NULL};
    void *reply = NULL;

    assert_non_null(read.reader);
    assert_int_equal(redisReaderFeed(read.reader, bytes, strlen(bytes)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(read.reader, &reply), REDIS_OK);
    read.reply = reply;
    assert_non_null(reply);
    return read;
}

static void done(struct read read)
{
    freeReplyObject(read.reply);
    redisReaderFree(read.reader);
}

/* Frees the words. */
static void expect_words(struct dibs__words *words, size_t count, const char *const *expected)
{
    struct dibs__words same = {.count = 0};

    for (size_t i = 0; i < count; i++)
        dibs__words_add_text(&same, expected[i]);
    assert_false(words->failed);
    assert_int_equal(words->count, count);
    assert_int_equal(words->bytes.used, same.bytes.used);
    assert_memory_equal(words->bytes.bytes, same.bytes.bytes, same.bytes.used);
    dibs__words_free(&same);
    dibs__words_free(words);
}

static const struct dibs__ask_words ask = {
    .token = "t", .number = 7, .lease_ms = 30000, .channel = "dibs:1", .not_after = 1234};

/* -------------------------------------------------------------------- words */

TEST(an_ask_has_its_arguments_in_order)
{
    static const char *const queues[] = {"t", "7", "30000", "dibs:1", "1234"};
    static const char *const leaves[] = {"t", "7", "30000", "", "1234", "77"};
    static const char *const behind[] = {"old", "t", "7", "30000", "dibs:1", "1234"};
    struct dibs__ask_words left = ask;
    struct dibs__words words = {.count = 0};

    (void)state;
    dibs__codec_acquire(&words, &ask);
    expect_words(&words, 5, queues);
    left.channel = NULL;
    left.leave = true;
    left.left_fence = 77;
    dibs__codec_acquire(&words, &left);
    expect_words(&words, 6, leaves);
    dibs__codec_requeue(&words, "old", &ask);
    expect_words(&words, 6, behind);
}

TEST(other_scripts_have_their_arguments_in_order)
{
    static const char *const released[] = {"t"};
    static const char *const quietly[] = {"t", "quiet"};
    static const char *const surpassed[] = {"t", "77"};
    static const char *const forced[] = {"99", "abc"};
    static const char *const forced_from_all[] = {"99", "all", "77", "new"};
    static const char *const renewed[] = {"t", "1000", "18446744073709551615", "", "5", "u", "2000", "1", "5", ""};
    static const char *const topped_up[] = {"t", "1000", "*18446744073709551615", "", "!5"};
    static const char *const in_short[] = {"", "t", "u", "1000", "2000"};
    static const char *const as_short_as_can_be[] = {"1000", "t", "u"};
    struct dibs__renewal leases[] = {{.token = "t", .lease_ms = 1000}, {.token = "u", .lease_ms = 2000}};
    struct dibs__words words = {.count = 0};

    (void)state;
    dibs__codec_release(&words, "t", false, 0);
    expect_words(&words, 1, released);
    dibs__codec_release(&words, "t", true, 0);
    expect_words(&words, 2, quietly);
    dibs__codec_release(&words, "t", false, 77);
    expect_words(&words, 2, surpassed);
    dibs__codec_force(&words, 99, &(struct dibs__query_reply){.owner = "abcdef", .owner_size = 3});
    expect_words(&words, 2, forced);
    dibs__codec_force(&words, 99, &(struct dibs__query_reply){.owner = NULL});
    expect_words(&words, 1, forced);
    dibs__codec_force(&words, 99,
                      &(struct dibs__query_reply){
                          .owner = "all", .owner_size = 3, .newest = "new", .newest_size = 3, .newest_fence = 77});
    expect_words(&words, 4, forced_from_all);
    leases[0].fence = UINT64_MAX;
    leases[1].fence = 1;
    leases[1].extension = true;
    dibs__codec_renew(&words, &leases[0], 5, DIBS__RESTORING_BY_FENCE);
    dibs__codec_renew(&words, &leases[1], 5, DIBS__RESTORING_NO);
    expect_words(&words, 10, renewed);
    leases[0].use = DIBS__USE_KEPT;
    dibs__codec_renew(&words, &leases[0], 5, DIBS__RESTORING_ANY_FENCE);
    expect_words(&words, 5, topped_up);
    dibs__codec_renew_short(&words, leases, 2);
    expect_words(&words, 5, in_short);
    leases[1].lease_ms = 1000;
    dibs__codec_renew_short(&words, leases, 2);
    expect_words(&words, 3, as_short_as_can_be);
    dibs__codec_retract(&words, "t", true, 77);
    expect_words(&words, 2, surpassed);
}

/* ------------------------------------------------------------------- replies */

TEST(replies_to_an_ask_are_decoded)
{
    static const struct {
        const char *bytes;
        bool good;
        struct dibs__ask_reply reply;
    } rows[] = {
        {":42\r\n", true, {.code = DIBS__ASK_GRANTED, .fence = 42}},
        {":0\r\n", true, {.code = DIBS__ASK_GRANTED}},
        {":-5\r\n", true, {.code = DIBS__ASK_GRANTED}},
        {":9007199254740992\r\n", true, {.code = DIBS__ASK_GRANTED}},
        {"*4\r\n:0\r\n:500\r\n:1\r\n:3\r\n",
         true,
         {.code = DIBS__ASK_TAKEN, .remaining_ms = 500, .by_dibs = true, .listeners_known = true, .listeners = 3}},
        {"*4\r\n:0\r\n:-1\r\n:0\r\n:-1\r\n", true, {.code = DIBS__ASK_TAKEN, .remaining_ms = -1}},
        {"*4\r\n:0\r\n:5\r\n:0\r\n:0\r\n", true, {.code = DIBS__ASK_TAKEN, .remaining_ms = 5, .listeners_known = true}},
        {"*2\r\n:-1\r\n:77\r\n", true, {.code = DIBS__ASK_LATE, .server_us = 77}},
        {"*2\r\n:-2\r\n:0\r\n", true, {.code = DIBS__ASK_OVERTAKEN}},
        {"*2\r\n:1\r\n:0\r\n", false, {.fence = 0}},
        {"*3\r\n:1\r\n:42\r\n:77\r\n", true, {.code = DIBS__ASK_GRANTED, .fence = 42, .server_us = 77}},
        {"*3\r\n:1\r\n:0\r\n:77\r\n", true, {.code = DIBS__ASK_GRANTED, .server_us = 77}},
        {"*3\r\n:1\r\n:42\r\n:-7\r\n", false, {.fence = 0}},
        {"*2\r\n:-3\r\n:7\r\n", true, {.code = DIBS__ASK_NO_VOTE}},
        {"*2\r\n:-4\r\n:0\r\n", false, {.fence = 0}},
        {"*1\r\n:1\r\n", false, {.fence = 0}},
        {"*2\r\n+OK\r\n:0\r\n", false, {.fence = 0}},
        {"-ERR no\r\n", false, {.fence = 0}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct read read = read_of(rows[i].bytes);
        struct dibs__ask_reply said;
        assert_int_equal(dibs__codec_read_ask(&said, read.reply), rows[i].good);
        if (rows[i].good) {
            assert_int_equal(said.code, rows[i].reply.code);
            assert_int_equal(said.fence, rows[i].reply.fence);
            assert_int_equal(said.remaining_ms, rows[i].reply.remaining_ms);
            assert_int_equal(said.by_dibs, rows[i].reply.by_dibs);
            assert_int_equal(said.listeners_known, rows[i].reply.listeners_known);
            assert_int_equal(said.listeners, rows[i].reply.listeners);
            assert_int_equal(said.server_us, rows[i].reply.server_us);
        }
        done(read);
    }
}

TEST(replies_to_a_release_are_decoded)
{
    static const struct {
        const char *bytes;
        bool good, released, asked, unfinished, shared_on;
    } rows[] = {
        {":4\r\n", true, true, false, false, true},
        {":1\r\n", true, true, false, false, false},
        {":0\r\n", true, false, false, false, false},
        {":-1\r\n", true, false, false, false, false},
        {":3\r\n", true, true, false, true, false},
        {":2\r\n", true, false, false, true, false},
        {"*2\r\n:1\r\n:9\r\n", true, true, true, false, false},
        {"*2\r\n:3\r\n:9\r\n", true, true, true, true, false},
        {"*2\r\n:0\r\n-ERR\r\n", true, false, true, false, false},
        {"*1\r\n:1\r\n", false, false, false, false, false},
        {"-NOPERM\r\n", false, false, false, false, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct read read = read_of(rows[i].bytes);
        struct dibs__release_reply said = {.ask = NULL};
        assert_int_equal(dibs__codec_read_release(&said, read.reply), rows[i].good);
        assert_int_equal(said.released, rows[i].released);
        assert_int_equal(said.ask != NULL, rows[i].asked);
        assert_int_equal(said.unfinished, rows[i].unfinished);
        assert_int_equal(said.shared_on, rows[i].shared_on);
        done(read);
    }
}

TEST(replies_to_a_retraction_are_decoded)
{
    struct read read = read_of("*5\r\n:1000\r\n:1\r\n:-1\r\n-ERR no\r\n:3\r\n");
    int64_t server_us;

    assert_true(dibs__codec_read_retract(read.reply, 4, &server_us));
    assert_int_equal(server_us, 1000);
    assert_false(dibs__codec_read_retract(read.reply, 3, &server_us));
    assert_int_equal(dibs__codec_read_retracted(read.reply, 0), DIBS__RETRACT_GONE);
    assert_int_equal(dibs__codec_read_retracted(read.reply, 1), DIBS__RETRACT_GONE);
    assert_int_equal(dibs__codec_read_retracted(read.reply, 2), DIBS__RETRACT_REFUSED);
    assert_int_equal(dibs__codec_read_retracted(read.reply, 3), DIBS__RETRACT_UNFINISHED);
    done(read);
}

TEST(replies_to_a_renewal_are_decoded)
{
    static const enum dibs__renew_code codes[] = {DIBS__RENEW_DONE,    DIBS__RENEW_RESTORED, DIBS__RENEW_GONE,
                                                  DIBS__RENEW_LATE,    DIBS__RENEW_REFUSED,  DIBS__RENEW_LONGER,
                                                  DIBS__RENEW_ANOTHERS};
    struct read read = read_of("*8\r\n:1\r\n:2\r\n:0\r\n:-500\r\n-OOM\r\n:4\r\n:3\r\n:1000\r\n");
    int64_t server_us;

    assert_true(dibs__codec_read_renew(read.reply, 7, &server_us));
    assert_int_equal(server_us, 1000);
    assert_false(dibs__codec_read_renew(read.reply, 3, &server_us));
    assert_false(dibs__codec_read_renew(read.reply, 8, &server_us));
    for (size_t i = 0; i < 7; i++) {
        struct dibs__renew_reply said = dibs__codec_read_renewed(read.reply, i);
        assert_int_equal(said.code, codes[i]);
        assert_int_equal(said.server_us, codes[i] == DIBS__RENEW_LATE ? 500 : 0);
        assert_int_equal(said.error != NULL, codes[i] == DIBS__RENEW_REFUSED);
    }
    done(read);
}

/* Where all renewals are short ones, the reply is the server's time alone. */
TEST(replies_to_many_renewals_are_decoded)
{
    static const struct {
        const char *bytes;
        bool good;
        int64_t server_us;
    } rows[] = {
        {":1000\r\n", true, 1000},    {":9223372036854775807\r\n", true, INT64_C(1) << 53},
        {":0\r\n", false, 0},         {":-5\r\n", false, 0},
        {"$4\r\n1000\r\n", false, 0},
    };
    int64_t server_us;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct read read = read_of(rows[i].bytes);
        assert_int_equal(dibs__codec_read_renew(read.reply, 300, &server_us), rows[i].good);
        if (rows[i].good) {
            assert_int_equal(server_us, rows[i].server_us);
            assert_int_equal(dibs__codec_read_renewed(read.reply, 299).code, DIBS__RENEW_DONE);
        }
        done(read);
    }
}

TEST(replies_about_an_owner_are_decoded)
{
    struct dibs__query_reply said;
    struct read read = read_of("*5\r\n$5\r\ntoken\r\n:300\r\n$2\r\n41\r\n:2\r\n:77\r\n");

    assert_true(dibs__codec_read_query(&said, read.reply));
    assert_int_equal(said.owner_size, 5);
    assert_memory_equal(said.owner, "token", 5);
    assert_int_equal(said.remaining_ms, 300);
    assert_int_equal(said.fence, 41);
    assert_int_equal(said.waiters, 2);
    assert_int_equal(said.server_us, 77);
    done(read);
    read = read_of("*5\r\n$-1\r\n:-2\r\n$16\r\n9007199254740992\r\n:0\r\n:77\r\n");
    assert_true(dibs__codec_read_query(&said, read.reply));
    assert_null(said.owner);
    assert_int_equal(said.remaining_ms, 0);
    assert_int_equal(said.fence, 0);
    done(read);
    read = read_of("*4\r\n$-1\r\n:-2\r\n$-1\r\n:0\r\n");
    assert_false(dibs__codec_read_query(&said, read.reply));
    done(read);
}

TEST(replies_to_a_forced_unlock_are_decoded)
{
    static const struct {
        const char *bytes;
        bool good, done;
        int64_t late_us;
        bool unfinished;
    } rows[] = {
        {":1\r\n", true, true, 0, false},
        {":2\r\n", true, true, 0, true},
        {":0\r\n", true, false, 0, false},
        {":-500\r\n", true, false, 500, false},
        {":-9223372036854775807\r\n", true, false, INT64_C(1) << 53, false},
        {"+OK\r\n", false, false, 0, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct read read = read_of(rows[i].bytes);
        struct dibs__force_reply said = {.late_us = 0};
        assert_int_equal(dibs__codec_read_force(&said, read.reply), rows[i].good);
        assert_int_equal(said.done, rows[i].done);
        assert_int_equal(said.late_us, rows[i].late_us);
        assert_int_equal(said.unfinished, rows[i].unfinished);
        done(read);
    }
}

/* ------------------------------------------------------- members of a quorum */

TEST(a_vote_has_its_arguments_in_order)
{
    static const char *const looked[] = {"5000", "look", "0", "77", "-", "0", "-", "-"};
    static const char *const admitted[] = {"5000", "admit", "9", "77", "-", "0", "-", "9007199254740990"};
    static const char *const distrusted[] = {"5000", "distrust", "9", "77", "-", "0", "-", "-"};
    static const char *const floored[] = {"5000", "floor", "0", "77", "cafe", "8", "9007199254740991", "-"};
    static const char *const raised[] = {"t", "9007199254740991", "30000"};
    struct dibs__vote vote = {.longest_ms = 5000};
    struct dibs__words words = {.count = 0};

    (void)state;
    dibs__codec_vote(&words, &vote, 77, dibs__codec_run(""));
    expect_words(&words, 8, looked);
    vote.what = DIBS__VOTE_ADMITS;
    vote.wait_ms = 9;
    vote.mark = 9007199254740990;
    dibs__codec_vote(&words, &vote, 77, dibs__codec_run(""));
    expect_words(&words, 8, admitted);
    vote.mark = 0;
    vote.what = DIBS__VOTE_DISTRUSTS;
    dibs__codec_vote(&words, &vote, 77, dibs__codec_run(""));
    expect_words(&words, 8, distrusted);
    vote = (struct dibs__vote){.longest_ms = 5000, .what = DIBS__VOTE_FLOORS, .floor = 9007199254740991, .quorum = 8};
    dibs__codec_vote(&words, &vote, 77, dibs__codec_run("cafe"));
    expect_words(&words, 8, floored);
    dibs__codec_raise(&words, "t", 9007199254740991, 30000);
    expect_words(&words, 3, raised);
}

static void expect_vote(const struct dibs__vote *said, const struct dibs__vote *expected)
{
    assert_int_equal(said->server_us, expected->server_us);
    assert_int_equal(said->known, expected->known);
    assert_int_equal(said->restarted, expected->restarted);
    assert_int_equal(said->ready, expected->ready);
    assert_int_equal(said->votes_in_ms, expected->votes_in_ms);
    assert_int_equal(said->longest_ms, expected->longest_ms);
    assert_int_equal(said->highest, expected->highest);
    assert_int_equal(said->quorum, expected->quorum);
    assert_int_equal(said->mark, expected->mark);
}

TEST(replies_to_a_vote_are_decoded)
{
    static const struct {
        const char *bytes;
        bool good, late;
        struct dibs__vote vote;
    } rows[] = {
        {"*7\r\n:-1\r\n:0\r\n:9\r\n:8\r\n:0\r\n:0\r\n:0\r\n", true, false, {.server_us = 9, .highest = 8}},
        {"*7\r\n:-1\r\n:30000\r\n:9\r\n:8\r\n:1\r\n:5\r\n:7\r\n",
         true,
         false,
         {.server_us = 9, .highest = 8, .quorum = 5, .mark = 7}},
        {"*7\r\n:-2\r\n:30000\r\n:9\r\n:8\r\n:1\r\n:5\r\n:0\r\n",
         true,
         false,
         {.restarted = true, .longest_ms = 30000, .server_us = 9, .highest = 8, .quorum = 5}},
        {"*7\r\n:0\r\n:30000\r\n:9\r\n:8\r\n:0\r\n:5\r\n:0\r\n",
         true,
         false,
         {.known = true, .longest_ms = 30000, .server_us = 9, .highest = 8, .quorum = 5}},
        {"*7\r\n:0\r\n:30000\r\n:9\r\n:8\r\n:1\r\n:5\r\n:0\r\n",
         true,
         false,
         {.known = true, .ready = true, .longest_ms = 30000, .server_us = 9, .highest = 8, .quorum = 5}},
        {"*7\r\n:50\r\n:99999999999\r\n:9\r\n:-8\r\n:1\r\n:-5\r\n:0\r\n",
         true,
         false,
         {.known = true, .votes_in_ms = 50, .longest_ms = DIBS__LEASE_MAX_MS, .server_us = 9}},
        {"*7\r\n:0\r\n:-7\r\n:9\r\n:8\r\n:0\r\n:0\r\n:0\r\n",
         true,
         false,
         {.known = true, .server_us = 9, .highest = 8}},
        {":-77\r\n", true, true, {.server_us = 77}},
        {"*6\r\n:0\r\n:30000\r\n:9\r\n:8\r\n:1\r\n:5\r\n", false, false, {.known = false}},
        {"*7\r\n:0\r\n:30000\r\n:-9\r\n:8\r\n:1\r\n:5\r\n:0\r\n", false, false, {.known = false}},
        {":0\r\n", false, true, {.known = false}},
        {":77\r\n", false, true, {.known = false}},
        {"*1\r\n:0\r\n", false, false, {.known = false}},
        {"*2\r\n+a\r\n:0\r\n", false, false, {.known = false}},
        {"-ERR no\r\n", false, false, {.known = false}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct read read = read_of(rows[i].bytes);
        struct dibs__vote said = {.longest_ms = 0};
        bool late;
        assert_int_equal(dibs__codec_read_vote(&said, &late, read.reply), rows[i].good);
        assert_int_equal(late, rows[i].late);
        if (rows[i].good)
            expect_vote(&said, &rows[i].vote);
        done(read);
    }
}

TESTS(NULL, NULL)
