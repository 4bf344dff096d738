#include "core/assembly.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "core/asker.h"
#include "core/keeper.h"
#include "core/kept.h"

#define HOST_MAX 46 /* with the NUL */
#define HOST_WHOLE_MAX 256

static _Thread_local const struct dibs__core *calling_back; /* whose on_event this thread runs; NULL: none */

/* ------------------------------------------------------ what the store tells */

static void on_wake(void *context)
{
    struct dibs__core *core = context;

    dibs__scheduler_wake(core->scheduler);
}

static void on_wake_by(void *context, int64_t when)
{
    struct dibs__core *core = context;

    dibs__scheduler_wake_by(core->scheduler, when);
}

static bool on_granted(void *context, const struct dibs__grant *grant)
{
    struct dibs__core *core = context;

    if (core->cells->keep > 0 && grant->number == 0 && grant->fence == 0)
        return dibs__keeper_recall(core, grant->name, grant->token);
    return dibs__askers_push(core->cells, grant);
}

static void on_ask_again(void *context)
{
    struct dibs__core *core = context;

    dibs__askers_wake(core->cells, DIBS__ASKERS_MISSED);
}

static void on_server_changed(void *context)
{
    struct dibs__core *core = context;

    dibs__keeper_give_back_all(core);
    dibs__renewals_server_changed(core->renewals);
}

static void on_changed(void *context, const char *name)
{
    struct dibs__core *core = context;
    struct dibs__lease *held[DIBS__HELD_MOST];

    if (!name) {
        dibs__keeper_give_back_all(core);
        dibs__askers_wake(core->cells, DIBS__ASKERS_CHANGED);
        dibs__renewals_hint(core->renewals, NULL);
        return;
    }
    dibs__keeper_give_back_name(core, name, strlen(name));
    size_t count = dibs__askers_changed(core->cells, name, held);
    for (size_t i = 0; i < count && i < DIBS__HELD_MOST; i++) {
        dibs__renewals_hint(core->renewals, held[i]);
        dibs__lease_unref(held[i]);
    }
    if (count > DIBS__HELD_MOST) /* the one that lives may not be among them, so all are looked at */
        dibs__renewals_hint(core->renewals, NULL);
}

static void on_watching(void *context, bool on)
{
    struct dibs__core *core = context;

    dibs__keeper_allow(core, on);
    dibs__renewals_watching(core->renewals, on);
}

static void on_reachable(void *context, bool up, const char *detail)
{
    struct dibs__core *core = context;

    dibs__events_emit(core->events, up ? DIBS_EVENT_STORE_UP : DIBS_EVENT_STORE_DOWN, NULL, 0,
                      up ? "%s answers again" : "%s", detail);
}

/* ---------------------------------------------------- for the scheduler */

static size_t interest(void *context, struct pollfd *fds, int64_t *deadline)
{
    struct dibs__core *core = context;
    size_t count = core->store->ops->interest(core->store, fds, deadline);

    *deadline = dibs__earlier(*deadline, dibs__renewals_due(core->renewals));
    return count;
}

/* The store comes first, so that a round of renewals knows what the store has just received. */
static void attend(void *context, const struct pollfd *fds, size_t count)
{
    struct dibs__core *core = context;

    core->store->ops->attend(core->store, fds, count);
    dibs__renewals_attend(core->renewals);
}

static size_t pending(void *context)
{
    const struct dibs__core *core = context;

    return (size_t)atomic_load(&core->counters.unconfirmed);
}

/* --------------------------------------------------- what the renewals tell */

static void on_lost(void *context, struct dibs__lease *lease, bool gone, const char *why)
{
    struct dibs__core *core = context;

    dibs__core_lost(core, lease, gone, why);
}

/* --------------------------------------------------------------------- names */

static void find_host(char *host, size_t size)
{
    char whole[HOST_WHOLE_MAX] = ""; /* gethostname fails if the name does not fit */

    if (gethostname(whole, sizeof whole - 1) != 0)
        snprintf(whole, sizeof whole, "localhost");
    snprintf(host, size, "%.*s", (int)size - 1, whole);
    for (char *c = host; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == ':')
            *c = '-';
}

static bool name_core(struct dibs__core *core)
{
    unsigned char bits[16];
    char host[HOST_MAX];

    if (!dibs__random_bytes(bits, sizeof bits))
        return false;
    for (size_t i = 0; i < sizeof bits; i++)
        snprintf(core->id + 2 * i, 3, "%02x", bits[i]);
    find_host(host, sizeof host);
    dibs__token_form_init(&core->tokens, core->config.settings->label, host, (long)getpid(), core->id);
    return true;
}

/* --------------------------------------------------------------------- making */

static void call_back(const dibs_event *event, void *arg)
{
    const struct dibs__core *core = arg;
    const struct dibs__settings *settings = core->config.settings;

    calling_back = core;
    settings->on_event(event, settings->on_event_arg);
    calling_back = NULL;
}

const struct dibs__core *dibs__core_of_callback(void)
{
    return calling_back;
}

