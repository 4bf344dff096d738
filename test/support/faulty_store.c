/*
 * Lock discipline: the faults' `mutex` is a leaf; the store in memory and the listener are called without it. Any
 * thread may say whether answers are kept back; only the schedulers' threads keep them back and pass them on.
 */
#include "support/faulty_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An answer to a batch that is held back. */
struct kept {
    struct kept *next;
    bool look;                 /* it is one to a look, not to renewals */
    struct dibs__store *store; /* whose scheduler is to tell the answer */
    struct dibs__batch *batch;
    struct dibs__error error;
};

struct faulty_store {
    struct dibs__store store;
    struct dibs__store_ops ops; /* read-only after open */
    struct dibs__store *inner;
    struct faults *faults;
    struct dibs__counters *counters; /* the runtime's */
    const struct dibs__clock *clock; /* the runtime's */
    struct dibs__listener listener;  /* the runtime's listener */
    void (*done)(struct dibs__batch *batch,
                 const struct dibs__error *error); /* the library's `done` of the batch that is renewed now */
    void *done_context;
    atomic_int watching; /* atomic; what to tell the scheduler: 1: on; -1: off; 0: nothing */
};

static struct faulty_store *of(struct dibs__store *store)
{
    return (struct faulty_store *)store;
}

static dibs_status refuse(struct dibs__error *error, dibs_status status)
{
    return dibs__error_set(error, status, "the test wants %s", dibs_status_name(status));
}

/* ------------------------------------------------------------------ threads */

static bool concerns(const struct faults *faults, const char *name)
{
    return !faults->only || strcmp(faults->only, name) == 0;
}

static dibs_status enter(struct faults *faults, const char *name, int64_t deadline)
{
    pthread_mutex_lock(&faults->mutex);
    faults->acquires++;
    faults->last_deadline = deadline;
    if (++faults->inside > faults->inside_most)
        faults->inside_most = faults->inside;
    while (faults->blocked && concerns(faults, name) && !faults->one_goes) {
        faults->blocking = true;
        pthread_cond_wait(&faults->unblocked, &faults->mutex);
    }
    faults->one_goes = false;
    dibs_status status = faults_use(&faults->acquire);
    pthread_mutex_unlock(&faults->mutex);
    return status;
}

/* The token of an attempt that the store in memory knows nothing of is retired. */
static void spend(struct dibs__attempt *attempt, struct dibs__answer *answer)
{
    attempt->number = 0;
    attempt->proof = 0;
    answer->retired = DIBS__RETIRED;
}

/* The answer to an ask that is refused, and not done. */
static dibs_status refuse_ask(struct faults *faults, struct dibs__attempt *attempt, struct dibs__answer *answer,
                              dibs_status status, struct dibs__error *error)
{
    pthread_mutex_lock(&faults->mutex);
    bool spends = faults->spends;
    pthread_mutex_unlock(&faults->mutex);
    attempt->number++;
    attempt->proof = dibs__now(faults->clock);
    *answer = (struct dibs__answer){.again_ms = status == DIBS_BUSY ? 1000 : 0};
    if (status == DIBS_BUSY && faults->watches)
        answer->told_ms = 10000;
    if (status != DIBS_BUSY && spends)
        spend(attempt, answer);
    if (status != DIBS_BUSY)
        return refuse(error, status);
    attempt->in_store = attempt->in_store || attempt->wait;
    return status;
}

static void note_heard(struct faults *faults)
{
    pthread_mutex_lock(&faults->mutex);
    faults->last_reply_at = dibs__now(faults->clock);
    pthread_mutex_unlock(&faults->mutex);
}

