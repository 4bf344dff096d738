/* One connection until it is ready: what is asked in which order, what may be refused, and which address is tried. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "redis/link.h"
#include "support/fake_redis.h"
#include "support/test.h"
#include "support/wait.h"

struct rig {
    fake_redis *fake;
    struct dibs__endpoint endpoint;
    atomic_uint_fast64_t commands, errors;
    struct dibs__error error; /* of the last attempt */
};

static void use_url(struct rig *r, const char *text)
{
    dibs__endpoint_free(&r->endpoint);
    fake_redis_endpoint(&r->endpoint, text, &r->commands, &r->errors);
}

static int setup(void **state)
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

static int teardown(void **state)
{
    struct rig *r = *state;

    dibs__endpoint_free(&r->endpoint);
    fake_redis_stop(r->fake);
    return 0;
}

/* ----------------------------------------------------------------- helpers */

/* Connects. NULL: it failed, r->error says why. */
static struct dibs__link *try_connect_for(struct rig *r, enum dibs__link_use use, const struct dibs__link_id *before)
{
    int64_t until = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);
    struct dibs__link *link = dibs__link_start(&r->endpoint, use, before, &r->error);

    if (!link)
        return NULL;
    dibs_status status = dibs__link_finish(link, &dibs__system_clock, until, until, &r->error);
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

static struct dibs__link *try_connect(struct rig *r, const struct dibs__link_id *before)
{
    return try_connect_for(r, DIBS__LINK_COMMANDS, before);
}

static struct dibs__link *connected(struct rig *r, const struct dibs__link_id *before)
{
    struct dibs__link *link = try_connect(r, before);

    assert_that(link, "%s", r->error.detail);
    return link;
}

static struct dibs__link_id connect_and_leave(struct rig *r, const struct dibs__link_id *before)
{
    struct dibs__link *link = connected(r, before);
    struct dibs__link_id id = link->id;

    dibs__link_free(link);
    return id;
}

static void expect_refused(struct rig *r, const char *prefix, const char *reply, dibs_status status)
{
    fake_redis_answer(r->fake, prefix, reply);
    assert_null(try_connect(r, NULL));
    assert_that(r->error.status == status, "%s: %s", reply, r->error.detail);
}

/* The commands that came, in this order and no others between the first and the last. */
static void expect_in_order(struct rig *r, const char *const *prefixes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_that(fake_redis_place(r->fake, prefixes[i], 1) == (int)i, "%s: place %d", prefixes[i],
                    fake_redis_place(r->fake, prefixes[i], 1));
}

/* ---------------------------------------------------------------- greeting */

static void it_greets_in_order(void **state)
{
    static const char *const order[] = {
        "CLIENT SETNAME tester", "CLIENT ID",  "INFO server", "CLIENT KILL ID 9223372036854775807", "TIME",
        "INFO replication",      "SCRIPT LOAD"};
    struct rig *r = *state;

    struct dibs__link *link = connected(r, NULL);
    expect_in_order(r, order, sizeof order / sizeof *order);
    assert_int_equal(fake_redis_count(r->fake, "SCRIPT LOAD"), DIBS__SCRIPT_COUNT);
    assert_int_equal(fake_redis_place(r->fake, "EVAL return 1 0", 1), 6 + DIBS__SCRIPT_COUNT);
    assert_int_equal(fake_redis_place(r->fake, "PUBLISH dibs:test ", 1), 7 + DIBS__SCRIPT_COUNT);
    assert_int_equal(fake_redis_place(r->fake, "INFO cluster", 1), 8 + DIBS__SCRIPT_COUNT);
    assert_int_equal(r->commands, 9 + DIBS__SCRIPT_COUNT);
    assert_true(link->may_publish);
    assert_int_equal(link->id.client, 1);
    assert_string_equal(link->id.run_id, FAKE_RUN_ID);
    assert_true(link->id.may_kill && dibs__link_can_be_ended(&link->id));
    assert_int_equal(link->server_ahead_us, 5000007 - link->greeted_at / 1000);
    for (int i = 0; i < DIBS__SCRIPT_COUNT; i++) /* the fake tells as a sha which command it was */
        assert_int_equal(strtol(link->shas[i], NULL, 10), 7 + i);
    dibs__link_free(link);
}

