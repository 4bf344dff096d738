#include "core/lease.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------- memory */

struct block {
    void *memory; /* NULL: there is none */
    size_t size;
};

/* The lease and the asker that the calling thread freed last: for its next, so that an acquire needs no memory. */
static _Thread_local struct spare {
    bool keeps;
    struct block lease, asker;
} spare;

void dibs__lease_keep_spare(void)
{
#ifndef DIBS_CHECKED /* where it is defined, sanitizers must notice the use of what was freed */
    spare.keeps = true;
#endif
}

void dibs__lease_free_spare(void)
{
    free(spare.lease.memory);
    free(spare.asker.memory);
    spare = (struct spare){.keeps = false};
}

static void *take_block(struct block *block, size_t size)
{
    void *memory = block->memory;

    if (!memory || block->size < size)
        return malloc(size);
    block->memory = NULL;
    return memory;
}

static void leave_block(struct block *block, void *memory, size_t size)
{
    if (!spare.keeps || !memory || (block->memory && block->size >= size)) {
        free(memory);
        return;
    }
    free(block->memory);
    *block = (struct block){memory, size};
}

static size_t asker_size(size_t token_size)
{
    return sizeof(struct dibs__asker) + token_size;
}

static size_t lease_size(size_t name_size)
{
    return sizeof(struct dibs__lease) + name_size + 1;
}

void dibs__asker_free(struct dibs__asker *asker)
{
    if (asker)
        leave_block(&spare.asker, asker, asker_size(asker->token_size));
}

struct dibs__lease *dibs__lease_new(uint64_t runtime, const char *name, size_t name_size, size_t token_size)
{
    DIBS__REQUIRE(name_size > 0 && name_size <= DIBS_NAME_MAX);
    DIBS__REQUIRE(token_size > 0 && token_size <= DIBS__TOKEN_MAX);
    struct dibs__lease *lease = take_block(&spare.lease, lease_size(name_size));
    struct dibs__asker *asker = take_block(&spare.asker, asker_size(token_size));

    if (!lease || !asker) {
        free(lease);
        free(asker);
        return NULL;
    }
    memset(lease, 0, sizeof *lease);
    memset(asker, 0, sizeof *asker);
    atomic_init(&lease->references, 1);
    atomic_init(&lease->steps, DIBS__FENCE_STEPS - 1);
    atomic_init(&lease->keeping.look_at, DIBS__NEVER);
    atomic_init(&lease->keeping.use, DIBS__USE_HELD);
    lease->runtime = runtime;
    lease->asker = asker;
    lease->name_size = (uint16_t)name_size;
    memcpy(lease->name, name, name_size);
    lease->name[name_size] = '\0';
    asker->token_size = (uint16_t)token_size;
    asker->token[0] = '\0';
    return lease;
}

void dibs__lease_ref(struct dibs__lease *lease)
{
    DIBS__REQUIRE(atomic_load(&lease->references) > 0);
    atomic_fetch_add_explicit(&lease->references, 1, memory_order_relaxed);
}

/* Unanalysed: with the last reference no other thread can look at what the renewals' mutex guards. */
void dibs__lease_unref(struct dibs__lease *lease) DIBS__UNANALYSED
{
    if (!lease)
        return;
    DIBS__REQUIRE(atomic_load(&lease->references) > 0);
    if (atomic_fetch_sub_explicit(&lease->references, 1, memory_order_acq_rel) != 1)
        return;
    DIBS__REQUIRE(!atomic_load(&lease->loss));
    dibs__asker_free(lease->asker);
    free(lease->renewal_state.extending);
    leave_block(&spare.lease, lease, lease_size(lease->name_size));
}

int64_t dibs__lease_deadline(int64_t proof, uint32_t lease_ms)
{
    int64_t lease = lease_ms * DIBS__NS_PER_MS;

    return proof + lease - lease / 100 - 2 * DIBS__NS_PER_MS;
}

void dibs__lease_lose(struct dibs__lease *lease)
{
    atomic_store(&lease->deadline, DIBS__LEASE_LOST);
}

bool dibs__lease_move(struct dibs__lease *lease, int64_t deadline, bool earlier_only, int64_t now)
{
    int64_t old = atomic_load(&lease->deadline);

    DIBS__REQUIRE(deadline != DIBS__LEASE_LOST);
    do {
        if (old == DIBS__LEASE_LOST || dibs__lease_is_lost(lease, now))
            return false;
        if (earlier_only && old <= deadline)
            return true;
    } while (!atomic_compare_exchange_weak(&lease->deadline, &old, deadline));
    return true;
}

uint64_t dibs__lease_fence(const struct dibs__lease *lease)
{
    return lease->store_fence * DIBS__FENCE_STEPS + atomic_load_explicit(&lease->step, memory_order_relaxed);
}

uint64_t dibs__lease_top_fence(const struct dibs__lease *lease)
{
    return lease->store_fence + atomic_load(&lease->steps) / DIBS__FENCE_STEPS;
}

uint32_t dibs__lease_longest_ms(const struct dibs__lease *lease)
{
    uint32_t extended_ms = atomic_load_explicit(&lease->extended_ms, memory_order_relaxed);

    return extended_ms > lease->asked_ms ? extended_ms : lease->asked_ms;
}

int64_t dibs__lease_remaining_ms(struct dibs__lease *lease, int64_t now)
{
    int64_t deadline = atomic_load_explicit(&lease->deadline, memory_order_acquire);

    return deadline == DIBS__LEASE_LOST || now >= deadline ? 0 : (deadline - now) / DIBS__NS_PER_MS;
}