/* Changes the answer to an ask that was done, where a fault says so. */
static dibs_status spoil(struct faulty_store *store, struct dibs__attempt *attempt, struct dibs__answer *answer,
                         dibs_status status, struct dibs__error *error)
{
    struct faults *faults = store->faults;

    pthread_mutex_lock(&faults->mutex);
    bool late = faults->late_proof, too_few_replicas = faults->too_few_replicas && status == DIBS_OK;
    bool lost = faults->unanswered || too_few_replicas;
    uint64_t server = faults->grants_server;
    pthread_mutex_unlock(&faults->mutex);
    attempt->lease.words[0] = server;
    if (late)
        attempt->proof -= attempt->lease_ms * DIBS__NS_PER_MS;
    if (!lost)
        return status;
    attempt->in_store = true;
    store->inner->ops->conclude(store->inner, attempt, false);
    *answer = (struct dibs__answer){.retired = DIBS__RETIRED,
                                    .why = too_few_replicas ? DIBS__WHY_TOO_FEW_REPLICAS : DIBS__WHY_UNTOLD};
    return too_few_replicas ? dibs__error_set(error, DIBS_UNAVAILABLE, "the test has no replicas")
                            : refuse(error, DIBS_UNAVAILABLE);
}

static dibs_status ask(struct faulty_store *store, struct dibs__op *op, struct dibs__error *error)
{
    struct faults *faults = store->faults;
    struct dibs__attempt *attempt = op->ask.attempt;
    struct dibs__answer *answer = op->ask.answer;
    dibs_status status = enter(faults, op->name, op->deadline);

    if (status != DIBS_OK) {
        refuse_ask(faults, attempt, answer, status, error);
    } else {
        status = store->inner->ops->finish(store->inner, op, error);
        note_heard(faults);
        status = spoil(store, attempt, answer, status, error);
    }
    pthread_mutex_lock(&faults->mutex);
    answer->last_reply_at = faults->last_reply_at;
    faults->inside--;
    pthread_mutex_unlock(&faults->mutex);
    return status;
}

/* What the faults do to a release, and to the ask behind it. */
struct plan {
    dibs_status status, next;
    bool sent_twice;
};

static bool is_refusal(dibs_status status)
{
    return status != DIBS_OK && status != DIBS_NOT_HELD;
}

static struct plan plan_release(struct faulty_store *store, const struct dibs__op *op)
{
    const struct dibs__release *release = &op->release;
    struct faults *faults = store->faults;

    pthread_mutex_lock(&faults->mutex);
    struct plan plan = {.status = faults_use(&faults->release), .sent_twice = faults->released_again};
    faults->releases++;
    if (release->next.attempt) {
        faults->acquires++;
        plan.next = is_refusal(plan.status) ? plan.status : faults_use(&faults->acquire);
    }
    if (is_refusal(plan.status))
        faults_keep_unconfirmed(faults, store->inner, store->counters, op->name, release->token);
    pthread_mutex_unlock(&faults->mutex);
    return plan;
}

static dibs_status release_lock(struct faulty_store *store, struct dibs__op *op, struct dibs__error *error)
{
    struct plan plan = plan_release(store, op);
    struct dibs__release *release = &op->release;
    const struct dibs__ask next = release->next;

    if (store->faults->on_release)
        store->faults->on_release(store->faults->on_release_arg);
    dibs_status status = plan.status;

    if (plan.next != DIBS_OK)
        release->next.attempt = NULL;
    if (!is_refusal(plan.status))
        status = store->inner->ops->finish(store->inner, op, error);
    release->next = next;
    release->again = plan.sent_twice;
    if (plan.next != DIBS_OK)
        release->next_status = refuse_ask(store->faults, next.attempt, next.answer, plan.next, error);
    else if (next.attempt)
        release->next_status = spoil(store, next.attempt, next.answer, release->next_status, error);
    if (is_refusal(plan.status))
        return refuse(error, plan.status);
    return plan.sent_twice || plan.status == DIBS_NOT_HELD ? DIBS_NOT_HELD : status;
}

static void conclude(struct dibs__store *base, struct dibs__attempt *attempt, bool held)
{
    of(base)->inner->ops->conclude(of(base)->inner, attempt, held);
}

