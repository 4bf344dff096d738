#include "cli/run_inside.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run_hear.h"

#define INNERMOST "DIBS_TOKEN"
#define OTHERS "DIBS_OUTER_TOKENS" /* separated by blanks */

static const char *value_of(const char *variable)
{
    const char *value = getenv(variable);

    return value ? value : "";
}

static bool has(const char *token)
{
    size_t size = strlen(token);
    const char *rest = value_of(OTHERS);

    if (strcmp(value_of(INNERMOST), token) == 0)
        return true;
    for (size_t length; *rest; rest += length, rest += strspn(rest, " ")) {
        length = strcspn(rest, " ");
        if (length == size && memcmp(rest, token, size) == 0)
            return true;
    }
    return false;
}

/* Adds the token of a lock to the environment, beside those that are there. */
static void add_token(const char *token)
{
    const char *inner = value_of(INNERMOST), *others = value_of(OTHERS);
    size_t size = strlen(inner) + strlen(others) + 2;
    char *text = *inner && strcmp(inner, token) != 0 ? malloc(size) : NULL;

    if (text) {
        snprintf(text, size, "%s%s%s", others, *others ? " " : "", inner);
        setenv(OTHERS, text, 1);
    }
    free(text);
    setenv(INNERMOST, token, 1);
}

void run_inside_environment(uint64_t fence, const char *token)
{
    static const char *const secret[] = {"DIBS_URL", "DIBS_SENTINEL_USER", "DIBS_SENTINEL_PASSWORD"};
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)fence);
    setenv("DIBS_NAME", run_plan.names[0], 1);
    setenv("DIBS_FENCE", text, 1);
    add_token(token);
    for (size_t i = 0; run_plan.no_inherit && i < sizeof secret / sizeof secret[0]; i++)
        unsetenv(secret[i]);
}

void run_inside_environment_of(const struct run_lock *lock)
{
    char token[sizeof lock->token];

    for (size_t i = 0; i < lock->count; i++)
        if (lock->names[i] != run_plan.names[0] && dibs_token_of(lock->rt, lock->names[i], token) == DIBS_OK)
            add_token(token);
    run_inside_environment(lock->fence, lock->token);
}

/* ------------------------------------------------------------- the outer locks */

#define LOOK_LEAST_MS 20
#define LOOK_MOST_MS 1000
#define EMPTY_MS 2000 /* for so long nobody may be seen with a lock: after a restart its holder restores it */
#define SHORTER_MS 50 /* a lease that ends earlier by more than this than was known was made shorter */

struct outer_lock {
    const char *name;
    char token[192];
    int64_t sure_until_ms;  /* guarded by outer.mutex */
    int64_t empty_since_ms; /* watcher only; since when nobody was seen with the lock; 0: somebody was */
};

static struct {
    struct outer_lock locks[RUN_NAMES_MAX]; /* the rest of each, and count: read-only while the watcher runs */
    size_t count;
    dibs_runtime *rt; /* read-only while the watcher runs */
    struct cli_thread watcher;
    pthread_mutex_t mutex;
    int64_t lease_ms; /* guarded by mutex: the shortest of the leases, as far as is known */
    bool lost;        /* guarded by mutex: an outer dibs has lost or released one of the locks */
} outer = {.mutex = PTHREAD_MUTEX_INITIALIZER, .lease_ms = RUN_DAY_MS};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Called with the mutex held, or before the watcher runs. */
static void note_lease(struct outer_lock *lock, int64_t asked_ms, int64_t remaining_ms)
{
    int64_t left = remaining_ms < 0 ? RUN_DAY_MS : remaining_ms;

    if (asked_ms + left < lock->sure_until_ms - SHORTER_MS)
        outer.lease_ms = least(outer.lease_ms, left);
    lock->sure_until_ms = asked_ms + left;
}

static void add_outer(const char *name, const dibs_owner *owner, int64_t asked_ms)
{
    struct outer_lock *lock = &outer.locks[outer.count++];

    lock->name = name;
    memcpy(lock->token, owner->token, sizeof lock->token);
    lock->sure_until_ms = INT64_MAX;
    note_lease(lock, asked_ms, owner->remaining_ms);
}