static void it_is_let_in_first(void **state)
{
    static const char *const order[] = {"AUTH user secret", "SELECT 3", "CLIENT SETNAME", "CLIENT ID"};
    struct rig *r = *state;
    char url[96];

    snprintf(url, sizeof url, "redis://user:secret@127.0.0.1:%u/3", fake_redis_port(r->fake));
    use_url(r, url);
    connect_and_leave(r, NULL);
    expect_in_order(r, order, sizeof order / sizeof *order);
}

static void a_password_alone_needs_no_user(void **state)
{
    static const char *const order[] = {"AUTH secret", "CLIENT SETNAME"};
    struct rig *r = *state;
    char url[96];

    snprintf(url, sizeof url, "redis://:secret@127.0.0.1:%u", fake_redis_port(r->fake));
    use_url(r, url);
    connect_and_leave(r, NULL);
    expect_in_order(r, order, sizeof order / sizeof *order);
    assert_int_equal(fake_redis_count(r->fake, "SELECT"), 0);
}

/* What it says of itself is the same: the next one must be able to end it. */
static void for_subscriptions_it_is_only_let_in(void **state)
{
    static const char *const order[] = {"AUTH user secret", "CLIENT SETNAME tester", "CLIENT ID", "INFO server",
                                        "CLIENT KILL ID 9223372036854775807"};
    static const struct dibs__link_id before = {.client = 77, .run_id = FAKE_RUN_ID, .may_kill = true};
    struct rig *r = *state;
    char url[96];

    snprintf(url, sizeof url, "redis://user:secret@127.0.0.1:%u/3", fake_redis_port(r->fake));
    use_url(r, url);
    struct dibs__link *link = try_connect_for(r, DIBS__LINK_SUBSCRIPTIONS, &before);
    assert_that(link, "%s", r->error.detail);
    expect_in_order(r, order, sizeof order / sizeof *order);
    assert_int_equal(fake_redis_place(r->fake, "CLIENT KILL ID 77", 1), 5);
    assert_int_equal(fake_redis_count(r->fake, ""), 6);
    assert_true(link->id.client == 1 && dibs__link_can_be_ended(&link->id));
    dibs__link_free(link);
}

static void it_goes_on_after_a_deadline(void **state)
{
    struct rig *r = *state;
    int64_t until = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);

    fake_redis_hold(r->fake, true);
    struct dibs__link *link = dibs__link_start(&r->endpoint, DIBS__LINK_COMMANDS, NULL, &r->error);
    assert_non_null(link);
    /* no answer, deadline over: it may go on */
    assert_int_equal(dibs__link_finish(link, &dibs__system_clock, 0, until, &r->error), DIBS_TIMEOUT);
    while (fake_redis_count(r->fake, "EVAL return 1") == 0)
        assert_int_equal(dibs__link_finish(link, &dibs__system_clock, 0, until, &r->error), DIBS_TIMEOUT);
    assert_int_equal(link->state, DIBS__LINK_GREETING);
    fake_redis_hold(r->fake, false);
    assert_status(DIBS_OK, dibs__link_finish(link, &dibs__system_clock, until, until, &r->error));
    assert_int_equal(link->state, DIBS__LINK_READY);
    dibs__link_free(link);
}

/* ------------------------------------------------------------- predecessor */

static void it_ends_the_one_that_it_replaces(void **state)
{
    struct rig *r = *state;
    struct dibs__link_id first = connect_and_leave(r, NULL);

    connect_and_leave(r, &first);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
    /* when the second is let in, behind its greeting */
    assert_true(fake_redis_place(r->fake, "CLIENT KILL ID 1", 1) > fake_redis_place(r->fake, "EVAL return 1", 2));
}

/* Only whether it may is asked: for the id of nobody. */
static void expect_not_killed(struct rig *r, struct dibs__link_id before)
{
    unsigned kills = fake_redis_count(r->fake, "CLIENT KILL");

    connect_and_leave(r, &before);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL"), kills + 1);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 9223372036854775807"), kills + 1);
}

static void another_servers_connection_is_let_be(void **state)
{
    struct rig *r = *state;
    struct dibs__link_id first = connect_and_leave(r, NULL);

    memset(first.run_id, 'e', 40);
    expect_not_killed(r, first);
}

