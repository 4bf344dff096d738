/*
 * Lock discipline: `mutex` guards the list and each entry, but for what is
 * read-only after dibs__retractions_add. It is a leaf: no command is sent while
 * it is held, so an entry that is being sent is marked `busy`, and only the
 * scheduler, which sends, and the answers touch it then: one, or over the
 * background channel two, which come in order on the scheduler's thread.
 */
#include "store/retractions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "redis/call.h"
#include "redis/reply.h"
#include "store/keys.h"
#include "store/store.h"

#define AGAIN_FIRST_MS 20
#define AGAIN_LAST_MS 5000

struct retraction {
    struct retraction *next;
    struct dibs__retractions *all; /* read-only, as are these three */
    struct dibs__route route;
    char token[DIBS__TOKEN_MAX];
    char name[DIBS_NAME_MAX + 1];
    bool busy;      /* sent, not answered */
    bool settled;   /* where the answer comes, nothing of the ask can be under way behind it */
    bool with_text; /* the server has lost the script */
    int64_t due;    /* DIBS__NEVER: when there is a connection */
    int64_t pause_ms;
};

struct dibs__retractions {
    pthread_mutex_t mutex;
    struct retraction *first;   /* guarded by mutex */
    atomic_size_t count;        /* written under mutex */
    uint64_t background_serial; /* the scheduler thread's */
    const char *key_prefix;     /* these are read-only */
    const struct dibs__clock *clock;
    void (*wake)(void *context);
    void *context;
};

struct dibs__retractions *dibs__retractions_new(const char *key_prefix, const struct dibs__clock *clock,
                                                void (*wake)(void *context), void *context)
{
    struct dibs__retractions *all = calloc(1, sizeof *all);

    if (!all)
        return NULL;
    if (pthread_mutex_init(&all->mutex, NULL) != 0) {
        free(all);
        return NULL;
    }
    all->key_prefix = key_prefix;
    all->clock = clock;
    all->wake = wake;
    all->context = context;
    return all;
}

void dibs__retractions_free(struct dibs__retractions *all)
{
    if (!all)
        return;
    while (all->first) {
        struct retraction *next = all->first->next;
        free(all->first);
        all->first = next;
    }
    pthread_mutex_destroy(&all->mutex);
    free(all);
}

void dibs__retractions_add(struct dibs__retractions *all, const char *name, const char *token,
                           const struct dibs__route *route)
{
    struct retraction *retraction = calloc(1, sizeof *retraction);

    if (!retraction)
        return;
    retraction->all = all;
    retraction->route = *route;
    snprintf(retraction->name, sizeof retraction->name, "%s", name);
    snprintf(retraction->token, sizeof retraction->token, "%s", token);
    retraction->pause_ms = AGAIN_FIRST_MS;
    pthread_mutex_lock(&all->mutex);
    retraction->next = all->first;
    all->first = retraction;
    atomic_fetch_add(&all->count, 1);
    pthread_mutex_unlock(&all->mutex);
    all->wake(all->context);
}

size_t dibs__retractions_count(struct dibs__retractions *all)
{
    return atomic_load(&all->count);
}

/* Requires mutex. */
static void remove_entry(struct dibs__retractions *all, struct retraction *retraction)
{
    struct retraction **at = &all->first;

    while (*at != retraction)
        at = &(*at)->next;
    *at = retraction->next;
    atomic_fetch_sub(&all->count, 1);
    free(retraction);
}

/* Requires mutex. To be sent again at that time. */
static void put_off(struct retraction *retraction, int64_t due)
{
    retraction->busy = false;
    retraction->settled = false;
    retraction->due = due;
}

/* Requires mutex. To be sent again, later each time. */
static void back_off(struct retraction *retraction)
{
    int64_t pause = dibs__jitter(retraction->pause_ms / 2, retraction->pause_ms);

    put_off(retraction, dibs__after_ms(dibs__now(retraction->all->clock), pause));
    retraction->pause_ms = retraction->pause_ms * 2 < AGAIN_LAST_MS ? retraction->pause_ms * 2 : AGAIN_LAST_MS;
}

static void on_kill(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct retraction *retraction = arg;

    (void)error;
    retraction->settled = reply && reply->type == REDIS_REPLY_INTEGER;
}

/* Requires mutex. The server answered that the key is not the token's any more. */
static void confirmed(struct retraction *retraction, int64_t server_us)
{
    const struct dibs__route *route = &retraction->route;

    if (retraction->settled || (route->not_after > 0 && server_us > route->not_after))
        remove_entry(retraction->all, retraction);
    else if (route->not_after > 0)
        put_off(retraction,
                dibs__after_ms(dibs__now(retraction->all->clock), (route->not_after - server_us) / 1000 + 1));
    else
        back_off(retraction);
}

static void on_release(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct retraction *retraction = arg;
    struct dibs__retractions *all = retraction->all;
    int64_t server_us;

    (void)error;
    pthread_mutex_lock(&all->mutex);
    if (reply && dibs__reply_is_error(reply, "NOSCRIPT")) {
        retraction->with_text = true;
        put_off(retraction, 0);
    } else if (reply && dibs__reply_integer(reply, 1, &server_us)) {
        confirmed(retraction, server_us);
    } else {
        back_off(retraction);
    }
    pthread_mutex_unlock(&all->mutex);
    all->wake(all->context);
}

