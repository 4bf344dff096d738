/* Tries which parts of the library work on a server with a given account. */
#include "support/ability.h"

#include "support/fixture.h"

enum { RENEW_MS = 100, NEVER_MS = 600 /* for so long it is checked that something unexpected does not happen */ };

const ability_word ability_full[ABILITY_COLUMNS] = {"OK", "OK", "OK", "OK", "yes", "push", "push", "yes", "yes"};

struct trial {
    ability *out;
    server *server;
    dibs_config config;
    const ability_word *expected;
    dibs_runtime *rt, *other; /* under the same account */
    actor *thread;
};

static void say(struct trial *t, enum ability_column column, const char *word)
{
    snprintf(t->out->words[column], sizeof t->out->words[column], "%s", word);
}

/* Notes why, where it is not DIBS_OK. Returns whether it is. */
static bool note(struct trial *t, dibs_status status)
{
    size_t used = strlen(t->out->errors);

    if (status != DIBS_OK)
        snprintf(t->out->errors + used, sizeof t->out->errors - used, "%s\n", dibs_last_error());
    return status == DIBS_OK;
}

static void say_status(struct trial *t, enum ability_column column, dibs_status status)
{
    say(t, column, dibs_status_name(status) + strlen("DIBS_"));
}

/* How long it is waited for: what is expected longer than what is not. */
static int64_t patience(const struct trial *t, enum ability_column column)
{
    return strcmp(t->expected[column], "yes") == 0 ? LIMIT_MS / 6 : NEVER_MS;
}

static void say_whether(struct trial *t, enum ability_column column, bool so)
{
    say(t, column, so ? "yes" : "no");
}

/* ------------------------------------------------------------------- one by one */

static bool try_to_open(struct trial *t, const char *url)
{
    const char *const urls[] = {url};

    t->config.urls = urls;
    t->config.url_count = 1;
    dibs_status status = dibs_open(&t->rt, &t->config);
    note(t, status);
    say_status(t, ABILITY_OPEN, status);
    return status == DIBS_OK && note(t, dibs_open(&t->other, &t->config));
}

/* Deletes by hand what could not be released. */
static void clean(struct trial *t)
{
    server_do(t->server, "DEL lock:a lock:b dibs:queue:{lock:a} dibs:queue:{lock:b}");
}

static bool try_to_lock(struct trial *t)
{
    dibs_status status = dibs_trylock(t->rt, "a");

    note(t, status);
    if (status == DIBS_OK) {
        status = dibs_unlock(t->rt, "a");
        note(t, status);
    }
    say_status(t, ABILITY_LOCK, status);
    clean(t);
    return status == DIBS_OK;
}

static void try_to_look(struct trial *t)
{
    dibs_owner owner;
    dibs_status status = dibs_query(t->rt, "a", &owner);

    note(t, status);
    if (status == DIBS_OK) {
        status = dibs_force_unlock(t->rt, "a", NULL);
        note(t, status);
    }
    say_status(t, ABILITY_LOOK, status);
}

static dibs_status share(struct trial *t)
{
    const dibs_lock_options shared = {.flags = DIBS_SHARED, .limit = 2};
    dibs_status status = dibs_lock_with(t->rt, "a", 0, &shared);
    dibs_owner owner;

    if (status != DIBS_OK)
        return status;
    status = actor_lock_with(t->thread, t->other, "a", 0, &shared);
    if (status == DIBS_OK && dibs_query(t->rt, "a", &owner) == DIBS_OK)
        assert_int_equal(owner.sharers, 2);
    if (status == DIBS_OK)
        status = actor_unlock(t->thread, t->other, "a");
    dibs_status last = dibs_unlock(t->rt, "a");
    return status == DIBS_OK ? last : status;
}

static void try_to_share(struct trial *t)
{
    dibs_status status = share(t);

    note(t, status);
    say_status(t, ABILITY_SHARE, status);
    clean(t);
}

/* Also lets go of a lock in the background, while changes are told. */
static void try_to_keep(struct trial *t)
{
    assert_status(DIBS_OK, dibs_trylock(t->rt, "a"));
    say_whether(t, ABILITY_KEPT, within(patience(t, ABILITY_KEPT), stats_of(t->rt).renewed >= 2));
    say_whether(t, ABILITY_TOLD, within(patience(t, ABILITY_TOLD), stats_of(t->rt).tracking == 1));
    actor *leaver = actor_start();
    if (actor_lock(leaver, t->rt, "b", 0) == DIBS_OK)
        actor_exit(leaver);
    else
        actor_end(leaver);
    note(t, dibs_unlock(t->rt, "a"));
    server_wait_gone(t->server, "lock:b", NEVER_MS);
    clean(t);
}

