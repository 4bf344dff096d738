/*
 * A lock on a quorum that may be shared: some clients share it, others want it alone, on a majority of three
 * independent masters. One of them may lose its data.
 *
 * What is modelled
 *   Three masters. Each keeps who has the lock there: one token that has it alone, or any number that share it, each with
 *   the rest of a lease of its own; and the fence. A script is one step. A fence is the master's clock, or one more than
 *   the last fence there; the clocks of the masters differ.
 *   CLIENTS clients: the first ALONE of them want the lock alone, the others share it. A client asks all masters. Where a
 *   majority let it in it raises the fence on a majority, and holds the lock. It renews at all masters, and tops up where
 *   the lock is not its own; and it releases, or loses, or gives up, at any time. A request may take any time to arrive,
 *   also until its client has ended; then a retraction follows it, which may come before it and is repeated until the
 *   request can't arrive any more. One request of a client at each master is under way at a time.
 *   Master 0 crashes without a disk, again and again, and comes back: it must not vote until it was admitted, the longest
 *   lease is over since, and it has learned afterwards which fences the others have given.
 *
 * What is not modelled
 *   Clocks that step (quorum.pml, where the lock is held by one). Queues and hints, which decide nothing here. A limit of
 *   one, which makes all who share like those who want the lock alone. Clients that die: they are like those whose
 *   retractions take as long as their leases. With FENCE: requests and retractions that take time.
 *
 * Time
 *   As in quorum.pml: a token at a master is `sure` if the request that set it belongs to the round of requests from whose
 *   beginning its owner counts the lease, or to a later one. Any other may end at any time.
 *
 * Properties (PROPERTY=...; MUTEX where nothing is said)
 *   MUTEX  a client that believes to hold the lock alone is the only one that believes to hold it.
 *   GONE   where a client has nothing under way and counts on nothing, a master has nothing of that client. It is looked
 *          for with MUTEX.
 *   FENCE  a hold alone has a larger fence than all holds before it, a shared one than all holds alone before it.
 *
 * Faults; each breaks the property behind it (-DFAULT_...)
 *   MINORITY        MUTEX  one master is enough.
 *   LEAVES_ALL      MUTEX  a sharer that leaves takes out all who share the lock at that master.
 *   NEWEST_LIFE     MUTEX  a master keeps the lock as long as the lease of the sharer that came or renewed last.
 *   VOTES_AT_ONCE   MUTEX  a master that lost its data votes at once.
 *   NO_WAIT         MUTEX  it votes as soon as it was admitted.
 *   TOPS_UP_BESIDE  MUTEX  a sharer tops up where another client has the lock alone.
 *   TOPS_UP_FREELY  MUTEX  a lock is topped up where the master may not vote.
 *   OVERTAKEN       MUTEX  a retraction is under way to a master where a renewal tops up, and counts the vote.
 *   FINAL_EARLY     GONE   a retraction that arrives before the request that it undoes is not repeated.
 *   NO_RAISE        FENCE  the fence is not raised on a majority.
 *   SHARED_NOT_RAISED  FENCE  that of a shared hold is not.
 *   NO_FLOOR        FENCE  a master that lost its data votes before it knows which fences the others have given.
 *   EARLY_FLOOR     FENCE  it learns that before the longest lease is over.
 *
 * Switches: CLIENTS, ALONE; ATTEMPTS, WIPES: how many attempts, and losses of data, there are in all (any number where nothing is
 * said); ONCE: each client makes one attempt; RENEW: 0: nobody renews, 1: sharers alone; FAULT_...; REACH=event: an error where the
 * event happens, to see that it does.
 */

#define MUTEX 1
#define FENCE 2
#define GONE  3

