#include "store/memory_space.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/glob.h"

static struct dibs__space *named_spaces DIBS__GUARDED_BY(dibs__process_mutex);

/* ------------------------------------------------------------------- spaces */

static void forget_spaces(void) DIBS__REQUIRES(dibs__process_mutex)
{
    named_spaces = NULL; /* their locks belong to threads of the parent */
}

static struct dibs__space *space_new(const char *name) DIBS__REQUIRES(dibs__process_mutex)
{
    struct dibs__space *space = calloc(1, sizeof *space);

    if (!space)
        return NULL;
    if (*name && !(space->name = strdup(name)))
        goto no_name;
    if (dibs__mutex_init(&space->mutex) != 0)
        goto no_mutex;
    if (pthread_cond_init(&space->pushed, NULL) != 0)
        goto no_cond;
    space->references = 1;
    return space;
no_cond:
    dibs__mutex_destroy(&space->mutex);
no_mutex:
    free(space->name);
no_name:
    free(space);
    return NULL;
}

struct dibs__space *dibs__space_get(const char *name)
{
    struct dibs__space *space = NULL;

    if (!dibs__process_at_fork(forget_spaces))
        return NULL;
    dibs__process_lock();
    for (space = *name ? named_spaces : NULL; space && strcmp(space->name, name) != 0; space = space->next)
        continue;
    if (space) {
        space->references++;
    } else {
        space = space_new(name);
        if (space && *name) {
            space->next = named_spaces;
            named_spaces = space;
        }
    }
    dibs__process_unlock();
    return space;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct dibs__space_lock *)a)->name, ((const struct dibs__space_lock *)b)->name);
}

/* Called when nobody uses the space any more, so nobody waits for its locks. */
static void space_free(struct dibs__space *space)
{
    dibs__space_mutex_lock(&space->mutex);
    while (space->locks) {
        dibs__space_end_all(space->locks);
        (void)dibs__space_drop_unused(space, space->locks);
    }
    dibs__space_mutex_unlock(&space->mutex);
    pthread_cond_destroy(&space->pushed);
    dibs__mutex_destroy(&space->mutex);
    free(space->name);
    free(space);
}

void dibs__space_put(struct dibs__space *space)
{
    dibs__process_lock();
    bool last = --space->references == 0;
    for (struct dibs__space **at = &named_spaces; last && *at; at = &(*at)->next) {
        if (*at == space) {
            *at = space->next;
            break;
        }
    }
    dibs__process_unlock();
    if (last)
        space_free(space);
}

/* -------------------------------------------------------------------- locks */

/* The pointer to the hold of that token, or to the end of the list. */
static struct dibs__space_hold **hold_at(struct dibs__space_lock *lock, const char *token)
{
    struct dibs__space_hold **at = &lock->holds;

    while (*at && strcmp((*at)->token, token) != 0)
        at = &(*at)->next;
    return at;
}

static void drop_hold(struct dibs__space_lock *lock, struct dibs__space_hold **at)
{
    struct dibs__space_hold *hold = *at;

    *at = hold->next;
    lock->hold_count--;
    if (hold != &lock->own)
        free(hold);
}

struct dibs__space_hold *dibs__space_hold_of(struct dibs__space_lock *lock, const char *token)
{
    return *hold_at(lock, token);
}

bool dibs__space_admits(const struct dibs__space_lock *lock, const char *token)
{
    int64_t limit = dibs__token_limit(token);

    return !lock->holds || (dibs__token_limit(lock->holds->token) >= 0 && (limit == 0 || lock->hold_count < limit));
}

int64_t dibs__space_ends(const struct dibs__space_lock *lock)
{
    int64_t ends = lock->holds ? lock->holds->expires : 0;

    for (const struct dibs__space_hold *at = lock->holds; at; at = at->next)
        if (at->expires > ends)
            ends = at->expires;
    return ends;
}

int64_t dibs__space_first_ends(const struct dibs__space_lock *lock)
{
    int64_t ends = dibs__space_ends(lock);

    for (const struct dibs__space_hold *at = lock->holds; at; at = at->next)
        if (at->expires < ends)
            ends = at->expires;
    return ends;
}

void dibs__space_end_all(struct dibs__space_lock *lock)
{
    while (lock->holds)
        drop_hold(lock, &lock->holds);
}

bool dibs__space_end_hold(struct dibs__space_lock *lock, const char *token)
{
    struct dibs__space_hold **at = hold_at(lock, token);

    if (!*at)
        return false;
    drop_hold(lock, at);
    return true;
}