dibs_status run_inside_enters(dibs_runtime *rt, const char *name, dibs_owner *owner)
{
    int64_t since = cli_now_ms(), asked_ms;
    dibs_status status;

    if (!*value_of(INNERMOST) && !*value_of(OTHERS))
        return DIBS_NOT_HELD;
    while (asked_ms = cli_now_ms(),
           (status = cli_query(rt, name, has, owner)) == DIBS_UNAVAILABLE && run_goes_on(since))
        poll(NULL, 0, RUN_AGAIN_MS);
    if (status == DIBS_UNAVAILABLE)
        return status;
    if (status != DIBS_OK || !owner->held || !has(owner->token))
        return DIBS_NOT_HELD;
    add_outer(name, owner, asked_ms);
    return DIBS_OK;
}

static const char *watched_token; /* of the lock that the watcher asks for; watcher only */

static bool is_watched(const char *token)
{
    return strcmp(token, watched_token) == 0;
}

/* Whether the lock is somebody else's for good: not of sharers, which may be restored one after the other. */
static bool is_anothers(const dibs_owner *owner)
{
    return owner->held && owner->sharers == 0 && strcmp(owner->token, "dibs:shared") != 0;
}

/* Returns whether the outer dibs was seen with the lock. */
static bool look_at(struct outer_lock *lock)
{
    int64_t asked_ms = cli_now_ms();
    dibs_owner owner;

    watched_token = lock->token;
    if (cli_query(outer.rt, lock->name, is_watched, &owner) != DIBS_OK)
        return false;
    bool is_there = owner.held && is_watched(owner.token);
    if (is_there || lock->empty_since_ms == 0)
        lock->empty_since_ms = is_there ? 0 : asked_ms;
    pthread_mutex_lock(&outer.mutex);
    if (is_there)
        note_lease(lock, asked_ms, owner.remaining_ms);
    else if (is_anothers(&owner) || asked_ms - lock->empty_since_ms >= EMPTY_MS)
        outer.lost = true;
    pthread_mutex_unlock(&outer.mutex);
    run_signals_wake(); /* the main thread may have to fit its times, or to end COMMAND */
    return is_there;
}

/* Looks three times at least before COMMAND must be ended, because only the outer dibs renews. */
static int until_next_look_ms(bool all_seen)
{
    int64_t remaining_ms = run_inside_remaining_ms();

    pthread_mutex_lock(&outer.mutex);
    int64_t ms = (remaining_ms - run_end_ms(outer.lease_ms)) / 3;
    pthread_mutex_unlock(&outer.mutex);
    ms = least(ms, all_seen ? LOOK_MOST_MS : RUN_AGAIN_MS);
    return (int)(ms < LOOK_LEAST_MS ? LOOK_LEAST_MS : ms);
}

static void *watch(void *unused)
{
    bool all_seen = true;

    while (!cli_thread_must_end(&outer.watcher, until_next_look_ms(all_seen))) {
        all_seen = true;
        for (size_t i = 0; i < outer.count && !cli_thread_must_end(&outer.watcher, 0); i++)
            all_seen = look_at(&outer.locks[i]) && all_seen;
    }
    return unused;
}

bool run_inside_watch(dibs_runtime *rt)
{
    if (outer.count == 0)
        return true;
    run_inside_fit();
    outer.rt = rt;
    return cli_thread_start(&outer.watcher, watch, NULL);
}

bool run_inside_fit(void)
{
    pthread_mutex_lock(&outer.mutex);
    int64_t lease_ms = outer.lease_ms;
    pthread_mutex_unlock(&outer.mutex);
    return run_fit_times(lease_ms);
}

void run_inside_end(void)
{
    cli_thread_end(&outer.watcher);
}

int64_t run_inside_remaining_ms(void)
{
    int64_t now = cli_now_ms(), left = RUN_DAY_MS;

    pthread_mutex_lock(&outer.mutex);
    for (size_t i = 0; i < outer.count; i++)
        left = least(left, outer.locks[i].sure_until_ms - now);
    left = outer.lost ? -1 : left < 0 ? 0 : left;
    pthread_mutex_unlock(&outer.mutex);
    return left;
}
