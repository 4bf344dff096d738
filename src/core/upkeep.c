#include "core/upkeep.h"

#define RETRY_LEAST_MS 5 /* a failed renewal is tried again after a 20th of the lease, within these bounds */
#define RETRY_MOST_MS 1000
#define EXTEND_RETRY_MS 10 /* sooner, because a thread waits for an extension */
#define ALONG 8            /* a renewal is sent earlier by this part of its period if the lease is looked at then */
#define MOMENT 1024        /* a lease is looked at sooner than need be by this part of its length at most */

/* -------------------------------------------------------------------- times */

/* How long after a grant or renewal the next one is sent. */
static int64_t period(uint32_t renew_ms, uint32_t lease_ms)
{
    int64_t third = lease_ms * DIBS__NS_PER_MS / 3;
    int64_t wanted = renew_ms * DIBS__NS_PER_MS;

    return wanted > 0 && wanted < third ? wanted : third;
}

static int64_t retry_pause(uint32_t lease_ms)
{
    int64_t ms = lease_ms / 20;

    ms = ms < RETRY_LEAST_MS ? RETRY_LEAST_MS : ms > RETRY_MOST_MS ? RETRY_MOST_MS : ms;
    return ms * DIBS__NS_PER_MS;
}

/* How long a renewal makes a lease last for sure: an extension that may still arrive may cut the lease short. */
static uint32_t sure_ms(uint32_t lease_ms, uint32_t cut_ms)
{
    return cut_ms > 0 && cut_ms < lease_ms ? cut_ms : lease_ms;
}

static uint32_t cut_ms_of(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease->upkeep.extending ? lease->upkeep.extending->cut_ms : 0;
}

/* Whether the next renewal of the lease is to be an extension. */
static bool is_to_extend(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease->upkeep.extending && lease->upkeep.extending->extension.state == DIBS__EXTENSION_ASKED;
}

/* When a renewal that failed is tried again: before the deadline, also where an extension was to cut the lease. */
static int64_t retry_at(const struct dibs__lease *lease, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t pause = retry_pause(sure_ms(lease->upkeep.lease_ms, cut_ms_of(lease)));
    int64_t left = (atomic_load(&lease->deadline) - now) / 3, least = RETRY_LEAST_MS * DIBS__NS_PER_MS;

    return now + (left >= pause ? pause : left > least ? left : least);
}

/* The lease was confirmed by a request that was about to be sent at proof. */
static void set_times(struct dibs__lease *lease, int64_t proof, uint32_t renew_ms) DIBS__REQUIRES(dibs__renewals_mutex)
{
    uint32_t sure = sure_ms(lease->upkeep.lease_ms, cut_ms_of(lease));

    lease->upkeep.renew_at = lease->fixed ? DIBS__NEVER : proof + period(renew_ms, sure);
    lease->upkeep.risk_at = lease->fixed ? DIBS__NEVER : proof + sure * DIBS__NS_PER_MS / 2;
}

void dibs__upkeep_begin(struct dibs__lease *lease, uint32_t lease_ms, int64_t proof,
                        const struct dibs__lease_memo *memo, uint32_t renew_ms)
{
    DIBS__REQUIRE(lease_ms > 0);
    lease->upkeep.lease_ms = lease_ms;
    lease->upkeep.memo = *memo;
    lease->upkeep.look_at = DIBS__NEVER;
    set_times(lease, proof, renew_ms);
}

void dibs__upkeep_doubt(struct dibs__lease *lease)
{
    lease->upkeep.unproven = true;
    lease->upkeep.renew_at = 0;
}

void dibs__upkeep_watch(struct dibs__lease *lease, int64_t when)
{
    lease->upkeep.watch_at = when;
}

bool dibs__upkeep_awaits_hint(const struct dibs__lease *lease)
{
    return lease->upkeep.watch_at == DIBS__NEVER && !lease->upkeep.in_flight;
}

/*
 * The lock may have changed, and is to be looked at: by a renewal. Not where it
 * is shared: that would change the key, so that the others are told and renew as
 * well, and so on.
 */
static void look_at_change(struct dibs__lease *lease, int64_t when) DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t *at = lease->shared ? &lease->upkeep.look_at : &lease->upkeep.renew_at;

    if (when < *at)
        *at = when;
}

