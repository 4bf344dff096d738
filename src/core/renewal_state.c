#include "core/renewal_state.h"

#define RETRY_LEAST_MS 5 /* a failed renewal is tried again after a 20th of the lease, within these bounds */
#define RETRY_MOST_MS 1000
#define EXTEND_RETRY_MS 10 /* a failed extension is tried again sooner, because a thread waits for it */
#define ALONG 8            /* a renewal is sent earlier by this part of its period if the lease is looked at then */
#define MOMENT 1024        /* a lease is looked at earlier than necessary by this part of its length at most */

/* -------------------------------------------------------------------- times */

/* The time from a grant or renewal until the next renewal is sent. */
static int64_t period(const struct dibs__lease *lease, uint32_t lease_ms) DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t third = lease_ms * DIBS__NS_PER_MS / 3;
    int64_t wanted = lease->renewal_state.renew_ms * DIBS__NS_PER_MS;

    return wanted > 0 && wanted < third ? wanted : third;
}

static int64_t retry_pause(uint32_t lease_ms)
{
    int64_t ms = lease_ms / 20;

    ms = ms < RETRY_LEAST_MS ? RETRY_LEAST_MS : ms > RETRY_MOST_MS ? RETRY_MOST_MS : ms;
    return ms * DIBS__NS_PER_MS;
}

/* The time for which a renewal surely makes a lease last: an extension that may still arrive may cut it short. */
static uint32_t sure_ms(uint32_t lease_ms, uint32_t pending_extension_ms)
{
    return pending_extension_ms > 0 && pending_extension_ms < lease_ms ? pending_extension_ms : lease_ms;
}

/* Whether the store must still be told of the use of a lease that may be kept, or must make more fences sure. */
static bool is_to_tell(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease->token.keeps &&
           (lease->renewal_state.use != lease->renewal_state.known_use || atomic_load(&lease->keeping.raise));
}

/* The length of the lease, unless a request that is under way cuts it short. */
static uint32_t length_of(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease->renewal_state.kept_ms > 0 ? lease->renewal_state.kept_ms : lease->renewal_state.lease_ms;
}

/* The part of it that is sure. */
static uint32_t sure_length_of(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return sure_ms(length_of(lease), lease->renewal_state.pending_extension_ms);
}

/* Whether the next renewal of the lease will be an extension. */
static bool is_to_extend(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease->renewal_state.extending && lease->renewal_state.extending->extension.state == DIBS__EXTENSION_ASKED;
}

/* When a failed renewal is tried again: before the deadline, even if an extension may have cut the lease short. */
static int64_t retry_at(const struct dibs__lease *lease, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t pause = retry_pause(sure_length_of(lease));
    int64_t left = (atomic_load(&lease->deadline) - now) / 3, least = RETRY_LEAST_MS * DIBS__NS_PER_MS;

    return now + (left >= pause ? pause : left > least ? left : least);
}

/* The lease was confirmed by a request that was about to be sent at proof. */
static void set_times(struct dibs__lease *lease, int64_t proof) DIBS__REQUIRES(dibs__renewals_mutex)
{
    uint32_t sure = sure_length_of(lease);

    lease->renewal_state.renew_at = lease->fixed ? DIBS__NEVER : proof + period(lease, sure);
    lease->renewal_state.risk_at = lease->fixed ? DIBS__NEVER : proof + sure * DIBS__NS_PER_MS / 2;
}

void dibs__renewal_state_begin(struct dibs__lease *lease, uint32_t lease_ms, int64_t proof,
                               const struct dibs__lease_store_state *store_state, uint32_t renew_ms)
{
    DIBS__REQUIRE(lease_ms > 0);
    lease->renewal_state.lease_ms = lease_ms;
    lease->renewal_state.renew_ms = renew_ms;
    lease->renewal_state.store_state = *store_state;
    lease->renewal_state.look_at = lease->renewal_state.kept_at = DIBS__NEVER;
    lease->renewal_state.use = (enum dibs__use)atomic_load(&lease->keeping.use);
    lease->renewal_state.known_use = DIBS__USE_HELD;
    set_times(lease, proof);
}

void dibs__renewal_state_doubt(struct dibs__lease *lease)
{
    lease->renewal_state.unconfirmed = true;
    lease->renewal_state.renew_at = 0;
}

