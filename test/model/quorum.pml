/*
 * A quorum: a lock on a majority of three independent masters. One of them may fail.
 *
 * What is modelled
 *   Three masters. Each keeps whose the lock's key is, and the fence. A script is one step. A fence is the master's
 *   clock, or one more than the last fence there; the clocks of the masters differ.
 *   Two clients. A client asks all masters. Where a majority granted the lock it raises the fence on a majority, and
 *   holds the lock. It renews the lock at all masters, and tops it up where nobody has it; and it releases it, or loses
 *   it, at any time. A request may take any time to arrive, also until its client has given up; then what it leaves
 *   behind is retracted. One request of a client at each master is under way at a time.
 *   Master 0 fails, again and again: it loses all its data (WIPE: a crash without a disk, or FLUSHALL), or its clock
 *   steps forward, so that the key expires early (STEP). A step that is so small that nobody notices it is within the
 *   margin of the leases that count then; a second one makes a step with it that is noticed, because an answer does not
 *   replace what is known of a clock by earlier ones. A master that is stopped is one that requests arrive at late.
 *   After a WIPE the master must not vote until it was admitted, and the longest lease is over since, and its clock has
 *   passed what the others showed then. After a STEP, who asks and knows the clock of before is refused as too late, or
 *   is granted what it does not count and retracts; and the master must not vote for the longest lease, counted from then
 *   on also where it waits already: a step ends that wait too early.
 *
 * What is not modelled
 *   Waiters and hints, which decide nothing. Drift within the margin. A client that is started after a STEP: it does not
 *   know the clock of before. A clock that is set back. Answers that are lost: they are like requests that arrive late.
 *
 * Time
 *   There is no clock for leases. A key is `sure` if the request that set it belongs to the round of requests, an ask or
 *   a renewal, from whose beginning its owner counts the lease, or to a later one: such a key outlives what its owner
 *   believes. Any other key may end at any time. The longest lease is over when no client relies on a round that began
 *   before.
 *
 * Properties (PROPERTY=...; MUTEX where nothing is said)
 *   MUTEX  at most one client believes that it holds the lock. Any number of attempts, without fences.
 *   FENCE  every hold has a larger fence than the hold before. With ATTEMPTS attempts, and WIPES losses of data, in all.
 *
 * Faults; each breaks the property behind it (-DFAULT_...)
 *   MINORITY       MUTEX  one master is enough.
 *   FROM_ANSWERS   MUTEX  a lease counts from the last answer: no key is sure.
 *   VOTES_AT_ONCE  MUTEX  a master that lost its data votes at once.
 *   NO_WAIT        MUTEX  it votes as soon as it was admitted.
 *   STEP_UNSEEN    MUTEX  a master whose clock has stepped goes on voting.
 *   STEPS_ADD      MUTEX  small steps that follow each other are each too small to be noticed.
 *   WAITS_ONCE     MUTEX  who notices a step leaves a wait as it is that has begun before.
 *   OVERTAKEN      MUTEX  a retraction is under way to a master where a renewal tops up, and counts the vote.
 *   TOPS_UP_FREELY MUTEX  a lock is topped up where the master may not vote.
 *   RENEWS_FEW     MUTEX  one master is enough for a renewal.
 *   NO_RAISE       FENCE  the fence is not raised on a majority.
 *   NO_CLOCK       FENCE  a master that lost its data votes before its clock has passed the others'.
 *
 * Switches: PROPERTY=..., FAULT_..., and REACH=event: an error where the event happens, to see that it does.
 */

#define MUTEX 1
#define FENCE 2

#define SPLIT        1 /* a client gives up with one vote */
#define WIPED        2 /* under a holder */
#define STEPPED      3 /* under a holder */
#define REFUSED      4 /* the master may not vote */
#define VOTES_AGAIN  5 /* a master that lost its data has a vote in a grant */
#define TOPPED_UP    6
#define OUT_OF_THREE 7 /* a client holds the lock without master 0 */
#define LATE_GRANT   8 /* an ask is granted after its client gave up */
#define RAISED       9
#define SMALL_STEP   10 /* under a holder */
#define NOT_COUNTED  11 /* a grant of a master whose clock has stepped */
#define WAIT_CUT     12 /* the clock of a master steps while it waits, and the longest lease is not over when it votes */
#define WAITS_AGAIN  13 /* it is told of the step while it waits */

