/*
 * The callbacks of the program run when the visit is over, because they may close the runtime, or fork: what they are
 * told is gathered before.
 */
#include "core/inspect.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/utf8.h"
#include "core/keeper.h"
#include "core/turn.h"

#define BATCH 64 /* locks of a list that are looked up at once */

/* ---------------------------------------------------------------------- one lock */

/*
 * A forced unlock, whatever its status, may have ended a lease that this runtime keeps, uses or hands over. So nobody
 * takes over that lease any more: of a lease so new that its lock is not watched, the store tells nothing.
 */
static void give_up_forced(struct dibs__core *core, const char *name)
{
    struct dibs__lease *parked = dibs__handover_forced(core->cells, name, strlen(name));

    if (parked)
        dibs__core_give_back(core, parked);
    dibs__lease_unref(parked);
    dibs__keeper_give_back_name(core, name, strlen(name));
}

/* Carries out the operation in a visit, within a command timeout. */
static dibs_status run(dibs_runtime *runtime, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__visit visit;
    dibs_status status = dibs__visit_begin(&visit, runtime, error);

    if (status != DIBS_OK)
        return status;
    struct dibs__store *store = visit.core->store;
    op->deadline = dibs__core_command_deadline(visit.core);
    status = store->ops->finish(store, op, error);
    if (op->kind == DIBS__OP_FORCE)
        give_up_forced(visit.core, op->name);
    dibs__visit_end(&visit);
    return status;
}

dibs_status dibs__owner_query(dibs_runtime *runtime, const char *name, dibs_owner *out, struct dibs__waiters *waiters,
                              struct dibs__sharers *sharers, struct dibs__error *error)
{
    struct dibs__op op = {
        .kind = DIBS__OP_QUERY, .name = name, .query = {.owner = out, .waiters = waiters, .sharers = sharers}};
    dibs_status status = run(runtime, &op, error);

    if (status != DIBS_OK)
        return status;
    out->fence *= DIBS__FENCE_STEPS;
    for (size_t i = 0; sharers && i < sharers->count; i++)
        sharers->items[i].fence *= DIBS__FENCE_STEPS;
    return DIBS_OK;
}

dibs_status dibs__owner_force_unlock(dibs_runtime *runtime, const char *name, const char *token,
                                     struct dibs__error *error)
{
    struct dibs__op op = {.kind = DIBS__OP_FORCE, .name = name, .force = {.token = token}};
    dibs_status status = run(runtime, &op, error);

    if (status == DIBS_NOT_HELD)
        return dibs__error_set(error, status, "another token holds %s", DIBS__QUOTED(name));
    return status;
}

dibs_status dibs__owner_forget(dibs_runtime *runtime, const char *name, struct dibs__error *error)
{
    struct dibs__op op = {.kind = DIBS__OP_FORGET, .name = name};
    dibs_status status = run(runtime, &op, error);

    if (status == DIBS_BUSY)
        return dibs__error_set(error, status, "somebody holds %s, or waits for it", DIBS__QUOTED(name));
    return status;
}

/* ------------------------------------------------------------------ all that are held */

/* For a walk over names, and for an examination. */
static bool goes_on(void *context)
{
    dibs_runtime *const *runtime = context;

    return !atomic_load(&(*runtime)->closing);
}

/* First the names are gathered, then the locks are looked up, many at once, in a visit for each batch. */
struct gathering {
    dibs_runtime *runtime; /* the first member (goes_on) */
    char **names;
    size_t count, room; /* of `names` */
};

struct look {
    struct dibs__op op;
    dibs_owner owner;
    dibs_status status;
};

struct batch {
    struct look looks[BATCH];
    size_t count;
    struct dibs__error error; /* of the first look that failed; DIBS_OK: none did */
};

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Drops the names that are there already: a scan may find a key twice, and each master of a quorum has its keys. */
static void drop_repeated(struct gathering *gathering)
{
    char **names = gathering->names;
    size_t kept = 0;

    if (gathering->count > 0)
        qsort(names, gathering->count, sizeof *names, compare);
    for (size_t i = 0; i < gathering->count; i++)
        if (kept > 0 && strcmp(names[kept - 1], names[i]) == 0)
            free(names[i]);
        else
            names[kept++] = names[i];
    gathering->count = kept;
}

/* Makes room for as many names again as there are. False: no memory. */
static bool make_room(struct gathering *gathering)
{
    drop_repeated(gathering);
    size_t room = 2 * gathering->count + BATCH;
    char **names = realloc(gathering->names, room * sizeof *names);

    if (!names)
        return false;
    gathering->names = names;
    gathering->room = room;
    return true;
}

static bool found(void *context, const char *name)
{
    struct gathering *gathering = context;
    char *copy = gathering->count < gathering->room || make_room(gathering) ? strdup(name) : NULL;

    if (copy)
        gathering->names[gathering->count++] = copy;
    return copy != NULL;
}

static dibs_status gather(struct gathering *gathering, const char *pattern, struct dibs__error *error)
{
    const struct dibs__walk walk = {pattern, gathering, goes_on, found};
    struct dibs__visit visit;
    dibs_status status = dibs__visit_begin_if_open(&visit, gathering->runtime, error);

    if (status != DIBS_OK)
        return status;
    status = visit.core->store->ops->walk(visit.core->store, &walk, error);
    dibs__visit_end(&visit);
    return status;
}

