/*
 * The quorum: opening, closing, the scheduler's part, what the members report, and which URLs are fit for them. Lock
 * discipline: quorum_parts.h.
 */
#include "store/quorum/quorum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/wait_event.h"
#include "redis/url.h"
#include "store/quorum/quorum_parts.h"

#define REST_FIRST_MS 10 /* how long a member that failed rests at first */

/* ----------------------------------------------------------------- sentences */

dibs_status dibs__quorum_no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a lock");
}

dibs_status dibs__quorum_no_majority(const struct dibs__quorum *q, unsigned answered, struct dibs__error *error)
{
    char why[DIBS__DETAIL_MAX / 2] = "";

    if (error->status != DIBS_OK && error->status != DIBS_UNAVAILABLE)
        return error->status;
    if (error->status != DIBS_OK)
        snprintf(why, sizeof why, ": %.*s", (int)sizeof why - 3, error->detail);
    if (answered < q->majority)
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%u of %zu masters answered, which is no majority%s", answered,
                               q->count, why);
    return dibs__error_set(error, DIBS_UNAVAILABLE, "fewer than %zu of %zu masters may grant locks now%s", q->majority,
                           q->count, why);
}

/* -------------------------------------------------------------------- pauses */

bool dibs__quorum_pause(const struct dibs__quorum *q, struct dibs__backoff *backoff, int64_t last_ms, int64_t deadline)
{
    int64_t until = dibs__after_ms(dibs__quorum_now(q), dibs__backoff_next(backoff, last_ms));
    struct dibs__wait_event wait_event;

    if (until >= deadline)
        return false;
    dibs__wait_event_init(&wait_event);
    dibs__wait_event_wait(&wait_event, q->config.clock, until);
    return true;
}

/* --------------------------------------------------------- what members tell */

/*
 * A hint that the lock may be free at this master. If the token holds the lock by now, it has a majority, and
 * its renewals top the lock up here.
 */
static bool on_granted(void *source, const struct dibs__grant *grant)
{
    struct dibs__quorum *q = ((struct dibs__member *)source)->quorum;
    struct dibs__claim *claim = dibs__claim_find(q, grant->token);
    bool held = false;

    if (claim) {
        dibs__quorum_mutex_lock(&q->mutex);
        held = claim->state == DIBS__CLAIM_HELD;
        dibs__quorum_mutex_unlock(&q->mutex);
        dibs__claim_unref(q, claim);
    }
    const struct dibs__grant hint = {.name = grant->name, .token = grant->token, .confirm = true};
    return held || q->config.listener.granted(q->config.listener.source, &hint);
}

/* The first report changes nothing: it names the server that granted the leases so far. */
static void on_server_changed(void *source)
{
    struct dibs__member *member = source;
    struct dibs__quorum *q = member->quorum;
    bool was_known = member->is_known;

    member->is_known = true;
    if (!was_known)
        return;
    atomic_fetch_add(&q->generation, 1);
    dibs__vote_want(q, 0);
    q->config.listener.server_changed(q->config.listener.source);
}

static void on_reachable(void *source, bool up, const char *detail)
{
    struct dibs__member *member = source;
    struct dibs__quorum *q = member->quorum;
    char text[DIBS__DETAIL_MAX];

    dibs__quorum_mutex_lock(&q->mutex);
    size_t most = q->count - q->majority;
    bool was_down = q->down_count > most;
    q->down_count += (size_t)(!up) - (size_t)member->down;
    member->down = !up;
    bool is_down = q->down_count > most;
    if (is_down)
        snprintf(text, sizeof text, "%zu of %zu masters can't be reached: %.200s", q->down_count, q->count, detail);
    else
        snprintf(text, sizeof text, "a majority of %zu masters", q->count);
    if (is_down != was_down)
        q->config.listener.reachable(q->config.listener.source, !is_down, text);
    dibs__quorum_mutex_unlock(&q->mutex);
    if (up)
        atomic_store(&member->rests_until, 0);
}

