#include "core/lease.h"

#include <stdlib.h>
#include <string.h>

struct dibs__lease *dibs__lease_new(uint64_t runtime, const char *name, size_t name_size, size_t token_size)
{
    DIBS__REQUIRE(name_size > 0 && name_size <= DIBS_NAME_MAX);
    DIBS__REQUIRE(token_size > 0 && token_size <= DIBS__TOKEN_MAX);
    struct dibs__lease *lease = calloc(1, sizeof *lease + name_size + 1);
    struct dibs__asker *asker = calloc(1, sizeof *asker + token_size);

    if (!lease || !asker) {
        free(lease);
        free(asker);
        return NULL;
    }
    atomic_init(&lease->references, 1);
    atomic_init(&lease->steps, DIBS__FENCE_STEPS - 1);
    atomic_init(&lease->keeping.look_at, DIBS__NEVER);
    atomic_init(&lease->keeping.use, DIBS__USE_HELD);
    lease->runtime = runtime;
    lease->asker = asker;
    lease->name_size = (uint16_t)name_size;
    memcpy(lease->name, name, name_size);
    return lease;
}

void dibs__lease_ref(struct dibs__lease *lease)
{
    DIBS__REQUIRE(atomic_load(&lease->references) > 0);
    atomic_fetch_add_explicit(&lease->references, 1, memory_order_relaxed);
}

/* Unanalysed: once the last reference is gone, no other thread can look at what the renewals' mutex guards. */
void dibs__lease_unref(struct dibs__lease *lease) DIBS__UNANALYSED
{
    if (!lease)
        return;
    DIBS__REQUIRE(atomic_load(&lease->references) > 0);
    if (atomic_fetch_sub_explicit(&lease->references, 1, memory_order_acq_rel) != 1)
        return;
    DIBS__REQUIRE(!atomic_load(&lease->loss));
    free(lease->asker);
    free(lease->renewal_state.extending);
    free(lease);
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
