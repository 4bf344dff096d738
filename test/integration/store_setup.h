/*
 * The contract of all stores (src/store/store.h), as its tests share it: the
 * table of the stores, and the servers and seats of a case. Each case runs
 * against every store. A store that is new gets a line in `kinds`.
 */
#ifndef DIBS_TEST_STORE_SETUP_H
#define DIBS_TEST_STORE_SETUP_H

#include <inttypes.h>

#include "support/certificates.h"
#include "support/cluster.h"
#include "support/seat.h"
#include "support/sentinels.h"
#include "support/server.h"
#include "support/test.h"

#define LEASE_MS LONG_LEASE_MS
#define SEATS 3

/* --------------------------------------------------------------- the stores */

#define MEMBERS 3 /* of a quorum */

enum where {
    IN_MEMORY,
    ON_TCP,
    ON_UNIX_SOCKET,
    WITH_REPLICA,
    WITH_SENTINEL,
    WITH_TLS,
    ON_CLUSTER,
    QUORUM_IN_MEMORY,
    QUORUM
};

static const struct kind {
    const char *name;
    enum where where;
    uint32_t min_replicas;
} kinds[] = {
    {"memory", IN_MEMORY, 0},
    {"Redis over TCP", ON_TCP, 0},
    {"Redis over a Unix socket", ON_UNIX_SOCKET, 0},
    {"Redis with a replica", WITH_REPLICA, 1},
    {"Redis named by a sentinel", WITH_SENTINEL, 0},
#ifdef DIBS_WITH_TLS
    {"Redis over TLS", WITH_TLS, 0},
#endif
#ifndef ONE_MASTER_ONLY
    {"a cluster", ON_CLUSTER, 0},
#ifndef NO_QUORUM
    {"a quorum in memory", QUORUM_IN_MEMORY, 0},
    {"a quorum of masters", QUORUM, 0},
#endif
#endif
};
#define KINDS (sizeof kinds / sizeof kinds[0])

struct world;
typedef void test_case(struct world *w);

/* The world of a case: up to three seats at the first of two servers, or at both. */
struct world {
    const struct kind *kind;
    test_case *run;
    server *servers[2], *replicas[2]; /* of a cluster the node that has x */
    server *sentinels[2];
    server *others[2][MEMBERS - 1]; /* the masters of a quorum but the first, which is in servers */
    struct seat seats[SEATS];
    size_t count; /* of the seats that are open */
    unsigned tokens;
    char token[16][32];
};

static inline bool has_replica(server *s)
{
    redisReply *reply = server_command(s, "INFO replication");
    bool online = strstr(reply->str, "state=online") != NULL;

    freeReplyObject(reply);
    return online;
}

/* The configuration that trusts the servers with TLS. */
static inline struct dibs__access *trust(void)
{
    struct dibs__access *access = calloc(1, sizeof *access);

    assert_non_null(access);
    access->tls_ca_file = strdup(certificate_path(certificates_folder(), "ca.crt"));
    return access;
}

/* The servers that all cases share, because they are slow to start. */
static cluster *clusters[2];

static inline int stop_clusters(void **state)
{
    for (int i = 0; i < 2; i++)
        cluster_stop(clusters[i]);
    return 0;
}

static inline void join_clusters(struct world *w, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!clusters[i])
            clusters[i] = cluster_start(&(cluster_options){.masters = i == 0 ? 3 : 1});
        w->servers[i] = cluster_owner(clusters[i], cluster_slot(clusters[i], "lock:x"));
    }
}

static inline bool is_quorum(const struct world *w)
{
    return w->kind->where == QUORUM_IN_MEMORY || w->kind->where == QUORUM;
}

static inline bool is_in_memory(const struct world *w)
{
    return w->kind->where == IN_MEMORY || w->kind->where == QUORUM_IN_MEMORY;
}

static inline void start_servers(struct world *w, size_t count)
{
    const server_options options = {.tcp = w->kind->where != ON_UNIX_SOCKET,
                                    .config = "repl-diskless-sync-delay 0",
                                    .tls = w->kind->where == WITH_TLS ? certificates_folder() : NULL};

    if (w->kind->where == ON_CLUSTER)
        join_clusters(w, count);
    for (size_t i = 0; i < count && !is_in_memory(w); i++) {
        if (w->servers[i])
            continue;
        w->servers[i] = server_start(&options);
        if (w->kind->where == WITH_SENTINEL)
            w->sentinels[i] = sentinel_start(w->servers[i]);
        for (size_t other = 0; w->kind->where == QUORUM && other < MEMBERS - 1; other++)
            w->others[i][other] = server_start(&options);
        if (w->kind->where != WITH_REPLICA)
            continue;
        w->replicas[i] = server_start(&options);
        server_do(w->replicas[i], "REPLICAOF 127.0.0.1 %d", w->servers[i]->port);
        await_that(has_replica(w->servers[i]));
    }
}