/*
 * When one more member begins to report changes, all leases are looked at again. Members that stop reporting
 * matter to the listener only when none is left. While a majority reports, no loss goes unnoticed: the other
 * members are too few to cause one.
 */
static void on_watching(void *source, bool on)
{
    struct dibs__member *member = source;
    struct dibs__quorum *q = member->quorum;
    const struct dibs__listener *listener = &q->config.listener;
    size_t count = 0;

    member->is_watching = on;
    for (size_t i = 0; i < q->count; i++)
        count += q->members[i].is_watching;
    atomic_store_explicit(&q->config.counters->tracking, count >= q->majority, memory_order_relaxed);
    if (on || count == 0)
        listener->watching(listener->source, on);
}

/* -------------------------------------------------------------- the scheduler */

static size_t interest(struct dibs__store *base, struct pollfd *fds, int64_t *deadline)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    int64_t votes = dibs__vote_deadline(q), top_ups = dibs__top_up_deadline(q);
    size_t count = 0;

    *deadline = dibs__detached_deadline(q);
    *deadline = votes < *deadline ? votes : *deadline;
    *deadline = top_ups < *deadline ? top_ups : *deadline;
    for (size_t i = 0; i < q->count; i++) {
        struct dibs__store *store = q->members[i].store;
        int64_t its;
        q->members[i].fd_count = store->ops->interest(store, fds + count, &its);
        count += q->members[i].fd_count;
        *deadline = its < *deadline ? its : *deadline;
    }
    return count;
}

static void attend(struct dibs__store *base, const struct pollfd *fds, size_t count)
{
    struct dibs__quorum *q = dibs__quorum_of(base);

    (void)count;
    for (size_t i = 0; i < q->count; i++) {
        struct dibs__store *store = q->members[i].store;
        store->ops->attend(store, fds, q->members[i].fd_count);
        fds += q->members[i].fd_count;
    }
    dibs__detached_attend(q, dibs__quorum_now(q));
    dibs__vote_attend(q, dibs__quorum_now(q));
    dibs__top_up_attend(q, dibs__quorum_now(q));
}

static struct dibs__store *fastest_of(const struct dibs__quorum *q)
{
    struct dibs__store *best = q->members[0].store;
    int64_t least = INT64_MAX;

    for (size_t i = 0; i < q->count; i++) {
        int64_t usual = atomic_load_explicit(&q->members[i].usual, memory_order_relaxed);
        bool rests = atomic_load_explicit(&q->members[i].rests_until, memory_order_relaxed) != 0;
        if (rests || usual >= least)
            continue;
        least = usual;
        best = q->members[i].store;
    }
    return best;
}

/* A thread can receive for one member only, the fastest; the scheduler's thread receives for the others. */
static void listen_quorum(struct dibs__store *base, const char *name, struct dibs__wait_event *wait_event,
                          int64_t until)
{
    const struct dibs__quorum *q = dibs__quorum_of(base);

    if (wait_event)
        dibs__store_listen(fastest_of(q), q->config.clock, name, wait_event, until);
    for (size_t i = 0; !wait_event && i < q->count; i++)
        dibs__store_listen(q->members[i].store, q->config.clock, name, NULL, 0);
}

static const struct dibs__op_row rows[DIBS__OP_KINDS] = {
    [DIBS__OP_ASK] = {dibs__quorum_ask_begin, dibs__quorum_ask_finish},
    [DIBS__OP_RELEASE] = {dibs__quorum_release_begin, dibs__quorum_release_finish},
    [DIBS__OP_QUERY] = {dibs__quorum_query_begin, dibs__quorum_query_finish},
    [DIBS__OP_FORCE] = {NULL, dibs__quorum_force},
    [DIBS__OP_FORGET] = {NULL, dibs__quorum_forget},
};

/* Waiting for the replies alone would not help: finish has more to ask. */
static enum dibs__progress progress(struct dibs__store *base, const struct dibs__op *op, struct dibs__wait *wait)
{
    (void)base, (void)op, (void)wait;
    return DIBS__OP_CONNECTED;
}