/* "other" waits behind "rt", which unlocks; meanwhile another waiter comes and goes. Whether it was granted by push. */
static dibs_status wait_once(struct trial *t, uint32_t flags, bool *pushed)
{
    uint64_t granted = stats_of(t->other).granted, contended = stats_of(t->other).contended;

    *pushed = false;
    if (!note(t, dibs_trylock(t->rt, "a")))
        return DIBS_OK;
    actor_begin_lock_with(t->thread, t->other, "a", LIMIT_MS / 6, &(dibs_lock_options){.flags = flags});
    (void)within(LIMIT_MS, stats_of(t->other).contended > contended || !actor_busy(t->thread));
    actor *leaver = actor_start();
    actor_lock_with(leaver, t->other, "a", 150, &(dibs_lock_options){.flags = DIBS_FAIR});
    actor_end(leaver);
    note(t, dibs_unlock(t->rt, "a"));
    dibs_status status = actor_result(t->thread);
    *pushed = stats_of(t->other).granted > granted;
    if (status == DIBS_OK)
        actor_unlock(t->thread, t->other, "a");
    return status;
}

static void copy_error(void *arg)
{
    note(arg, DIBS_UNAVAILABLE);
}

/*
 * A fair acquire, even of a free lock, returns only once there is a subscription, or it is known that there can't be
 * one.
 */
static void await_subscription(struct trial *t)
{
    const dibs_lock_options fairly = {.flags = DIBS_FAIR};

    if (dibs_lock_with(t->other, "subscribed", LIMIT_MS / 6, &fairly) == DIBS_OK)
        note(t, dibs_unlock(t->other, "subscribed"));
}

static void try_to_wait(struct trial *t, enum ability_column column, uint32_t flags)
{
    bool pushed = false;
    dibs_status status = DIBS_OK;

    await_subscription(t);
    for (int i = 0; i < 3 && status == DIBS_OK && !pushed; i++) /* what breaks meanwhile makes a waiter poll */
        status = wait_once(t, flags, &pushed);
    if (status == DIBS_OK) {
        say(t, column, pushed ? "push" : "poll");
    } else {
        say_status(t, column, status);
        actor_begin(t->thread, copy_error, t);
        actor_finish(t->thread);
    }
    clean(t);
}

/* A queue with a place that nobody took, far behind the first: its head has to be looked for. */
static void leave_a_gap(struct trial *t)
{
    if (!note(t, dibs_trylock(t->rt, "a")))
        return;
    server_do(t->server, "HSET dibs:queue:{lock:a} %s %s 300 %s tok %s", "", "1 300 1 9999999999", "1 9 1 4 dibstok",
              "300 1");
    note(t, dibs_unlock(t->rt, "a"));
    clean(t);
}

static void try_to_restore(struct trial *t)
{
    assert_status(DIBS_OK, dibs_trylock(t->rt, "a"));
    server_kill(t->server);
    server_restart(t->server);
    say_whether(t, ABILITY_RESTORED, within(patience(t, ABILITY_RESTORED), server_has(t->server, "lock:a")));
    note(t, dibs_unlock(t->rt, "a"));
    clean(t);
}

/* --------------------------------------------------------------------------- all */

void ability_try(ability *out, server *s, const char *url, const dibs_config *config, const ability_word *expected,
                 ability_look *look, void *arg)
{
    struct trial t = {.out = out, .server = s, .expected = expected};

    if (config)
        t.config = *config;
    if (!t.config.command_timeout_ms)
        t.config.command_timeout_ms = 5000; /* no request expires where the machine stands still for a moment */
    t.config.lease_ms = LONG_LEASE_MS;
    t.config.renew_ms = RENEW_MS;
    out->errors[0] = '\0';
    for (int i = 0; i < ABILITY_COLUMNS; i++)
        say(&t, (enum ability_column)i, "-");
    bool opened = try_to_open(&t, url), locks = false;
    t.thread = actor_start();
    if (opened) {
        try_to_look(&t);
        locks = try_to_lock(&t);
    }
    if (locks) {
        try_to_share(&t);
        try_to_keep(&t);
        try_to_wait(&t, ABILITY_WAIT, 0);
        try_to_wait(&t, ABILITY_FAIR, DIBS_FAIR);
        leave_a_gap(&t);
    }
    if (look)
        look(s, arg);
    if (locks)
        try_to_restore(&t);
    actor_end(t.thread);
    dibs_close(t.other);
    dibs_close(t.rt);
}