static struct dibs__renewals *make_renewals(struct dibs__core *core)
{
    return dibs__renewals_new(&(struct dibs__renewal_config){
        .clock = core->config.clock,
        .store = core->store,
        .scheduler = core->scheduler,
        .events = core->events,
        .renew_ms = core->config.settings->renew_ms,
        .tokens = &core->tokens,
        .context = core,
        .lost = on_lost,
        .kept_ms = dibs__kept_ms(core->config.settings->keep_ms),
        .look_kept = dibs__keeper_look,
        .wanted = dibs__keeper_wanted,
        .stats = &core->stats,
    });
}

static dibs_status open_store(struct dibs__core *core, struct dibs__error *error)
{
    const struct dibs__settings *settings = core->config.settings;
    dibs__store_opener *open = settings->open_store ? settings->open_store : dibs__store_open;

    return open(&core->store,
                &(struct dibs__store_config){
                    .url = settings->urls[0],
                    .urls = (const char *const *)settings->urls,
                    .url_count = settings->url_count,
                    .access = settings->access,
                    .key_prefix = settings->key_prefix,
                    .client_name = settings->label,
                    .runtime_id = core->id,
                    .connect_timeout_ms = settings->connect_timeout_ms,
                    .command_timeout_ms = settings->command_timeout_ms,
                    .lease_ms = settings->lease_ms,
                    .min_replicas = settings->min_replicas,
                    .durable = settings->durable,
                    .spin_us = settings->spin_us,
                    .replica_timeout_ms = settings->replica_timeout_ms,
                    .clock = core->config.clock,
                    .listener = {.context = core,
                                 .wake = on_wake,
                                 .wake_by = on_wake_by,
                                 .ask_again = on_ask_again,
                                 .changed = on_changed,
                                 .source = core,
                                 .granted = on_granted,
                                 .server_changed = on_server_changed,
                                 .reachable = on_reachable,
                                 .watching = on_watching},
                    .counters = &core->counters,
                },
                error);
}

static dibs_status no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory, thread or descriptor for a runtime");
}

/* Makes the parts in the order in which they need each other. */
static dibs_status make_parts(struct dibs__core *core, struct dibs__error *error)
{
    const struct dibs__core_config *config = &core->config;

    if (!name_core(core) || !(core->metrics = dibs__metrics_new()) ||
        !(core->scheduler = dibs__scheduler_new(config->clock)) ||
        !(core->cells = dibs__cells_new(config->clock, config->closing, config->settings->handoff_ms)) ||
        (config->settings->on_event &&
         !(core->events = dibs__events_new(call_back, core, &core->stats.events_dropped))))
        return no_memory(error);
    if (open_store(core, error) != DIBS_OK)
        return error->status;
    bool made = (core->workers = dibs__workers_new(config->clock, core->store)) &&
                (core->renewals = make_renewals(core)) && dibs__keeper_begin(core);
    return made ? DIBS_OK : no_memory(error);
}

/* The scheduler's thread is started while the server answers the first connection. */
static dibs_status start(struct dibs__core *core, bool connect_later, struct dibs__error *error)
{
    struct dibs__store *store = core->store;
    const struct dibs__polled polled = {core, store->fd_max, interest, attend, pending};
    dibs_status status = DIBS_OK;

    if (!connect_later && store->ops->connect(store, false, error) != DIBS_OK)
        return error->status;
    if (!dibs__scheduler_start(core->scheduler, &polled))
        return no_memory(error);
    if (!connect_later)
        status = store->ops->connect(store, true, error);
    /* Last, because a runtime that could not be opened calls no callback. */
    if (status == DIBS_OK && core->events && !dibs__events_start(core->events))
        status = no_memory(error);
    if (status != DIBS_OK)
        dibs__scheduler_stop(core->scheduler);
    return status;
}

dibs_status dibs__core_new(struct dibs__core **out, const struct dibs__core_config *config, bool connect_later,
                           struct dibs__error *error)
{
    struct dibs__core *core = calloc(1, sizeof *core);

    DIBS__REQUIRE(config->serial > 0);
    if (!core)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a runtime");
    core->config = *config;
    dibs_status status = make_parts(core, error);
    if (status == DIBS_OK)
        status = start(core, connect_later, error);
    if (status == DIBS_OK)
        *out = core;
    else
        dibs__core_free(core);
    return status;
}

/* -------------------------------------------------------------------- the end */

/*
 * Ends all holds of all threads. Each lease is marked as lost before the store deletes its key in the background: a
 * late dibs_check must not say DIBS_OK of a lock that another has.
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

void dibs__core_end(struct dibs__core *core, int64_t deadline)
{
    int64_t began = dibs__core_now(core), half = deadline > began ? began + (deadline - began) / 2 : began;

    /* First: the callback may use the runtime until it has returned. Events have half of the time that is left. */
    dibs__events_stop(core->events, core->config.clock, half);
    int64_t told = dibs__core_now(core);
    dibs__workers_stop(core->workers);
    release_all(core);
    dibs__scheduler_drain(core->scheduler, deadline + (dibs__core_now(core) - (told < half ? told : half)));
    dibs__scheduler_stop(core->scheduler);
}

void dibs__core_free(struct dibs__core *core)
{
    if (core->store)
        core->store->ops->close(core->store);
    dibs__renewals_free(core->renewals);
    dibs__scheduler_free(core->scheduler);
    dibs__cells_free(core->cells);
    dibs__workers_free(core->workers);
    dibs__events_free(core->events);
    dibs__metrics_free(core->metrics);
    free(core);
}