/*
 * Requests tell of the use that was read here, so it always belongs to the length that they ask for. If there is no
 * memory to note that the shortening was not answered, the lease is not shortened.
 */
void dibs__renewal_state_use_changed(struct dibs__lease *lease, uint32_t kept_ms)
{
    struct dibs__renewal_state *state = &lease->renewal_state;

    state->use = (enum dibs__use)atomic_load(&lease->keeping.use);
    state->kept_at = atomic_load(&lease->keeping.look_at);
    state->kept_ms = state->use == DIBS__USE_KEPT && state->extending && kept_ms < state->lease_ms ? kept_ms : 0;
    if (atomic_exchange(&lease->keeping.tell, false))
        state->known_use = DIBS__USE_UNTOLD;
    if (is_to_tell(lease))
        state->renew_at = 0;
}

bool dibs__renewal_state_awaits_hint(const struct dibs__lease *lease)
{
    return lease->renewal_state.watch_at == DIBS__NEVER && !lease->renewal_state.in_flight;
}

/*
 * The lock may have changed: a renewal finds out. A shared lock is only looked at, because a renewal would change its
 * key, so that the other holders would be told and renew as well, and so on.
 */
static void look_at_change(struct dibs__lease *lease, int64_t when) DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t *at = lease->shared ? &lease->renewal_state.look_at : &lease->renewal_state.renew_at;

    *at = dibs__earlier(*at, when);
}

/* A lock that is not watched yet is looked at anyway before it is watched. */
void dibs__renewal_state_hint(struct dibs__lease *lease, int64_t when)
{
    if (lease->renewal_state.watch_at != DIBS__NEVER)
        return;
    lease->renewal_state.changed = lease->renewal_state.in_flight;
    if (!lease->renewal_state.in_flight)
        look_at_change(lease, when);
}

int64_t dibs__renewal_state_plan(const struct dibs__lease *lease, int64_t other)
{
    int64_t due = atomic_load(&lease->deadline); /* LOST is 0, which is due at once */

    if (lease->renewal_state.use != DIBS__USE_KEPT)
        due = dibs__earlier(due, lease->renewal_state.risk_at);
    if (!lease->renewal_state.in_flight)
        due = dibs__earlier(due, dibs__earlier(lease->renewal_state.renew_at, lease->renewal_state.look_at));
    if (other < due && due - other <= lease->renewal_state.lease_ms * DIBS__NS_PER_MS / MOMENT)
        due = other;
    if (!lease->renewal_state.in_flight)
        due = dibs__earlier(due, lease->renewal_state.watch_at);
    return dibs__earlier(due, lease->renewal_state.kept_at);
}

bool dibs__renewal_state_is_to_watch(const struct dibs__lease *lease, int64_t now)
{
    return !lease->renewal_state.in_flight && now >= lease->renewal_state.watch_at;
}

static bool is_to_renew(const struct dibs__lease *lease, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t renew_at = lease->renewal_state.renew_at;

    if (renew_at == DIBS__NEVER)
        return false;
    if (!lease->renewal_state.failed)
        renew_at -= period(lease, sure_length_of(lease)) / ALONG;
    return now >= renew_at;
}

bool dibs__renewal_state_is_due(const struct dibs__lease *lease, int64_t now)
{
    return !lease->renewal_state.in_flight && (now >= lease->renewal_state.look_at || is_to_renew(lease, now));
}

/* ------------------------------------------------------------------- sending */

/* The lease may be as short as that from now on, if the request that is about to be sent shortens it. */
static void may_shorten(struct dibs__lease *lease, uint32_t lease_ms, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t *risk_at = &lease->renewal_state.risk_at;

    dibs__lease_move(lease, dibs__lease_deadline(now, lease_ms), true, now);
    if (*risk_at != DIBS__NEVER)
        *risk_at = dibs__earlier(*risk_at, now + lease_ms * DIBS__NS_PER_MS / 2);
}

/* Begins the extension that was asked for, and returns its length. */
static uint32_t send_extension(struct dibs__lease *lease, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex)
{
    uint32_t lease_ms = lease->renewal_state.extending->extension.lease_ms;

    dibs__extension_send(&lease->renewal_state.extending->extension);
    may_shorten(lease, lease_ms, now);
    return lease_ms;
}