#ifndef PROPERTY
#define PROPERTY MUTEX
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef WIPES
#define WIPES 1
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
#ifdef FAULT_RENEWS_FEW
#define RENEWED 1
#else
#define RENEWED MAJORITY
#endif

#define MASTERS 3
#define NOBODY  2
#define LEFT    3 /* an attempt that is over: the key ends by itself, or is retracted */
#define AT(c, m) ((c) * MASTERS + (m))
#define EACH(m)  m : 0 .. 2

mtype = { idle, asking, raising, holding }; /* a client */

/* A client at a master. Under way: ask, raise, renew; late: an ask whose client gave up. Known: yes, it was granted;
 * again, it was renewed in this round. */
mtype = { none, ask, yes, raise, renew, again, late };

byte owner[MASTERS] = NOBODY;
bool sure[MASTERS] = false;
bool member = true;  /* of master 0: it knows that it may vote */
bool waits = false;  /* of master 0: the longest lease is not over */
bool cut = false;    /* of master 0: its clock stepped while it waited, which may end the wait at any time */
bool wiped = false;  /* it lost its data before */
bool spent = false;  /* of master 0: a small step has used up the margin of leases */

mtype phase[2] = idle;
mtype at[6] = none;
bool renewing[2] = false;
bool knows[2] = true;       /* the client knows the clock of master 0 */
bool older[2] = false;      /* the round on which the client relies began before the master was to wait */
bool older_round[2] = false; /* so did the renewal under way */
#ifdef FAULT_OVERTAKEN
bool retracts[6] = false;
#endif

#if PROPERTY == FENCE
byte F[MASTERS] = 0;
byte clock[MASTERS] = 0;
byte got[6] = 0; /* the fence that the master is known to have */
byte fence[2] = 0;
byte last = 0;   /* the fence of the last hold */
byte attempts = 0;
byte wipes = 0;
#endif

#define votes(c, what) ((at[AT(c, 0)] == what) + (at[AT(c, 1)] == what) + (at[AT(c, 2)] == what))
#define knows_raised(c, m) (at[AT(c, m)] == yes && got[AT(c, m)] >= fence[c])
#define granted(c) (votes(c, yes) >= MAJORITY)

inline check() {
    CHECK(MUTEX, !(phase[0] == holding && phase[1] == holding))
}

inline is_over(c) {
    older[c] = false;
    older_round[c] = false;
    if
    :: !older[0] && !older[1] -> waits = false; cut = false
    :: else
    fi
}

/* The longest lease from now on. */
inline make_wait() {
    older[0] = (phase[0] != idle);
    older[1] = (phase[1] != idle);
    older_round[0] = renewing[0];
    older_round[1] = renewing[1];
    waits = (older[0] || older[1]);
    cut = false
}

/* A client that knew the clock of before has noticed the step. */
inline tell_of_step(c) {
    knows[c] = true;
    if
    :: waits -> EVENT(WAITS_AGAIN)
    :: else
    fi;
#ifdef FAULT_WAITS_ONCE
    if
    :: !waits -> make_wait()
    :: else
    fi
#else
    make_wait()
#endif
}

inline withdraw(c) {
    for (EACH(m)) {
        if
        :: at[AT(c, m)] == ask -> at[AT(c, m)] = late
        :: at[AT(c, m)] == renew || at[AT(c, m)] == raise -> at[AT(c, m)] = late
        :: at[AT(c, m)] == yes || at[AT(c, m)] == again -> at[AT(c, m)] = none
        :: else
        fi;
        if
        :: owner[m] == c -> owner[m] = LEFT; sure[m] = false
        :: else
        fi;
#if PROPERTY == FENCE
        got[AT(c, m)] = 0;
#endif
    }
    m = 0;
    phase[c] = idle;
    renewing[c] = false;
#if PROPERTY == FENCE
    fence[c] = 0;
#endif
    is_over(c)
}

inline set(c, m) {
    owner[m] = c;
#ifdef FAULT_FROM_ANSWERS
    sure[m] = false
#else
    sure[m] = true
#endif
}