/* The leases of sharers end one by one: that of a dead one does not last as long as those of the others. */
static void end_leases(struct dibs__space_lock *lock, int64_t now)
{
    for (struct dibs__space_hold **at = &lock->holds; *at;) {
        if ((*at)->expires <= now)
            drop_hold(lock, at);
        else
            at = &(*at)->next;
    }
}

bool dibs__space_drop_unused(struct dibs__space *space, struct dibs__space_lock *lock)
{
    if (dibs__space_is_held(lock) || lock->first)
        return false;
    tdelete(lock, &space->by_name, compare_names);
    DIBS__LIST_REMOVE(space->locks, lock, links);
    free(lock);
    return true;
}

struct dibs__space_lock *dibs__space_find(struct dibs__space *space, const char *name, int64_t now)
{
    const struct dibs__space_lock probe = {.name = name};
    void *node = tfind(&probe, &space->by_name, compare_names);
    struct dibs__space_lock *lock = node ? *(struct dibs__space_lock **)node : NULL;

    if (lock)
        end_leases(lock, now);
    return lock && !dibs__space_drop_unused(space, lock) ? lock : NULL;
}

struct dibs__space_lock *dibs__space_find_or_add(struct dibs__space *space, const char *name, int64_t now)
{
    struct dibs__space_lock *lock = dibs__space_find(space, name, now);
    size_t size = strlen(name) + 1;

    if (lock || !(lock = calloc(1, sizeof *lock + size)))
        return lock;
    lock->name = memcpy(lock + 1, name, size);
    if (!tsearch(lock, &space->by_name, compare_names)) {
        free(lock);
        return NULL;
    }
    DIBS__LIST_APPEND(space->locks, lock, links);
    return lock;
}

static uint64_t wall_clock_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* As in Redis: the time in microseconds, or one more than the last fence. */
static uint64_t next_fence(struct dibs__space *space) DIBS__REQUIRES(dibs__space_mutex)
{
    uint64_t now = wall_clock_us();

    space->last_fence = now > space->last_fence ? now : space->last_fence + 1;
    return space->last_fence;
}

void dibs__space_raise(struct dibs__space *space, struct dibs__space_hold *hold, uint64_t fence)
{
    if (fence > hold->fence)
        hold->fence = fence;
    if (fence > space->last_fence)
        space->last_fence = fence;
}

bool dibs__space_votes(const struct dibs__space *space, uint32_t lease_ms, uint64_t quorum, int64_t now)
{
    return space->knows_vote && space->has_floor && now >= space->votes_from && lease_ms <= space->longest_ms &&
           (quorum == 0 || space->quorum == 0 || quorum == space->quorum);
}

static void set_floor(struct dibs__space *space, uint64_t floor) DIBS__REQUIRES(dibs__space_mutex)
{
    space->has_floor = floor > 0;
    if (floor > space->last_fence)
        space->last_fence = floor;
}

static void admit(struct dibs__space *space, const struct dibs__vote *vote, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex)
{
    int64_t from = dibs__after_ms(now, vote->wait_ms);

    if (!space->knows_vote)
        set_floor(space, vote->floor);
    if (!space->knows_vote || space->votes_from > from)
        space->votes_from = from;
    space->knows_vote = true;
}

void dibs__space_vote(struct dibs__space *space, struct dibs__vote *vote, int64_t now)
{
    bool fits = vote->quorum == 0 || space->quorum == 0 || vote->quorum == space->quorum;
    uint64_t us = wall_clock_us();

    if (fits && vote->what == DIBS__VOTE_ADMITS && (vote->mark == 0 || !space->knows_vote))
        admit(space, vote, now);
    if (vote->what == DIBS__VOTE_DISTRUSTS && space->knows_vote &&
        space->votes_from < dibs__after_ms(now, vote->wait_ms))
        space->votes_from = dibs__after_ms(now, vote->wait_ms);
    bool is_over = space->knows_vote && space->votes_from <= now;
    if (fits && vote->what == DIBS__VOTE_FLOORS && is_over && !space->has_floor)
        set_floor(space, vote->floor);
    if (fits && space->knows_vote && space->quorum == 0)
        space->quorum = vote->quorum;
    if (fits && space->knows_vote && vote->longest_ms > space->longest_ms)
        space->longest_ms = vote->longest_ms;
    vote->server_us = now / 1000;
    vote->known = space->knows_vote;
    vote->restarted = false;
    vote->votes_in_ms = vote->known ? dibs__ms_until(space->votes_from, now) : 0;
    vote->ready = vote->known && vote->votes_in_ms == 0 && space->has_floor;
    vote->highest = us > space->last_fence ? us : space->last_fence;
    vote->quorum = space->quorum;
    vote->process = (uintptr_t)space;
    vote->mark = vote->known ? 0 : 1; /* one mark is enough: a space never forgets */
    if (vote->known)
        vote->longest_ms = space->longest_ms;
}