static bool seats_are_of_a_quorum; /* those of the case that runs */

static inline struct seat *sit_by(struct world *w, size_t at, struct dibs__store_config config,
                                  void (*open)(struct seat *seat, const struct dibs__store_config *config))
{
    seats_are_of_a_quorum = is_quorum(w);
    char names[MEMBERS][64];
    const char *urls[MEMBERS];

    start_servers(w, at + 1);
    for (size_t i = 0; i < MEMBERS; i++) {
        const server *other = i > 0 ? w->others[at][i - 1] : w->servers[at];
        snprintf(names[i], sizeof names[i], "mem:store%zu-%zu", at, i);
        urls[i] = other ? other->url : names[i];
    }
    config.url = w->kind->where == ON_CLUSTER ? clusters[at]->url : urls[0];
    if (w->sentinels[at])
        config.url = w->sentinels[at]->url;
    config.urls = urls;
    config.url_count = is_quorum(w) ? MEMBERS : 1;
    config.lease_ms = LEASE_MS;
    config.access = w->kind->where == WITH_TLS ? trust() : NULL;
    config.min_replicas = w->kind->min_replicas;
    config.replica_timeout_ms = LIMIT_MS / 4;
    assert_true(w->count < SEATS);
    open(&w->seats[w->count], &config);
    return &w->seats[w->count++];
}

static inline struct seat *sit_with(struct world *w, size_t at, struct dibs__store_config config)
{
    return sit_by(w, at, config, seat_open);
}

static inline struct seat *sit(struct world *w, size_t at)
{
    return sit_with(w, at, (struct dibs__store_config){.url = NULL});
}

static inline void stand_up(struct world *w)
{
    for (size_t i = 0; i < w->count; i++) {
        seat_await_confirmed(&w->seats[i]);
        seat_close(&w->seats[i]);
    }
    w->count = 0;
}

/* ----------------------------------------------------------------- the calls */

static const char *new_token(struct world *w)
{
    char *token = w->token[w->tokens % 16];

    snprintf(token, sizeof w->token[0], "dibs:test:%u", w->tokens++);
    return token;
}

static inline struct dibs__attempt attempt_for(struct world *w, const char *name, bool wait)
{
    return (struct dibs__attempt){.name = name, .token = new_token(w), .lease_ms = LEASE_MS, .wait = wait};
}

/* A brief lease may be over at some masters of a quorum before they were told of the largest fence. */
static inline bool may_end_early(const struct dibs__attempt *attempt)
{
    return seats_are_of_a_quorum && attempt->lease_ms < LEASE_MS;
}

static inline dibs_status ask(struct seat *seat, struct dibs__attempt *attempt, struct dibs__answer *answer)
{
    struct dibs__error error = {DIBS_OK, ""};
    uint64_t number = attempt->number;

    dibs_status status = store_ask(seat->store, attempt, seat_deadline(), answer, &error);
    assert_that(status == DIBS_OK || status == DIBS_BUSY || (status == DIBS_UNAVAILABLE && may_end_early(attempt)),
                "an ask: %s", error.detail);
    assert_false(answer->retired);
    /* A single try may be repeated while nothing is left of the lease in its way. */
    assert_true(attempt->number == number + 1 || (!attempt->wait && attempt->number > number));
    return status;
}

/*
 * Acquires a free lock; returns the fence. In a quorum only a majority of the masters has carried out an earlier
 * release: where the other masters answer first, the lock is free a moment later.
 */
static inline uint64_t get(struct seat *seat, struct dibs__attempt *attempt)
{
    struct dibs__answer answer;
    dibs_status status = ask(seat, attempt, &answer);

    for (int64_t end = now_ms() + LIMIT_MS; status != DIBS_OK && seats_are_of_a_quorum && now_ms() < end; pause_ms(1))
        status = ask(seat, attempt, &answer);
    assert_status(DIBS_OK, status);
    seat->store->ops->conclude(seat->store, attempt, true);
    assert_true(answer.fence > 0);
    return answer.fence;
}

static inline dibs_status release(struct seat *seat, const char *name, const char *token)
{
    struct dibs__op end = store_release_op(name, token, LEASE_MS, seat_deadline());

    return store_do(seat->store, &end);
}

static inline dibs_owner look(struct seat *seat, const char *name)
{
    dibs_owner owner;
    struct dibs__op query = {
        .kind = DIBS__OP_QUERY, .name = name, .deadline = seat_deadline(), .query = {.owner = &owner}};

    memset(&owner, 0, sizeof owner);
    assert_status(DIBS_OK, store_do(seat->store, &query));
    return owner;
}

