/*
 * The bytes of a server, through all of the store on Redis: connecting, asks,
 * releases, renewals, queries, the subscription. An input is
 *
 *     LETTERS|RECORD|RECORD...
 *
 * where the letters say what the program does, in order, and what kind of
 * server it is (see steps, and options below), and each record answers a
 * command: see puppet.h. Whatever comes: calls end by their deadlines, grants
 * have fences within bounds, failures have one line that says why and hides
 * the password, batches come back once, nothing leaks.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "fuzz/puppet.h"
#include "store/redis/redis.h"
#include "support/store_call.h"

enum { STEPS_MAX = 24, CALL_MS = 1000, LEASE_MS = 3000, GRACE_MS = 10 };

struct world {
    struct puppet puppet;
    struct dibs__counters counters;
    struct dibs__store *store;
    bool exposed; /* the server says the password itself */
    bool up;      /* as the store told the listener last */
    bool takes_grants;
    struct dibs__attempt attempt;
    unsigned tokens;
    char token[24], held[24], next_token[24]; /* of the ask, of what is held ("": nothing) */
    struct dibs__batch batches[STEPS_MAX];
    unsigned batches_out, done[STEPS_MAX];
};

static bool in_bounds(uint64_t fence)
{
    return fence > 0 && fence < UINT64_C(1) << 53;
}

/* ------------------------------------------------------------------ listener */

static void on_wake(void *context)
{
    (void)context;
}

static void on_wake_by(void *context, int64_t when)
{
    (void)context;
    (void)when;
}

static bool on_granted(void *context, const struct dibs__grant *grant)
{
    struct world *w = context;

    promise(in_bounds(grant->fence));
    promise(strlen(grant->name) >= 1 && strlen(grant->name) <= DIBS_NAME_MAX);
    promise(strlen(grant->token) >= 1 && strlen(grant->token) < DIBS__TOKEN_MAX);
    return w->takes_grants && w->attempt.token && strcmp(grant->token, w->attempt.token) == 0;
}

static void check_detail(const struct world *w, const char *detail)
{
    promise(memchr(detail, '\0', DIBS__DETAIL_MAX) && detail[0]);
    for (const char *c = detail; *c; c++)
        promise((unsigned char)*c >= 0x20 && *c != 0x7f);
    promise(w->exposed || !strstr(detail, PUPPET_PASSWORD));
}

static void on_reachable(void *context, bool up, const char *detail)
{
    struct world *w = context;

    promise(up != w->up);
    w->up = up;
    check_detail(w, detail);
}

/* --------------------------------------------------------------------- checks */

enum outcome { OK = 1 << DIBS_OK, BUSY = 1 << DIBS_BUSY, NOT_HELD = 1 << DIBS_NOT_HELD };

#define FAILURES (1 << DIBS_UNAVAILABLE | 1 << DIBS_DENIED | 1 << DIBS_STORE_ERROR)

/* A call that began at that time came back with one of the statuses that it may have. */
static void check_call(const struct world *w, int64_t began, dibs_status status, int good,
                       const struct dibs__error *error)
{
    promise(w->puppet.time <= dibs__after_ms(began, CALL_MS + GRACE_MS));
    promise((1 << status) & (good | FAILURES));
    if ((1 << status) & good)
        return;
    promise(error->status == status);
    check_detail(w, error->detail);
}

static void check_answer(dibs_status status, const struct dibs__answer *answer)
{
    promise(status != DIBS_OK || in_bounds(answer->fence));
    promise(status != DIBS_BUSY || answer->again_ms >= 0);
}

/* ---------------------------------------------------------------------- steps */

static void new_token(struct world *w, char out[24])
{
    snprintf(out, 24, "t%u", ++w->tokens);
}

static void begin_attempt(struct world *w)
{
    if (w->attempt.token)
        return;
    new_token(w, w->token);
    w->attempt = (struct dibs__attempt){.name = "a", .token = w->token, .lease_ms = LEASE_MS};
}

static void end_attempt(struct world *w, bool held)
{
    if (!w->attempt.token)
        return;
    w->store->ops->conclude(w->store, &w->attempt, held);
    w->attempt.token = NULL;
}

