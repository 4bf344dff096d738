#include "core/tokens.h"

#include <stdlib.h>

_Static_assert((DIBS__TOKENS_FEW & (DIBS__TOKENS_FEW - 1)) == 0, "a token falls to a bucket by bits of its sequence");

static size_t bucket_count(const struct dibs__tokens *tokens)
{
    return tokens->many ? tokens->many_count : DIBS__TOKENS_FEW;
}

/* Tokens come one after another, and leases fall to shards by their names: the sequence needs no hash. */
static struct dibs__lease **bucket(struct dibs__tokens *tokens, uint64_t sequence)
{
    return &(tokens->many ? tokens->many : tokens->few)[sequence & (bucket_count(tokens) - 1)];
}

static void chain(struct dibs__tokens *tokens, struct dibs__lease *lease) DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__lease **at = bucket(tokens, lease->token.sequence);

    lease->asker->chain = *at;
    *at = lease;
}

/* `count`: a power of two, at least DIBS__TOKENS_FEW. Without memory for so many buckets all stays as it is. */
static void resize(struct dibs__tokens *tokens, size_t count) DIBS__REQUIRES(dibs__shard_mutex)
{
    DIBS__REQUIRE(count >= DIBS__TOKENS_FEW && (count & (count - 1)) == 0);

    struct dibs__tokens old = *tokens;
    struct dibs__lease **many = count > DIBS__TOKENS_FEW ? calloc(count, sizeof(struct dibs__lease *)) : NULL;

    if (count > DIBS__TOKENS_FEW && !many)
        return;
    *tokens = (struct dibs__tokens){.many = many, .many_count = many ? count : 0, .count = old.count};
    for (size_t i = 0; i < bucket_count(&old); i++) {
        for (struct dibs__lease *lease = (old.many ? old.many : old.few)[i], *next; lease; lease = next) {
            next = lease->asker->chain;
            chain(tokens, lease);
        }
    }
    free(old.many);
}

void dibs__tokens_put(struct dibs__tokens *tokens, struct dibs__lease *lease)
{
    if (tokens->count >= bucket_count(tokens))
        resize(tokens, bucket_count(tokens) * 2);
    chain(tokens, lease);
    tokens->count++;
}

void dibs__tokens_take_out(struct dibs__tokens *tokens, struct dibs__lease *lease)
{
    struct dibs__lease **at = bucket(tokens, lease->token.sequence);

    DIBS__REQUIRE(tokens->count > 0);
    while (*at != lease)
        at = &(*at)->asker->chain;
    *at = lease->asker->chain;
    tokens->count--;
    if (tokens->many && tokens->count <= tokens->many_count / 8)
        resize(tokens, tokens->count > 0 ? tokens->many_count / 2 : DIBS__TOKENS_FEW);
}

struct dibs__lease *dibs__tokens_find(const struct dibs__tokens *tokens, uint64_t sequence)
{
    struct dibs__lease *lease = (tokens->many ? tokens->many : tokens->few)[sequence & (bucket_count(tokens) - 1)];

    while (lease && lease->token.sequence != sequence)
        lease = lease->asker->chain;
    return lease;
}