static void retract(struct dibs__store *base, const char *name, const char *token, uint32_t lease_ms, uint64_t fence)
{
    struct faulty_store *store = of(base);

    pthread_mutex_lock(&store->faults->mutex);
    store->faults->retractions++;
    pthread_mutex_unlock(&store->faults->mutex);
    store->inner->ops->retract(store->inner, name, token, lease_ms, fence);
}

/* There is nothing to wait for: finish does everything. */
static void begin(struct dibs__store *base, struct dibs__op *op)
{
    of(base)->inner->ops->begin(of(base)->inner, op);
}

static enum dibs__progress progress(struct dibs__store *base, const struct dibs__op *op, struct dibs__wait *wait)
{
    struct faults *faults = of(base)->faults;

    pthread_mutex_lock(&faults->mutex);
    bool unsent = faults->unsent && op->kind == DIBS__OP_ASK && concerns(faults, op->name);
    pthread_mutex_unlock(&faults->mutex);
    if (unsent)
        return DIBS__OP_UNSENT;
    return of(base)->inner->ops->progress(of(base)->inner, op, wait);
}

static dibs_status finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct faulty_store *store = of(base);

    if (op->kind == DIBS__OP_ASK)
        return ask(store, op, error);
    if (op->kind == DIBS__OP_RELEASE)
        return release_lock(store, op, error);
    if (op->kind == DIBS__OP_QUERY)
        note_heard(store->faults);
    return store->inner->ops->finish(store->inner, op, error);
}

static dibs_status walk(struct dibs__store *base, const struct dibs__walk *walk, struct dibs__error *error)
{
    return of(base)->inner->ops->walk(of(base)->inner, walk, error);
}

static dibs_status examine(struct dibs__store *base, struct dibs__examination *examination, struct dibs__error *error)
{
    return of(base)->inner->ops->examine(of(base)->inner, examination, error);
}

/* ------------------------------------------------------------- the listener */

static bool on_granted(void *source, const struct dibs__grant *grant)
{
    struct faulty_store *store = source;

    pthread_mutex_lock(&store->faults->mutex);
    store->faults->pushes++;
    bool lost = store->faults->pushes_lost;
    pthread_mutex_unlock(&store->faults->mutex);
    return lost || store->listener.granted(store->listener.source, grant);
}

/* The store in memory has nothing to read. */
static void listen_faulty(struct dibs__store *base, const char *name, struct dibs__wait_event *wait_event,
                          int64_t until)
{
    struct faulty_store *store = of(base);

    (void)name;
    pthread_mutex_lock(&store->faults->mutex);
    store->faults->unheard += !wait_event;
    pthread_mutex_unlock(&store->faults->mutex);
    if (wait_event)
        dibs__wait_event_wait(wait_event, store->clock, until);
}

void faulty_store_change(struct dibs__store *base, const char *name)
{
    const struct dibs__listener *listener = &of(base)->listener;

    listener->changed(listener->context, name);
}

void faulty_store_watching(struct dibs__store *base, bool on)
{
    atomic_store(&of(base)->watching, on ? 1 : -1);
    const struct dibs__listener *listener = &of(base)->listener;

    listener->wake(listener->context);
}

/* ------------------------------------------------------------ the scheduler */

/* Requires mutex. count: of the leases so far. */
static void record(struct faults *faults, struct renewal_record *records, unsigned *count, unsigned number,
                   const struct dibs__batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct renewal_record *r = &records[(*count)++ % RENEWALS_MAX];
        r->at = dibs__now(faults->clock);
        r->batch = number;
        r->lease_ms = batch->items[i].lease_ms;
        snprintf(r->name, sizeof r->name, "%.31s", batch->items[i].name);
    }
}

/* Whether such answers are kept. Requires mutex. */
static bool keeps(const struct faults *faults, bool look)
{
    return look ? faults->looks_held_back : faults->held_back;
}

