/*
 * Leases that a process keeps after the last unlock: taken again without the store, recalled when another client asks.
 *
 * What is modelled
 *   The store: whose K is, the rest of its lease, F, and whether the other client is in the queue. A script is one step.
 *   One keeper, with one token after the other. It is granted the lock by an ask; after an unlock it releases the lock,
 *   or keeps the lease; it takes a kept lease again with the next fence; it gives one back because of a recall, because
 *   nobody used it for KEEP ticks, or because it has kept it for STRETCH: by a retraction, which comes to the store later.
 *   A lease that is kept is shortened to SHORT in the background, and renewed in full once it is taken again. Both are
 *   requests that also raise F; fences up to the raised one are used only after the answer. A request may run late, after
 *   its connection broke, but before the next request runs; its answer may be lost.
 *   One other client, without anything kept: it asks, waits in the queue, is granted the lock by what frees it, releases.
 *   Each ask that finds the keeper's token sends a recall. With TROUBLE recalls are lost, come twice and late (a recall
 *   comes when its lease is over, or is taken again), connections break, and the keeper dies.
 *
 * What is not modelled
 *   Pushes and the numbers of asks (queue.pml), what the server tells of changes (told.pml), and a store that forgets.
 *
 * Time
 *   As in queue.pml: ages that stop at the largest that matters; the margin is 0. Without PROMPT a tick may come between any
 *   two steps. With PROMPT a live client does what it has to do before the next tick, and holds for no whole tick.
 *
 * Properties
 *   EXCLUSION  the keeper and the other do not hold at the same time, each as it believes.
 *   FENCE      each hold has a larger fence than any before.
 *   SHORTENED  (PROMPT) what is kept for more than a tick lives in the store no longer than SHORT, so that is for how long
 *              a keeper that dies is in the way.
 *   SOON       (PROMPT) the other does not wait longer than: for one tick, where no recall is lost; for STRETCH + KEEP ticks.
 *
 * Faults; each breaks the property behind it (-DFAULT_...)
 *   DEADLINE_LATER  EXCLUSION  a lease is shortened in the store before the keeper's own deadline is
 *   TAKEN_LATE      EXCLUSION  a kept lease is taken again without a look at its deadline: after its loss
 *   TAKEN_RECALLED  EXCLUSION  a kept lease is taken again while its retraction is under way
 *   GUESSED_FENCE   FENCE      fences are used before the raise is answered
 *   NOT_SHORTENED   SHORTENED  a kept lease keeps its length: a dead keeper is in the way for a whole lease
 *   IGNORED         SOON       a recall does nothing
 *
 * Switches: PROMPT, TROUBLE, FAULT_..., PROPERTY=..., REACH=event.
 */

#define EXCLUSION 1
#define FENCE     2
#define SHORTENED 3
#define SOON      4

#define RETAKEN       1
#define RECALLED      2 /* a recall finds the lease kept */
#define RECALL_IN_USE 3
#define RECALL_LATE   4 /* the token is over */
#define RECALL_LOST   5
#define TAKEN_SHORT   6 /* taken again while it is short in the store */
#define RUN_LATE      7 /* a request whose connection broke */
#define UNANSWERED    8
#define KEEPER_DIED   9
#define IDLE          10
#define OLD_RECALL    11 /* its lease was taken again since */

#ifndef REACH
#define REACH 0
#endif
#ifdef PROPERTY
#define CHECK(property, condition) assert(PROPERTY != property || (condition))
#else
#define CHECK(property, condition) assert(condition)
#endif
#define EVENT(event) assert(REACH != event)

#define LEASE   4
#define SHORT   2
#define KEEP    1
#define STRETCH 3
#define STEPS   2 /* fences in one of the store's */
#define MOST_F  5 /* no grant and no raise beyond */

mtype:phase = { out, holding, kept, dead }
mtype:call = { none, shorten, renew }
mtype:owner = { nobody, keeper, keeper_before, other }

mtype:owner K = nobody;
byte ttl, F;
bool queued; /* the other is in the queue */