#define TOGETHER    1 /* two clients share the lock */
#define APART       2 /* they do, and no master has both */
#define WIPED       3 /* a master loses the lock of a sharer */
#define REFUSED     4 /* the master may not vote */
#define VOTES_AGAIN 5 /* a master that lost its data has a vote in a grant */
#define TOPPED_UP   6 /* a sharer, beside another one */
#define LATE_GRANT  7 /* an ask is granted after its client gave up */
#define ONE_STAYS   8 /* a sharer leaves a master, and another one stays */
#define SPLIT       9 /* a sharer and a client that wants the lock alone have a vote each */
#define RAISED      10 /* a fence, beside another sharer */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ALONE
#define ALONE 1
#endif
#ifndef PROPERTY
#define PROPERTY MUTEX
#endif
#ifndef REACH
#define REACH 0
#endif
#define EVENT(event) assert(REACH != event)
#define CHECK(property, condition) assert(PROPERTY != property || (condition))

#ifdef FAULT_MINORITY
#define MAJORITY 1
#else
#define MAJORITY 2
#endif

#ifndef RENEW
#define RENEW 2
#endif
#define may_renew(c) (RENEW == 2 || (RENEW == 1 && !alone(c)))

#define MASTERS 3
#define AT(c, m) ((c) * MASTERS + (m))
#define EACH(m)  m : 0 .. 2
#define ALL      (CLIENTS * MASTERS)
#define alone(c) ((c) < ALONE)

mtype = { idle, asking, raising, holding }; /* a client */

/* A client at a master. Under way: ask, raise, renew; late: one of these, whose client has ended. Known: yes, it was
 * granted; again, it was renewed in this round. gone: a retraction is under way, and nothing else. */
mtype = { none, ask, yes, raise, renew, again, late, gone };

mtype phase[CLIENTS] = idle;
mtype at[ALL] = none;
bool has[ALL] = false;  /* the master: the lock is the client's there */
bool sure[ALL] = false;
bool renewing[CLIENTS] = false;
bool older[CLIENTS] = false;       /* the round on which the client relies began before the master was to wait */
bool older_round[CLIENTS] = false; /* so did the renewal under way */
bool member = true; /* of master 0: it knows that it may vote */
bool waits = false; /* of master 0: the longest lease is not over */
#if PROPERTY == FENCE
bool has_floor = true; /* of master 0: it knows which fences it must exceed */
#endif
#if REACH == VOTES_AGAIN
bool wiped = false; /* it lost its data before */
#endif
#ifdef FAULT_OVERTAKEN
bool retracts[ALL] = false;
#endif
#ifdef FAULT_FINAL_EARLY
bool left[ALL] = false; /* a request is under way whose client has forgotten it */
#endif
#ifdef ATTEMPTS
byte attempts = 0;
#endif
#ifdef ONCE
bool did[CLIENTS] = false;
#endif
#ifdef WIPES
byte wipes = 0;
#endif

#if PROPERTY == FENCE
byte F[MASTERS] = 0;
byte clock[MASTERS] = 0;
byte got[ALL] = 0; /* the fence that the master is known to have */
byte fence[CLIENTS] = 0;
byte last = 0;       /* the largest fence of all holds */
byte last_alone = 0; /* of those alone */
#endif

#if CLIENTS == 3
#define any(what) (what(0) || what(1) || what(2))
#define count(what) (what(0) + what(1) + what(2))
#else
#define any(what) (what(0) || what(1))
#define count(what) (what(0) + what(1))
#endif

#define votes(c, what) ((at[AT(c, 0)] == what) + (at[AT(c, 1)] == what) + (at[AT(c, 2)] == what))
#define knows_raised(c, m) (at[AT(c, m)] == yes && got[AT(c, m)] >= fence[c])
#define granted(c) (votes(c, yes) >= MAJORITY)
#if PROPERTY == FENCE
#define may_vote(m) (m != 0 || (member && !waits && has_floor))
#else
#define may_vote(m) (m != 0 || (member && !waits))
#endif

#define is_older(c) older[c]
#define is_held(c) (phase[c] == holding)
#define is_held_alone(c) (alone(c) && phase[c] == holding)
#define is_behind(c) \
    ((at[AT(c, 0)] == none && has[AT(c, 0)]) || (at[AT(c, 1)] == none && has[AT(c, 1)]) || \
     (at[AT(c, 2)] == none && has[AT(c, 2)]))