/* The entry is busy. Its answer may come, and free it, before this returns true. */
static bool send_release(struct retraction *retraction, struct dibs__channel *channel,
                         const struct dibs__link_view *view)
{
    struct dibs__key keys[DIBS__KEYS];
    const char *words[5 + DIBS__KEYS] = {NULL, NULL, "4"};
    size_t sizes[5 + DIBS__KEYS] = {0, 0, 1};
    int count = 3;

    for (int i = 0; i < DIBS__KEYS; i++) {
        dibs__key_of(&keys[i], (enum dibs__key_kind)i, retraction->all->key_prefix, retraction->name);
        words[count] = keys[i].bytes;
        sizes[count++] = keys[i].size;
    }
    words[count] = retraction->token;
    sizes[count++] = strlen(retraction->token);
    words[count] = "time";
    sizes[count++] = 4;
    dibs__script_words(DIBS__SCRIPT_release, view, retraction->with_text, words, sizes);
    return dibs__channel_submit(channel, view->serial, &(struct dibs__command){count, words, sizes}, on_release,
                                retraction);
}

static bool send_kill(struct retraction *retraction, struct dibs__channel *channel, const struct dibs__link_view *view)
{
    char id[24];
    const char *words[] = {"CLIENT", "KILL", "ID", id};
    size_t sizes[] = {6, 4, 2, 0};

    sizes[3] = (size_t)snprintf(id, sizeof id, "%lld", (long long)retraction->route.link.client);
    return dibs__channel_submit(channel, view->serial, &(struct dibs__command){4, words, sizes}, on_kill, retraction);
}

/*
 * The entry is busy, so nobody else touches it. On the connection of the ask
 * it comes behind the ask. On another, where the same server still runs, that
 * connection is ended first; another server, by its run id, never had it.
 */
static bool send_one(struct retraction *retraction, struct dibs__channel *background)
{
    struct dibs__route *route = &retraction->route;
    struct dibs__link_view view;

    if (route->channel && dibs__channel_view(route->channel, &view) && view.serial == route->serial) {
        retraction->settled = true;
        return send_release(retraction, route->channel, &view);
    }
    if (!dibs__channel_view(background, &view))
        return false;
    bool same_server =
        route->channel && dibs__link_can_be_ended(&route->link) && strcmp(route->link.run_id, view.id.run_id) == 0;
    if (route->channel)
        retraction->settled = dibs__link_can_be_ended(&route->link) && !same_server;
    else
        retraction->settled = route->not_after == 0;
    if (same_server && !send_kill(retraction, background, &view))
        return false;
    return send_release(retraction, background, &view);
}

/* Marks up to `room` entries that are due busy and collects them. */
static size_t collect_due(struct dibs__retractions *all, struct retraction **due, size_t room)
{
    int64_t now = dibs__now(all->clock);
    size_t count = 0;

    pthread_mutex_lock(&all->mutex);
    for (struct retraction *at = all->first; at && count < room; at = at->next) {
        if (!at->busy && at->due <= now) {
            at->busy = true;
            due[count++] = at;
        }
    }
    pthread_mutex_unlock(&all->mutex);
    return count;
}

/* A new connection stands: what waited for one, or had been refused, is due. */
static void make_all_due(struct dibs__retractions *all)
{
    pthread_mutex_lock(&all->mutex);
    for (struct retraction *at = all->first; at; at = at->next) {
        at->due = 0;
        at->pause_ms = AGAIN_FIRST_MS;
    }
    pthread_mutex_unlock(&all->mutex);
}

#define AT_ONCE 64

void dibs__retractions_attend(struct dibs__retractions *all, struct dibs__channel *background)
{
    struct retraction *due[AT_ONCE];
    struct dibs__link_view view;
    size_t count = AT_ONCE;

    if (dibs__retractions_count(all) == 0)
        return;
    if (dibs__channel_view(background, &view) && view.serial != all->background_serial) {
        all->background_serial = view.serial;
        make_all_due(all);
    }
    while (count == AT_ONCE) {
        count = collect_due(all, due, AT_ONCE);
        for (size_t i = 0; i < count; i++) {
            if (send_one(due[i], background))
                continue;
            bool connected = dibs__channel_view(background, &view);
            pthread_mutex_lock(&all->mutex);
            if (connected)
                back_off(due[i]);
            else
                put_off(due[i], DIBS__NEVER);
            pthread_mutex_unlock(&all->mutex);
        }
    }
}

int64_t dibs__retractions_deadline(struct dibs__retractions *all)
{
    int64_t deadline = DIBS__NEVER;

    if (dibs__retractions_count(all) == 0)
        return deadline;
    pthread_mutex_lock(&all->mutex);
    for (struct retraction *at = all->first; at; at = at->next)
        if (!at->busy && at->due < deadline)
            deadline = at->due;
    pthread_mutex_unlock(&all->mutex);
    return deadline;
}