void dibs__space_prolong(struct dibs__space_hold *hold, uint32_t lease_ms, int64_t now)
{
    int64_t expires = dibs__after_ms(now, lease_ms);

    if (expires > hold->expires)
        hold->expires = expires;
}

/* ------------------------------------------------------------------- queues */

/* The pointer to the token's waiter, or to the end of the queue. */
static struct dibs__space_waiter **place_of(struct dibs__space_lock *lock, const char *token)
{
    struct dibs__space_waiter **at = &lock->first;

    while (*at && strcmp((*at)->token, token) != 0)
        at = &(*at)->next;
    return at;
}

static struct dibs__space_waiter *take_out(struct dibs__space_waiter **place)
{
    struct dibs__space_waiter *waiter = *place;

    if (waiter)
        *place = waiter->next;
    return waiter;
}

struct dibs__space_hold *dibs__space_grant(struct dibs__space *space, struct dibs__space_lock *lock, const char *token,
                                           uint32_t lease_ms, int64_t now)
{
    struct dibs__space_hold *hold = dibs__token_limit(token) >= 0 ? calloc(1, sizeof *hold) : &lock->own;

    if (!hold)
        return NULL;
    hold->next = lock->holds;
    lock->holds = hold;
    lock->hold_count++;
    hold->granted = now;
    hold->expires = dibs__after_ms(now, lease_ms);
    hold->fence = next_fence(space);
    snprintf(hold->token, sizeof hold->token, "%s", token);
    free(take_out(place_of(lock, token)));
    return hold;
}

bool dibs__space_take_place(struct dibs__space_user *user, struct dibs__space_lock *lock,
                            const struct dibs__attempt *attempt)
{
    struct dibs__space_waiter **place = place_of(lock, attempt->token);

    if (!*place && attempt->wait) {
        if (!(*place = calloc(1, sizeof **place)))
            return false;
        (*place)->user = user;
        snprintf((*place)->token, sizeof(*place)->token, "%s", attempt->token);
    }
    if (*place) {
        (*place)->number = attempt->number;
        (*place)->lease_ms = attempt->lease_ms;
    }
    return true;
}

uint32_t dibs__space_count_waiters(const struct dibs__space_lock *lock)
{
    uint32_t count = 0;

    for (const struct dibs__space_waiter *at = lock->first; at; at = at->next)
        count++;
    return count;
}

/* The time of each waiter's last ask is not stored. */
void dibs__space_show_waiters(const struct dibs__space_lock *lock, struct dibs__waiters *waiters)
{
    const struct dibs__space_waiter *waiter = waiters ? lock->first : NULL;

    for (; waiter && waiters->count < waiters->most; waiter = waiter->next) {
        dibs_waiter *out = &waiters->items[waiters->count++];
        snprintf(out->token, sizeof out->token, "%s", waiter->token);
        out->asked_ms = -1;
    }
}

void dibs__space_show_sharers(const struct dibs__space_lock *lock, struct dibs__sharers *sharers, int64_t now)
{
    const struct dibs__space_hold *at = sharers ? lock->holds : NULL;

    for (; at && dibs__token_limit(at->token) >= 0 && sharers->count < sharers->most; at = at->next) {
        dibs_sharer *out = &sharers->items[sharers->count++];
        memcpy(out->token, at->token, sizeof out->token);
        out->remaining_ms = dibs__ms_until(at->expires, now);
        out->fence = at->fence;
        out->held_ms = (now - at->granted) / DIBS__NS_PER_MS;
    }
}

/* The first in the queue gets the lock, a share of it, or a hint. False: no memory. */
static bool serve_first(struct dibs__space *space, struct dibs__space_lock *lock, bool is_me, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex)
{
    struct dibs__space_waiter *first = lock->first;

    take_out(&lock->first);
    if (!is_me && first->user->is_member)
        return true;
    const struct dibs__space_hold *hold = dibs__space_grant(space, lock, first->token, first->lease_ms, now);
    if (hold) {
        first->fence = hold->fence;
        return true;
    }
    first->next = lock->first;
    lock->first = first;
    return false;
}

/* Whether the waiter waits for a hint, and wants to share the lock with any number of others. */
static bool shares_with_any(const struct dibs__space_waiter *waiter)
{
    return waiter->user->is_member && dibs__token_limit(waiter->token) == 0;
}