/* Whether another is in the way of c at m. */
#define in_the_way(c, m, other) (other != c && has[AT(other, m)] && (alone(c) || alone(other)))
#if CLIENTS == 3
#define is_free(c, m) !(in_the_way(c, m, 0) || in_the_way(c, m, 1) || in_the_way(c, m, 2))
#else
#define is_free(c, m) !(in_the_way(c, m, 0) || in_the_way(c, m, 1))
#endif
#define shares_beside(c, m, other) (other != c && !alone(c) && !alone(other) && has[AT(other, m)])
#if CLIENTS == 3
#define is_beside(c, m) (shares_beside(c, m, 0) || shares_beside(c, m, 1) || shares_beside(c, m, 2))
#else
#define is_beside(c, m) (shares_beside(c, m, 0) || shares_beside(c, m, 1))
#endif

inline check() {
    CHECK(MUTEX, !(any(is_held_alone) && count(is_held) > 1));
    assert(PROPERTY == FENCE || !any(is_behind)) /* GONE */
}

inline end_wait() {
    if
    :: !any(is_older) -> waits = false
    :: else
    fi
}

/* The longest lease from now on. */
inline make_wait() {
    for (i : 0 .. CLIENTS - 1) {
        older[i] = (phase[i] != idle);
        older_round[i] = renewing[i]
    }
    i = 0;
    waits = any(is_older)
}

inline withdraw(c) {
    for (EACH(m)) {
#if PROPERTY == FENCE
        at[AT(c, m)] = none;
        has[AT(c, m)] = false;
        got[AT(c, m)] = 0;
#else
        if
        :: at[AT(c, m)] == ask || at[AT(c, m)] == renew -> at[AT(c, m)] = late
        :: at[AT(c, m)] == yes || at[AT(c, m)] == again -> at[AT(c, m)] = gone
        :: else
        fi;
#endif
        sure[AT(c, m)] = false
    }
    m = 0;
    phase[c] = idle;
    renewing[c] = false;
#if PROPERTY == FENCE
    fence[c] = 0;
#endif
    older[c] = false;
    older_round[c] = false;
    end_wait()
}

inline set(c, m) {
    has[AT(c, m)] = true;
    sure[AT(c, m)] = true;
#ifdef FAULT_NEWEST_LIFE
    for (i : 0 .. CLIENTS - 1) {
        if
        :: i != c -> sure[AT(i, m)] = false
        :: else
        fi
    }
    i = 0
#endif
}

inline take_ask(c, m) {
    if
    :: may_vote(m) && is_free(c, m) ->
        set(c, m);
        at[AT(c, m)] = yes;
#if PROPERTY == FENCE
        F[m] = (clock[m] > F[m] + 1 -> clock[m] : F[m] + 1);
        got[AT(c, m)] = F[m]
#endif
    :: else ->
        if
        :: !may_vote(m) -> EVENT(REFUSED)
        :: else
        fi;
        at[AT(c, m)] = none
    fi
}

/* Whatever it was, it sets the token where it may. The retraction is still to come. */
inline take_late(c, m) {
    if
    :: !has[AT(c, m)] && is_free(c, m) && may_vote(m) -> EVENT(LATE_GRANT); has[AT(c, m)] = true
    :: else
    fi;
    at[AT(c, m)] = gone
}

inline take_retraction(c, m) {
    if
    :: has[AT(c, m)] && is_beside(c, m) -> EVENT(ONE_STAYS)
    :: else
    fi;
#ifdef FAULT_LEAVES_ALL
    for (i : 0 .. CLIENTS - 1) {
        if
        :: has[AT(c, m)] && !alone(c) -> has[AT(i, m)] = (i == c || has[AT(i, m)] && alone(i)); sure[AT(i, m)] = false
        :: else
        fi
    }
    i = 0;
#endif
    has[AT(c, m)] = false;
    at[AT(c, m)] = none
}

inline take_raise(c, m) {
#if PROPERTY == FENCE
    if
    :: has[AT(c, m)] ->
        if
        :: is_beside(c, m) -> EVENT(RAISED)
        :: else
        fi;
        F[m] = (F[m] > fence[c] -> F[m] : fence[c]);
        got[AT(c, m)] = F[m];
        at[AT(c, m)] = yes
    :: else -> at[AT(c, m)] = none; got[AT(c, m)] = 0
    fi
#else
    skip
#endif
}