static void what_cannot_be_named_is_let_be(void **state)
{
    struct rig *r = *state;
    const struct dibs__link_id first = connect_and_leave(r, NULL);
    struct dibs__link_id changed = first;

    changed.client = 0;
    expect_not_killed(r, changed);
    changed = first;
    changed.may_kill = false;
    expect_not_killed(r, changed);
    changed = first;
    changed.run_id[0] = 0;
    expect_not_killed(r, changed);
    fake_redis_answer(r->fake, "INFO", "-NOPERM no right\r\n"); /* who knows whether it is the same server */
    expect_not_killed(r, first);
}

/* --------------------------------------------------------- the server's number */

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define RUN(id) "$49\r\nrun_id:" id "\r\n\r\n"
#define REPLICATION(id) "$69\r\nrole:master\r\nmaster_replid:" id "\r\n\r\n"

static uint64_t server_of(struct rig *r, const char *info_server, const char *info_replication)
{
    fake_redis_answer(r->fake, "INFO server", info_server);
    fake_redis_answer(r->fake, "INFO replication", info_replication);
    struct dibs__link *link = connected(r, NULL);
    uint64_t server = dibs__link_server(link);
    dibs__link_free(link);
    return server;
}

/* By it a lease that a restart or a failover may have cost is told from one that was deleted. */
static void another_server_has_another_number(void **state)
{
    struct rig *r = *state;
    uint64_t first = server_of(r, RUN(ID_A), REPLICATION(ID_A));

    assert_true(first != 0);
    assert_true(server_of(r, RUN(ID_A), REPLICATION(ID_A)) == first);
    uint64_t others[] = {
        server_of(r, RUN(ID_B), REPLICATION(ID_A)), /* restarted, or a replica that was promoted */
        server_of(r, RUN(ID_A), REPLICATION(ID_B)), /* its data are another's */
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

static void a_server_that_is_not_known_has_no_number(void **state)
{
    struct rig *r = *state;

    assert_true(server_of(r, "-NOPERM no right\r\n", REPLICATION(ID_A)) == 0);
    assert_true(server_of(r, "$13\r\nrun_id:short\n\r\n", REPLICATION(ID_A)) == 0);
    struct dibs__link *link = try_connect_for(r, DIBS__LINK_SUBSCRIPTIONS, NULL);
    assert_true(link && dibs__link_server(link) == 0);
    dibs__link_free(link);
}

/* ----------------------------------------------------------------- cluster */

static bool is_in_a_cluster(struct rig *r, const char *info)
{
    fake_redis_answer(r->fake, "INFO cluster", info);
    struct dibs__link *link = connected(r, NULL);
    bool cluster = link->cluster;
    dibs__link_free(link);
    return cluster;
}

static void a_server_says_whether_it_is_in_a_cluster(void **state)
{
    struct rig *r = *state;

    assert_true(is_in_a_cluster(r, "$30\r\n# Cluster\r\ncluster_enabled:1\r\n\r\n"));
    assert_false(is_in_a_cluster(r, "$30\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n"));
    assert_false(is_in_a_cluster(r, "$0\r\n\r\n"));
    assert_false(is_in_a_cluster(r, "-NOPERM no right\r\n"));
}

/* ---------------------------------------------------------------- refusals */

static void rights_that_are_good_to_have_may_be_missing(void **state)
{
    static const char *const commands[] = {"CLIENT", "INFO", "TIME", "SCRIPT"};
    struct rig *r = *state;

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fake_redis_answer(r->fake, commands[i], "-NOPERM this user has no permissions\r\n");
    struct dibs__link *link = connected(r, NULL);
    assert_int_equal(link->id.client, 0);
    assert_false(link->id.may_kill);
    assert_false(dibs__link_can_be_ended(&link->id));
    assert_string_equal(link->id.run_id, "");
    for (int i = 0; i < DIBS__SCRIPT_COUNT; i++)
        assert_string_equal(link->shas[i], "");
    dibs__link_free(link);
}

static void eval_may_be_forbidden_where_the_scripts_are_loaded(void **state)
{
    struct rig *r = *state;

    fake_redis_answer(r->fake, "EVAL return 1", "-NOPERM no right\r\n");
    connect_and_leave(r, NULL);
    expect_refused(r, "SCRIPT LOAD", "-NOPERM no right\r\n", DIBS_DENIED);
}

static void who_is_not_let_in_gets_no_connection(void **state)
{
    struct rig *r = *state;
    char url[96];

    snprintf(url, sizeof url, "redis://user:secret@127.0.0.1:%u/3", fake_redis_port(r->fake));
    use_url(r, url);
    expect_refused(r, "SELECT", "-ERR DB index is out of range\r\n", DIBS_STORE_ERROR);
    expect_refused(r, "SELECT", "-NOPERM no right\r\n", DIBS_DENIED);
    expect_refused(r, "AUTH", "-WRONGPASS invalid username-password pair\r\n", DIBS_DENIED);
    assert_null(strstr(r->error.detail, "secret"));
}

static void a_server_that_takes_no_scripts_is_of_no_use(void **state)
{
    struct rig *r = *state;

    expect_refused(r, "SCRIPT LOAD", "-ERR unknown command\r\n", DIBS_STORE_ERROR);
    expect_refused(r, "SCRIPT LOAD", ":1\r\n", DIBS_STORE_ERROR);
    expect_refused(r, "SCRIPT LOAD", "-LOADING Redis is loading the dataset in memory\r\n", DIBS_UNAVAILABLE);
}

/* Each says which of our commands it was, and what is wrong in words of ours: a server may repeat what it was sent. */
static void a_refusal_is_told_in_our_words(void **state)
{
    static const struct {
        const char *prefix, *reply;
        dibs_status status;
        const char *command, *meaning;
    } cases[] = {
        {"AUTH", "-WRONGPASS xyz\r\n", DIBS_DENIED, "AUTH", "password is wrong (WRONGPASS)"},
        {"AUTH", "-ERR unknown command 'AUTH', xyz\r\n", DIBS_STORE_ERROR, "AUTH", "unknown command (ERR)"},
        {"AUTH", "-ERR AUTH <password> called xyz\r\n", DIBS_DENIED, "AUTH", "no password is set"},
        {"AUTH", "-ERR max number of clients xyz\r\n", DIBS_UNAVAILABLE, "the connection", "many clients"},
        {"AUTH", "-DENIED xyz\r\n", DIBS_DENIED, "the connection", "protected mode"},
        {"AUTH", "-xyz\r\n", DIBS_STORE_ERROR, "AUTH", "not shown"},
        {"AUTH", "-ERR xyz\r\n", DIBS_STORE_ERROR, "AUTH", "not shown"},
        {"SELECT", "-ERR DB index is out of range xyz\r\n", DIBS_STORE_ERROR, "SELECT", "no database"},
        {"SELECT", "-ERR SELECT is not allowed in cluster mode xyz\r\n", DIBS_STORE_ERROR, "SELECT", "cluster"},
        {"CLIENT SETNAME", "-NOAUTH xyz\r\n", DIBS_DENIED, "CLIENT SETNAME", "wants a password (NOAUTH)"},
        {"SCRIPT", "-LOADING xyz\r\n", DIBS_UNAVAILABLE, "SCRIPT LOAD", "LOADING"},
        {"SCRIPT", ":1\r\n", DIBS_STORE_ERROR, "SCRIPT LOAD", "as no Redis server does"},
        {"EVAL", "-ERR xyz\r\n", DIBS_STORE_ERROR, "EVAL", "ERR"},
        {"INFO", "-BUSY xyz\r\n", DIBS_UNAVAILABLE, "INFO", "BUSY"},
        {"TIME", "xyz\r\n", DIBS_STORE_ERROR, "127.0.0.1", "does not speak as a Redis server"},
    };
    struct rig *r = *state;
    char url[96];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake_redis_stop(r->fake);
        r->fake = fake_redis_start(true);
        snprintf(url, sizeof url, "redis://user:secret@127.0.0.1:%u/3", fake_redis_port(r->fake));
        use_url(r, url);
        expect_refused(r, cases[i].prefix, cases[i].reply, cases[i].status);
        assert_that(strstr(r->error.detail, cases[i].command) && strstr(r->error.detail, cases[i].meaning) &&
                        !strstr(r->error.detail, "xyz"),
                    "%s", r->error.detail);
    }
}

static void a_right_that_is_missing_is_named(void **state)
{
    struct rig *r = *state;

    fake_redis_answer(r->fake, "SCRIPT", "-NOPERM xyz\r\n");
    expect_refused(r, "EVAL", "-NOPERM xyz\r\n", DIBS_DENIED);
    assert_non_null(strstr(r->error.detail, "EVAL: the account has no permission for that (NOPERM)"));
}

/* ----------------------------------------------------------------- garbage */

static void a_huge_array_is_not_allocated(void **state)
{
    struct rig *r = *state;

    expect_refused(r, "TIME", "*1000000000\r\n", DIBS_STORE_ERROR);
    expect_refused(r, "TIME", "*4097\r\n", DIBS_STORE_ERROR);
}

static void a_server_of_another_kind_is_told(void **state)
{
    struct rig *r = *state;

    expect_refused(r, "CLIENT", "HTTP/1.1 400 Bad Request\r\n", DIBS_STORE_ERROR);
}

static void odd_answers_are_as_good_as_none(void **state)
{
    struct rig *r = *state;

    fake_redis_answer(r->fake, "TIME", "*2\r\n:1\r\n:2\r\n");
    fake_redis_answer(r->fake, "CLIENT ID", "+what\r\n");
    fake_redis_answer(r->fake, "INFO", "$13\r\nrun_id:short\n\r\n");
    struct dibs__link *link = connected(r, NULL);
    assert_int_equal(link->server_ahead_us, 0);
    assert_int_equal(link->id.client, 0);
    assert_string_equal(link->id.run_id, "");
    dibs__link_free(link);
}

static void a_server_that_hangs_up_is_not_there(void **state)
{
    struct rig *r = *state;

    fake_redis_refuse(r->fake, true);
    assert_null(try_connect(r, NULL));
    assert_int_equal(r->error.status, DIBS_UNAVAILABLE);
}

/* --------------------------------------------------------------- addresses */

static struct dibs__address loopback(unsigned short port)
{
    struct dibs__address address = {.length = sizeof(struct sockaddr_in)};
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    name.sin_port = htons(port);
    memcpy(&address.name, &name, sizeof name);
    return address;
}

/* A port of 127.0.0.1 that refuses connections as long as the socket, which only keeps it from others, is open. */
static unsigned short closed_port(int *keeper)
{
    struct dibs__address address = loopback(0);
    struct sockaddr_in name;
    socklen_t length = sizeof name;

    *keeper = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(*keeper >= 0);
    assert_int_equal(bind(*keeper, (struct sockaddr *)&address.name, address.length), 0);
    assert_int_equal(getsockname(*keeper, (struct sockaddr *)&name, &length), 0);
    return ntohs(name.sin_port);
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* As many as then: the fake server, in this process, closes its ends a little later. */
static bool are_so_many(void *arg)
{
    return open_descriptors() == *(unsigned *)arg;
}

static void the_next_address_is_tried(void **state)
{
    struct rig *r = *state;
    int keeper;
    unsigned short closed = closed_port(&keeper);
    unsigned descriptors = open_descriptors();

    r->endpoint.addresses[0] = loopback(closed);
    r->endpoint.addresses[1] = loopback(closed);
    r->endpoint.addresses[2] = loopback(fake_redis_port(r->fake));
    r->endpoint.address_count = 3;
    struct dibs__link *link = connected(r, NULL);
    assert_int_equal(link->address, 2);
    assert_int_equal(r->endpoint.failures, 0);
    dibs__link_free(link);
    assert_that(wait_until(are_so_many, &descriptors, LIMIT_MS), "%u, not %u", open_descriptors(), descriptors);
    close(keeper);
}

/* An address that says nothing: it listens, but has no room for another connection. */
struct silent {
    int listener, fillers[16];
    size_t count;
    struct dibs__address address;
};

static bool connects(const struct dibs__address *address, int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};

    if (connect(fd, (const struct sockaddr *)&address->name, address->length) != 0)
        assert_int_equal(errno, EINPROGRESS);
    return poll(&wait, 1, 200) == 1;
}

/* Connections fill its backlog: until two in a row come to no end. */
static void make_silent(struct silent *silent)
{
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    int unanswered = 0;

    *silent = (struct silent){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .address = loopback(0)};
    assert_true(silent->listener >= 0);
    assert_int_equal(bind(silent->listener, (struct sockaddr *)&silent->address.name, silent->address.length), 0);
    assert_int_equal(listen(silent->listener, 0), 0);
    assert_int_equal(getsockname(silent->listener, (struct sockaddr *)&name, &length), 0);
    silent->address = loopback(ntohs(name.sin_port));
    while (unanswered < 2) {
        assert_true(silent->count < sizeof silent->fillers / sizeof silent->fillers[0]);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        silent->fillers[silent->count++] = fd;
        assert_true(fd >= 0);
        unanswered = connects(&silent->address, fd) ? 0 : unanswered + 1;
    }
}

static void end_silent(struct silent *silent)
{
    for (size_t i = 0; i < silent->count; i++)
        close(silent->fillers[i]);
    close(silent->listener);
}

/* Each has its share of what is left of the time, by the clock that the caller tells. */
static void a_silent_address_has_its_share_of_the_time(void **state)
{
    static const struct {
        int64_t now_ms;
        size_t address;
    } steps[] = {{0, 0}, {2999, 0}, {3000, 1}, {3000, 1}, {5999, 1}, {6000, 2}};
    struct rig *r = *state;
    struct silent silent[2];
    int64_t start = dibs__now(&dibs__system_clock), until = dibs__after_ms(start, 9000), deadline;

    for (size_t i = 0; i < 2; i++) {
        make_silent(&silent[i]);
        r->endpoint.addresses[i] = silent[i].address;
    }
    r->endpoint.addresses[2] = loopback(fake_redis_port(r->fake));
    r->endpoint.address_count = 3;
    struct dibs__link *link = dibs__link_start(&r->endpoint, DIBS__LINK_COMMANDS, NULL, &r->error);
    assert_non_null(link);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        int64_t now = dibs__after_ms(start, steps[i].now_ms);
        assert_status(DIBS_OK, dibs__link_step(link, now, until, &r->error));
        assert_int_equal(link->state, DIBS__LINK_CONNECTING);
        assert_int_equal(link->address, steps[i].address);
        dibs__link_interest(link, now, &deadline); /* it is looked at again in time for the next */
        assert_true(deadline <= dibs__after_ms(start, steps[i].address == 0 ? 3000 : 6000) || steps[i].address == 2);
    }
    until = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);
    assert_status(DIBS_OK, dibs__link_finish(link, &dibs__system_clock, until, until, &r->error));
    assert_int_equal(r->endpoint.failures, 0);
    dibs__link_free(link);
    end_silent(&silent[0]);
    end_silent(&silent[1]);
}