/* A lock that is not watched yet will be looked at before it is. */
void dibs__upkeep_hint(struct dibs__lease *lease, int64_t when)
{
    if (lease->upkeep.watch_at != DIBS__NEVER)
        return;
    lease->upkeep.changed = lease->upkeep.in_flight;
    if (!lease->upkeep.in_flight)
        look_at_change(lease, when);
}

int64_t dibs__upkeep_plan(const struct dibs__lease *lease, int64_t other)
{
    int64_t due = atomic_load(&lease->deadline); /* LOST is 0: at once */

    if (lease->upkeep.risk_at < due)
        due = lease->upkeep.risk_at;
    if (!lease->upkeep.in_flight && lease->upkeep.renew_at < due)
        due = lease->upkeep.renew_at;
    if (!lease->upkeep.in_flight && lease->upkeep.look_at < due)
        due = lease->upkeep.look_at;
    if (other < due && due - other <= lease->upkeep.lease_ms * DIBS__NS_PER_MS / MOMENT)
        due = other;
    if (!lease->upkeep.in_flight && lease->upkeep.watch_at < due)
        due = lease->upkeep.watch_at;
    return due;
}

bool dibs__upkeep_is_to_watch(const struct dibs__lease *lease, int64_t now)
{
    return !lease->upkeep.in_flight && now >= lease->upkeep.watch_at;
}

static bool is_to_renew(const struct dibs__lease *lease, int64_t now, uint32_t renew_ms)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t renew_at = lease->upkeep.renew_at;

    if (renew_at == DIBS__NEVER)
        return false;
    if (!lease->upkeep.failed)
        renew_at -= period(renew_ms, sure_ms(lease->upkeep.lease_ms, cut_ms_of(lease))) / ALONG;
    return now >= renew_at;
}

bool dibs__upkeep_is_due(const struct dibs__lease *lease, int64_t now, uint32_t renew_ms)
{
    return !lease->upkeep.in_flight && (now >= lease->upkeep.look_at || is_to_renew(lease, now, renew_ms));
}

/* ------------------------------------------------------------------- sending */

/* Begins the extension that was asked for, and returns its length. If it makes the lease shorter, it may do so now. */
static uint32_t send_extension(struct dibs__lease *lease, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex)
{
    uint32_t lease_ms = lease->upkeep.extending->extension.lease_ms;

    dibs__extension_send(&lease->upkeep.extending->extension);
    atomic_store_explicit(&lease->extended, true, memory_order_relaxed);
    dibs__lease_move(lease, dibs__lease_deadline(now, lease_ms), true, now);
    return lease_ms;
}

void dibs__upkeep_send(struct dibs__lease *lease, const char *token, struct dibs__renewal *item, int64_t now,
                       uint32_t renew_ms)
{
    bool extension = is_to_extend(lease);

    DIBS__REQUIRE(!lease->upkeep.in_flight);
    *item = (struct dibs__renewal){
        .name = lease->name,
        .token = token,
        .lease_ms = extension      ? send_extension(lease, now)
                    : lease->fixed ? (uint32_t)dibs__lease_remaining_ms(lease, now) + 1
                                   : lease->upkeep.lease_ms,
        .fence = lease->store_fence,
        .extension = extension,
        .look = lease->shared && !extension && !is_to_renew(lease, now, renew_ms),
        .memo = lease->upkeep.memo,
        .cut_ms = cut_ms_of(lease),
        .context = lease,
    };
    if (item->cut_ms > 0)
        item->cut = lease->upkeep.extending->cut;
    lease->upkeep.look_at = DIBS__NEVER;
    lease->upkeep.in_flight = true;
}

void dibs__upkeep_retry(struct dibs__lease *lease, int64_t now)
{
    if (is_to_extend(lease))
        lease->upkeep.renew_at = dibs__after_ms(now, EXTEND_RETRY_MS);
    else
        lease->upkeep.renew_at = lease->fixed && !lease->upkeep.unproven ? DIBS__NEVER : retry_at(lease, now);
}

void dibs__upkeep_leave_extension(struct dibs__lease *lease)
{
    bool is_over = dibs__extension_leave(&lease->upkeep.extending->extension);

    if (is_over && lease->fixed && !lease->upkeep.unproven && !lease->upkeep.paced)
        lease->upkeep.renew_at = DIBS__NEVER;
}