/* Otherwise the master does nothing. */
#define may_vote(c, m) (m != 0 || (member && !waits && knows[c]))

inline take_ask(c, m) {
    if
    :: m == 0 && !knows[c] ->
        if
        :: owner[m] == NOBODY && member && !waits -> EVENT(NOT_COUNTED); owner[m] = LEFT
        :: true
        fi;
        at[AT(c, m)] = none;
        tell_of_step(c)
    :: m == 0 && knows[c] && (!member || waits) -> EVENT(REFUSED); at[AT(c, m)] = none
    :: may_vote(c, m) && owner[m] != NOBODY -> at[AT(c, m)] = none
    :: may_vote(c, m) && owner[m] == NOBODY ->
        set(c, m);
        at[AT(c, m)] = yes;
#if PROPERTY == FENCE
        F[m] = (clock[m] > F[m] + 1 -> clock[m] : F[m] + 1);
        got[AT(c, m)] = F[m]
#endif
    fi
}

/* Retracted in the end: until then it is in the way. */
inline take_late(c, m) {
    if
    :: owner[m] == NOBODY && may_vote(c, m) -> EVENT(LATE_GRANT); owner[m] = LEFT
    :: else
    fi;
    at[AT(c, m)] = none
}

inline take_raise(c, m) {
#if PROPERTY == FENCE
    if
    :: owner[m] == c ->
        EVENT(RAISED);
        F[m] = (F[m] > fence[c] -> F[m] : fence[c]);
        got[AT(c, m)] = F[m];
        at[AT(c, m)] = yes
    :: else -> at[AT(c, m)] = none; got[AT(c, m)] = 0
    fi
#else
    skip
#endif
}

/* Topping up grants the lock, so it needs the right to vote. */
#ifdef FAULT_TOPS_UP_FREELY
#define may_top_up(c, m) true
#else
#define may_top_up(c, m) may_vote(c, m)
#endif

inline take_renewal(c, m) {
    if
    :: owner[m] == c || (owner[m] == NOBODY && may_top_up(c, m)) ->
        if
        :: owner[m] == NOBODY -> EVENT(TOPPED_UP)
        :: else
        fi;
        set(c, m);
        at[AT(c, m)] = (renewing[c] -> again : yes);
#if PROPERTY == FENCE
        F[m] = (F[m] > fence[c] -> F[m] : fence[c])
#endif
    :: else ->
        at[AT(c, m)] = none;
        if
        :: m == 0 && owner[m] == NOBODY && !knows[c] -> tell_of_step(c)
        :: else
        fi
    fi
}

