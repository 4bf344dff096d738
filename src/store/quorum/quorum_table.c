/* The table of claims, by token. Lock discipline: quorum_parts.h. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/quorum/quorum_parts.h"

#define BUCKETS_FIRST 64

static struct dibs__claim **bucket_of(struct dibs__quorum *q, uint64_t hash) DIBS__REQUIRES(dibs__quorum_mutex)
{
    return &q->buckets[hash & (q->bucket_count - 1)];
}

/* Where memory is out, the buckets stay as they are. */
static void grow(struct dibs__quorum *q) DIBS__REQUIRES(dibs__quorum_mutex)
{
    size_t count = q->bucket_count ? 2 * q->bucket_count : BUCKETS_FIRST;
    struct dibs__claim **old = q->buckets, **buckets = calloc(count, sizeof *buckets);
    size_t old_count = q->bucket_count;

    if (!buckets)
        return;
    q->buckets = buckets;
    q->bucket_count = count;
    for (size_t i = 0; i < old_count; i++)
        for (struct dibs__claim *claim = old[i], *next; claim; claim = next) {
            next = claim->next;
            struct dibs__claim **bucket = bucket_of(q, claim->hash);
            claim->next = *bucket;
            *bucket = claim;
        }
    free(old);
}

/* False: no memory. */
static bool put(struct dibs__quorum *q, struct dibs__claim *claim)
{
    dibs__quorum_mutex_lock(&q->mutex);
    if (q->claim_count >= q->bucket_count)
        grow(q);
    bool can = q->bucket_count > 0;
    if (can) {
        struct dibs__claim **bucket = bucket_of(q, claim->hash);
        claim->next = *bucket;
        *bucket = claim;
        claim->references = 1;
        q->claim_count++;
    }
    dibs__quorum_mutex_unlock(&q->mutex);
    return can;
}

struct dibs__claim *dibs__claim_new(struct dibs__quorum *q, const char *name, const char *token, uint32_t lease_ms)
{
    size_t name_size = strlen(name) + 1, token_size = strlen(token) + 1;
    size_t parts = q->count * sizeof(struct dibs__part);
    struct dibs__claim *claim = calloc(1, sizeof *claim + parts + name_size + token_size);

    if (!claim)
        return NULL;
    char *text = (char *)claim + sizeof *claim + parts;
    claim->name = memcpy(text, name, name_size);
    claim->token = memcpy(text + name_size, token, token_size);
    claim->hash = dibs__hash(token, token_size - 1);
    claim->lease_ms = lease_ms;
    if (put(q, claim))
        return claim;
    free(claim);
    return NULL;
}

struct dibs__claim *dibs__claim_find(struct dibs__quorum *q, const char *token)
{
    uint64_t hash = dibs__hash(token, strlen(token));
    struct dibs__claim *claim = NULL;

    dibs__quorum_mutex_lock(&q->mutex);
    if (q->bucket_count > 0)
        claim = *bucket_of(q, hash);
    while (claim && (claim->hash != hash || strcmp(claim->token, token) != 0))
        claim = claim->next;
    if (claim)
        claim->references++;
    dibs__quorum_mutex_unlock(&q->mutex);
    return claim;
}

bool dibs__claim_make_flights(struct dibs__quorum *q, struct dibs__claim *claim)
{
    struct dibs__flight *flights = NULL;

    dibs__quorum_mutex_lock(&q->mutex);
    bool has = claim->flights != NULL;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (has)
        return true;
    if (!(flights = calloc(q->count, sizeof *flights)))
        return false;
    for (size_t i = 0; i < q->count; i++) {
        flights[i].member = &q->members[i];
        flights[i].claim = claim;
        flights[i].bid.name = claim->name;
        flights[i].bid.token = claim->token;
        flights[i].bid.hint = true;
    }
    dibs__quorum_mutex_lock(&q->mutex);
    claim->flights = flights; /* only the thread that asks or releases makes them */
    dibs__quorum_mutex_unlock(&q->mutex);
    return true;
}

void dibs__claim_use(struct dibs__quorum *q, struct dibs__claim *claim)
{
    dibs__quorum_mutex_lock(&q->mutex);
    claim->users++;
    dibs__quorum_mutex_unlock(&q->mutex);
}

void dibs__claim_leave(struct dibs__quorum *q, struct dibs__claim *claim)
{
    struct dibs__flight *flights = NULL;

    dibs__quorum_mutex_lock(&q->mutex);
    DIBS__REQUIRE(claim->users > 0);
    bool needed = --claim->users > 0 || claim->state == DIBS__CLAIM_ASKED;
    for (size_t i = 0; i < q->count && !needed; i++)
        needed = claim->parts[i].has_bid || (claim->flights && claim->flights[i].detached);
    if (!needed) {
        flights = claim->flights;
        claim->flights = NULL;
    }
    dibs__quorum_mutex_unlock(&q->mutex);
    free(flights);
}

bool dibs__claim_end(struct dibs__quorum *q, struct dibs__claim *claim)
{
    if (claim->state == DIBS__CLAIM_ENDED)
        return false;
    claim->state = DIBS__CLAIM_ENDED;
    struct dibs__claim **at = bucket_of(q, claim->hash);
    while (*at != claim)
        at = &(*at)->next;
    *at = claim->next;
    q->claim_count--;
    return true;
}

void dibs__claim_unref(struct dibs__quorum *q, struct dibs__claim *claim)
{
    dibs__quorum_mutex_lock(&q->mutex);
    DIBS__REQUIRE(claim->references > 0);
    bool last = --claim->references == 0;
    struct dibs__flight *flights = last ? claim->flights : NULL;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (!last)
        return;
    free(flights);
    free(claim);
}

void dibs__claims_free(struct dibs__quorum *q)
{
    dibs__quorum_mutex_lock(&q->mutex);
    for (size_t i = 0; i < q->bucket_count; i++)
        for (struct dibs__claim *claim = q->buckets[i], *next; claim; claim = next) {
            next = claim->next;
            free(claim->flights);
            free(claim);
        }
    free(q->buckets);
    q->buckets = NULL;
    dibs__quorum_mutex_unlock(&q->mutex);
}