/* As the core does: under a retired token nothing is asked any more; an attempt that was answered DIBS_BUSY may ask
 * again.
 */
static void after_ask(struct world *w, dibs_status status, const struct dibs__answer *answer)
{
    check_answer(status, answer);
    if (status == DIBS_OK) {
        promise(!answer->retired);
        strcpy(w->held, w->attempt.token);
        end_attempt(w, true);
    } else if (answer->retired) {
        end_attempt(w, true);
    }
}

static void acquire(struct world *w, bool wait, bool fair)
{
    struct dibs__error error = {DIBS_OK, ""};
    struct dibs__answer answer;

    if (w->held[0])
        return;
    begin_attempt(w);
    int64_t began = w->puppet.time;
    w->attempt.wait = wait;
    w->attempt.fair = fair;
    dibs_status status = store_ask(w->store, &w->attempt, dibs__after_ms(began, CALL_MS), &answer, &error);
    check_call(w, began, status, OK | BUSY, &error);
    after_ask(w, status, &answer);
}

static void release(struct world *w, bool ask_again)
{
    struct dibs__error error = {DIBS_OK, ""};
    int64_t began = w->puppet.time;
    struct dibs__op op = store_release_op("a", w->held, 0, dibs__after_ms(began, CALL_MS));
    struct dibs__answer answer;

    if (!w->held[0])
        return;
    if (ask_again) {
        begin_attempt(w);
        w->attempt.wait = true;
        op.release.next = (struct dibs__ask){&w->attempt, &answer};
    }
    dibs_status status = w->store->ops->finish(w->store, &op, &error);
    check_call(w, began, status, OK | NOT_HELD, &error);
    w->held[0] = '\0';
    if (ask_again)
        after_ask(w, op.release.next_status, &answer);
}

static void on_done(struct dibs__batch *batch, const struct dibs__error *error)
{
    struct world *w = batch->context;

    w->done[batch - w->batches]++;
    for (size_t i = 0; i < batch->count; i++) {
        promise(batch->items[i].result <= DIBS__GONE);
        if (batch->items[i].result == DIBS__UNANSWERED && error->status != DIBS_OK)
            check_detail(w, error->detail);
    }
}

static void renew(struct world *w)
{
    struct dibs__batch *batch = &w->batches[w->batches_out++];

    batch->count = 3;
    for (uint32_t i = 0; i < 3; i++)
        batch->items[i] = (struct dibs__renewal){
            .name = i ? "b" : "a", .token = i ? "x" : "t1", .lease_ms = LEASE_MS + i, .fence = 7, .extension = i == 2};
    batch->done = on_done;
    batch->context = w;
    w->store->ops->renew(w->store, batch);
}

static void query(struct world *w)
{
    struct dibs__error error = {DIBS_OK, ""};
    dibs_owner owner = {.held = false};
    int64_t began = w->puppet.time;
    struct dibs__op op = {
        .kind = DIBS__OP_QUERY, .name = "a", .deadline = dibs__after_ms(began, CALL_MS), .query = {.owner = &owner}};
    dibs_status status = w->store->ops->finish(w->store, &op, &error);

    check_call(w, began, status, OK, &error);
    promise(memchr(owner.token, '\0', sizeof owner.token));
    for (const char *c = owner.token; *c; c++)
        promise(*c >= ' ' && *c <= '~');
}

static void force(struct world *w, const char *token)
{
    struct dibs__error error = {DIBS_OK, ""};
    int64_t began = w->puppet.time;
    struct dibs__op op = {
        .kind = DIBS__OP_FORCE, .name = "a", .deadline = dibs__after_ms(began, CALL_MS), .force = {.token = token}};
    dibs_status status = w->store->ops->finish(w->store, &op, &error);

    check_call(w, began, status, OK | NOT_HELD, &error);
}

