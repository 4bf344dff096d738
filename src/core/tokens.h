/*
 * Leases by their tokens: where a grant that the store made by itself finds its
 * attempt. The chains run through the leases (bid.chain), and the first buckets
 * are part of the table, so a lease can always be put in: without memory for
 * more buckets only the chains get longer.
 *
 * A table has no mutex of its own: who uses it holds the one that guards it.
 */
#ifndef DIBS_CORE_TOKENS_H
#define DIBS_CORE_TOKENS_H

#include "core/lease.h"

#define DIBS__TOKENS_FEW 8

/* All zero: an empty table. */
struct dibs__tokens {
    struct dibs__lease *few[DIBS__TOKENS_FEW]; /* the buckets as long as there are no others */
    struct dibs__lease **many;                 /* NULL: there are no others */
    size_t many_count;                         /* a power of two, or 0 */
    size_t count;                              /* of the leases */
};

/* Without a reference: the caller's must last until the lease is taken out. The token stays the same meanwhile. */
void dibs__tokens_put(struct dibs__tokens *tokens, struct dibs__lease *lease);

/* The lease must be in it. An empty table has no memory of its own. */
void dibs__tokens_take_out(struct dibs__tokens *tokens, struct dibs__lease *lease);

/* NULL: no lease in it has that token. */
struct dibs__lease *dibs__tokens_find(const struct dibs__tokens *tokens, const char *token);

#endif