static bool is_unconfirmed(struct dibs__store *base, const struct dibs__lease_store_state *lease)
{
    return lease->words[0] != atomic_load(&dibs__quorum_of(base)->generation);
}

/* -------------------------------------------------------------- open and close */

/*
 * Begins to connect the members; with `wait` it tries whether they can confirm grants, but only those that have
 * answered. Fails if too few are left.
 */
static dibs_status connect_members(const struct dibs__quorum *q, bool wait, struct dibs__error *error)
{
    struct dibs__error worst = {DIBS_OK, ""};
    size_t failed = 0;

    for (size_t i = 0; i < q->count; i++) {
        struct dibs__store *store = q->members[i].store;
        struct dibs__error its = {DIBS_OK, ""};
        if (wait && atomic_load(&q->members[i].usual) == 0)
            continue;
        dibs_status status = store->ops->connect(store, wait, &its);
        if (status == DIBS_OK || (wait && status == DIBS_UNAVAILABLE))
            continue;
        failed++;
        dibs__error_keep_worst(&worst, &its);
    }
    if (failed <= q->count - q->majority)
        return DIBS_OK;
    *error = worst;
    return dibs__quorum_no_majority(q, (unsigned)(q->count - failed), error);
}

/* A majority must answer; whether these masters may vote does not matter here. */
static dibs_status connect_quorum(struct dibs__store *base, bool wait, struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    dibs_status status = wait ? DIBS_OK : connect_members(q, false, error);
    unsigned answered;

    if (!wait) {
        q->connect_by = dibs__after_ms(dibs__quorum_now(q), q->config.connect_timeout_ms);
        return status;
    }
    status = dibs__vote_announce(q, q->config.lease_ms, q->connect_by, &answered, error);
    if (answered < q->majority || status == DIBS_INVALID)
        return status;
    return q->config.durable || q->config.min_replicas > 0 ? connect_members(q, true, error) : DIBS_OK;
}

static void close_quorum(struct dibs__store *base)
{
    struct dibs__quorum *q = dibs__quorum_of(base);

    dibs__detached_finish_all(q);
    dibs__vote_finish_all(q);
    for (size_t i = 0; i < q->count; i++)
        if (q->members[i].store)
            q->members[i].store->ops->close(q->members[i].store);
    dibs__claims_free(q);
    dibs__mutex_destroy(&q->mutex);
    free(q->members);
    free(q);
}

/* Gathering is the thread's: beginning it at one member covers what the thread sends to any of them. */
static void gather(struct dibs__store *base, bool on)
{
    dibs__store_gather(dibs__quorum_of(base)->members[0].store, on);
}

static const struct dibs__store_ops quorum_ops = {
    .connect = connect_quorum,
    .begin = dibs__rows_begin,
    .rows = rows,
    .progress = progress,
    .finish = dibs__rows_finish,
    .conclude = dibs__quorum_conclude,
    .walk = dibs__quorum_walk,
    .examine = dibs__quorum_examine,
    .listen = listen_quorum,
    .retract = dibs__quorum_retract,
    .renew = dibs__quorum_renew,
    .is_unconfirmed = is_unconfirmed,
    .gather = gather,
    .interest = interest,
    .attend = attend,
    .close = close_quorum,
};

static dibs_status open_member(struct dibs__quorum *q, size_t i, struct dibs__error *error)
{
    struct dibs__member *member = &q->members[i];
    struct dibs__store_config config = q->config;
    struct dibs__error its = {DIBS_OK, ""};

    member->quorum = q;
    member->index = (unsigned)i;
    dibs__quorum_mutex_lock(&q->mutex);
    member->rest = (struct dibs__backoff){.first_ms = REST_FIRST_MS};
    dibs__quorum_mutex_unlock(&q->mutex);
    config.url = q->config.urls[i];
    config.url_count = 1;
    config.is_member = true;
    config.quorum = &q->number;
    config.listener.source = member;
    config.listener.granted = on_granted;
    config.listener.server_changed = on_server_changed;
    config.listener.reachable = on_reachable;
    config.listener.watching = on_watching;
    if (dibs__store_open(&member->store, &config, &its) == DIBS_OK)
        return DIBS_OK;
    if (its.status == DIBS_INVALID)
        return dibs__error_set(error, DIBS_INVALID, "urls[%zu]: %s", i, its.detail);
    *error = its;
    return its.status;
}