mtype:phase k = out; /* the keeper */
byte left;           /* of its lease, as it believes */
byte next, top;      /* the next fence of a hold, and the largest that it may use */
byte idle, stretch;  /* since the last unlock, since the grant */
bool recalled, is_short, to_renew, retracting;
mtype:call sent = none, answered = none, late = none;
byte target, age;    /* of the request under way: what F is raised to, and the time since it was sent */
bool was_done;       /* the answer says so */
bool recall;         /* under way to the present token */
bool stale;          /* it was sent before the lease was taken again */

mtype:phase o = out; /* the other: kept and dead never */
byte o_left, waited;
byte last;           /* the largest fence of a hold, and 1 */

#define k_valid (k == holding && left > 0)
#define o_valid (o == holding && o_left > 0)

inline begin_hold(fence) {
    CHECK(FENCE, fence + 1 > last);
    last = fence + 1;
    CHECK(EXCLUSION, !(k_valid && o_valid))
}

inline grant_other() {
    K = other;
    ttl = LEASE;
    F++;
    queued = false;
    o = holding;
    o_left = LEASE;
    waited = 0;
    begin_hold(F * STEPS)
}

inline free_and_serve() {
    K = nobody;
    ttl = 0;
    if
    :: queued && F < MOST_F -> grant_other()
    :: else -> queued = false
    fi
}

inline forget() {
    left = 0;
    idle = 0;
    stretch = 0;
    recalled = false;
    is_short = false;
    to_renew = false;
    sent = none;
    answered = none;
    late = none;
    was_done = false;
    target = 0;
    age = 0;
    recall = false;
    stale = false;
    next = 0;
    top = 0
}

inline end_token() {
    if
    :: recall -> EVENT(RECALL_LATE)
    :: else
    fi;
    forget()
}

inline give_back() {
#ifdef FAULT_TAKEN_RECALLED
    retracting = true
#else
    k = out;
    if
    :: K == keeper -> K = keeper_before; retracting = true
    :: else
    fi;
    end_token()
#endif
}

inline carry_out(what) {
    if
    :: K == keeper && what == shorten -> ttl = SHORT
    :: K == keeper && what == renew && ttl < LEASE -> ttl = LEASE
    :: else
    fi;
    was_done = (K == keeper);
    if
    :: K == keeper && F < target -> F = target
    :: else
    fi
}

inline send(what) {
    sent = what;
    answered = none;
    age = 0;
    target = (top / STEPS < MOST_F -> top / STEPS + 1 : top / STEPS);
#ifdef FAULT_GUESSED_FENCE
    top = target * STEPS + STEPS - 1
#endif
}

#ifdef FAULT_TAKEN_LATE
#define MAY_BE_TAKEN true
#else
#define MAY_BE_TAKEN (left > 0)
#endif

