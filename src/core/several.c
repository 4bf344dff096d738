/* A call needs no mutex: one thread at a time drives it, and other threads only wake `wait_event` and read `wanted`. */
#include "core/several.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"

#define WHOLE_ROUNDS 4 /* this many rounds that meet a taken name ask for all names */
#define LEAST_WINDOW 8
#define LEAVE_MS 3 /* a call whose time is over waits this long for the end of its releases */

/* ------------------------------------------------------------------ the names */

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/*
 * The distinct names in the order of their bytes, for the caller to free.
 * *count: set to how many these are. *bytes: set to what copies of all need.
 */
static const char **sort(const char *const *names, size_t *count, size_t *bytes)
{
    const char **sorted = malloc(*count * sizeof *sorted);
    size_t kept = 0;

    if (!sorted)
        return NULL;
    memcpy(sorted, names, *count * sizeof *sorted);
    qsort(sorted, *count, sizeof *sorted, compare);
    *bytes = 0;
    for (size_t i = 0; i < *count; i++) {
        if (kept > 0 && strcmp(sorted[kept - 1], sorted[i]) == 0)
            continue;
        sorted[kept++] = sorted[i];
        *bytes += strlen(sorted[i]) + 1;
    }
    *count = kept;
    return sorted;
}

static void copy_names(struct dibs__several *several, const char *const *sorted)
{
    char *to = (char *)&several->names[several->count];

    for (size_t i = 0; i < several->count; i++) {
        struct dibs__several_name *name = &several->names[i];
        size_t size = strlen(sorted[i]);
        memcpy(to, sorted[i], size + 1);
        name->name = to;
        name->size = size;
        name->is_asked = name->is_waiting = false;
        name->held = name->lease = NULL;
        name->known = (struct dibs__attempt_store_state){.words = {0}};
        to += size + 1;
    }
}

struct dibs__several *dibs__several_new(struct dibs__core *core, const char *const *names, size_t count,
                                        const struct dibs__wish *wish)
{
    int64_t now = dibs__core_now(core);
    size_t bytes;
    const char **sorted = sort(names, &count, &bytes);
    struct dibs__several *several = sorted ? malloc(sizeof *several + count * sizeof several->names[0] + bytes) : NULL;

    if (several) {
        *several = (struct dibs__several){.core = core, .wish = *wish, .began = now, .count = count};
        several->window = dibs__core_confirms(core) ? 1 : count; /* confirmations are waited for one by one */
        several->wait_until = wish->wait_ms < 0    ? DIBS__NEVER
                              : wish->wait_ms == 0 ? 0
                                                   : dibs__after_ms(now, wish->wait_ms);
        copy_names(several, sorted);
        if (count > 0)
            atomic_init(&several->wanted, several->names[0].name);
    }
    free(sorted);
    return several;
}

void dibs__several_free(struct dibs__several *several)
{
    if (!several)
        return;
    for (size_t i = 0; i < several->count; i++) {
        DIBS__REQUIRE(!several->names[i].is_asked && !several->names[i].is_waiting);
        dibs__lease_unref(several->names[i].held);
        dibs__lease_unref(several->names[i].lease);
    }
    free(several);
}

/* ------------------------------------------------------------------ how it fails */

void dibs__several_explain(struct dibs__error *error, const char *name)
{
    struct dibs__error plain = *error;

    if (error->status != DIBS_CLOSED && error->status != DIBS_OK && !strstr(error->detail, DIBS__QUOTED(name)))
        dibs__error_set(error, plain.status, "%s: %s", DIBS__QUOTED(name), plain.detail);
}

bool dibs__several_is_held(const struct dibs__several *several)
{
    size_t i = 0;

    while (i < several->count && several->names[i].held)
        i++;
    return i == several->count;
}

const char *dibs__several_first_wanted(const struct dibs__several *several)
{
    size_t i = several->got;

    while (i + 1 < several->count && several->names[i].held)
        i++;
    return several->names[i].name;
}

/* The call gives back all that it was granted, and then ends. */
static void fail(struct dibs__several *several)
{
    DIBS__REQUIRE(several->error.status != DIBS_OK);
    several->has_failed = true;
    several->missing = 0;
    several->is_back = false;
    several->state = DIBS__SEVERAL_BACK;
}