/* Tells the answer, or keeps it. */
static void answer(struct faulty_store *store, struct dibs__batch *batch, bool look, const struct dibs__error *error)
{
    struct faults *faults = store->faults;
    struct kept *kept = NULL;

    pthread_mutex_lock(&faults->mutex);
    if (keeps(faults, look)) {
        kept = calloc(1, sizeof *kept);
        if (!kept)
            abort();
        *kept = (struct kept){.look = look, .store = &store->store, .batch = batch, .error = *error};
        *faults->kept_end = kept;
        faults->kept_end = &kept->next;
    }
    pthread_mutex_unlock(&faults->mutex);
    if (!kept)
        batch->done(batch, error);
}

static void on_renewed(struct dibs__batch *batch, const struct dibs__error *error)
{
    struct faulty_store *store = batch->context;
    struct faults *faults = store->faults;

    batch->done = store->done;
    batch->context = store->done_context;
    pthread_mutex_lock(&faults->mutex);
    for (size_t i = 0; i < batch->count; i++) {
        batch->items[i].store_state.words[0] = faults->server;
        if (strcmp(batch->items[i].name, faults->gone) == 0)
            batch->items[i].result = DIBS__GONE;
    }
    pthread_mutex_unlock(&faults->mutex);
    answer(store, batch, false, error);
}

/* The store in memory can't watch: what a look finds is what the faults say. */
static void watch(struct faulty_store *store, struct dibs__batch *batch)
{
    struct faults *faults = store->faults;
    struct dibs__error error = {DIBS_OK, ""};

    pthread_mutex_lock(&faults->mutex);
    unsigned number = ++faults->look_batches;
    record(faults, faults->look_records, &faults->looks, number, batch);
    dibs_status status = faults_use(&faults->look);
    for (size_t i = 0; i < batch->count; i++) {
        bool other = strcmp(batch->items[i].name, faults->other) == 0;
        batch->items[i].result = status != DIBS_OK ? DIBS__UNANSWERED : other ? DIBS__GONE : DIBS__WATCHED;
    }
    pthread_mutex_unlock(&faults->mutex);
    if (status != DIBS_OK)
        refuse(&error, status);
    answer(store, batch, true, &error);
}

/* As if each lock had a node of its own. */
static void refuse_apart(struct dibs__batch *batch, dibs_status status)
{
    struct dibs__error error;

    for (size_t i = 0; i < batch->count; i++) {
        struct dibs__batch part = *batch;
        part.items[0] = batch->items[i];
        part.count = 1;
        dibs__error_set(&error, status, "the node of %s is away", part.items[0].name);
        batch->landed(batch, &part, &error);
    }
    batch->count = 0;
}

static void renew(struct dibs__store *base, struct dibs__batch *batch)
{
    struct faulty_store *store = of(base);
    struct dibs__error error = {DIBS_OK, ""};

    if (batch->watch) {
        watch(store, batch);
        return;
    }
    pthread_mutex_lock(&store->faults->mutex);
    unsigned number = ++store->faults->batches;
    record(store->faults, store->faults->records, &store->faults->renewals, number, batch);
    dibs_status status = faults_use(&store->faults->renewal);
    bool apart = store->faults->apart;
    pthread_mutex_unlock(&store->faults->mutex);
    if (status == DIBS_OK) {
        store->done = batch->done;
        store->done_context = batch->context;
        batch->done = on_renewed;
        batch->context = store;
        store->inner->ops->renew(store->inner, batch);
        return;
    }
    batch->proof = dibs__now(store->faults->clock);
    for (size_t i = 0; i < batch->count; i++)
        batch->items[i].result = DIBS__UNANSWERED;
    refuse(&error, status);
    if (apart)
        refuse_apart(batch, status);
    answer(store, batch, false, &error);
}

static uint64_t tell_when_free(struct dibs__store *base, const char *name, uint64_t since)
{
    struct faults *faults = of(base)->faults;

    (void)name;
    pthread_mutex_lock(&faults->mutex);
    uint64_t tells = faults->tells;
    faults->tellings++;
    faults->told_again += tells != since;
    pthread_mutex_unlock(&faults->mutex);
    return tells;
}

