/*
 * Lock discipline: `registry_mutex` guards the list of runtimes, and the making
 * anew of a core in a forked child; it is held across a fork. A core's `mutex`
 * guards `inside` and comes after it. Neither is held across I/O or a callback.
 */
#include "core/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/random.h"
#include "core/holds.h"

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static dibs_runtime *runtimes; /* guarded by registry_mutex, as are these two */
static uint64_t last_serial;
static struct dibs__core *all_abandoned; /* of runtimes that a child closed; kept only to be found by leak checkers */

void dibs__settings_free(struct dibs__settings *settings)
{
    free(settings->url);
    free(settings->key_prefix);
    free(settings->label);
    memset(settings, 0, sizeof *settings);
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

static void on_forgetful(void *context, uint64_t server)
{
    struct dibs__core *core = context;

    dibs__renewals_doubt_all(core->renewals, server);
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
    pthread_cond_destroy(&core->empty);
    pthread_mutex_destroy(&core->mutex);
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
    if (settings->on_event &&
        !(core->events = dibs__events_new(settings->on_event, settings->on_event_arg, &core->stats.events_dropped)))
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
    pthread_mutex_init(&core->mutex, NULL);
    dibs__cond_init(&core->empty);
    dibs_status status = make_parts(core, connect_later, error);
    if (status == DIBS_OK)
        *out = core;
    else
        core_free(core);
    return status;
}

/* -------------------------------------------------------------------- visits */

static void enter(struct dibs__visit *visit, struct dibs__core *core)
{
    visit->core = core;
    pthread_mutex_lock(&core->mutex);
    core->inside++;
    pthread_mutex_unlock(&core->mutex);
}

void dibs__visit_end(struct dibs__visit *visit)
{
    struct dibs__core *core = visit->core;

    pthread_mutex_lock(&core->mutex);
    if (--core->inside == 0)
        pthread_cond_broadcast(&core->empty);
    pthread_mutex_unlock(&core->mutex);
    pthread_setcancelstate(visit->cancel_state, NULL);
}

/* ------------------------------------------------------------- a thread's end */

/* A visit to the runtime of that serial, if it is still open. */
static bool visit_serial(struct dibs__visit *visit, uint64_t serial)
{
    dibs_runtime *runtime;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &visit->cancel_state);
    pthread_mutex_lock(&registry_mutex);
    for (runtime = runtimes; runtime && runtime->serial != serial; runtime = runtime->next)
        continue;
    if (runtime)
        enter(visit, runtime->core); /* a thread that holds something made sure that the core is of this process */
    pthread_mutex_unlock(&registry_mutex);
    if (!runtime)
        pthread_setcancelstate(visit->cancel_state, NULL);
    return runtime != NULL;
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
    pthread_mutex_lock(&registry_mutex);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&registry_mutex);
}

/* A fork locks last what was registered first: so the registry, which revive holds while it makes a core, comes first.
 */
static void set_up(void)
{
    dibs__holds_on_end(on_orphaned, dibs__lease_unref);
    dibs__fd_watch_forks();
    dibs__store_watch_forks();
    pthread_atfork(before_fork, after_fork, after_fork);
}

/* Requires registry_mutex. The core of this process; false: it could not be made. */
static bool revive(dibs_runtime *runtime)
{
    unsigned generation = dibs__fork_generation();
    struct dibs__core *core;
    struct dibs__error error;

    if (atomic_load(&runtime->generation) == generation)
        return true;
    if (core_new(&core, runtime, true, &error) != DIBS_OK)
        return false;
    core->abandoned = runtime->core; /* NOLINT(clang-analyzer-core.NullDereference): core_new made it */
    runtime->core = core;
    atomic_store(&runtime->generation, generation);
    return true;
}

bool dibs__visit_begin(struct dibs__visit *visit, dibs_runtime *runtime)
{
    bool revived = true;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &visit->cancel_state);
    if (atomic_load(&runtime->generation) != dibs__fork_generation()) {
        pthread_mutex_lock(&registry_mutex);
        revived = revive(runtime);
        pthread_mutex_unlock(&registry_mutex);
    }
    if (revived)
        enter(visit, runtime->core);
    else
        pthread_setcancelstate(visit->cancel_state, NULL);
    return revived;
}

/* ---------------------------------------------------------------- lifecycle */

static void enlist(dibs_runtime *runtime)
{
    pthread_mutex_lock(&registry_mutex);
    runtime->serial = ++last_serial;
    runtime->next = runtimes;
    runtimes = runtime;
    pthread_mutex_unlock(&registry_mutex);
}

/* True: its core is of this process. */
static bool delist(dibs_runtime *runtime)
{
    pthread_mutex_lock(&registry_mutex);
    dibs_runtime **at = &runtimes;
    while (*at != runtime)
        at = &(*at)->next;
    *at = runtime->next;
    bool ours = atomic_load(&runtime->generation) == dibs__fork_generation();
    struct dibs__core *oldest = runtime->core;
    if (ours)
        oldest = oldest->abandoned;
    if (oldest) {
        struct dibs__core *end = oldest;
        while (end->abandoned)
            end = end->abandoned;
        end->abandoned = all_abandoned;
        all_abandoned = oldest;
    }
    pthread_mutex_unlock(&registry_mutex);
    return ours;
}

dibs_status dibs__runtime_open(dibs_runtime **out, struct dibs__settings *settings, const struct dibs__clock *clock,
                               struct dibs__error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    dibs_runtime *runtime = calloc(1, sizeof *runtime);

    pthread_once(&once, set_up);
    if (!runtime) {
        dibs__settings_free(settings);
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a runtime");
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
    if (!dibs__visit_begin(&visit, runtime))
        return;
    dibs__cells_wake_all(visit.core->cells);
    dibs__visit_end(&visit);
}

/* All holds of all threads: each finds its lease lost, and the store deletes the keys, in the background. */
static void release_all(struct dibs__core *core)
{
    struct dibs__lease *lease;

    while ((lease = dibs__renewals_take_any(core->renewals))) {
        if (!dibs__lease_is_lost(lease, dibs__core_now(core)))
            dibs__core_retract(core, lease);
        dibs__lease_lose(lease);
        dibs__lease_unref(lease);
    }
}

static void close_core(struct dibs__core *core)
{
    const struct dibs__settings *settings = &core->runtime->settings;

    dibs__cells_wake_all(core->cells);
    pthread_mutex_lock(&core->mutex);
    while (core->inside > 0)
        pthread_cond_wait(&core->empty, &core->mutex);
    pthread_mutex_unlock(&core->mutex);
    dibs__events_stop(core->events); /* first: the callback may use the runtime until it has returned */
    release_all(core);
    dibs__renewals_drain(core->renewals, dibs__after_ms(dibs__core_now(core), (int64_t)settings->connect_timeout_ms +
                                                                                  settings->command_timeout_ms));
    dibs__renewals_stop(core->renewals);
    core_free(core);
}

/* So that a thread that opens and closes for ever does not keep them all. Those of other threads go when these end. */
static void forget_own_holds(uint64_t serial)
{
    struct dibs__hold *hold;

    while ((hold = dibs__holds_any(serial)))
        dibs__lease_unref(dibs__holds_remove(hold));
}

void dibs__runtime_close(dibs_runtime *runtime)
{
    int cancel_state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    atomic_store(&runtime->closing, true);
    if (delist(runtime))
        close_core(runtime->core);
    forget_own_holds(runtime->serial);
    dibs__settings_free(&runtime->settings);
    free(runtime);
    pthread_setcancelstate(cancel_state, NULL);
}