/* Topping up lets the client in, so it needs the right to vote. */
#ifdef FAULT_TOPS_UP_FREELY
#define may_top_up(c, m) is_free(c, m)
#else
#ifdef FAULT_TOPS_UP_BESIDE
#define may_top_up(c, m) ((is_free(c, m) || !alone(c)) && may_vote(m))
#else
#define may_top_up(c, m) (is_free(c, m) && may_vote(m))
#endif
#endif

inline take_renewal(c, m) {
    if
    :: has[AT(c, m)] || may_top_up(c, m) ->
        if
        :: !has[AT(c, m)] && is_beside(c, m) -> EVENT(TOPPED_UP)
        :: else
        fi;
        set(c, m);
        at[AT(c, m)] = (renewing[c] -> again : yes);
#if PROPERTY == FENCE
        F[m] = (F[m] > fence[c] -> F[m] : fence[c])
#endif
    :: else -> at[AT(c, m)] = none
    fi
}

/* What rounds before the one that counts now have set is not sure any more. */
inline count_from_renewal(c) {
    for (EACH(m)) {
        if
        :: at[AT(c, m)] == again -> at[AT(c, m)] = yes
        :: else -> sure[AT(c, m)] = false
        fi
    }
    m = 0;
    renewing[c] = false;
    older[c] = older_round[c];
    older_round[c] = false;
    end_wait()
}

#if PROPERTY == FENCE
inline find_fence(c) {
    for (EACH(m)) {
        if
        :: at[AT(c, m)] == yes && got[AT(c, m)] > fence[c] -> fence[c] = got[AT(c, m)]
        :: else
        fi
    }
#ifndef FAULT_NO_RAISE
    for (EACH(m)) {
        if
        :: at[AT(c, m)] == yes && got[AT(c, m)] < fence[c] -> at[AT(c, m)] = raise
        :: else
        fi
    }
#endif
    m = 0
}

#ifdef FAULT_NO_RAISE
#define is_raised(c) granted(c)
#else
#ifdef FAULT_SHARED_NOT_RAISED
#define is_raised(c) (knows_raised(c, 0) + knows_raised(c, 1) + knows_raised(c, 2) >= (alone(c) -> MAJORITY : 1))
#else
#define is_raised(c) (knows_raised(c, 0) + knows_raised(c, 1) + knows_raised(c, 2) >= MAJORITY)
#endif
#endif

inline begin_hold(c) {
    CHECK(FENCE, fence[c] > (alone(c) -> last : last_alone));
    last = (fence[c] > last -> fence[c] : last);
    last_alone = (alone(c) -> fence[c] : last_alone)
}
#endif

#define both(m) (has[AT(CLIENTS - 2, m)] && has[AT(CLIENTS - 1, m)])

inline look_at_grant(c) {
    if
    :: !alone(c) && count(is_held) > 1 ->
        EVENT(TOGETHER);
        if
        :: !both(0) && !both(1) && !both(2) -> EVENT(APART)
        :: else
        fi
    :: else
    fi;
#if REACH == VOTES_AGAIN
    if
    :: at[AT(c, 0)] == yes && wiped -> EVENT(VOTES_AGAIN)
    :: else
    fi
#endif
}