static void fail_cancelled(struct dibs__several *several)
{
    dibs__task_was_cancelled(&several->error, dibs__several_first_wanted(several));
    fail(several);
}

static void set_lost(struct dibs__several *several, const struct dibs__several_name *name)
{
    dibs__error_set(&several->error, DIBS_LOST, "the lease of %s ended before all of the locks were acquired",
                    DIBS__QUOTED(name->name));
}

/* False: a lease that the call has, or relies on, is known to be lost, and the call fails. */
static bool none_is_lost(struct dibs__several *several)
{
    int64_t now = dibs__core_now(several->core);

    for (size_t i = 0; i < several->count; i++) {
        struct dibs__several_name *name = &several->names[i];
        struct dibs__lease *lease = name->held ? name->held : name->lease;
        if (!lease || !dibs__lease_is_lost(lease, now))
            continue;
        set_lost(several, name);
        fail(several);
        return false;
    }
    return true;
}

/*
 * The call fails with `error`, that of a name that was not granted; but
 * if a lease was lost meanwhile, that is what the caller must know.
 */
static void fail_unless_lost(struct dibs__several *several)
{
    dibs_status status = several->error.status;

    if (status == DIBS_CANCELLED || status == DIBS_CLOSED || none_is_lost(several))
        fail(several);
}

/* A lease that the call had, or relied on, ended with that status. The first loss is the one that is reported. */
static void note_ended(struct dibs__several *several, const struct dibs__several_name *name, dibs_status status)
{
    dibs_status failed = several->error.status;

    if (status == DIBS_LOST && several->has_failed && failed != DIBS_LOST && failed != DIBS_CANCELLED &&
        failed != DIBS_CLOSED)
        set_lost(several, name);
}

/* The call fails, and has given back what it was granted. What the owner held before may have ended meanwhile, too. */
static void look_at_held(struct dibs__several *several)
{
    int64_t now = dibs__core_now(several->core);

    for (size_t i = 0; i < several->count; i++)
        if (several->names[i].held && dibs__lease_is_lost(several->names[i].held, now))
            note_ended(several, &several->names[i], DIBS_LOST);
}

/* ------------------------------------------------------------------------ tries */

/* A call that makes one try waits only for a process that keeps the lease and was asked to give it back. */
static bool waiting_may_help(const struct dibs__several *several, const struct dibs__acquire *try)
{
    if (several->wish.wait_ms == 0)
        return try->status == DIBS_BUSY && try->recalled;
    return try->status == DIBS_BUSY || try->status == DIBS_UNAVAILABLE;
}

/* A try missed its name. `error` becomes that of the first such name, or of one for which it is no use to wait. */
static void miss(struct dibs__several *several, struct dibs__several_name *name)
{
    size_t number = (size_t)(name - several->names);
    bool was_left = name->acquire.cancelled, is_final = !was_left && !waiting_may_help(several, &name->acquire);

    if (!was_left && !several->is_final && (is_final || number < several->missing)) {
        several->error = several->scratch;
        several->is_final = is_final;
        dibs__several_explain(&several->error, name->name);
    }
    if (number < several->missing)
        several->missing = number;
}

/* Takes a try as far as possible without waiting, and notes what becomes of it. */
static void go_on_trying(struct dibs__several *several, struct dibs__several_name *name)
{
    enum dibs__job_next next;
    int64_t until;

    do
        next = dibs__acquire_go_on(&name->acquire, &until);
    while (next == DIBS__JOB_GOES_ON);
    name->is_waiting = next == DIBS__JOB_RESTS;
    name->is_asked = next == DIBS__JOB_FINISHES;
    if (next != DIBS__JOB_ENDS)
        return;
    if (name->acquire.status != DIBS_OK) {
        miss(several, name);
        return;
    }
    name->lease = name->acquire.lease;
    name->acquired_at = name->acquire.acquired_at;
    name->known = (struct dibs__attempt_store_state){.words = {0}};
}

/* When a command that begins now must have its reply, which is of no use to the call after `limit`. */
static int64_t deadline_within(const struct dibs__several *several, int64_t limit)
{
    int64_t now = dibs__core_now(several->core), deadline = dibs__core_command_deadline(several->core);

    if (limit == DIBS__NEVER)
        return deadline;
    limit = dibs__after_ms(limit > now ? limit : now, LEAVE_MS);
    return dibs__earlier(limit, deadline);
}

