#include "core/lock_names.h"

#include <stdlib.h>

#include "core/begun.h"

static dibs_status no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for several locks");
}

/* ------------------------------------------------------------------------ lock */

/*
 * Notes which of the locks the owner holds already; those holds are entered again once the call has the other locks. A
 * loss of one of them comes before whatever else there is to say of another.
 */
static dibs_status find_held(dibs_runtime *runtime, struct dibs__holds *holds, struct dibs__several *several,
                             uint32_t flags, struct dibs__error *error)
{
    const char *owner = holds == dibs__holds_here(runtime->serial) ? dibs__lock_owner(runtime) : "task";
    dibs_status status = DIBS_OK;

    for (size_t i = 0; i < several->count && status != DIBS_LOST; i++) {
        struct dibs__several_name *name = &several->names[i];
        struct dibs__hold *hold = dibs__holds_find_in(holds, runtime->serial, name->name, name->size);
        if (!hold)
            continue;
        if (dibs__lock_may_reenter(hold, flags) && dibs__lock_can_count(runtime, hold)) {
            dibs__lease_ref(hold->lease);
            name->held = hold->lease;
            continue;
        }
        struct dibs__error refusal;
        dibs_status refused = dibs__lock_refuse(runtime, owner, hold, flags, &refusal);
        if (status == DIBS_OK || refused == DIBS_LOST) {
            dibs__several_explain(&refusal, name->name);
            *error = refusal;
            status = refused;
        }
    }
    return status;
}

struct dibs__several *dibs__lock_names_prepare(dibs_runtime *runtime, struct dibs__visit *visit,
                                               struct dibs__holds *holds, const char *const *names, size_t count,
                                               const struct dibs__wish *wish, struct dibs__error *error)
{
    struct dibs__several *several = dibs__several_new(visit->core, names, count, wish);

    if (!several) {
        no_memory(error);
        return NULL;
    }
    uint32_t room = (uint32_t)several->count;
    dibs_status status = find_held(runtime, holds, several, wish->flags, error);
    if (status == DIBS_OK && !dibs__holds_reserve(holds, room))
        status = no_memory(error);
    if (status == DIBS_OK)
        return several;
    dibs__several_free(several);
    return NULL;
}

/* The calling thread drives the call to its end. */
static void drive(struct dibs__several *several)
{
    struct dibs__wait_event wait_event;
    enum dibs__job_next next;
    int64_t until;

    dibs__wait_event_init(&wait_event);
    several->wait_event = &wait_event; // cppcheck-suppress autoVariables ; nothing wakes it once the call has ended
    do {
        dibs__wait_event_reset(&wait_event);
        next = dibs__several_go_on(several, &until);
        if (next == DIBS__JOB_FINISHES)
            dibs__several_finish(several);
        else if (next == DIBS__JOB_RESTS)
            dibs__wait_event_wait(&wait_event, several->core->config.clock, until);
    } while (next != DIBS__JOB_ENDS);
}

static dibs_status lock_in(struct dibs__visit *visit, dibs_runtime *runtime, const char *const *names, size_t count,
                           const struct dibs__wish *wish, struct dibs__error *error)
{
    dibs_task *task = dibs__task_inside(runtime->serial);
    struct dibs__holds *holds = dibs__holds_here(runtime->serial);
    struct dibs__several *several = dibs__lock_names_prepare(runtime, visit, holds, names, count, wish, error);

    if (!several)
        return error->status;
    /* A call that only enters holds again is not stopped by a cancel. */
    if (task && !dibs__several_is_held(several))
        return dibs__wanting_call(dibs__wanting_new_names(task, visit, several), error);
    drive(several);
    dibs_status status = several->error.status;
    if (status == DIBS_OK)
        dibs__several_hold(several, holds);
    else
        *error = several->error;
    dibs__several_free(several);
    return status;
}

dibs_status dibs__lock_names(dibs_runtime *runtime, const char *const *names, size_t count,
                             const struct dibs__wish *wish, struct dibs__error *error)
{
    struct dibs__visit visit;

    if (count == 0 && !atomic_load(&runtime->closing))
        return DIBS_OK;
    dibs_status status = dibs__visit_begin_if_open(&visit, runtime, error);
    if (status != DIBS_OK)
        return status;
    status = lock_in(&visit, runtime, names, count, wish, error);
    dibs__visit_end(&visit);
    return status;
}

/* ---------------------------------------------------------------------- unlock */

/* The release of one of the names. */
struct one_release {
    struct dibs__unlocking unlocking;
    size_t number;
};

/* A call that gives up several names. */
struct unlocking {
    dibs_runtime *runtime;
    struct dibs__core *core; /* NULL: the runtime is closed, or belongs to the parent of this forked child */
    const char *const *names;
    struct one_release *begun; /* room for all; NULL: there is no memory for that, or no core */
    size_t count;              /* of `begun` */
    size_t failed;             /* number of the first name that failed, whose error is kept; SIZE_MAX: none did */
    struct dibs__error *error;
};

