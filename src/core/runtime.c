/*
 * Lock discipline: `registry_mutex` guards the lists of runtimes, and the making
 * anew of a core in a forked child; it is held across a fork, and not across
 * I/O or a callback.
 *
 * The threads inside a runtime are counted in the handle's `visits`, without a
 * mutex. Who closes sets DIBS__VISITS_CLOSED there; whoever finds that set
 * leaves the core alone and is told DIBS_CLOSED. The closing thread sleeps on
 * `all_gone` until
 *     visits == DIBS__VISITS_CLOSED: nobody is inside, and nobody will be.
 * The last who leaves touches nothing of the core, which may be gone by then:
 * the handle is never freed, and `all_gone` belongs to no runtime.
 */
#include "core/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/once.h"
#include "base/random.h"
#include "core/holds.h"

_Static_assert(sizeof(struct dibs_runtime) <= 160, "runtime.h and dibs.h say how much of a closed one stays");

DIBS__MUTEX_CLASS(dibs__registry_mutex);

static struct dibs__mutex registry_mutex = DIBS__MUTEX_INITIALIZER;
static pthread_cond_t all_gone = PTHREAD_COND_INITIALIZER; /* waited on with registry_mutex */
static dibs_runtime *runtimes;                             /* guarded by registry_mutex; those that are open */
static dibs_runtime *closed_runtimes;    /* guarded by registry_mutex; kept to be found by leak checkers */
static struct dibs__core *all_abandoned; /* guarded by registry_mutex; of runtimes that a child closed; kept likewise */
static struct dibs__once being_set_up;   /* all that is registered once */
static uint64_t last_serial;             /* guarded by registry_mutex */

/* The core whose on_event the calling thread runs, NULL: none. */
static _Thread_local struct dibs__core *calling_back;

void dibs__settings_free(struct dibs__settings *settings)
{
    free(settings->url);
    free(settings->key_prefix);
    free(settings->label);
    settings->url = settings->key_prefix = settings->label = NULL;
}

/* --------------------------------------------------- what the parts tell it */

static void on_wake(void *context)
{
    struct dibs__core *core = context;

    dibs__renewals_wake(core->renewals);
}

static bool on_granted(void *context, const struct dibs__grant *grant)
{
    struct dibs__core *core = context;

    return dibs__cells_push(core->cells, grant);
}

static void on_ask_again(void *context)
{
    struct dibs__core *core = context;

    dibs__cells_ask_again(core->cells);
}

static void on_forgetful(void *context)
{
    struct dibs__core *core = context;

    dibs__renewals_doubt_all(core->renewals);
}

static void on_reachable(void *context, bool up, const char *detail)
{
    struct dibs__core *core = context;

    dibs__events_emit(core->events, up ? DIBS_EVENT_STORE_UP : DIBS_EVENT_STORE_DOWN, NULL, 0,
                      up ? "%s answers again" : "%s", detail);
}

void dibs__core_retract(struct dibs__core *core, struct dibs__lease *lease)
{
    core->store->ops->retract(core->store, lease->name, lease->token, dibs__lease_longest_ms(lease));
}

void dibs__core_lost(struct dibs__core *core, struct dibs__lease *lease, bool gone, const char *why)
{
    if (atomic_exchange(&lease->loss_told, true))
        return;
    dibs__count(&core->stats.lost);
    dibs__events_emit(core->events, DIBS_EVENT_LOST, lease->name, dibs__lease_fence(lease),
                      "the lease ended under its holder%s%s", *why ? ": " : "", why);
    if (!gone) /* the key may outlast the lease by the margin */
        dibs__core_retract(core, lease);
    dibs__cells_end(core->cells, lease, NULL);
}

/* It need not have a holder who takes it from the list: it may have been on its way from one to the next. */
static void on_lost(void *context, struct dibs__lease *lease, bool gone, const char *why)
{
    struct dibs__core *core = context;

    dibs__core_lost(core, lease, gone, why);
    dibs__renewals_remove(core->renewals, lease);
}

static void on_at_risk(void *context, struct dibs__lease *lease, const char *why)
{
    struct dibs__core *core = context;

    dibs__events_emit(core->events, DIBS_EVENT_AT_RISK, lease->name, dibs__lease_fence(lease),
                      "half of the lease has gone without a renewal%s%s", *why ? ": " : "", why);
}

/* --------------------------------------------------------------------- core */

static bool name_core(struct dibs__core *core)
{
    unsigned char bits[16];

    if (!dibs__random_bytes(bits, sizeof bits))
        return false;
    for (size_t i = 0; i < sizeof bits; i++)
        snprintf(core->id + 2 * i, 3, "%02x", bits[i]);
    core->pid = (long)getpid();
    if (gethostname(core->host, sizeof core->host) != 0)
        strcpy(core->host, "localhost");
    core->host[sizeof core->host - 1] = '\0';
    for (char *c = core->host; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == ':')
            *c = '-';
    return true;
}