/* Shortens a kept lease as an extension would: here first, and then in the store. */
static uint32_t shorten(struct dibs__lease *lease, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex)
{
    may_shorten(lease, lease->renewal_state.kept_ms, now);
    return lease->renewal_state.kept_ms;
}

/*
 * Adds what the store is told of the use of a lease that may be kept, and the fence up to which its steps must be sure.
 * A server that has not confirmed the lease yet is told all of it again.
 */
static void add_use(struct dibs__lease *lease, struct dibs__renewal *item) DIBS__REQUIRES(dibs__renewals_mutex)
{
    item->fence = dibs__lease_top_fence(lease);
    if (!lease->token.keeps || (!is_to_tell(lease) && !lease->renewal_state.unconfirmed))
        return;
    item->use = lease->renewal_state.use;
    lease->renewal_state.known_use = DIBS__USE_UNTOLD; /* until the request is answered */
    if (atomic_load(&lease->keeping.raise))
        item->fence += DIBS__RAISE;
}

void dibs__renewal_state_send(struct dibs__lease *lease, const char *token, struct dibs__renewal *item, int64_t now)
{
    bool extension = is_to_extend(lease);
    bool cuts = !extension && lease->renewal_state.kept_ms > 0 && lease->renewal_state.known_use != DIBS__USE_KEPT;

    DIBS__REQUIRE(!lease->renewal_state.in_flight);
    *item = (struct dibs__renewal){
        .name = lease->name,
        .token = token,
        .lease_ms = extension      ? send_extension(lease, now)
                    : cuts         ? shorten(lease, now)
                    : lease->fixed ? (uint32_t)dibs__lease_remaining_ms(lease, now) + 1
                                   : length_of(lease),
        .extension = extension || cuts,
        .fixed = lease->fixed && !extension,
        .look = lease->shared && !extension && !is_to_renew(lease, now),
        .store_state = lease->renewal_state.store_state,
        .pending_extension_ms = lease->renewal_state.pending_extension_ms,
        .context = lease,
    };
    add_use(lease, item);
    if (item->pending_extension_ms > 0)
        item->pending_extension = lease->renewal_state.extending->pending_extension;
    lease->renewal_state.look_at = DIBS__NEVER;
    lease->renewal_state.in_flight = true;
}

/*
 * Sets when to send the next renewal after one that failed, or could not be sent. A fixed lease needs none, unless it
 * is unconfirmed, or a message may have asked for it: `asked`.
 */
static void retry(struct dibs__lease *lease, int64_t now, bool asked) DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (is_to_extend(lease))
        lease->renewal_state.renew_at = dibs__after_ms(now, EXTEND_RETRY_MS);
    else
        lease->renewal_state.renew_at =
            lease->fixed && !lease->renewal_state.unconfirmed && !asked ? DIBS__NEVER : retry_at(lease, now);
}

void dibs__renewal_state_put_off(struct dibs__lease *lease, int64_t now)
{
    struct dibs__renewal_state *state = &lease->renewal_state;

    if (state->look_at <= now)
        state->look_at = now + retry_pause(state->lease_ms);
    if (state->renew_at <= now)
        retry(lease, now, true);
}

void dibs__renewal_state_leave_extension(struct dibs__lease *lease)
{
    bool is_over = dibs__extension_leave(&lease->renewal_state.extending->extension);

    if (is_over && lease->fixed && !lease->renewal_state.unconfirmed && !lease->renewal_state.paced)
        lease->renewal_state.renew_at = DIBS__NEVER;
}

/* ---------------------------------------------------------- what the store said */

bool dibs__renewal_state_land(struct dibs__lease *lease, const struct dibs__renewal *item)
{
    DIBS__REQUIRE(lease->renewal_state.in_flight);
    lease->renewal_state.in_flight = false;
    if (!lease->renewal_state.unconfirmed || item->look)
        return false;
    lease->renewal_state.unconfirmed = item->result == DIBS__UNANSWERED;
    lease->renewal_state.may_come_back = lease->renewal_state.may_come_back || lease->renewal_state.unconfirmed;
    return true;
}