proctype Keeper() {
    do
    :: atomic {
        k == out && !retracting && K == nobody && F < MOST_F ->
        K = keeper;
        ttl = LEASE;
        F++;
        next = F * STEPS;
        top = next + STEPS - 1;
        left = LEASE;
        k = holding;
        begin_hold(next);
        next++
    }
    :: atomic {
        k == holding ->
        k = out;
        if
        :: K == keeper -> free_and_serve()
        :: else
        fi;
        end_token()
    }
    :: atomic { k == holding && left > 0 && !recalled && stretch < STRETCH -> k = kept; idle = 0 }
    :: atomic {
        k == kept && next <= top && MAY_BE_TAKEN ->
        EVENT(RETAKEN);
        if
        :: recall -> stale = true
        :: else
        fi;
#ifdef FAULT_TAKEN_LATE
        left = (left > 0 -> left : 1);
#endif
        k = holding;
        if
        :: is_short -> EVENT(TAKEN_SHORT); to_renew = true; is_short = false
        :: else
        fi;
        begin_hold(next);
        next++
    }
    :: atomic {
        k == kept && (idle >= KEEP || left == 0) ->
        EVENT(IDLE);
        give_back()
    }
    :: atomic { retracting && (K == keeper_before || K == keeper) -> retracting = false; free_and_serve() }
    :: atomic { retracting && K != keeper_before && K != keeper -> retracting = false }

    /* Requests in the background */
#ifndef FAULT_NOT_SHORTENED
    :: atomic {
        k == kept && !is_short && sent == none && answered == none ->
        is_short = true;
        to_renew = false;
#ifndef FAULT_DEADLINE_LATER
        left = (left < SHORT -> left : SHORT);
#endif
        send(shorten)
    }
#endif
    :: atomic { k == holding && to_renew && sent == none && answered == none -> to_renew = false; send(renew) }
    :: atomic { late != none -> EVENT(RUN_LATE); carry_out(late); late = none; was_done = false }
    :: atomic { sent != none -> late = none; carry_out(sent); answered = sent; sent = none }
    :: atomic {
        answered != none && k != dead ->
        if
        :: was_done ->
            top = (top < target * STEPS + STEPS - 1 -> target * STEPS + STEPS - 1 : top);
            if
            :: left == 0
            :: left > 0 && answered == renew -> left = LEASE - age
            :: left > 0 && answered == shorten -> left = (age < SHORT -> SHORT - age : 0)
            fi
        :: else -> left = 0
        fi;
        answered = none
    }
#ifdef TROUBLE
    :: atomic { sent != none -> late = sent; sent = none; to_renew = (k == holding) }
    :: atomic { answered != none -> EVENT(UNANSWERED); answered = none; was_done = false; to_renew = (k == holding) }
#endif

    /* Recalls */
    :: atomic {
        recall && k != dead ->
        if
        :: stale -> EVENT(OLD_RECALL)
        :: else
        fi;
        recall = false;
        stale = false;
#ifndef FAULT_IGNORED
        if
        :: k == kept -> EVENT(RECALLED); give_back()
        :: k == holding -> EVENT(RECALL_IN_USE); recalled = true
        :: else
        fi
#endif
    }
#ifdef TROUBLE
    :: atomic { recall -> EVENT(RECALL_LOST); recall = false; stale = false }
    :: atomic { (k == kept || k == holding) -> EVENT(KEEPER_DIED); k = dead; left = 0; retracting = false }
    :: atomic { k == dead && K != keeper && K != keeper_before -> k = out; forget() }
#endif
    od
}

proctype Other() {
    do
    :: atomic {
        o == out && K == nobody && F < MOST_F -> grant_other()
    }
    :: atomic {
        o == out && K != nobody && K != other ->
        queued = true;
        recall = (recall || (K == keeper && k != dead))
    }
    :: atomic {
        o == holding ->
        o = out;
        o_left = 0;
        if
        :: K == other -> free_and_serve()
        :: else
        fi
    }
    od
}

#define tick_down(x) x = (x > 0 -> x - 1 : 0)
#define tick_up(x, most) x = (x < most -> x + 1 : x)

#ifdef PROMPT
#ifdef TROUBLE
#define asks_again true
#define BOUND (STRETCH + KEEP + LEASE)
#else
#define asks_again (!queued || K != keeper || recall || recalled)
#define BOUND 1
#endif
/* What a live client has to do is done. */
#define in_time \
    (k != holding && o != holding && !retracting && sent == none && late == none && (answered == none || k == dead) && !to_renew && \
     (k != kept || ((is_short || NO_SHORTENING) && idle < KEEP)) && !recall_due)
#ifdef FAULT_NOT_SHORTENED
#define NO_SHORTENING true
#else
#define NO_SHORTENING false
#endif
#ifdef FAULT_IGNORED
#define recall_due false
#else
#define recall_due (recall && k != dead)
#endif
#else
#define in_time true
#endif

proctype Clock() {
    do
    :: d_step {
        in_time && (ttl > 0 || left > 0 || o_left > 0) ->
        tick_down(left);
        tick_down(o_left);
        tick_up(age, LEASE);
        if
        :: k == kept || k == dead -> tick_up(idle, KEEP + 1)
        :: else
        fi;
        if
        :: k != out -> tick_up(stretch, STRETCH)
        :: else
        fi;
        if
        :: ttl == 1 -> K = nobody; ttl = 0
        :: ttl > 1 -> ttl--
        :: else
        fi;
#ifdef PROMPT
        if
        :: queued && K == keeper -> tick_up(waited, BOUND + 1)
        :: else -> waited = 0
        fi;
        CHECK(SOON, waited <= BOUND);
        CHECK(SHORTENED, !(k == kept && idle > 0 && K == keeper) || ttl <= SHORT);
#endif
        CHECK(EXCLUSION, !(k_valid && o_valid))
    }
    od
}

init {
    atomic {
        run Keeper();
        run Other();
        run Clock()
    }
}