static void note(struct unlocking *call, size_t number, dibs_status status, const struct dibs__error *error)
{
    if (status == DIBS_OK || number >= call->failed)
        return;
    call->failed = number;
    *call->error = *error;
    dibs__several_explain(call->error, call->names[number]);
}

/* Those that could not begin at once wait first: for all at the same time, so the later ones need not wait long. */
static void finish_begun(struct unlocking *call)
{
    struct dibs__error error;

    for (size_t i = 0; i < call->count; i++)
        dibs__release_begin(&call->begun[i].unlocking, DIBS__NEVER);
    for (size_t i = 0; i < call->count; i++) {
        struct one_release *release = &call->begun[i];
        dibs_status status = dibs__release_finish(&release->unlocking, &error);
        note(call, release->number, status, &error);
    }
}

/* The last unlock of a hold: begins the release, if that can be sent now. */
static dibs_status begin_release(struct unlocking *call, size_t number, struct dibs__hold *hold,
                                 struct dibs__error *error)
{
    struct dibs__holds *holds = dibs__holds_here(call->runtime->serial);
    struct one_release *release = &call->begun[call->count];
    dibs_status status;

    release->number = number;
    int64_t now = dibs__core_now(call->core);
    dibs__metrics_count(hold->lease->group, DIBS__METRICS_HOLD, now - hold->since);
    if (!dibs__release_lease(&release->unlocking, call->core, dibs__holds_remove(holds, hold), now, &status, error))
        return status;
    call->count++;
    dibs__release_begin(&release->unlocking, 0);
    return DIBS_OK;
}

static dibs_status give_up(struct unlocking *call, size_t number, struct dibs__error *error)
{
    dibs_runtime *runtime = call->runtime;
    const char *name = call->names[number];
    size_t size = strlen(name);
    struct dibs__hold *hold = dibs__holds_find(runtime->serial, name, size);

    if (!hold || hold->count > 1)
        return dibs__unlock(runtime, name, size, error);
    if (!call->core)
        return dibs__lock_forget(dibs__holds_remove(dibs__holds_here(runtime->serial), hold), error);
    return call->begun ? begin_release(call, number, hold, error) : dibs__release(call->core, hold, error);
}

static bool is_among(const char *name, const char *const *names, size_t count)
{
    size_t i = 0;

    while (i < count && strcmp(names[i], name) != 0)
        i++;
    return i < count;
}

/*
 * Finds the entries whose name an earlier entry has as well. A name that is
 * not held, a rare mistake of the caller, is compared with all earlier ones.
 */
static void find_repeated(const dibs_runtime *runtime, const char *const *names, size_t count, bool *repeated)
{
    for (size_t i = 0; i < count; i++) {
        struct dibs__hold *hold = dibs__holds_find(runtime->serial, names[i], strlen(names[i]));
        repeated[i] = hold ? hold->lease->given_up : is_among(names[i], names, i);
        if (hold)
            hold->lease->given_up = true;
    }
    for (size_t i = 0; i < count; i++) {
        struct dibs__hold *hold = dibs__holds_find(runtime->serial, names[i], strlen(names[i]));
        if (hold)
            hold->lease->given_up = false;
    }
}

/* If there is no memory for all releases, they are made one after the other. */
static void unlock_in(struct unlocking *call, size_t count)
{
    bool repeated[DIBS_NAMES_MAX];
    struct dibs__error error;

    call->begun = call->core ? malloc(count * sizeof *call->begun) : NULL;
    find_repeated(call->runtime, call->names, count, repeated);
    if (call->begun) /* they go out together */
        dibs__store_gather(call->core->store, true);
    for (size_t i = 0; i < count; i++) {
        if (repeated[i])
            continue;
        dibs_status status = give_up(call, i, &error);
        note(call, i, status, &error);
    }
    if (call->begun)
        dibs__store_gather(call->core->store, false);
    finish_begun(call);
    free(call->begun);
}

dibs_status dibs__unlock_names(dibs_runtime *runtime, const char *const *names, size_t count, struct dibs__error *error)
{
    struct unlocking call = {.runtime = runtime, .names = names, .failed = SIZE_MAX, .error = error};
    struct dibs__visit visit;
    dibs_status status = DIBS_CLOSED;

    if (count == 0)
        return DIBS_OK;
    /* A forked child that has not used the runtime holds nothing, and needs no core to find that out. */
    if (!dibs__runtime_is_unused(runtime))
        status = dibs__visit_begin(&visit, runtime, error);
    if (status != DIBS_OK && status != DIBS_CLOSED)
        return status;
    call.core = status == DIBS_OK ? visit.core : NULL;
    unlock_in(&call, count);
    if (call.core)
        dibs__visit_end(&visit);
    return call.failed == SIZE_MAX ? DIBS_OK : error->status;
}
