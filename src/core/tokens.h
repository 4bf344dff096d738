/*
 * The leases that are asked for, by their tokens: so a grant that the store
 * made by itself finds its attempt. The chains run through the askers, and the first
 * buckets are part of the table, so there is always room for a lease: without
 * memory for more buckets only the chains get longer.
 *
 * A table has no mutex of its own: each belongs to a shard of cells, whose
 * mutex guards it.
 */
#ifndef DIBS_CORE_TOKENS_H
#define DIBS_CORE_TOKENS_H

#include "core/lease.h"

#define DIBS__TOKENS_FEW 8

/* All zero: an empty table. */
struct dibs__tokens {
    struct dibs__lease *few[DIBS__TOKENS_FEW]; /* the buckets, unless there are many */
    struct dibs__lease **many;                 /* the buckets; NULL: `few` are the buckets */
    size_t many_count;                         /* a power of two, or 0 */
    size_t count;                              /* of the leases */
};

/* Takes no reference: the caller's must last until the lease is taken out. The token and the asker stay meanwhile. */
void dibs__tokens_put(struct dibs__tokens *tokens, struct dibs__lease *lease) DIBS__REQUIRES(dibs__shard_mutex);

/* The lease must be in the table. An empty table has no memory of its own. */
void dibs__tokens_take_out(struct dibs__tokens *tokens, struct dibs__lease *lease) DIBS__REQUIRES(dibs__shard_mutex);

/* NULL: no lease in the table has a token of that sequence. */
struct dibs__lease *dibs__tokens_find(const struct dibs__tokens *tokens, uint64_t sequence)
    DIBS__REQUIRES(dibs__shard_mutex);

#endif