proctype Client(byte c) {
    byte m = 0;

    do
    :: atomic {
        phase[c] == idle &&
#ifdef ONCE
        !did[c] -> did[c] = true;
#elif defined(ATTEMPTS)
        attempts < ATTEMPTS -> attempts++;
#else
        true ->
#endif
        for (EACH(m)) {
            if
            :: at[AT(c, m)] == none -> at[AT(c, m)] = ask
            :: else
            fi
        }
        m = 0;
        phase[c] = asking;
        check()
    }
#if PROPERTY == FENCE
    :: atomic { phase[c] == asking && granted(c) -> find_fence(c); phase[c] = raising; check() }
    :: atomic { phase[c] == raising && is_raised(c) -> begin_hold(c); phase[c] = holding; check() }
#else
    :: atomic { phase[c] == asking && granted(c) -> phase[c] = holding; look_at_grant(c); check() }
#endif
    :: atomic {
        (phase[c] == asking || phase[c] == raising) ->
        if
        :: alone(c) && votes(c, yes) == 1 && votes(c, none) == 2 && votes(CLIENTS - 1, yes) > 0 -> EVENT(SPLIT)
        :: else
        fi;
        withdraw(c);
        check()
    }
    :: atomic {
        phase[c] == holding && !renewing[c] && may_renew(c) ->
        for (EACH(m)) {
            if
            :: at[AT(c, m)] == yes || at[AT(c, m)] == none -> at[AT(c, m)] = renew
#ifdef FAULT_OVERTAKEN
            :: at[AT(c, m)] == ask -> at[AT(c, m)] = renew; retracts[AT(c, m)] = true
#endif
            :: else
            fi
        }
        m = 0;
        renewing[c] = true;
        check()
    }
    :: atomic { phase[c] == holding && renewing[c] && votes(c, again) >= MAJORITY -> count_from_renewal(c); check() }
    :: atomic { phase[c] == holding -> withdraw(c); check() } /* a release, or a loss */
    od
}

proctype Way(byte c; byte m) {
    byte i = 0;

    do
    :: atomic { at[AT(c, m)] == ask -> take_ask(c, m); check() }
    :: atomic { at[AT(c, m)] == late -> take_late(c, m); check() }
#ifdef FAULT_FINAL_EARLY
    :: atomic { at[AT(c, m)] == late -> has[AT(c, m)] = false; at[AT(c, m)] = none; left[AT(c, m)] = true; check() }
    :: atomic {
        left[AT(c, m)] && at[AT(c, m)] == none ->
        left[AT(c, m)] = false;
        has[AT(c, m)] = (is_free(c, m) && may_vote(m));
        check()
    }
#endif
    :: atomic { at[AT(c, m)] == gone -> take_retraction(c, m); check() }
    :: atomic { at[AT(c, m)] == raise -> take_raise(c, m); check() }
    :: atomic { at[AT(c, m)] == renew -> take_renewal(c, m); check() }
    :: atomic { has[AT(c, m)] && !sure[AT(c, m)] -> has[AT(c, m)] = false; check() }
#ifdef FAULT_OVERTAKEN
    :: atomic { retracts[AT(c, m)] && has[AT(c, m)] -> retracts[AT(c, m)] = false; has[AT(c, m)] = false; check() }
#endif
    od
}

active proctype World() {
    byte i = 0;

    do
    :: atomic {
        member &&
#ifdef WIPES
        wipes < WIPES -> wipes++;
#else
        true ->
#endif
        if
        :: phase[CLIENTS - 1] == holding && has[AT(CLIENTS - 1, 0)] -> EVENT(WIPED)
        :: else
        fi;
#if REACH == VOTES_AGAIN
        wiped = true;
#endif
        for (i : 0 .. CLIENTS - 1) {
            has[AT(i, 0)] = false;
            sure[AT(i, 0)] = false;
#ifndef FAULT_VOTES_AT_ONCE
            older[i] = false;
            older_round[i] = false
#endif
        }
        i = 0;
#if PROPERTY == FENCE
        F[0] = 0;
#ifndef FAULT_NO_FLOOR
        has_floor = false;
#endif
#endif
#ifndef FAULT_VOTES_AT_ONCE
        member = false;
        waits = false;
#endif
        check()
    }
    :: atomic {
        !member ->
        member = true;
#ifndef FAULT_NO_WAIT
        make_wait();
#endif
        check()
    }
#if PROPERTY == FENCE
    :: atomic {
#ifdef FAULT_EARLY_FLOOR
        member && !has_floor ->
#else
        member && !waits && !has_floor ->
#endif
        has_floor = true;
        F[0] = (F[1] > F[2] -> F[1] : F[2]);
        check()
    }
#endif
    od
}

init {
    byte c = 0;

    atomic {
#if PROPERTY == FENCE
        clock[1] = 3;
#endif
        do
        :: c < CLIENTS ->
            run Client(c);
            run Way(c, 0);
            run Way(c, 1);
            run Way(c, 2);
            c++
        :: else -> break
        od
    }
}