/* When the time of the call is over. A call that makes one try has the time of a command. */
static int64_t end_of_call(const struct dibs__several *several)
{
    return several->wish.wait_ms == 0
               ? dibs__after_ms(several->began, several->core->config.settings->command_timeout_ms)
               : several->wait_until;
}

static void start_try(struct dibs__several *several, struct dibs__several_name *name)
{
    struct dibs__wish wish = several->wish;

    wish.wait_ms = 0;
    dibs__acquire_init(&name->acquire, several->core, name->name, name->size, &wish, several->wait_event,
                       &several->scratch);
    dibs__outage_budget_renew(&name->acquire.budget, several->tried_at);
    name->acquire.try_until = several->deadline;
    name->acquire.probes = several->wish.wait_ms != 0;
    name->acquire.never_rests = true;
    name->acquire.known = &name->known;
    dibs__acquire_start(&name->acquire);
    go_on_trying(several, name);
}

static void start_tries(struct dibs__several *several)
{
    several->tried_at = dibs__core_now(several->core);
    several->deadline = deadline_within(several, end_of_call(several));
    dibs__store_gather(several->core->store, true);
    for (size_t i = several->got; i < several->end; i++)
        if (!several->names[i].held)
            start_try(several, &several->names[i]);
    dibs__store_gather(several->core->store, false);
}

static bool any_is_asked(const struct dibs__several *several)
{
    bool any = false;

    for (size_t i = 0; i < several->count && !any; i++)
        any = several->names[i].is_asked;
    return any;
}

/* How many names of the next round are not held; 2 also stands for more. */
static unsigned to_ask_for(const struct dibs__several *several)
{
    unsigned count = 0;

    for (size_t i = several->got; i < several->end && count < 2; i++)
        count += !several->names[i].held;
    return count;
}

/* Begins to wait for the missing name. */
static void begin_wait(struct dibs__several *several)
{
    struct dibs__several_name *name = &several->names[several->missing];
    struct dibs__acquire *acquire = &name->acquire;

    several->state = DIBS__SEVERAL_WAITS;
    dibs__acquire_init(acquire, several->core, name->name, name->size, &several->wish, several->wait_event,
                       &several->scratch);
    if (several->error.status == DIBS_UNAVAILABLE) /* the try of this name met an outage, which counts from then */
        dibs__outage_budget_renew(&acquire->budget, several->tried_at);
    acquire->wait_until = several->wait_until;
    acquire->try_until = dibs__earlier(acquire->try_until, end_of_call(several));
    acquire->known = &name->known;
    dibs__acquire_start(acquire);
}

static void begin_round(struct dibs__several *several)
{
    size_t left;

    while (several->got < several->count && several->names[several->got].held)
        several->got++;
    left = several->count - several->got;
    several->end = several->missing = several->got + (left < several->window ? left : several->window);
    several->is_final = false;
    several->error.status = DIBS_OK;
    if (several->got == several->count) {
        if (none_is_lost(several))
            several->state = DIBS__SEVERAL_ENDED;
    } else if (several->cancelled) {
        fail_cancelled(several);
    } else if (to_ask_for(several) == 1) {
        several->missing = several->got;
        begin_wait(several);
    } else {
        start_tries(several);
        several->state = DIBS__SEVERAL_TRIES;
    }
}

/*
 * Looks at the tries that wait for what the store tells another owner here. They stop waiting if another name is
 * missing, or if the call is going to wait for the name anyway. True: some go on waiting, at most until *until.
 */
static bool look_at_waiting(struct dibs__several *several, int64_t *until)
{
    bool any = false;

    for (size_t i = several->got; i < several->end; i++) {
        struct dibs__several_name *name = &several->names[i];
        if (!name->is_waiting)
            continue;
        name->acquire.cancelled = several->cancelled || several->wait_until != 0 || several->missing < several->end;
        go_on_trying(several, name);
        any = any || name->is_waiting;
        if (name->is_waiting)
            *until = dibs__earlier(*until, name->acquire.waiter.deadline);
    }
    return any;
}