/* Whether the store renewed the lease, but an extension that may still arrive may undo the renewal. */
static bool is_unsure(const struct dibs__renewal *item)
{
    return item->result == DIBS__RENEWED && sure_ms(item->lease_ms, item->pending_extension_ms) < item->lease_ms;
}

/* True: the extension pends no longer. Otherwise none was sent, or it must be sent again. */
static bool end_extension(struct dibs__lease *lease, const struct dibs__renewal *item, dibs_status status)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__extending *extending = lease->renewal_state.extending;
    enum dibs__extension_answer answer = DIBS__EXTENSION_ANSWERED;

    if (!extending)
        return false;
    lease->renewal_state.pending_extension_ms = item->pending_extension_ms;
    extending->pending_extension = item->pending_extension;
    status = item->status != DIBS_OK ? item->status : status;
    if (item->result == DIBS__UNANSWERED && (status == DIBS_UNAVAILABLE || status == DIBS_OK))
        answer = DIBS__EXTENSION_UNANSWERED;
    else if (is_unsure(item))
        answer = DIBS__EXTENSION_UNSURE;
    status = item->result == DIBS__RENEWED ? DIBS_OK : status;
    if (!dibs__extension_answer(&extending->extension, answer, status))
        return false;
    if (item->result == DIBS__RENEWED)
        lease->renewal_state.lease_ms = item->lease_ms;
    return true;
}

/* The lease was renewed by a request that was about to be sent at proof. */
static void prolong(struct dibs__lease *lease, const struct dibs__renewal *item, int64_t proof, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    uint32_t sure = sure_ms(item->lease_ms, item->pending_extension_ms);
    bool changed = lease->renewal_state.changed;

    lease->renewal_state.failed = lease->renewal_state.changed = false;
    if (item->extension || !lease->fixed)
        dibs__lease_move(lease, dibs__lease_deadline(proof, sure), false, now);
    set_times(lease, proof);
    if (changed)
        look_at_change(lease, 0);
    if (!is_to_extend(lease))
        return;
    if (item->extension && is_unsure(item)) { /* in time to keep what is sure, or once all of it is sure */
        lease->renewal_state.renew_at = dibs__earlier(dibs__after_ms(now, item->again_ms), proof + period(lease, sure));
    } else {
        lease->renewal_state.renew_at = 0; /* the extension was asked for while this renewal was in flight */
    }
}

/* The lock was looked at because of a change. If it is still the token's, nothing has changed. */
static void take_look(struct dibs__lease *lease, const struct dibs__renewal *item, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    bool again = lease->renewal_state.changed;

    lease->renewal_state.changed = false;
    if (item->result == DIBS__UNANSWERED)
        lease->renewal_state.look_at = now + retry_pause(lease->renewal_state.lease_ms);
    else if (again)
        lease->renewal_state.look_at = 0;
}

/*
 * The store was told of the use, and has the fence, so the steps up to that fence belong to the lease. If the store
 * could not raise the fence, more steps are asked for when they are needed.
 */
static void take_use(struct dibs__lease *lease, const struct dibs__renewal *item) DIBS__REQUIRES(dibs__renewals_mutex)
{
    unsigned steps = (unsigned)((item->fence - lease->store_fence + 1) * DIBS__FENCE_STEPS - 1);

    lease->renewal_state.known_use = item->use;
    if (item->fence <= dibs__lease_top_fence(lease))
        return;
    if (item->raised)
        atomic_store_explicit(&lease->steps, steps, memory_order_release);
    atomic_store(&lease->keeping.raise, false);
}

bool dibs__renewal_state_take_result(struct dibs__lease *lease, const struct dibs__renewal *item, int64_t proof,
                                     dibs_status status, int64_t now)
{
    DIBS__REQUIRE(!lease->renewal_state.in_flight && item->result != DIBS__GONE);
    if (item->look) {
        take_look(lease, item, now);
        return false;
    }
    lease->renewal_state.store_state = item->store_state;
    bool extended = end_extension(lease, item, status);
    if (item->result == DIBS__RENEWED) {
        if (item->use != DIBS__USE_UNTOLD)
            take_use(lease, item);
        prolong(lease, item, proof, now);
        if (is_to_tell(lease))
            lease->renewal_state.renew_at = 0;
    } else {
        lease->renewal_state.failed = true;
        retry(lease, now, !item->extension);
    }
    return extended;
}