static void step(struct world *w, char what)
{
    switch (what) {
    case 'a':
        acquire(w, false, false);
        break;
    case 'w':
        acquire(w, true, false);
        break;
    case 'f':
        acquire(w, true, true);
        break;
    case 'c':
        end_attempt(w, false);
        break;
    case 'r':
        release(w, false);
        break;
    case 'x':
        release(w, true);
        break;
    case 'n':
        renew(w);
        break;
    case 'q':
        query(w);
        break;
    case 'u':
        force(w, NULL);
        break;
    case 'v':
        force(w, "t1");
        break;
    case 't':
        w->store->ops->retract(w->store, "a", "t1", 1000, 0);
        break;
    case 's':
        puppet_idle(&w->puppet, 50);
        break;
    case 'l':
        puppet_idle(&w->puppet, 6000);
        break;
    default:
        break;
    }
}

/* -------------------------------------------------------------------- a whole */

/* The scheduler's work, without the threads that it would wake. */
static int64_t attend(void *arg)
{
    struct world *w = arg;
    struct pollfd fds[16];
    int64_t deadline;

    if (!w->store)
        return DIBS__NEVER;
    promise(w->store->fd_max <= 16);
    size_t count = w->store->ops->interest(w->store, fds, &deadline);
    poll(fds, count, 0);
    w->store->ops->attend(w->store, fds, count);
    w->store->ops->interest(w->store, fds, &deadline);
    return deadline;
}

static void ask_nobody(void *context)
{
    (void)context;
}

static void doubt_nothing(void *context)
{
    (void)context;
}

static bool has(const char *letters, const char *end, char letter)
{
    return memchr(letters, letter, (size_t)(end - letters));
}

static void open_store(struct world *w, const char *letters, const char *end)
{
    struct dibs__error error = {DIBS_OK, ""};
    const struct dibs__store_config config = {
        .url = puppet_url(),
        .key_prefix = has(letters, end, 'P') ? "" : "lock:",
        .client_name = "fuzz",
        .runtime_id = "rt",
        .connect_timeout_ms = 500,
        .command_timeout_ms = 300,
        .min_replicas = has(letters, end, 'M') ? 1 : 0,
        .replica_timeout_ms = 100,
        .clock = &w->puppet.clock,
        .listener = {.context = w,
                     .wake = on_wake,
                     .wake_by = on_wake_by,
                     .ask_again = ask_nobody,
                     .source = w,
                     .granted = on_granted,
                     .server_changed = doubt_nothing,
                     .reachable = on_reachable},
        .counters = &w->counters,
    };
    int64_t began = w->puppet.time;

    check_call(w, began, dibs__redis_open(&w->store, &config, &error), OK, &error);
    if (!w->store || !has(letters, end, 'O')) /* O: it is connected at once, as a runtime does */
        return;
    dibs_status status = w->store->ops->connect(w->store, false, &error);
    if (status == DIBS_OK)
        status = w->store->ops->connect(w->store, true, &error);
    check_call(w, began, status, OK, &error);
    if (status != DIBS_OK) {
        w->store->ops->close(w->store);
        w->store = NULL;
    }
}

static void close_store(struct world *w)
{
    if (!w->store)
        return;
    end_attempt(w, false);
    struct dibs__store *store = w->store;
    puppet_idle(&w->puppet, 20);
    w->store = NULL;
    store->ops->close(store);
    for (unsigned i = 0; i < w->batches_out; i++)
        promise(w->done[i] == 1);
    promise(w->counters.errors <= w->counters.commands);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world world;
    struct world *w = &world;
    const char *letters = (const char *)data, *end = memchr(data, '|', size);

    if (!end)
        return 0;
    memset(w, 0, sizeof *w);
    w->up = true;
    w->exposed = memmem(data, size, PUPPET_PASSWORD, strlen(PUPPET_PASSWORD));
    w->takes_grants = !has(letters, end, 'N'); /* options: capital letters. N: nobody wants a grant that is pushed */
    w->puppet.greets = has(letters, end, 'G');
    w->puppet.drips = has(letters, end, 'D');
    w->puppet.falls_silent = has(letters, end, 'S');
    w->puppet.records = end + 1;
    w->puppet.records_end = letters + size;
    w->puppet.round = attend;
    w->puppet.arg = w;
    puppet_begin(&w->puppet);
    open_store(w, letters, end);
    for (size_t i = 0; w->store && i < STEPS_MAX && letters + i < end; i++)
        step(w, letters[i]);
    close_store(w);
    puppet_end(&w->puppet);
    return 0;
}