static void core_free(struct dibs__core *core)
{
    if (core->store)
        core->store->ops->close(core->store);
    dibs__renewals_free(core->renewals);
    dibs__cells_free(core->cells);
    dibs__events_free(core->events);
    free(core);
}

static struct dibs__renewals *make_renewals(struct dibs__core *core)
{
    return dibs__renewals_new(&(struct dibs__renewal_config){
        .clock = core->runtime->clock,
        .renew_ms = core->runtime->settings.renew_ms,
        .context = core,
        .lost = on_lost,
        .at_risk = on_at_risk,
        .renewed = &core->stats.renewed,
        .failed = &core->stats.renew_failed,
        .reentered = &core->stats.reentered,
    });
}

static dibs_status open_store(struct dibs__core *core, bool connect_later, struct dibs__error *error)
{
    const struct dibs__settings *settings = &core->runtime->settings;
    dibs__store_opener *open = settings->open_store ? settings->open_store : dibs__store_open;

    return open(&core->store,
                &(struct dibs__store_config){
                    .url = settings->url,
                    .key_prefix = settings->key_prefix,
                    .client_name = settings->label,
                    .runtime_id = core->id,
                    .connect_timeout_ms = settings->connect_timeout_ms,
                    .command_timeout_ms = settings->command_timeout_ms,
                    .min_replicas = settings->min_replicas,
                    .replica_timeout_ms = settings->replica_timeout_ms,
                    .connect_later = connect_later,
                    .clock = core->runtime->clock,
                    .listener = {core, on_wake, on_granted, on_ask_again, on_forgetful, on_reachable},
                    .counters = &core->counters,
                },
                error);
}

static void call_back(const dibs_event *event, void *arg)
{
    struct dibs__core *core = arg;
    const struct dibs__settings *settings = &core->runtime->settings;

    calling_back = core;
    settings->on_event(event, settings->on_event_arg);
    calling_back = NULL;
}

/* The parts in the order in which they need each other. */
static dibs_status make_parts(struct dibs__core *core, bool connect_later, struct dibs__error *error)
{
    const struct dibs__settings *settings = &core->runtime->settings;

    dibs__error_set(error, DIBS_NO_MEMORY, "no memory, thread or descriptor for a runtime");
    if (!name_core(core) ||
        !(core->cells = dibs__cells_new(core->runtime->clock, &core->runtime->closing, settings->handoff_ms)) ||
        !(core->renewals = make_renewals(core)))
        return error->status;
    struct dibs__error store_error;
    if (open_store(core, connect_later, &store_error) != DIBS_OK) {
        *error = store_error;
        return error->status;
    }
    /* Only now: a runtime that could not be opened calls nobody back. */
    if (settings->on_event && !(core->events = dibs__events_new(call_back, core, &core->stats.events_dropped)))
        return error->status;
    return dibs__renewals_start(core->renewals, core->store) ? DIBS_OK : error->status;
}

static dibs_status core_new(struct dibs__core **out, dibs_runtime *runtime, bool connect_later,
                            struct dibs__error *error)
{
    struct dibs__core *core = calloc(1, sizeof *core);

    if (!core)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a runtime");
    core->runtime = runtime;
    dibs_status status = make_parts(core, connect_later, error);
    if (status == DIBS_OK)
        *out = core;
    else
        core_free(core);
    return status;
}

/* -------------------------------------------------------------------- visits */

/* Whoever closes waits for the last. */
static void leave(dibs_runtime *runtime)
{
    if (atomic_fetch_sub(&runtime->visits, 1) - 1 != DIBS__VISITS_CLOSED)
        return;
    dibs__registry_mutex_lock(&registry_mutex);
    pthread_cond_broadcast(&all_gone);
    dibs__registry_mutex_unlock(&registry_mutex);
}

/* dibs_close ends the thread of the events before it frees the core: until then the callback finds all as before. */
static bool calls_back_for(const dibs_runtime *runtime)
{
    return calling_back && calling_back->runtime == runtime && calling_back == runtime->core;
}

/* Of a runtime whose core is of this process. False: it is closed. */
static bool enter(struct dibs__visit *visit, dibs_runtime *runtime)
{
    bool welcome = calls_back_for(runtime);

    /* Looked at first, so that calls that come again and again, and too late, don't keep the number from falling. */
    if (!welcome && (atomic_load(&runtime->visits) & DIBS__VISITS_CLOSED))
        return false;
    if ((atomic_fetch_add(&runtime->visits, 1) & DIBS__VISITS_CLOSED) && !welcome) {
        leave(runtime);
        return false;
    }
    visit->core = runtime->core;
    return true;
}