/* ---------------------------------------------------------- what the store said */

bool dibs__upkeep_land(struct dibs__lease *lease, const struct dibs__renewal *item)
{
    DIBS__REQUIRE(lease->upkeep.in_flight);
    lease->upkeep.in_flight = false;
    if (!lease->upkeep.unproven || item->look)
        return false;
    lease->upkeep.unproven = item->result == DIBS__UNANSWERED;
    lease->upkeep.may_come_back = lease->upkeep.may_come_back || lease->upkeep.unproven;
    return true;
}

/* Whether the store renewed the lease, but an extension that may still arrive may undo that. */
static bool is_unsure(const struct dibs__renewal *item)
{
    return item->result == DIBS__RENEWED && sure_ms(item->lease_ms, item->cut_ms) < item->lease_ms;
}

/* True: the extension is done. Otherwise none was sent, or it is to be sent again. */
static bool end_extension(struct dibs__lease *lease, const struct dibs__renewal *item, dibs_status status)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__extending *extending = lease->upkeep.extending;
    enum dibs__extension_answer answer = DIBS__EXTENSION_ANSWERED;

    if (!extending)
        return false;
    extending->cut_ms = item->cut_ms;
    extending->cut = item->cut;
    status = item->status != DIBS_OK ? item->status : status;
    if (item->result == DIBS__UNANSWERED && (status == DIBS_UNAVAILABLE || status == DIBS_OK))
        answer = DIBS__EXTENSION_UNANSWERED;
    else if (is_unsure(item))
        answer = DIBS__EXTENSION_UNSURE;
    status = item->result == DIBS__RENEWED ? DIBS_OK : status;
    if (!dibs__extension_answer(&extending->extension, answer, status))
        return false;
    if (item->result == DIBS__RENEWED)
        lease->upkeep.lease_ms = item->lease_ms;
    return true;
}

/* The lease was renewed by a request that was about to be sent at proof. */
static void prolong(struct dibs__lease *lease, const struct dibs__renewal *item, int64_t proof, int64_t now,
                    uint32_t renew_ms) DIBS__REQUIRES(dibs__renewals_mutex)
{
    uint32_t sure = sure_ms(item->lease_ms, item->cut_ms);

    bool changed = lease->upkeep.changed;

    lease->upkeep.failed = lease->upkeep.changed = false;
    if (item->extension || !lease->fixed)
        dibs__lease_move(lease, dibs__lease_deadline(proof, sure), false, now);
    set_times(lease, proof, renew_ms);
    if (changed)
        look_at_change(lease, 0);
    if (!is_to_extend(lease))
        return;
    if (item->extension && is_unsure(item)) { /* in time to keep what is sure, or when all of it will be */
        int64_t again = dibs__after_ms(now, item->again_ms), due = proof + period(renew_ms, sure);
        lease->upkeep.renew_at = again < due ? again : due;
    } else {
        lease->upkeep.renew_at = 0; /* the extension was asked for while this renewal was in flight */
    }
}

/* The lock was looked at because of a change: where it is still the token's, nothing has changed. */
static void take_look(struct dibs__lease *lease, const struct dibs__renewal *item, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    bool again = lease->upkeep.changed;

    lease->upkeep.changed = false;
    if (item->result == DIBS__UNANSWERED)
        lease->upkeep.look_at = now + retry_pause(lease->upkeep.lease_ms);
    else if (again)
        lease->upkeep.look_at = 0;
}

bool dibs__upkeep_take_result(struct dibs__lease *lease, const struct dibs__renewal *item, int64_t proof,
                              dibs_status status, int64_t now, uint32_t renew_ms)
{
    DIBS__REQUIRE(!lease->upkeep.in_flight && item->result != DIBS__GONE);
    if (item->look) {
        take_look(lease, item, now);
        return false;
    }
    lease->upkeep.memo = item->memo;
    bool extended = end_extension(lease, item, status);
    if (item->result == DIBS__RENEWED) {
        prolong(lease, item, proof, now, renew_ms);
    } else {
        lease->upkeep.failed = true;
        dibs__upkeep_retry(lease, now);
        if (!item->extension && lease->upkeep.renew_at == DIBS__NEVER) /* a message asked for it */
            lease->upkeep.renew_at = retry_at(lease, now);
    }
    return extended;
}