/* Narrows the rounds after one that met a taken name, so that not much more is given back than is granted. */
static void narrow(struct dibs__several *several)
{
    size_t most = 2 * (several->missing - several->got);

    if (++several->misses > WHOLE_ROUNDS)
        several->window = most > LEAST_WINDOW ? most : LEAST_WINDOW;
}

/*
 * The try of the missing name has ridden out the outage to its end. If the time of the call is over meanwhile, the wait
 * says so.
 */
static bool has_ridden_out(const struct dibs__several *several)
{
    const struct dibs__acquire *try = &several->names[several->missing].acquire;

    return try->status == DIBS_UNAVAILABLE && try->learned == DIBS__LEARNED_OUTAGE &&
           dibs__core_now(several->core) < several->wait_until;
}

static void end_round(struct dibs__several *several)
{
    if (several->cancelled) {
        fail_cancelled(several);
    } else if (several->missing == several->end) {
        several->got = several->end;
        several->window = several->window < several->count ? several->window * 2 : several->window;
        several->state = DIBS__SEVERAL_ROUND;
    } else if (several->is_final || has_ridden_out(several)) {
        fail_unless_lost(several);
    } else {
        narrow(several);
        several->got = several->missing;
        several->is_back = false;
        several->state = DIBS__SEVERAL_BACK;
    }
}

/* ----------------------------------------------------------------- what is given back */

static void begin_release(struct dibs__several *several, struct dibs__several_name *name)
{
    struct dibs__lease *lease = name->lease;
    struct dibs__error unused;
    dibs_status status;

    name->lease = NULL;
    name->is_asked =
        dibs__release_lease(&name->unlocking, several->core, lease, dibs__core_now(several->core), &status, &unused);
    if (!name->is_asked) {
        note_ended(several, name, status);
        return;
    }
    name->unlocking.op.deadline = several->deadline;
    dibs__release_begin(&name->unlocking, 0);
}

/*
 * Gives back what was granted from the missing name on. The call waits for the end of that only as long as its time
 * allows, and not at all if it was cancelled or the runtime is closing; the store then goes on by itself.
 */
static void begin_back(struct dibs__several *several)
{
    bool is_cancelled = several->has_failed && several->error.status == DIBS_CANCELLED;
    bool waits = !is_cancelled && !atomic_load(several->core->config.closing);

    several->is_back = true;
    several->deadline = deadline_within(several, end_of_call(several));
    dibs__store_gather(several->core->store, true);
    for (size_t i = several->missing; i < several->count; i++) {
        struct dibs__several_name *name = &several->names[i];
        if (name->lease && !waits) {
            dibs__release_in_background(several->core, name->lease);
            dibs__lease_unref(name->lease);
            name->lease = NULL;
        } else if (name->lease) {
            begin_release(several, name);
        }
    }
    dibs__store_gather(several->core->store, false);
}

/* ------------------------------------------------------------------------ steps */

/* The wait for the missing name has ended. */
static void end_wait(struct dibs__several *several)
{
    struct dibs__several_name *name = &several->names[several->missing];

    if (name->acquire.status != DIBS_OK) {
        several->error = several->scratch;
        dibs__several_explain(&several->error, name->name);
        fail_unless_lost(several);
        return;
    }
    name->lease = name->acquire.lease;
    name->acquired_at = name->acquire.acquired_at;
    several->got = several->missing + 1;
    several->state = DIBS__SEVERAL_ROUND;
    none_is_lost(several);
}

static enum dibs__job_next go_on_waiting(struct dibs__several *several, int64_t *until)
{
    struct dibs__several_name *name = &several->names[several->missing];
    struct dibs__acquire *acquire = &name->acquire;
    enum dibs__job_next next = DIBS__JOB_FINISHES;

    acquire->cancelled = several->cancelled; /* perhaps while replicas were waited for */
    if (several->wait_event->tell || acquire->state == DIBS__ACQUIRE_ENDED)
        next = dibs__acquire_go_on(acquire, until);
    name->is_asked = next == DIBS__JOB_FINISHES;
    return next;
}

static enum dibs__job_next step(struct dibs__several *several, int64_t *until)
{
    enum dibs__job_next next;

