/* What replies mean, how commands are written, which keys a lock has. */
#include <hiredis/hiredis.h>

#include "redis/buffer.h"
#include "redis/call.h"
#include "redis/reply.h"
#include "redis/scripts.h"
#include "store/redis/codec.h"
#include "support/test.h"

/* The reply of those bytes, to be freed. */
static redisReply *parsed(const char *bytes)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    redisReaderFeed(reader, bytes, strlen(bytes));
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    redisReaderFree(reader);
    return reply;
}

TEST(errors_have_statuses)
{
    static const struct {
        const char *text;
        dibs_status status;
    } rows[] = {
        {"NOAUTH Authentication required.", DIBS_DENIED},
        {"WRONGPASS invalid username-password pair", DIBS_DENIED},
        {"NOPERM this user has no permissions", DIBS_DENIED},
        {"ERR The user executing the script can't run this command or subcommand script: 83, on @user_script:7.",
         DIBS_DENIED},
        {"ERR Error running script (call to f_83): @user_script:1: @user_script: 1: The user executing the script "
         "can't "
         "run this command or subcommand",
         DIBS_DENIED},
        {"ERR ACL failure in script: User u has no permissions to run the 'set' command script: 0c, on @user_script:1.",
         DIBS_DENIED},
        {"DENIED Redis is running in protected mode", DIBS_DENIED},
        {"ERR AUTH <password> called without any password configured", DIBS_DENIED},
        {"ERR invalid password", DIBS_DENIED},
        {"NOSCRIPT No matching script.", DIBS_DENIED},
        {"LOADING Redis is loading the dataset in memory", DIBS_UNAVAILABLE},
        {"READONLY You can't write against a read only replica.", DIBS_UNAVAILABLE},
        {"MASTERDOWN Link with MASTER is down", DIBS_UNAVAILABLE},
        {"CLUSTERDOWN The cluster is down", DIBS_UNAVAILABLE},
        {"TRYAGAIN Multiple keys request during rehashing of slot", DIBS_UNAVAILABLE},
        {"BUSY Redis is busy running a script.", DIBS_UNAVAILABLE},
        {"ERR max number of clients reached", DIBS_UNAVAILABLE},
        {"OOM command not allowed when used memory > 'maxmemory'.", DIBS_STORE_ERROR},
        {"MISCONF Redis is configured to save RDB snapshots", DIBS_STORE_ERROR},
        {"WRONGTYPE Operation against a key", DIBS_STORE_ERROR},
        {"ERR unknown command", DIBS_STORE_ERROR},
        {"BUSYKEY Target key name already exists.", DIBS_STORE_ERROR},
        {"", DIBS_STORE_ERROR},
        {"ERR Error running script (call to f_x): @user_script:5: READONLY You can't write", DIBS_UNAVAILABLE},
        {"ERR Error running script (call to f_x): @user_script:5: NOPERM no", DIBS_DENIED},
        {"ERR the word READONLY somewhere else", DIBS_STORE_ERROR},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_that(dibs__reply_status(rows[i].text) == rows[i].status, "%s", rows[i].text);
}

TEST(an_unexpected_reply_is_a_store_error)
{
    struct dibs__error error;
    redisReply *wrong = parsed("-NOPERM you\r\n"), *strange = parsed("+OK\r\n"), *lacks = parsed("-NOSCRIPT no\r\n");

    assert_status(DIBS_DENIED, dibs__reply_error(&error, wrong, "h:1", "locking"));
    assert_string_equal(error.detail, "locking: h:1 answered: NOPERM you");
    assert_true(dibs__reply_is_error(wrong, "NOPERM"));
    assert_false(dibs__reply_is_error(wrong, "NOSCRIPT"));
    assert_status(DIBS_DENIED, dibs__reply_error(&error, lacks, "h:1", "locking"));
    assert_string_equal(error.detail, "locking: h:1 does not have the script, and refuses SCRIPT LOAD; the account had "
                                      "no right to EVAL when it connected");
    assert_status(DIBS_STORE_ERROR, dibs__reply_error(&error, strange, "h:1", "locking"));
    assert_false(dibs__reply_is_error(strange, "OK"));
    freeReplyObject(wrong);
    freeReplyObject(strange);
    freeReplyObject(lacks);
}

TEST(a_refusal_of_a_replica_is_seen_wherever_it_stands)
{
    static const struct {
        const char *bytes;
        bool tells;
    } rows[] = {
        {"-READONLY You can't write against a read only replica.\r\n", true},
        {"-MASTERDOWN Link with MASTER is down\r\n", true},
        {"*2\r\n-READONLY no\r\n:1\r\n", true},
        {"*2\r\n:1\r\n-READONLY no\r\n", true},
        {"*2\r\n:1\r\n-OOM no\r\n", false},
        {"$8\r\nREADONLY\r\n", false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        redisReply *reply = parsed(rows[i].bytes);
        assert_that(dibs__reply_tells_of_a_replica(reply) == rows[i].tells, "%s", rows[i].bytes);
        freeReplyObject(reply);
    }
}

/* Since Redis 7.2 the refusal names the user, whose name may have quotes. */
TEST(a_refusal_forbids_the_command_that_it_names)
{
    static const struct {
        const char *bytes;
        bool forbids;
    } rows[] = {
        {"-NOPERM this user has no permissions to run the 'evalsha' command\r\n", true},
        {"-NOPERM User u has no permissions to run the 'evalsha' command\r\n", true},
        {"-NOPERM User o'brien has no permissions to run the 'evalsha' command\r\n", true},
        {"-NOPERM User o'brien has no permissions to run the 'eval' command\r\n", false},
        {"-NOPERM User 'evalsha has no permissions to run the 'evalsha_ro' command\r\n", false},
        {"-NOPERM User u has no permissions to run the 'evalsha\r\n", false},
        {"-ERR unknown command `EVALSHA`, with args beginning with: `x`\r\n", true},
        {"-ERR something about 'evalsha'\r\n", false},
        {"$9\r\n'evalsha'\r\n", false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        redisReply *reply = parsed(rows[i].bytes);
        assert_that(dibs__reply_forbids(reply, "evalsha") == rows[i].forbids, "%s", rows[i].bytes);
        freeReplyObject(reply);
    }
}

TEST(integers_are_taken_only_from_where_they_are)
{
    static const struct {
        const char *bytes;
        size_t at;
        bool good;
        int64_t value;
    } rows[] = {
        {"*2\r\n:1\r\n:-7\r\n", 0, true, 1},
        {"*2\r\n:1\r\n:-7\r\n", 1, true, -7},
        {"*2\r\n:1\r\n:-7\r\n", 2, false, 0},
        {"*1\r\n$1\r\n1\r\n", 0, false, 0},
        {"*0\r\n", 0, false, 0},
        {"*-1\r\n", 0, false, 0},
        {":5\r\n", 0, false, 0},
        {"*1\r\n:9007199254740991\r\n", 0, true, DIBS__REPLY_MOST - 1},
        {"*1\r\n:9223372036854775807\r\n", 0, true, DIBS__REPLY_MOST},
        {"*1\r\n:-9223372036854775808\r\n", 0, true, -DIBS__REPLY_MOST},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        redisReply *reply = parsed(rows[i].bytes);
        int64_t value = 0;
        assert_int_equal(dibs__reply_integer(reply, rows[i].at, &value), rows[i].good);
        assert_int_equal(value, rows[i].value);
        freeReplyObject(reply);
    }
}

/* ------------------------------------------------------------------ buffer */

TEST(a_buffer_leaves_lent_memory_when_it_outgrows_it)
{
    static const char word[] = "$3\r\nabc\r\n";
    char room[100];
    struct dibs__words words = {.bytes = {.bytes = room, .cap = sizeof room, .is_lent = true}};

    for (; words.bytes.is_lent; dibs__words_add_text(&words, "abc"))
        assert_ptr_equal(words.bytes.bytes, room);
    assert_ptr_not_equal(words.bytes.bytes, room);
    assert_true(words.count > 1);
    assert_int_equal(words.bytes.used, words.count * strlen(word));
    for (size_t at = 0; at < words.bytes.used; at += strlen(word))
        assert_memory_equal(words.bytes.bytes + at, word, strlen(word));
    dibs__words_free(&words);
    struct dibs__buffer unused = {.bytes = room, .cap = sizeof room, .is_lent = true};
    dibs__buffer_free(&unused); /* frees nothing */
    assert_null(unused.bytes);
}

TEST(a_buffer_keeps_what_it_is_given_in_order)
{
    static char all[300000];
    struct dibs__words words = {{0}, 0, false};
    struct dibs__buffer *buffer = &words.bytes;
    size_t written = 0, read = 0;

    for (unsigned round = 1; round <= 2000; round++) {
        char text[100];
        size_t size = (round * 37) % sizeof text;
        memset(text, (int)('a' + round % 26), size);
        dibs__words_add(&words, text, size);
        written += (size_t)snprintf(all + written, sizeof all - written, "$%zu\r\n%.*s\r\n", size, (int)size, text);
        assert_int_equal(buffer->used, written - read);
        assert_memory_equal(buffer->bytes, all + read, buffer->used);
        size_t drop = round % 3 == 0 ? buffer->used : buffer->used / 2;
        dibs__buffer_drop(buffer, drop);
        read += drop;
    }
    dibs__words_free(&words);
    assert_null(buffer->bytes);
    dibs__buffer_free(buffer);
}

TEST(a_command_is_written_as_redis_wants_it)
{
    static const char expected[] = "*6\r\n$3\r\nSET\r\n$3\r\na\0b\r\n$0\r\n\r\n$2\r\nPX\r\n"
                                   "$20\r\n-9223372036854775808\r\n$19\r\n9223372036854775807\r\n";
    struct dibs__words more = {.count = 0};
    struct dibs__buffer buffer = {0};

    (void)state;
    dibs__words_add(&more, "a\0b", 3);
    dibs__words_add(&more, "", 0);
    dibs__words_add_text(&more, "PX");
    dibs__words_add_number(&more, INT64_MIN);
    dibs__words_add_number(&more, INT64_MAX);
    assert_true(dibs__buffer_command(&buffer, (const char *const[]){"SET", NULL}, &more));
    assert_int_equal(buffer.used, sizeof expected - 1);
    assert_memory_equal(buffer.bytes, expected, sizeof expected - 1);
    dibs__words_free(&more);
    dibs__buffer_free(&buffer);
}

TEST(the_words_of_a_command_may_be_texts)
{
    static const char expected[] = "*2\r\n$3\r\nGET\r\n$0\r\n\r\n";
    const char *words[] = {"GET", "", NULL};
    struct dibs__buffer buffer = {0};

    (void)state;
    assert_true(dibs__buffer_command(&buffer, words, NULL));
    assert_int_equal(buffer.used, sizeof expected - 1);
    assert_memory_equal(buffer.bytes, expected, sizeof expected - 1);
    dibs__buffer_free(&buffer);
}

/* -------------------------------------------------------- keys and scripts */

TEST(keys_are_in_the_slot_of_the_lock)
{
    static const struct {
        const char *prefix, *name, *keys[DIBS__KEYS];
    } rows[] = {
        {"lock:", "a", {"lock:a", "dibs:fence:{lock:a}", "dibs:queue:{lock:a}"}},
        {"", "a", {"a", "dibs:fence:{a}", "dibs:queue:{a}"}},
        {"lock:", "{u}a", {"lock:{u}a", "dibs:fencet:lock:{u}a", "dibs:queuet:lock:{u}a"}},
        {"{p}:", "a", {"{p}:a", "dibs:fencet:{p}:a", "dibs:queuet:{p}:a"}},
        /* an empty hash tag does not count */
        {"lock:", "{}a", {"lock:{}a", "dibs:fence:{lock:{}a}", "dibs:queue:{lock:{}a}"}},
        {"", "{}{u}", {"{}{u}", "dibs:fence:{{}{u}}", "dibs:queue:{{}{u}}"}},
        {"lock:", "a{", {"lock:a{", "dibs:fence:{lock:a{}", "dibs:queue:{lock:a{}"}},
    };
    struct dibs__key key;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int kind = 0; kind < DIBS__KEYS; kind++) {
            dibs__key_of(&key, (enum dibs__key_kind)kind, rows[i].prefix, rows[i].name);
            assert_string_equal(key.bytes, rows[i].keys[kind]);
            assert_int_equal(key.size, strlen(rows[i].keys[kind]));
        }
    }
}

TEST(the_longest_keys_fit)
{
    char prefix[DIBS__PREFIX_MAX + 1], name[DIBS_NAME_MAX + 1];
    struct dibs__key key;

    memset(prefix, 'p', sizeof prefix - 1);
    memset(name, 'n', sizeof name - 1);
    prefix[sizeof prefix - 1] = name[sizeof name - 1] = '\0';
    dibs__key_of(&key, DIBS__KEY_LOCK, prefix, name);
    assert_int_equal(strlen(key.bytes), DIBS__PREFIX_MAX + DIBS_NAME_MAX);
    for (int kind = DIBS__KEY_LOCK + 1; kind < DIBS__KEYS; kind++) {
        dibs__key_of(&key, (enum dibs__key_kind)kind, prefix, name);
        assert_int_equal(strlen(key.bytes), key.size);
        assert_int_equal(key.bytes[key.size - 1], '}');
    }
    name[0] = '{';
    name[2] = '}';
    dibs__key_of(&key, DIBS__KEY_QUEUE, prefix, name); /* as long as any */
    assert_int_equal(strlen(key.bytes), key.size);
    assert_int_equal(key.size, strlen("dibs:queuet:") + DIBS__PREFIX_MAX + DIBS_NAME_MAX);
}

TEST(scripts_are_bare_code_without_comments)
{
    for (int i = 0; i < DIBS__SCRIPT_COUNT; i++) {
        const char *text = dibs__scripts[i].text;
        assert_true(strlen(text) > 20);
        assert_non_null(strstr(text, "redis.call"));
        assert_null(strstr(text, "--"));
        assert_null(strstr(text, "@insert"));
    }
}

TESTS(NULL, NULL)