static void all_addresses_fail(void **state)
{
    struct rig *r = *state;
    int keeper;
    unsigned short closed = closed_port(&keeper);

    r->endpoint.addresses[0] = r->endpoint.addresses[1] = loopback(closed);
    r->endpoint.address_count = 2;
    assert_null(try_connect(r, NULL));
    assert_int_equal(r->error.status, DIBS_UNAVAILABLE);
    assert_int_equal(r->endpoint.failures, 1);
    assert_int_equal(r->endpoint.address_count, 0); /* to be resolved again */
    close(keeper);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_greets_in_order),
        TEST(it_is_let_in_first),
        TEST(a_password_alone_needs_no_user),
        TEST(for_subscriptions_it_is_only_let_in),
        TEST(it_goes_on_after_a_deadline),
        TEST(it_ends_the_one_that_it_replaces),
        TEST(another_servers_connection_is_let_be),
        TEST(what_cannot_be_named_is_let_be),
        TEST(another_server_has_another_number),
        TEST(a_server_that_is_not_known_has_no_number),
        TEST(a_server_says_whether_it_is_in_a_cluster),
        TEST(rights_that_are_good_to_have_may_be_missing),
        TEST(eval_may_be_forbidden_where_the_scripts_are_loaded),
        TEST(who_is_not_let_in_gets_no_connection),
        TEST(a_server_that_takes_no_scripts_is_of_no_use),
        TEST(a_refusal_is_told_in_our_words),
        TEST(a_right_that_is_missing_is_named),
        TEST(a_huge_array_is_not_allocated),
        TEST(a_server_of_another_kind_is_told),
        TEST(odd_answers_are_as_good_as_none),
        TEST(a_server_that_hangs_up_is_not_there),
        TEST(the_next_address_is_tried),
        TEST(a_silent_address_has_its_share_of_the_time),
        TEST(all_addresses_fail),
    };

    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