/*
 * Makes hints for the first waiters in the queue that share the lock with any number; they keep their places. A
 * waiter that gets no hint for lack of memory will soon ask by itself.
 */
static struct dibs__space_waiter *tell_sharers(const struct dibs__space_waiter *first) DIBS__REQUIRES(dibs__space_mutex)
{
    struct dibs__space_waiter *told = NULL, **end = &told;

    for (const struct dibs__space_waiter *at = first; at && shares_with_any(at); at = at->next) {
        if (!(*end = malloc(sizeof **end)))
            break;
        **end = *at;
        (*end)->next = NULL;
        at->user->pushes++;
        end = &(*end)->next;
    }
    return told;
}

struct dibs__space_waiter *dibs__space_serve(struct dibs__space *space, struct dibs__space_lock *lock, const char *me,
                                             int64_t now)
{
    struct dibs__space_waiter *served = NULL, **end = &served, *first;
    bool goes_on = true;

    while (goes_on && (first = lock->first) && dibs__space_admits(lock, first->token)) {
        bool is_me = me && strcmp(first->token, me) == 0;
        if (!me && shares_with_any(first)) {
            *end = tell_sharers(first);
            return served;
        }
        if ((first->user->is_member && me && !is_me) || !serve_first(space, lock, is_me, now))
            break;
        goes_on = dibs__token_limit(first->token) >= 0 && (is_me || !first->user->is_member);
        first->next = NULL;
        if (is_me) {
            free(first);
            continue;
        }
        first->user->pushes++;
        *end = first;
        end = &first->next;
    }
    return served;
}

struct dibs__space_waiter *dibs__space_serve_name(struct dibs__space *space, const char *name, int64_t now)
{
    struct dibs__space_lock *lock = dibs__space_find(space, name, now);

    return lock ? dibs__space_serve(space, lock, NULL, now) : NULL;
}

bool dibs__space_end(struct dibs__space *space, const char *name, const char *token, int64_t now)
{
    struct dibs__space_lock *lock = dibs__space_find(space, name, now);

    if (!lock)
        return false;
    free(take_out(place_of(lock, token)));
    return dibs__space_end_hold(lock, token);
}

void dibs__space_push(struct dibs__space *space, const struct dibs__clock *clock, const char *name,
                      struct dibs__space_waiter *served)
{
    while (served) {
        struct dibs__space_user *user = served->user;
        struct dibs__space_waiter *next = served->next, **end = &next;
        const struct dibs__grant news = {&name[user->prefix_size], served->token, served->number, served->fence,
                                         served->fence == 0};
        bool wanted = user->listener.granted(user->listener.source, &news);

        dibs__space_mutex_lock(&space->mutex);
        if (--user->pushes == 0)
            pthread_cond_broadcast(&space->pushed);
        if (!wanted) {
            int64_t now = dibs__now(clock);
            dibs__space_end(space, name, served->token, now);
            while (*end)
                end = &(*end)->next;
            *end = dibs__space_serve_name(space, name, now);
        }
        dibs__space_mutex_unlock(&space->mutex);
        free(served);
        served = next;
    }
}

/* ----------------------------------------------------------- all locks of a space */

/* The user's name of a lock; NULL: the lock is none of its, since what follows its prefix can't be a name. */
static const char *name_for(const struct dibs__space_user *user, const struct dibs__space_lock *lock)
{
    if (strncmp(lock->name, user->prefix, user->prefix_size) != 0)
        return NULL;
    const char *name = &lock->name[user->prefix_size];
    return *name && strlen(name) <= DIBS_NAME_MAX ? name : NULL;
}

bool dibs__space_walk(struct dibs__space *space, const struct dibs__space_user *user, const struct dibs__walk *walk,
                      int64_t now)
{
    bool good = true;

    for (const struct dibs__space_lock *at = space->locks; at && good; at = at->links.next) {
        const char *name = dibs__space_ends(at) > now ? name_for(user, at) : NULL;
        if (name && (!walk->pattern || dibs__glob_matches(walk->pattern, name)))
            good = walk->found(walk->context, name);
    }
    return good;
}

void dibs__space_leave(struct dibs__space *space, struct dibs__space_user *user)
{
    dibs__space_mutex_lock(&space->mutex);
    for (struct dibs__space_lock *lock = space->locks; lock; lock = lock->links.next) {
        for (struct dibs__space_waiter **at = &lock->first; *at;) {
            if ((*at)->user == user)
                free(take_out(at));
            else
                at = &(*at)->next;
        }
    }
    while (user->pushes > 0)
        dibs__mutex_wait(&space->mutex, &space->pushed);
    dibs__space_mutex_unlock(&space->mutex);
}