    for (;;) {
        *until = DIBS__NEVER;
        switch (several->state) {
        case DIBS__SEVERAL_ROUND:
            begin_round(several);
            if (several->state == DIBS__SEVERAL_WAITS)
                return DIBS__JOB_GOES_ON;
            break;
        case DIBS__SEVERAL_TRIES:
            if (any_is_asked(several))
                return DIBS__JOB_FINISHES;
            if (look_at_waiting(several, until))
                return any_is_asked(several) ? DIBS__JOB_FINISHES : DIBS__JOB_RESTS;
            if (!any_is_asked(several))
                end_round(several);
            break;
        case DIBS__SEVERAL_BACK:
            if (!several->is_back)
                begin_back(several);
            if (any_is_asked(several))
                return DIBS__JOB_FINISHES;
            if (!several->has_failed) {
                begin_wait(several);
                return DIBS__JOB_GOES_ON;
            }
            look_at_held(several);
            several->state = DIBS__SEVERAL_ENDED;
            break;
        case DIBS__SEVERAL_WAITS:
            next = go_on_waiting(several, until);
            if (next != DIBS__JOB_ENDS)
                return next;
            end_wait(several);
            break;
        case DIBS__SEVERAL_ENDED:
            return DIBS__JOB_ENDS;
        }
    }
}

enum dibs__job_next dibs__several_go_on(struct dibs__several *several, int64_t *until)
{
    enum dibs__job_next next = step(several, until);

    if (next == DIBS__JOB_FINISHES && several->state != DIBS__SEVERAL_WAITS)
        *until = several->deadline;
    if (several->got < several->count)
        atomic_store(&several->wanted, dibs__several_first_wanted(several));
    return next;
}

static enum dibs__awaited await_name(const struct dibs__several *several, struct dibs__several_name *name,
                                     const struct dibs__waiting *waiting)
{
    if (several->state != DIBS__SEVERAL_BACK)
        return dibs__acquire_await(&name->acquire, waiting);
    return name->unlocking.prepared ? dibs__op_await(several->core->store, &name->unlocking.op, waiting)
                                    : DIBS__NOT_AWAITED;
}

/* One reply after the other, so only one is watched at a time. */
enum dibs__awaited dibs__several_await(struct dibs__several *several, const struct dibs__waiting *waiting)
{
    enum dibs__awaited reply = DIBS__HAS_COME;

    for (size_t i = 0; i < several->count && reply == DIBS__HAS_COME; i++)
        if (several->names[i].is_asked)
            reply = await_name(several, &several->names[i], waiting);
    return reply;
}

static void finish_name(struct dibs__several *several, struct dibs__several_name *name)
{
    if (several->state == DIBS__SEVERAL_BACK)
        note_ended(several, name, dibs__release_finish(&name->unlocking, &several->scratch));
    else if (several->state == DIBS__SEVERAL_WAITS && !several->wait_event->tell)
        dibs__acquire_run(&name->acquire);
    else
        dibs__acquire_finish(&name->acquire);
    if (several->state == DIBS__SEVERAL_TRIES)
        go_on_trying(several, name);
}

void dibs__several_finish(struct dibs__several *several)
{
    for (size_t i = 0; i < several->count; i++) {
        bool is_asked = several->names[i].is_asked;
        several->names[i].is_asked = false;
        if (is_asked)
            finish_name(several, &several->names[i]);
    }
}

void dibs__several_undo(struct dibs__several *several)
{
    DIBS__REQUIRE(several->state == DIBS__SEVERAL_ENDED && several->error.status == DIBS_OK);
    several->got = 0;
    fail_cancelled(several);
}

void dibs__several_hold(struct dibs__several *several, struct dibs__holds *holds)
{
    for (size_t i = 0; i < several->count; i++) {
        struct dibs__several_name *name = &several->names[i];
        struct dibs__lease *lease = name->lease;
        uint64_t runtime = several->core->config.serial;
        if (lease) {
            dibs__metrics_count(lease->group, DIBS__METRICS_WAIT, name->acquired_at - several->began);
            dibs__lease_ref(lease);
            dibs__order_acquired(name->name, name->size);
            dibs__holds_add(holds, lease, name->acquired_at);
        } else {
            dibs__hold_count_up(dibs__holds_find_in(holds, runtime, name->name, name->size));
        }
    }
}