/* ------------------------------------------------------------------------ the URLs */

static bool is_memory(const char *url)
{
    return strncasecmp(url, "mem:", 4) == 0;
}

/*
 * Two databases of one server count as the same: they are not independent. A URL mem: without a name is another store
 * each time. one, other: the texts taken apart, unless they are URLs mem:.
 */
static bool is_same(const char *text, const struct dibs__url *one, const char *other_text,
                    const struct dibs__url *other)
{
    if (is_memory(text) || is_memory(other_text))
        return is_memory(text) && is_memory(other_text) && text[4] && strcmp(text + 4, other_text + 4) == 0;
    if (one->path || other->path)
        return one->path && other->path && strcmp(one->path, other->path) == 0;
    return one->hosts[0].port == other->hosts[0].port && strcasecmp(one->hosts[0].name, other->hosts[0].name) == 0;
}

static dibs_status check_url(const struct dibs__store_config *config, size_t i, struct dibs__url *urls,
                             struct dibs__error *error)
{
    const char *text = config->urls[i];
    struct dibs__error its;

    if (!is_memory(text) && dibs__url_parse(&urls[i], text, &its) != DIBS_OK)
        return dibs__error_set(error, its.status, "urls[%zu]: %s", i, its.detail);
    if (!is_memory(text) && urls[i].kind != DIBS__URL_SERVER)
        return dibs__error_set(error, DIBS_INVALID, "urls[%zu]: a member of a quorum is one master, and no %s", i,
                               urls[i].kind == DIBS__URL_SENTINEL ? "Sentinel" : "cluster");
    for (size_t before = 0; before < i; before++)
        if (is_same(config->urls[before], &urls[before], text, &urls[i]))
            return dibs__error_set(error, DIBS_INVALID, "urls[%zu] and urls[%zu] are the same master", before, i);
    return DIBS_OK;
}

/* Each member must be one master, and none may come twice. A status of dibs_open. */
static dibs_status check_urls(const struct dibs__store_config *config, struct dibs__error *error)
{
    struct dibs__url urls[DIBS__MEMBERS_MAX] = {{0}};
    dibs_status status = DIBS_OK;

    if (config->url_count > DIBS__MEMBERS_MAX || config->url_count % 2 == 0)
        return dibs__error_set(error, DIBS_INVALID, "a quorum has an odd number of masters, at most %d",
                               DIBS__MEMBERS_MAX);
    for (size_t i = 0; i < config->url_count && status == DIBS_OK; i++)
        status = check_url(config, i, urls, error);
    for (size_t i = 0; i < config->url_count; i++)
        dibs__url_free(&urls[i]);
    return status;
}

/* --------------------------------------------------------------------- opening */

/* NULL: no memory. */
static struct dibs__quorum *new_quorum(const struct dibs__store_config *config)
{
    struct dibs__quorum *q = calloc(1, sizeof *q);

    if (!q)
        return NULL;
    q->members = calloc(config->url_count, sizeof *q->members);
    if (!q->members || dibs__mutex_init(&q->mutex) != 0) {
        free(q->members);
        free(q);
        return NULL;
    }
    q->config = *config;
    q->count = config->url_count;
    q->majority = q->count / 2 + 1;
    dibs__vote_init(q);
    return q;
}

dibs_status dibs__quorum_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error)
{
    if (check_urls(config, error) != DIBS_OK)
        return error->status;
    struct dibs__quorum *q = new_quorum(config);
    if (!q)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for the stores");
    q->store.ops = &quorum_ops;
    q->store.watches = true;
    for (size_t i = 0; i < q->count; i++) {
        if (open_member(q, i, error) != DIBS_OK) {
            close_quorum(&q->store);
            return error->status;
        }
        q->store.fd_max += q->members[i].store->fd_max;
    }
    *out = &q->store;
    return DIBS_OK;
}