/* Called under a mutex of the runtime's: the server that renewals go to is atomic. */
static bool is_unconfirmed(struct dibs__store *base, const struct dibs__lease_store_state *lease)
{
    uint64_t server = atomic_load(&of(base)->faults->server);

    return server != 0 && lease->words[0] != server;
}

/* Takes the first kept answer of this store that may be told now off the list. */
static struct kept *take_kept(struct faulty_store *store, bool even_if_held_back)
{
    struct faults *faults = store->faults;

    pthread_mutex_lock(&faults->mutex);
    struct kept **at = &faults->kept;
    while (*at && ((*at)->store != &store->store || (!even_if_held_back && keeps(faults, (*at)->look))))
        at = &(*at)->next;
    struct kept *found = *at;
    if (found) {
        *at = found->next;
        if (!*at)
            faults->kept_end = at;
    }
    pthread_mutex_unlock(&faults->mutex);
    return found;
}

static size_t interest(struct dibs__store *base, struct pollfd *fds, int64_t *deadline)
{
    return of(base)->inner->ops->interest(of(base)->inner, fds, deadline);
}

static void attend(struct dibs__store *base, const struct pollfd *fds, size_t count)
{
    struct faulty_store *store = of(base);
    struct kept *kept;
    int watching = atomic_exchange(&store->watching, 0);

    if (watching != 0)
        store->listener.watching(store->listener.source, watching > 0);
    while ((kept = take_kept(store, false))) {
        kept->batch->done(kept->batch, &kept->error);
        free(kept);
    }
    store->inner->ops->attend(store->inner, fds, count);
}

/* By the contract of stores, batches that are under way end without an answer. */
static void close_faulty(struct dibs__store *base)
{
    struct faulty_store *store = of(base);
    struct kept *kept;
    struct dibs__error error;

    while ((kept = take_kept(store, true))) {
        for (size_t i = 0; i < kept->batch->count; i++)
            kept->batch->items[i].result = DIBS__UNANSWERED;
        refuse(&error, DIBS_CLOSED);
        kept->batch->done(kept->batch, &error);
        free(kept);
    }
    faults_confirm(store->faults);
    store->inner->ops->close(store->inner);
    free(store);
}

static dibs_status connect_inner(struct dibs__store *base, bool wait, struct dibs__error *error)
{
    return of(base)->inner->ops->connect(of(base)->inner, wait, error);
}

/* So that leases may be kept; no recall ever comes. */
static bool can_keep(struct dibs__store *base, const char *name)
{
    (void)base;
    (void)name;
    return true;
}

dibs_status faulty_store_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error)
{
    static const struct dibs__store_ops ops = {
        .connect = connect_inner,
        .begin = begin,
        .progress = progress,
        .finish = finish,
        .conclude = conclude,
        .walk = walk,
        .examine = examine,
        .listen = listen_faulty,
        .retract = retract,
        .renew = renew,
        .is_unconfirmed = is_unconfirmed,
        .interest = interest,
        .attend = attend,
        .close = close_faulty,
    };
    struct faulty_store *store = calloc(1, sizeof *store);
    struct dibs__store_config inner = *config;

    if (!store)
        abort();
    store->faults = faults_current();
    store->clock = config->clock;
    store->listener = config->listener;
    store->counters = config->counters;
    inner.listener.source = store;
    inner.listener.granted = on_granted;
    if (dibs__store_open(&store->inner, &inner, error) != DIBS_OK) {
        free(store);
        return error->status;
    }
    store->ops = ops;
    if (store->faults->watches) {
        store->ops.tell_when_free = tell_when_free;
        store->ops.can_keep = can_keep;
    }
    store->store = (struct dibs__store){&store->ops, store->inner->fd_max, store->faults->watches, false};
    *out = &store->store;
    return DIBS_OK;
}
