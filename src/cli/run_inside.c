#include "cli/run_inside.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run_signals.h"

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

void run_inside_set(const char *token)
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

/* ------------------------------------------------------------- the outer locks */

#define LOOKS_MOST_MS 10000 /* between two looks at the outer locks */

struct outer_lock {
    const char *name;
    char token[192];
    int64_t sure_until_ms; /* guarded by outer.mutex */
};

static struct {
    struct outer_lock locks[RUN_NAMES_MAX]; /* the rest of each, and count: read-only while the watcher runs */
    size_t count;
    const struct run_plan *plan; /* read-only while the watcher runs, as the next two */
    dibs_runtime *rt;
    int quit[2]; /* a pipe; the main thread closes one end to stop the watcher */
    pthread_t watcher;
    bool watched; /* main thread only: the watcher runs */
    pthread_mutex_t mutex;
    bool lost; /* guarded by mutex: an outer dibs has lost or released one of the locks */
} outer = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void add_outer(const char *name, const dibs_owner *owner, int64_t asked_ms)
{
    struct outer_lock *lock = &outer.locks[outer.count++];

    lock->name = name;
    memcpy(lock->token, owner->token, sizeof lock->token);
    lock->sure_until_ms = asked_ms + (owner->remaining_ms < 0 ? RUN_DAY_MS : owner->remaining_ms);
}

bool run_inside_enters(const struct run_plan *plan, dibs_runtime *rt, const char *name, dibs_owner *owner)
{
    int64_t since = cli_now_ms(), asked_ms;
    dibs_status status;

    if (!*value_of(INNERMOST) && !*value_of(OTHERS))
        return false;
    while (asked_ms = cli_now_ms(),
           (status = cli_query(rt, name, has, owner)) == DIBS_UNAVAILABLE && run_goes_on(plan, since))
        poll(NULL, 0, RUN_AGAIN_MS);
    if (status != DIBS_OK || !owner->held || !has(owner->token))
        return false;
    add_outer(name, owner, asked_ms);
    return true;
}

static const char *watched_token; /* of the lock that the watcher asks for; watcher only */

static bool is_watched(const char *token)
{
    return strcmp(token, watched_token) == 0;
}

/* Returns false if the store does not answer. */
static bool look_at(struct outer_lock *lock)
{
    int64_t asked_ms = cli_now_ms();
    dibs_owner owner;

    watched_token = lock->token;
    if (cli_query(outer.rt, lock->name, is_watched, &owner) != DIBS_OK)
        return false;
    pthread_mutex_lock(&outer.mutex);
    if (!owner.held || !is_watched(owner.token))
        outer.lost = true;
    else if (owner.remaining_ms >= 0)
        lock->sure_until_ms = asked_ms + owner.remaining_ms;
    if (outer.lost)
        run_signals_wake();
    pthread_mutex_unlock(&outer.mutex);
    return true;
}

static void *watch(void *unused)
{
    int64_t third = outer.plan->lease_ms / 3, wait = third < LOOKS_MOST_MS ? third : LOOKS_MOST_MS;
    struct pollfd quit = {.fd = outer.quit[0], .events = POLLIN};
    bool answered = true;

    while (poll(&quit, 1, (int)(answered || wait < RUN_AGAIN_MS ? wait : RUN_AGAIN_MS)) == 0) {
        answered = true;
        for (size_t i = 0; i < outer.count; i++)
            answered = look_at(&outer.locks[i]) && answered;
    }
    return unused;
}

bool run_inside_watch(struct run_plan *plan, dibs_runtime *rt)
{
    if (outer.count == 0)
        return true;
    run_fit_times(plan, run_inside_remaining_ms());
    outer.plan = plan;
    outer.rt = rt;
    outer.watched = cli_open_pipe(outer.quit) && cli_start_thread(&outer.watcher, watch, NULL);
    return outer.watched;
}

void run_inside_end(void)
{
    if (!outer.watched)
        return;
    outer.watched = false;
    close(outer.quit[1]);
    pthread_join(outer.watcher, NULL);
    close(outer.quit[0]);
}

int64_t run_inside_remaining_ms(void)
{
    int64_t now = cli_now_ms(), least = RUN_DAY_MS;

    pthread_mutex_lock(&outer.mutex);
    for (size_t i = 0; i < outer.count; i++) {
        int64_t left = outer.locks[i].sure_until_ms - now;
        least = left < least ? left : least;
    }
    if (outer.lost)
        least = -1;
    pthread_mutex_unlock(&outer.mutex);
    return least;
}