void dibs__visit_end(struct dibs__visit *visit)
{
    leave(visit->core->runtime);
    pthread_setcancelstate(visit->cancel_state, NULL);
}

/* ------------------------------------------------------------- a thread's end */

/* A visit to the runtime of that serial, if it is still open: as long as it is listed, its visits are not closed. */
static bool visit_serial(struct dibs__visit *visit, uint64_t serial)
{
    dibs_runtime *runtime;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &visit->cancel_state);
    dibs__registry_mutex_lock(&registry_mutex);
    for (runtime = runtimes; runtime && runtime->serial != serial; runtime = runtime->next)
        continue;
    /* A thread that holds something made sure that the core is of this process. */
    bool inside = runtime && enter(visit, runtime);
    dibs__registry_mutex_unlock(&registry_mutex);
    if (!inside)
        pthread_setcancelstate(visit->cancel_state, NULL);
    return inside;
}

/* The store deletes the key in the background: a thread that ends waits for nobody. */
static void on_orphaned(struct dibs__lease *lease)
{
    struct dibs__visit visit;

    if (visit_serial(&visit, lease->runtime)) {
        struct dibs__core *core = visit.core;
        bool lost = dibs__lease_is_lost(lease, dibs__core_now(core));
        atomic_fetch_sub_explicit(&core->stats.holds, 1, memory_order_relaxed);
        dibs__renewals_remove(core->renewals, lease);
        if (lost) {
            dibs__core_lost(core, lease, false, "");
        } else {
            dibs__count(&core->stats.orphaned);
            dibs__core_retract(core, lease);
            dibs__cells_end(core->cells, lease, NULL);
            dibs__events_emit(core->events, DIBS_EVENT_ORPHANED, lease->name, dibs__lease_fence(lease),
                              "a thread ended while it held the lock, which was released");
        }
        dibs__visit_end(&visit);
    }
    dibs__lease_unref(lease);
}

/* ---------------------------------------------------------------------- fork */

static void before_fork(void)
{
    dibs__registry_mutex_lock(&registry_mutex);
}

static void after_fork_in_parent(void)
{
    dibs__registry_mutex_unlock(&registry_mutex);
}

/* The threads that slept on all_gone are not in the child. */
static void after_fork_in_child(void)
{
    all_gone = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    dibs__once_was_done(&being_set_up);
    dibs__registry_mutex_unlock(&registry_mutex);
}

/*
 * A fork locks last what was registered first: so the registry, which revive holds while it makes a core, comes first.
 * Where memory is out the next dibs_open goes on from there, so the order is always this.
 */
static bool set_up(void)
{
    return dibs__holds_on_end(on_orphaned, dibs__lease_unref) && dibs__fd_watch_forks() && dibs__store_watch_forks() &&
           pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
}

/* Requires registry_mutex. Sees to it that the core is of this process: DIBS_OK, DIBS_CLOSED or DIBS_NO_MEMORY. */
static dibs_status revive(dibs_runtime *runtime)
{
    unsigned generation = dibs__fork_generation();
    struct dibs__core *core = NULL;
    struct dibs__error error;

    if (atomic_load(&runtime->generation) == generation)
        return DIBS_OK;
    if (runtime->closed)
        return DIBS_CLOSED;
    if (core_new(&core, runtime, true, &error) != DIBS_OK)
        return DIBS_NO_MEMORY;
    atomic_store(&runtime->visits, 0); /* those inside are the parent's threads */
    core->abandoned = runtime->core;   /* NOLINT(clang-analyzer-core.NullDereference): core_new made it */
    runtime->core = core;
    atomic_store(&runtime->generation, generation);
    return DIBS_OK;
}

dibs_status dibs__visit_begin(struct dibs__visit *visit, dibs_runtime *runtime)
{
    dibs_status status = DIBS_OK;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &visit->cancel_state);
    if (atomic_load(&runtime->generation) != dibs__fork_generation()) {
        dibs__registry_mutex_lock(&registry_mutex);
        status = revive(runtime);
        dibs__registry_mutex_unlock(&registry_mutex);
    }
    if (status == DIBS_OK && !enter(visit, runtime))
        status = DIBS_CLOSED;
    if (status != DIBS_OK)
        pthread_setcancelstate(visit->cancel_state, NULL);
    return status;
}

/* ---------------------------------------------------------------- lifecycle */

static void enlist(dibs_runtime *runtime)
{
    dibs__registry_mutex_lock(&registry_mutex);
    runtime->serial = ++last_serial;
    runtime->next = runtimes;
    runtimes = runtime;
    dibs__registry_mutex_unlock(&registry_mutex);
}

