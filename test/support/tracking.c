#include "support/tracking.h"

/* ------------------------------------------------------- what the server says */

/* The number behind "\nNAME" in the text; 0: the text does not name it. */
static long long number_in(const char *text, const char *name, const char *then)
{
    const char *line = strstr(text, name), *found = line ? strstr(line, then) : NULL;

    return found ? atoll(found + strlen(then)) : 0;
}

long long server_info(server *s, const char *name)
{
    redisReply *reply = server_command(s, "INFO everything");
    long long number = number_in(reply->str, formatted("\n%s:", name), ":");

    freeReplyObject(reply);
    return number;
}

long long tracked_pairs(server *s)
{
    return server_info(s, "tracking_total_items");
}

long long tracking_calls(server *s)
{
    redisReply *reply = server_command(s, "INFO commandstats");
    const char *line = "\ncmdstat_client|tracking:";
    long long calls = number_in(reply->str, line, "calls=") + number_in(reply->str, line, "rejected_calls=");

    freeReplyObject(reply);
    return calls;
}

void kill_tracker(server *s)
{
    redisReply *clients = server_command(s, "CLIENT LIST TYPE normal");
    long long id = 0;

    for (char *rest = NULL, *line = strtok_r(clients->str, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *flags = strstr(line, " flags=");
        if (flags && memchr(flags + 7, 't', strcspn(flags + 7, " ")))
            id = number_in(line, "id=", "id=");
    }
    freeReplyObject(clients);
    assert_that(id > 0, "no connection tracks");
    assert_int_equal(server_integer(s, "CLIENT KILL ID %lld", id), 1);
}

/* ------------------------------------------------------------------- waiting */

void await_tracking_again(server *s, dibs_runtime *rt, long long calls)
{
    /* Each beginning is two calls. */
    await_or_say(tracking_calls(s) >= calls + 2 && stats_of(rt).tracking == 1, "it is not tracked again");
}

void await_tracked(server *s, dibs_runtime *rt, long long pairs)
{
    /* While tracking begins, the table also has the key of the probe for a moment: so it is looked at twice. */
    await_or_say(tracked_pairs(s) >= pairs && stats_of(rt).tracking == 1 && tracked_pairs(s) >= pairs,
                 "tracking %lld, %lld pairs", (long long)stats_of(rt).tracking, tracked_pairs(s));
}

void lock_tracked(fixture *f, const char *name)
{
    assert_status(DIBS_OK, dibs_lock(f->rt, name));
    await_tracked(f->server, f->rt, 1);
}

void open_with_tracked(fixture *f, uint32_t lease_ms, const char *name)
{
    fixture_open_patient(f, lease_ms);
    lock_tracked(f, name);
}

void await_invalidations(dibs_runtime *rt, uint64_t count)
{
    assert_that(comes_to(rt, STAT(invalidations), count), "no message comes");
}

void await_renewed(dibs_runtime *rt, uint64_t count)
{
    assert_that(comes_to(rt, STAT(renewed), count), "no renewal");
}

/* -------------------------------------------------------------------- losses */

void expect_told_of_loss(fixture *f, const char *name, int64_t since)
{
    recorded_event lost = events_await(&f->events, DIBS_EVENT_LOST, name);
    int64_t took = now_ms() - since;
    dibs_hold hold;

    assert_that(took < SOON_MS, "the loss is known after %lld ms", (long long)took);
    assert_status(DIBS_LOST, dibs_check(f->rt, name));
    assert_status(DIBS_LOST, dibs_hold_of(f->rt, name, &hold));
    assert_true(lost.fence == hold.fence);
    assert_status(DIBS_LOST, dibs_lock(f->rt, name));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, name));
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, name));
}

void expect_deletion_told(fixture *f, const char *name)
{
    const char *prefix = f->config.key_prefix ? f->config.key_prefix : "lock:";
    int64_t since = now_ms();

    assert_int_equal(server_integer(f->server, "DEL %s%s", prefix, name), 1);
    expect_told_of_loss(f, name, since);
}

void with_odd_names(fixture *f, void (*expect)(fixture *f, const char *name))
{
    char longest[DIBS_NAME_MAX + 1] = "";
    const struct {
        const char *prefix, *name;
    } rows[] = {
        {"lock:", "\x01\xff\r\n{*?[\\]}\" $-1 \x80"},
        {"lock:", longest},
        {"a{b}:", "lock:{x}"},
        {"\xff\n *", "\n"},
        {"\xff\n{*} ", "\n"},
        {"", "x"},
    };

    memset(longest, 'n', DIBS_NAME_MAX);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        print_message("# prefix and name %zu\n", i);
        f->config.key_prefix = rows[i].prefix;
        fixture_open_patient(f, 0);
        expect(f, rows[i].name);
        close_runtime(&f->rt);
        events_forget(&f->events);
        server_do(f->server, "FLUSHALL"); /* what this runtime read is in the table still */
    }
}

void expect_no_loss(fixture *f)
{
    assert_int_equal(events_count(&f->events, DIBS_EVENT_LOST, NULL), 0);
    assert_int_equal(events_count(&f->events, DIBS_EVENT_AT_RISK, NULL), 0);
    assert_int_equal(stats_of(f->rt).lost, 0);
}

void kill_subscription(server *s)
{
    assert_true(server_integer(s, "CLIENT KILL TYPE pubsub") > 0);
}

void kill_all(server *s)
{
    server_do(s, "CLIENT KILL TYPE pubsub");
    server_do(s, "CLIENT KILL TYPE normal SKIPME yes");
}