/*
 * A look shows what the condition says of `owner`. A look at a quorum may come before the slower masters have done what
 * they were asked, so that is waited for.
 */
#define expect_look(seat, name, condition)                                                                             \
    do {                                                                                                               \
        const int64_t end = now_ms() + LIMIT_MS;                                                                       \
        dibs_owner owner = look(seat, name);                                                                           \
        for (; !(condition) && seats_are_of_a_quorum && now_ms() < end; pause_ms(1))                                   \
            owner = look(seat, name);                                                                                  \
        assert_that(condition, "%s: %u share it, %u wait, %s, fence %" PRIu64 ", %" PRId64 " ms are left", name,       \
                    (unsigned)owner.sharers, (unsigned)owner.waiters, owner.held ? owner.token : "free", owner.fence,  \
                    owner.remaining_ms);                                                                               \
    } while (0)

/* Expects that so many share the name and so many wait for it. */
static inline void expect_seen(struct seat *seat, const char *name, uint32_t sharers, uint32_t waiters)
{
    expect_look(seat, name, owner.sharers == sharers && owner.waiters == waiters);
}

static inline void expect_free(struct seat *seat, const char *name)
{
    expect_look(seat, name, !owner.held);
}

/* ----------------------------------------------------------------- the table */

#define CASES_MAX 40

static struct store_case {
    const char *name;
    test_case *run;
} cases[CASES_MAX];
static size_t cases_count;

static inline void add_case(const char *name, test_case *run)
{
    if (cases_count == CASES_MAX)
        abort();
    cases[cases_count++] = (struct store_case){name, run};
}

/* A test against every store; main has to return run_cases(). */
#define TEST_ON_STORES(name, parameter)                                                                                \
    static void name(parameter);                                                                                       \
    __attribute__((constructor)) static void add_##name(void)                                                          \
    {                                                                                                                  \
        add_case(#name, name);                                                                                         \
    }                                                                                                                  \
    static void name(parameter)

/* One case at one store. */
struct run {
    const struct kind *kind;
    const struct store_case *run_case;
};

static inline int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    const struct run *run = *state;

    assert_non_null(w);
    w->kind = run->kind;
    w->run = run->run_case->run;
    *state = w;
    return 0;
}

static inline void run_case(void **state)
{
    struct world *w = *state;

    w->run(w);
}

static inline int teardown(void **state)
{
    struct world *w = *state;

    stand_up(w);
    for (int i = 0; i < 2; i++) {
        if (w->kind->where == ON_CLUSTER && clusters[i])
            cluster_assert_no_locks(clusters[i]);
        if (w->kind->where == ON_CLUSTER)
            continue;
        if (w->servers[i])
            server_assert_no_locks(w->servers[i]);
        server_stop(w->sentinels[i]);
        server_stop(w->replicas[i]);
        server_stop(w->servers[i]);
        for (int other = 0; other < MEMBERS - 1; other++) {
            if (w->others[i][other])
                server_assert_no_locks(w->others[i][other]);
            server_stop(w->others[i][other]);
        }
    }
    free(w);
    return 0;
}

/* Runs each case against every store; returns what main is to return. */
static inline int run_cases(void)
{
    static struct CMUnitTest tests[KINDS * CASES_MAX];
    static char names[KINDS * CASES_MAX][128];
    static struct run runs[KINDS * CASES_MAX];

    for (size_t i = 0; i < KINDS * cases_count; i++) {
        runs[i] = (struct run){&kinds[i / cases_count], &cases[i % cases_count]};
        snprintf(names[i], sizeof names[i], "%s: %s", runs[i].kind->name, runs[i].run_case->name);
        tests[i] = (struct CMUnitTest){names[i], run_case, setup, teardown, &runs[i]};
    }
    return _cmocka_run_group_tests("tests", tests, KINDS * cases_count, NULL, stop_clusters);
}

struct queueing {
    struct seat *seat;
    struct dibs__attempt *attempt;
};

static inline bool stands_in_queue(struct seat *seat, struct dibs__attempt *attempt)
{
    struct dibs__answer answer;

    assert_status(DIBS_BUSY, ask(seat, attempt, &answer));
    assert_true(answer.again_ms > 0);
    return attempt->in_store;
}

/* Asks, for a name that is held, until the attempt stands in the queue. */
static inline void queue_up(struct seat *seat, struct dibs__attempt *attempt)
{
    await_or_say(stands_in_queue(seat, attempt), "the attempt does not queue");
}

#endif