/* Requires registry_mutex. Puts the abandoned cores, from that on, where leak checkers find them. NULL is fine. */
static void keep_abandoned(struct dibs__core *core)
{
    struct dibs__core *oldest = core;

    if (!core)
        return;
    while (oldest->abandoned)
        oldest = oldest->abandoned;
    oldest->abandoned = all_abandoned;
    all_abandoned = core;
}

/* From now on nobody comes in. False: dibs_close was called before. *core is to be freed; NULL: it is the parent's. */
static bool delist(dibs_runtime *runtime, struct dibs__core **core)
{
    dibs__registry_mutex_lock(&registry_mutex);
    bool first = !runtime->closed;
    if (first) {
        dibs_runtime **at = &runtimes;
        while (*at != runtime)
            at = &(*at)->next;
        *at = runtime->next;
        runtime->next = closed_runtimes;
        closed_runtimes = runtime;
        runtime->closed = true;
        bool ours = atomic_load(&runtime->generation) == dibs__fork_generation();
        *core = ours ? runtime->core : NULL;
        keep_abandoned(ours ? runtime->core->abandoned : runtime->core);
        atomic_fetch_or(&runtime->visits, DIBS__VISITS_CLOSED);
    }
    dibs__registry_mutex_unlock(&registry_mutex);
    return first;
}

dibs_status dibs__runtime_open(dibs_runtime **out, struct dibs__settings *settings, const struct dibs__clock *clock,
                               struct dibs__error *error)
{
    bool ready = dibs__once(&being_set_up, set_up);
    dibs_runtime *runtime = ready ? calloc(1, sizeof *runtime) : NULL;

    if (!runtime) {
        dibs__settings_free(settings);
        return dibs__error_set(error, DIBS_NO_MEMORY,
                               ready ? "no memory for a runtime"
                                     : "no key for data of threads, or no memory to learn of forks");
    }
    runtime->settings = *settings;
    memset(settings, 0, sizeof *settings);
    runtime->clock = clock;
    atomic_init(&runtime->generation, dibs__fork_generation());
    dibs_status status = core_new(&runtime->core, runtime, false, error);
    if (status == DIBS_OK) {
        enlist(runtime);
        *out = runtime;
        return DIBS_OK;
    }
    dibs__settings_free(&runtime->settings);
    free(runtime);
    return status;
}

void dibs__runtime_shutdown(dibs_runtime *runtime)
{
    struct dibs__visit visit;

    atomic_store(&runtime->closing, true);
    if (dibs__visit_begin(&visit, runtime) != DIBS_OK)
        return;
    dibs__cells_wake_all(visit.core->cells);
    dibs__visit_end(&visit);
}

/*
 * All holds of all threads: each finds its lease lost, and only then the store
 * deletes the keys, in the background: a late dibs_check must not say DIBS_OK
 * of a lock that another has.
 */
static void release_all(struct dibs__core *core)
{
    struct dibs__lease *lease;

    while ((lease = dibs__renewals_take_any(core->renewals))) {
        bool lost = dibs__lease_is_lost(lease, dibs__core_now(core));
        dibs__lease_lose(lease);
        if (!lost)
            dibs__core_retract(core, lease);
        dibs__lease_unref(lease);
    }
}

static void await_leaving(dibs_runtime *runtime)
{
    dibs__registry_mutex_lock(&registry_mutex);
    while (atomic_load(&runtime->visits) != DIBS__VISITS_CLOSED)
        dibs__mutex_wait(&registry_mutex, &all_gone);
    dibs__registry_mutex_unlock(&registry_mutex);
}

static void end_core(struct dibs__core *core)
{
    const struct dibs__settings *settings = &core->runtime->settings;

    dibs__cells_wake_all(core->cells);
    await_leaving(core->runtime);
    dibs__events_stop(core->events); /* first: the callback may use the runtime until it has returned */
    release_all(core);
    dibs__renewals_drain(core->renewals, dibs__after_ms(dibs__core_now(core), (int64_t)settings->connect_timeout_ms +
                                                                                  settings->command_timeout_ms));
    dibs__renewals_stop(core->renewals);
}

/* So that a thread that opens and closes for ever does not keep them all. Those of other threads go when these end. */
static void forget_own_holds(uint64_t serial)
{
    uint32_t cursor = DIBS__HOLDS_ALL;
    struct dibs__hold *hold;

    while ((hold = dibs__holds_next(serial, &cursor)))
        dibs__lease_unref(dibs__holds_remove(hold));
}

void dibs__runtime_close(dibs_runtime *runtime)
{
    struct dibs__core *core;
    int cancel_state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    atomic_store(&runtime->closing, true);
    if (delist(runtime, &core)) {
        if (core) {
            end_core(core);
            runtime->core = NULL;
            core_free(core);
        }
        dibs__settings_free(&runtime->settings);
    }
    forget_own_holds(runtime->serial);
    pthread_setcancelstate(cancel_state, NULL);
}
