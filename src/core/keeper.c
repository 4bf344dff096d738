#include "core/keeper.h"

#include "core/kept.h"

bool dibs__keeper_begin(struct dibs__core *core)
{
    const struct dibs__settings *settings = core->config.settings;
    bool keeps = settings->keep_ms > 0 && settings->handoff_ms != DIBS_NO_HANDOFF && !dibs__core_confirms(core) &&
                 core->store->ops->can_keep;

    if (keeps && core->store->ops->listen) /* recalls may come at any time, even if no thread listens */
        core->store->ops->listen(core->store, "", NULL, 0);
    return !keeps || dibs__kept_begin(core->cells, settings->keep_ms);
}

unsigned dibs__keeper_may_keep(struct dibs__core *core, const struct dibs__lease *lease)
{
    unsigned recallable = atomic_load(&core->cells->recallable);

    return lease->token.keeps && core->store->ops->can_keep(core->store, lease->name) ? recallable : 0;
}

void dibs__keeper_give_back_name(struct dibs__core *core, const char *name, size_t name_size)
{
    struct dibs__lease *lease = core->cells->keep > 0 ? dibs__kept_drop(core->cells, name, name_size) : NULL;

    if (lease)
        dibs__core_give_back(core, lease);
    dibs__lease_unref(lease);
}

/* A lease that is just being given up is not kept either, though the store said before that it tells of its lock. */
void dibs__keeper_give_back_all(struct dibs__core *core)
{
    struct dibs__lease *lease;

    atomic_fetch_add(&core->cells->recallable, 2);
    for (size_t i = 0; core->cells->keep > 0 && i < DIBS__SHARDS; i++)
        while ((lease = dibs__kept_drop_any(&core->cells->shards[i]))) {
            dibs__core_give_back(core, lease);
            dibs__lease_unref(lease);
        }
}

void dibs__keeper_allow(struct dibs__core *core, bool on)
{
    bool allows = on && core->cells->keep > 0;

    if (dibs__kept_allows(atomic_load(&core->cells->recallable)) != allows)
        atomic_fetch_add(&core->cells->recallable, 1);
    if (!allows)
        dibs__keeper_give_back_all(core);
}

/* After what kept.c has found. */
static void go_on(struct dibs__core *core, struct dibs__lease *lease, bool give_back)
{
    if (give_back) {
        dibs__core_give_back(core, lease);
        return;
    }
    atomic_store(&lease->keeping.news, true);
    dibs__renewals_use_changed(core->renewals, lease);
}

bool dibs__keeper_recall(struct dibs__core *core, const char *name, const char *token)
{
    bool give_back;
    struct dibs__lease *lease = dibs__kept_recall(core->cells, name, token, &give_back);

    if (!lease)
        return false;
    go_on(core, lease, give_back);
    dibs__lease_unref(lease);
    return true;
}

void dibs__keeper_look(void *context, struct dibs__lease *lease)
{
    struct dibs__core *core = context;

    go_on(core, lease, dibs__kept_look(core->cells, lease));
}

void dibs__keeper_wanted(void *context, struct dibs__lease *lease)
{
    struct dibs__core *core = context;
    char token[DIBS__TOKEN_MAX];

    dibs__token_write(&core->tokens, &lease->token, token);
    dibs__keeper_recall(core, lease->name, token);
}
