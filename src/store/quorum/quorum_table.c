/* The table of claims, by token. Lock discipline: quorum_parts.h. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "store/quorum/quorum_parts.h"

static int compare_tokens(const void *one, const void *other)
{
    return strcmp(((const struct dibs__claim *)one)->token, ((const struct dibs__claim *)other)->token);
}

/* The claim is in no table, and has no reference. NULL: no memory. */
static struct dibs__claim *new_claim(struct dibs__quorum *q, const char *name, const char *token, uint32_t lease_ms)
{
    size_t name_size = strlen(name) + 1, token_size = strlen(token) + 1;
    size_t states = q->count * sizeof(struct dibs__member_state), ops = q->count * sizeof(struct dibs__pending_op);
    struct dibs__claim *claim = calloc(1, sizeof *claim + states + ops + name_size + token_size);

    if (!claim)
        return NULL;
    claim->ops = (struct dibs__pending_op *)((char *)(claim + 1) + states);
    claim->name = memcpy(claim->ops + q->count, name, name_size);
    claim->token = memcpy((char *)(claim->ops + q->count) + name_size, token, token_size);
    atomic_init(&claim->longest_ms, lease_ms);
    for (size_t i = 0; i < q->count; i++) {
        claim->ops[i].member = &q->members[i];
        claim->ops[i].claim = claim;
        claim->ops[i].attempt.name = claim->name;
        claim->ops[i].attempt.token = claim->token;
    }
    return claim;
}

struct dibs__claim *dibs__claim_new(struct dibs__quorum *q, const struct dibs__attempt *attempt)
{
    struct dibs__claim *claim = new_claim(q, attempt->name, attempt->token, attempt->lease_ms);

    if (!claim)
        return NULL;
    dibs__quorum_mutex_lock(&q->mutex);
    claim->references = 1;
    struct dibs__claim **node = tsearch(claim, &q->claims, compare_tokens);
    DIBS__REQUIRE(!node || *node == claim);
    dibs__quorum_mutex_unlock(&q->mutex);
    if (node)
        return claim;
    free(claim);
    return NULL;
}

struct dibs__claim *dibs__claim_find(struct dibs__quorum *q, const char *token)
{
    const struct dibs__claim key = {.token = token};

    dibs__quorum_mutex_lock(&q->mutex);
    struct dibs__claim **node = tfind(&key, &q->claims, compare_tokens), *claim = node ? *node : NULL;
    if (claim)
        claim->references++;
    dibs__quorum_mutex_unlock(&q->mutex);
    return claim;
}

struct dibs__claim *dibs__claim_of_token(struct dibs__quorum *q, const char *name, const char *token, uint32_t lease_ms)
{
    struct dibs__claim *claim = dibs__claim_find(q, token);

    if (claim || !(claim = new_claim(q, name, token, lease_ms)))
        return claim;
    dibs__quorum_mutex_lock(&q->mutex);
    claim->references = 1;
    claim->state = DIBS__CLAIM_ENDED;
    for (size_t i = 0; i < q->count; i++)
        claim->states[i].phase = DIBS__MEMBER_GRANTED;
    dibs__quorum_mutex_unlock(&q->mutex);
    return claim;
}

bool dibs__claim_end(struct dibs__quorum *q, struct dibs__claim *claim)
{
    if (claim->state == DIBS__CLAIM_ENDED)
        return false;
    claim->state = DIBS__CLAIM_ENDED;
    tdelete(claim, &q->claims, compare_tokens);
    return true;
}

void dibs__claim_unref(struct dibs__quorum *q, struct dibs__claim *claim)
{
    dibs__quorum_mutex_lock(&q->mutex);
    DIBS__REQUIRE(claim->references > 0);
    bool last = --claim->references == 0;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (last)
        free(claim);
}

void dibs__claims_free(struct dibs__quorum *q)
{
    dibs__quorum_mutex_lock(&q->mutex);
    while (q->claims) {
        struct dibs__claim *claim = *(struct dibs__claim **)q->claims;
        tdelete(claim, &q->claims, compare_tokens);
        free(claim);
    }
    dibs__quorum_mutex_unlock(&q->mutex);
}