/* Keys of rounds before the one that counts now are not sure any more. */
inline count_from_renewal(c) {
    for (EACH(m)) {
        if
        :: at[AT(c, m)] != again && owner[m] == c -> sure[m] = false
        :: else
        fi;
        if
        :: at[AT(c, m)] == again -> at[AT(c, m)] = yes
        :: else
        fi
    }
    m = 0;
    renewing[c] = false;
    older[c] = older_round[c];
    older_round[c] = false;
    if
    :: !older[0] && !older[1] -> waits = false; cut = false
    :: else
    fi
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
#endif

proctype Client(byte c) {
    byte m = 0;

    do
    :: atomic {
        phase[c] == idle &&
#if PROPERTY == FENCE
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
    :: atomic {
        phase[c] == raising &&
#ifdef FAULT_NO_RAISE
        granted(c) ->
#else
        knows_raised(c, 0) + knows_raised(c, 1) + knows_raised(c, 2) >= MAJORITY ->
#endif
        CHECK(FENCE, fence[c] > last);
        last = fence[c];
        phase[c] = holding
    }
#else
    :: atomic {
        phase[c] == asking && granted(c) ->
        phase[c] = holding;
        if
        :: at[AT(c, 0)] != yes -> EVENT(OUT_OF_THREE)
        :: at[AT(c, 0)] == yes && wiped -> EVENT(VOTES_AGAIN)
        :: else
        fi;
        check()
    }
#endif
    :: atomic {
        (phase[c] == asking || phase[c] == raising) ->
        if
        :: phase[c] == asking && votes(c, yes) == 1 && votes(c, none) == 2 -> EVENT(SPLIT)
        :: else
        fi;
        withdraw(c);
        check()
    }
    :: atomic {
        phase[c] == holding && !renewing[c] ->
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
    :: atomic { phase[c] == holding && renewing[c] && votes(c, again) >= RENEWED -> count_from_renewal(c); check() }
    :: atomic { phase[c] == holding -> withdraw(c); check() } /* a release, or a loss */
    od
}

proctype Way(byte c; byte m) {
    do
    :: atomic { at[AT(c, m)] == ask -> take_ask(c, m); check() }
    :: atomic { at[AT(c, m)] == late -> take_late(c, m); check() }
    :: atomic { at[AT(c, m)] == raise -> take_raise(c, m); check() }
    :: atomic { at[AT(c, m)] == renew -> take_renewal(c, m); check() }
    :: atomic { owner[m] == c && !sure[m] -> owner[m] = NOBODY; check() }
    :: atomic { c == 0 && owner[m] == LEFT -> owner[m] = NOBODY; check() }
#ifdef FAULT_OVERTAKEN
    :: atomic { retracts[AT(c, m)] && owner[m] == c -> retracts[AT(c, m)] = false; owner[m] = NOBODY; check() }
#endif
    od
}

#define is_held (phase[0] == holding || phase[1] == holding)

active proctype World() {
    do
    :: atomic {
#if PROPERTY == FENCE
        member && wipes < WIPES -> wipes++;
#else
        member ->
#endif
        if
        :: is_held -> EVENT(WIPED)
        :: else
        fi;
        owner[0] = NOBODY;
        sure[0] = false;
#if REACH == VOTES_AGAIN
        wiped = true;
#endif
#if PROPERTY == FENCE
        F[0] = 0;
#ifdef FAULT_NO_CLOCK
        clock[0] = 0;
#endif
#endif
#ifndef FAULT_VOTES_AT_ONCE
        member = false;
        waits = false;
        cut = false;
        older[0] = false;
        older[1] = false;
        older_round[0] = false;
        older_round[1] = false;
#endif
        check()
    }
    :: atomic {
        !member ->
        member = true;
#ifndef FAULT_NO_WAIT
        make_wait();
#endif
#if PROPERTY == FENCE && !defined(FAULT_NO_CLOCK)
        /* time has passed, and its clock all that the others showed; a fence may be ahead of its clock */
        clock[0] = (clock[1] > clock[0] -> clock[1] : clock[0]);
        clock[0] = (clock[2] > clock[0] -> clock[2] : clock[0]);
        clock[0] = (F[1] > clock[0] -> F[1] : clock[0]);
        clock[0] = (F[2] > clock[0] -> F[2] : clock[0]) + 1;
#endif
        check()
    }
    :: atomic {
        owner[0] != NOBODY ->
        if
        :: is_held -> EVENT(STEPPED)
        :: else
        fi;
        owner[0] = NOBODY;
        sure[0] = false;
        spent = false;
#ifndef FAULT_STEP_UNSEEN
        knows[0] = false;
        knows[1] = false;
#endif
        check()
    }
    :: atomic {
        waits && !cut ->
#ifndef FAULT_STEP_UNSEEN
        knows[0] = false;
        knows[1] = false;
#endif
        cut = true
    }
    :: atomic {
        cut ->
        EVENT(WAIT_CUT);
        cut = false;
        waits = false;
        older[0] = false;
        older[1] = false;
        older_round[0] = false;
        older_round[1] = false
    }
    :: atomic {
        owner[0] != NOBODY && !spent ->
        if
        :: is_held -> EVENT(SMALL_STEP)
        :: else
        fi;
        spent = true
    }
#ifdef FAULT_STEPS_ADD
    :: atomic { owner[0] != NOBODY && spent -> owner[0] = NOBODY; sure[0] = false; check() }
#endif
    od
}

init {
    atomic {
#if PROPERTY == FENCE
        clock[1] = 3;
#endif
        run Client(0);
        run Client(1);
        run Way(0, 0);
        run Way(0, 1);
        run Way(0, 2);
        run Way(1, 0);
        run Way(1, 1);
        run Way(1, 2)
    }
}