/* DIBS_INVALID is no failure: the name can't be that of a lock in this store. */
static void finish_look(struct dibs__store *store, struct batch *batch, struct look *look)
{
    struct dibs__error error;

    look->status = store->ops->finish(store, &look->op, &error);
    if (look->status == DIBS_OK)
        look->owner.fence *= DIBS__FENCE_STEPS;
    else if (look->status != DIBS_INVALID && batch->error.status == DIBS_OK)
        batch->error = error;
}

static dibs_status look_up(dibs_runtime *runtime, char *const *names, struct batch *batch, struct dibs__error *error)
{
    struct dibs__visit visit;
    dibs_status status = dibs__visit_begin_if_open(&visit, runtime, error);

    if (status != DIBS_OK)
        return status;
    struct dibs__store *store = visit.core->store;
    int64_t deadline = dibs__core_command_deadline(visit.core);
    for (size_t i = 0; i < batch->count; i++) {
        struct look *look = &batch->looks[i];
        *look = (struct look){.op = {.kind = DIBS__OP_QUERY,
                                     .name = names[i],
                                     .deadline = deadline,
                                     .query = {.owner = &look->owner, .any_type = true}}};
        store->ops->begin(store, &look->op);
    }
    batch->error.status = DIBS_OK;
    for (size_t i = 0; i < batch->count; i++)
        finish_look(store, batch, &batch->looks[i]);
    dibs__visit_end(&visit);
    return DIBS_OK;
}

/* False: the callback wants no more. */
static bool tell(const struct batch *batch, dibs_list_fn *fn, void *arg)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct look *look = &batch->looks[i];
        if (look->status == DIBS_OK && look->owner.held && !fn(look->op.name, &look->owner, arg))
            return false;
    }
    return true;
}

static dibs_status tell_all(const struct gathering *gathering, dibs_list_fn *fn, void *arg, struct dibs__error *error)
{
    struct batch *batch = malloc(sizeof *batch);
    dibs_status status = DIBS_OK;

    if (!batch)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a list of locks");
    for (size_t at = 0; at < gathering->count && status == DIBS_OK; at += batch->count) {
        batch->count = gathering->count - at < BATCH ? gathering->count - at : BATCH;
        status = look_up(gathering->runtime, gathering->names + at, batch, error);
        if (status != DIBS_OK || !tell(batch, fn, arg))
            break;
        status = batch->error.status;
        if (status != DIBS_OK)
            *error = batch->error;
    }
    free(batch);
    return status;
}

dibs_status dibs__list(dibs_runtime *runtime, const char *pattern, dibs_list_fn *fn, void *arg,
                       struct dibs__error *error)
{
    struct gathering gathering = {.runtime = runtime};
    dibs_status status = gather(&gathering, pattern, error);

    drop_repeated(&gathering);
    if (status == DIBS_OK)
        status = tell_all(&gathering, fn, arg, error);
    for (size_t i = 0; i < gathering.count; i++)
        free(gathering.names[i]);
    free(gathering.names);
    return status;
}

/* ------------------------------------------------------------------- what endangers them */

/* A finding, whose four strings follow the struct. */
struct kept {
    DIBS__LINKS(struct kept) links;
    dibs_finding finding;
};

struct findings {
    dibs_runtime *runtime; /* the first member (goes_on) */
    uint32_t admit_ms;     /* for an admission: the longest lease; 0: for an examination */
    struct kept *all;      /* list */
};

/* Copies the text to *at as one line, whatever names and servers put into it, and moves *at behind that. */
static const char *put(char **at, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*at, text, size);

    dibs__utf8_make_line(copy);
    *at += size;
    return copy;
}

static bool keep(void *context, const dibs_finding *finding)
{
    struct findings *findings = context;
    size_t size =
        strlen(finding->server) + strlen(finding->subject) + strlen(finding->text) + strlen(finding->remedy) + 4;
    struct kept *kept = malloc(sizeof *kept + size);

    if (!kept)
        return false;
    char *at = (char *)(kept + 1);
    *kept = (struct kept){.finding = {.server = put(&at, finding->server),
                                      .subject = put(&at, finding->subject),
                                      .verdict = finding->verdict,
                                      .text = put(&at, finding->text),
                                      .remedy = put(&at, finding->remedy)}};
    DIBS__LIST_APPEND(findings->all, kept, links);
    return true;
}

static dibs_status find(struct findings *findings, struct dibs__error *error)
{
    struct dibs__examination examination = {
        .context = findings, .goes_on = goes_on, .found = keep, .admit_ms = findings->admit_ms};
    struct dibs__visit visit;
    dibs_status status = dibs__visit_begin_if_open(&visit, findings->runtime, error);

    if (status != DIBS_OK)
        return status;
    struct dibs__store *store = visit.core->store;
    if (findings->admit_ms > 0 && visit.core->config.settings->url_count < 2)
        status = dibs__error_set(error, DIBS_INVALID, "only masters of a quorum are admitted, and the store is none");
    else
        status = store->ops->examine(store, &examination, error);
    dibs__visit_end(&visit);
    return examination.no_memory ? dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a finding") : status;
}

dibs_status dibs__examine(dibs_runtime *runtime, uint32_t admit_ms, dibs_finding_fn *fn, void *arg,
                          struct dibs__error *error)
{
    struct findings findings = {.runtime = runtime, .admit_ms = admit_ms};
    dibs_status status = find(&findings, error);

    for (const struct kept *kept = findings.all; kept && status == DIBS_OK; kept = kept->links.next)
        fn(&kept->finding, arg);
    for (struct kept *next; findings.all; findings.all = next) {
        next = findings.all->links.next;
        free(findings.all);
    }
    return status;
}
