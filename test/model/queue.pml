/*
 * The queue of a lock: ask, queue, grant by reply, grant by push, retract, expire, ask again.
 *
 * What is modelled
 *   The store: the key K with its owner and the rest of its lease, the queue, and of each entry whether it names its
 *   client's newest ask and how long ago that ask came. A script is one step. A grant by release, or by an ask that
 *   finds K gone, goes to the head of the queue that can be served: one with a subscriber and an ask younger than
 *   half a lease. With SWEEP a script may stop once it has skipped one: then it leaves K free, and an ask enters the
 *   queue; the next ask, release or retraction goes on.
 *   CLIENTS clients, each with one attempt (one token) at a time, attempt after attempt. An ask is three steps: it is sent, it
 *   runs in the store, its reply is read. The connection may break before the ask ran or before its reply was read;
 *   then the client asks again. An ask whose connection broke may still run, but only before the client's next ask
 *   runs, because a new connection first ends the old one. Pushes are delivered in any order, at any time, or never.
 *   A waiter may give up and a holder release at any time.
 *   A client may die at any time, and the server may learn of the death at any time or never. When nothing of the
 *   dead client is left in the store, another client comes in its place.
 *   Another party, with any library: takes a free K without looking at the queue, lets go of K with or without
 *   serving the queue, or lets K expire.
 *
 * What is not modelled
 *   Renewal, the fence, a refused PUBLISH, a restart or failover of the store, a quorum, hand-over inside a process,
 *   a forced unlock, clocks that drift (so the margin is 0), and a server that does not allow CLIENT KILL (asks then
 *   carry a time after which they do nothing). The number of an ask is only ever compared with the newest, so one
 *   bit stands for it.
 *
 * Time
 *   One clock in ticks; a lease is LEASE of them. All times are ages that stop at the largest that matters, so the
 *   states are finite. Without PROMPT everybody is as slow as can be: a tick may come between any two steps, so a
 *   client may be stopped anywhere for any time. Waits have a bound only with PROMPT: a live client does what it has
 *   to do before the next tick (PROMPT=0), or before the next but one (PROMPT=1).
 *
 * Properties
 *   EXCLUSION  no two clients hold at the same time, each as it believes: a client believes so until its deadline.
 *   OWNED      a client that believes that it holds is the owner of K, and K lives at least as long as the belief.
 *   FINISHED   a token that was released or retracted is never granted again; the owner is not in the queue.
 *   WAKE_UP    (PROMPT) where K is gone, or is granted to a live client that has not heard of it, that client waits no
 *              longer than until its next ask.
 *   heard      (LTL, LIVENESS and PROMPT, weak fairness) a live client that goes on waiting holds in the end, though
 *              nobody else need come; trouble (a death, a break, a lost push, a head skipped, a waiter that gives up,
 *              the other party) comes TROUBLES times.
 *   No client is stuck: the only end states are those where all is done. With ONCE each client makes one attempt, so that
 *   there is an end; with TROUBLES, a client that is stuck can't always give up or die.
 *
 * Faults; each breaks the property behind it (-DFAULT_...)
 *   NON_ATOMIC_POP  EXCLUSION  other scripts may run between a release's choice of the head and its grant and pop. The
 *                              release frees K and chooses B; meanwhile A's ask gets K, as B's subscriber is broken
 *                              just then; then the release overwrites K with B, and B is told.
 *   UNNAMED_PUSH    EXCLUSION  a push does not name its ask. A is granted K by push, but does not read the push; A's
 *                              lease ends, and B holds; A asks again, then reads the old push and counts its lease
 *                              from the new ask.
 *   ENTRY_KEPT      FINISHED   an ask that is granted leaves its entry in the queue. A queues, asks again, is granted
 *                              by reply, lets go, and K goes to that entry: to a token that is over. (The release of
 *                              dibs removes the entry once more, which would hide the fault; the release here does
 *                              not.)
 *   NO_REASK        WAKE_UP    waiters trust pushes alone. The holder dies, or lets go with a library that pushes
 *                              nothing, or a push is lost: nobody comes who would serve the queue. It breaks `heard`
 *                              too, and leaves a waiter stuck.
 *
 * Switches: CLIENTS, LEASE, PROMPT, ONCE, LIVENESS, SWEEP, TROUBLES (without it, trouble comes any number of times),
 * FAULT_..., PROPERTY=... (checks that one only), and REACH=event: an error where the event happens, to show that it
 * does.
 */

#define EXCLUSION 1
#define OWNED     2
#define FINISHED  3
#define WAKE_UP   4

#define PUSH_GRANT      1
#define REPLY_GRANT     2
#define EXPIRY          3
#define HOLDER_CRASH    4
#define WAITER_CRASH    5
#define LOST_PUSH       6
#define DUPLICATE_ASK   7
#define RETRACTED_GRANT 8
#define OLD_PUSH        9
#define LATE_GRANT      10
#define SKIPPED_HEAD    11
#define LOST_LEASE      12
#define STOPPED_SWEEP   13

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef LEASE
#define LEASE 4
#endif
#ifndef REACH
#define REACH 0
#endif

#define HALF  ((LEASE + 1) / 2)
#define THIRD (LEASE / 3)

#define NOBODY CLIENTS
#define OTHER  (CLIENTS + 1)

#ifdef PROPERTY
#define CHECK(property, condition) assert(PROPERTY != property || (condition))
#else
#define CHECK(property, condition) assert(condition)
#endif
#define EVENT(event) assert(REACH != event)

#ifdef TROUBLES
byte troubles = TROUBLES;
#define TROUBLE      (troubles > 0)
#define COUNT_IT     troubles--
#else
#define TROUBLE      true
#define COUNT_IT     skip
#endif

#ifdef FAULT_NON_ATOMIC_POP
#define GAP } atomic {
#else
#define GAP
#endif

/* ------------------------------------------------------------------------------------------------------------ state */

mtype:phase = { idle, waiting, holding, releasing, retracting, dead, done };

/* What is under way of the newest ask. none: nothing; sent: the ask; cut: the ask, whose reply will not come; taken and
 * granted: the reply, which says so; lost: nothing, for the reply was lost. */
mtype:call = { none, sent, cut, taken, granted, lost };

typedef Client {
    mtype:phase phase = idle;
    mtype:call call = none;
    byte age;     /* ticks since the newest ask was sent; of a holder: since the one that proves its lease was */
    bool late;    /* an ask older than the newest is under way: it may run until the newest does */
    bool pushed;  /* a push is under way that names the newest ask */
    bool old;     /* a push is under way that names an older one */
    bool gone;    /* the server knows that this dead one's subscription ended */
    bool overdue; /* PROMPT: what the client has to do has waited for a tick */
    byte asleep;  /* PROMPT: ticks that the client has waited while K was gone, or was its own unheard */
};

typedef Entry {
    byte place;  /* in the queue, from 1; 0: no entry */
    bool newest; /* it names its client's newest ask */
    byte seen;   /* ticks since its last ask */
};

Client client[CLIENTS];
Entry entry[CLIENTS];
byte K = NOBODY;
byte ttl;

bool stopped; /* within a script: it left K free though it did not look at the whole queue */
byte i; /* for loops; 0 between them */

#define valid(c)    (client[c].phase == holding && client[c].age < LEASE)
#define is_right(c) (!valid(c) || (K == c && ttl >= LEASE - client[c].age))
#define lives(c)    (client[c].phase != dead && client[c].phase != done)
#define able(c)     (entry[c].seen < HALF && !client[c].gone)

#if CLIENTS == 2
#define all(p)  (p(0) && p(1))
#define any(p)  (p(0) || p(1))
#define two(p)  (p(0) && p(1))
#elif CLIENTS == 3
#define all(p)  (p(0) && p(1) && p(2))
#define any(p)  (p(0) || p(1) || p(2))
#define two(p)  ((p(0) && p(1)) || (p(0) && p(2)) || (p(1) && p(2)))
#endif

inline check_holders() {
    CHECK(EXCLUSION, !two(valid));
    CHECK(OWNED, all(is_right))
}

/* ------------------------------------------------------------------------------------------------------------ store */

inline forget(c) {
    d_step {
        if
        :: entry[c].place > 0 ->
            i = 0;
            do
            :: i < CLIENTS ->
                if
                :: entry[i].place > entry[c].place -> entry[i].place--
                :: else
                fi;
                i++
            :: else -> break
            od;
            i = 0;
            entry[c].place = 0;
            entry[c].newest = false;
            entry[c].seen = 0
        :: else
        fi
    }
}

inline enqueue(c, names_newest) {
    d_step {
        if
        :: entry[c].place == 0 ->
            i = 0;
            entry[c].place = 1;
            do
            :: i < CLIENTS ->
                if
                :: i != c && entry[i].place > 0 -> entry[c].place++
                :: else
                fi;
                i++
            :: else -> break
            od;
            i = 0
        :: else
        fi;
        entry[c].newest = names_newest;
        entry[c].seen = 0
    }
}

#define is_head(c) (entry[c].place == 1)

inline find_head(found) {
    d_step {
        i = 0;
        do
        :: i < CLIENTS && !is_head(i) -> i++
        :: else -> break
        od;
        found = i; /* NOBODY where none is */
        i = 0
    }
}

/* With SWEEP: a script that has skipped a head may stop, and leave K free, if there is another. */
inline may_stop() {
#ifdef SWEEP
    find_head(head);
    if
    :: head != NOBODY -> EVENT(STOPPED_SWEEP); head = NOBODY; stopped = true; break
    :: true -> head = NOBODY
    fi
#else
    skip
#endif
}

/* K is gone: chooses the first in the queue that can be served, or NOBODY. A client that is asking can be. */
inline choose(me) {
    do
    :: true ->
        find_head(head);
        if
        :: head == NOBODY || head == me || able(head) -> break
        :: head != NOBODY && head != me && (!able(head) || TROUBLE) -> /* its subscriber may be broken just now */
            EVENT(SKIPPED_HEAD);
            if
            :: able(head) -> COUNT_IT
            :: else
            fi;
            forget(head);
            may_stop()
        fi
    od
}

inline own(c) {
    d_step {
        K = c;
        ttl = LEASE;
        i = 0;
        do
        :: i < CLIENTS ->
            if
            :: i != c -> client[i].asleep = 0
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0
    };
    check_holders()
}

inline free() {
    K = NOBODY;
    ttl = 0
}

inline give(me) {
    CHECK(FINISHED, client[head].phase != idle && client[head].phase != done);
    if
    :: head == me ->
#ifndef FAULT_ENTRY_KEPT
        forget(me)
#else
        skip
#endif
    :: else ->
        if
        :: client[head].phase == waiting && entry[head].newest -> client[head].pushed = true
        :: client[head].phase == waiting && !entry[head].newest -> client[head].old = true
        :: else /* nobody reads it: dead, or giving up and about to retract */
        fi;
        forget(head)
    fi;
    own(head);
    head = NOBODY
}

/* A script is two halves: `head` is chosen, then served. The fault makes those of a release two scripts. An ask leaves
 * in `answer` whether it was granted. */
inline begin_ask(me) {
    if
    :: K == NOBODY -> choose(me)
    :: else
    fi
}

inline end_ask(me, names_newest) {
    if
    :: head != NOBODY -> give(me)
    :: head == NOBODY && K == NOBODY && stopped -> skip /* who lives may be left: nobody passes them */
    :: head == NOBODY && K == NOBODY && !stopped -> own(me)
    :: head == NOBODY && K == me ->
#ifndef FAULT_ENTRY_KEPT
        forget(me);
#endif
        own(me)
    :: else
    fi;
    if
    :: K == me ->
#ifndef FAULT_ENTRY_KEPT
        CHECK(FINISHED, entry[me].place == 0);
#endif
        answer = granted
    :: else ->
        enqueue(me, names_newest);
        answer = taken
    fi;
    stopped = false
}

/* The owner has no entry to remove: the grant removed it (FINISHED). */
inline begin_release(me) {
    if
    :: K == me -> free()
    :: K != me -> forget(me)
    fi;
    if
    :: K == NOBODY -> choose(NOBODY)
    :: else
    fi
}

inline end_release() {
    if
    :: head != NOBODY -> give(NOBODY)
    :: else
    fi;
    stopped = false
}

/* ---------------------------------------------------------------------------------------------------------- clients */

#define my client[me]

/* The age counts from before the sending. A push that named the newest ask names an older one from here on. */
inline send_ask() {
    my.late = (my.call == cut);
    my.call = sent;
    my.age = 0;
    my.old = my.old || my.pushed;
    my.pushed = false;
    entry[me].newest = false
}

inline hold() {
    my.phase = holding;
    my.call = none;
    my.late = false;
    my.old = false;
    my.pushed = false;
    my.asleep = 0;
    check_holders()
}

#ifdef PROMPT
#define LOST lost
#else
#define LOST none /* a client may ask again at any time anyway */
#endif

/* The connection breaks, so the reply will not come. An ask that has not run may still run. */
inline cut_call() {
    if
    :: my.call == sent -> my.call = cut
    :: else -> my.call = LOST
    fi
}

inline leave_call() {
    if
    :: my.call == sent -> my.call = cut
    :: my.call == cut
    :: else -> my.call = none
    fi;
    my.age = 0;
    my.asleep = 0;
    my.pushed = false; /* read by nobody, or when all is over */
    my.old = false
}

inline clear() {
    my.call = none;
    my.late = false;
    my.gone = false
}

#ifdef FAULT_UNNAMED_PUSH
#define names_newest(c) (client[c].pushed || client[c].old)
#define names_older(c)  false
#else
#define names_newest(c) (client[c].pushed)
#define names_older(c)  (client[c].old)
#endif

/* When a waiter asks again: where its connection broke, and at the latest a third of a lease after its last ask. */
#define broken(c)   (client[c].call == cut || client[c].call == lost)
#define calls(c)    (client[c].call != none && !broken(c))
#ifdef FAULT_NO_REASK
#define must_ask(c) broken(c)
#define may_ask(c)  must_ask(c)
#else
#define must_ask(c) (broken(c) || client[c].age >= THIRD)
#ifdef PROMPT
#define may_ask(c)  (must_ask(c) || client[c].age > 0)
#else
#define may_ask(c)  true
#endif
#endif

/* Were there attempts that take no time, time might stand still for ever. */
#ifdef LIVENESS
#define RESTED (my.age > 0)
#define ages(c) (client[c].phase == waiting || client[c].phase == holding || client[c].phase == idle)
#else
#define RESTED true
#define ages(c) (client[c].phase == waiting || client[c].phase == holding)
#endif

#ifdef ONCE
#define END_OF_ATTEMPT done
#else
#define END_OF_ATTEMPT idle
#endif

proctype Attempts(byte me) {
    byte head = NOBODY;
    mtype:call answer = none;

    do
    :: atomic { my.phase == idle && RESTED -> my.phase = waiting; send_ask() }
#ifdef LIVENESS
    :: atomic { my.phase == idle -> my.age = 0; my.phase = done } /* so that no other ask need serve the queue */
#endif

    /* An ask runs, in time or late. */
    :: atomic {
        my.late ->
        my.late = false;
        EVENT(DUPLICATE_ASK);
        begin_ask(me);
        end_ask(me, false);
        answer = none
    }
    :: atomic {
        (my.call == sent || my.call == cut) ->
        my.late = false;
        begin_ask(me);
        end_ask(me, true);
        if
        :: my.call == sent -> my.call = answer
        :: my.call == cut && my.phase == waiting -> my.call = LOST
        :: else -> my.call = none
        fi;
        answer = none
    }

    /* Waiting */
    :: atomic {
        my.phase == waiting && !calls(me) && may_ask(me) ->
        send_ask()
    }
    :: atomic {
        my.phase == waiting && calls(me) && TROUBLE ->
        COUNT_IT;
        cut_call() /* its connection breaks */
    }
    :: atomic { my.phase == waiting && my.call == taken -> my.call = none }
    :: atomic {
        my.phase == waiting && my.call == granted ->
        my.call = none;
        if
        :: my.age < LEASE -> EVENT(REPLY_GRANT); hold()
        :: else -> EVENT(LATE_GRANT); send_ask()
        fi
    }
    :: atomic {
        names_newest(me) ->
        my.pushed = false;
        if
        :: my.age < LEASE -> EVENT(PUSH_GRANT); hold()
        :: my.age >= LEASE && !calls(me) -> EVENT(LATE_GRANT); send_ask()
        :: else
        fi
    }
    :: atomic {
        names_older(me) ->
        my.old = false;
        EVENT(OLD_PUSH);
        if
        :: !calls(me) -> send_ask()
        :: else
        fi
    }
    :: atomic {
        (my.pushed || my.old) && TROUBLE ->
        COUNT_IT;
        EVENT(LOST_PUSH);
        if
        :: my.pushed -> my.pushed = false
        :: my.old -> my.old = false
        fi
    }
    :: atomic {
        my.phase == waiting && TROUBLE ->
        COUNT_IT;
        my.phase = retracting;
        leave_call()
    }

    /* Holding; a lease that was lost is released, too. */
    :: atomic {
        my.phase == holding ->
        if
        :: my.age >= LEASE -> EVENT(LOST_LEASE)
        :: else
        fi;
        my.phase = releasing;
        leave_call()
    }

    /* A release or retraction is sent until answered. Its connection first ended the one of an ask that may run. */
    :: atomic {
        (my.phase == retracting || my.phase == releasing) ->
        if
        :: my.phase == retracting && K == me -> EVENT(RETRACTED_GRANT)
        :: else
        fi;
        my.call = none;
        my.late = false;
        my.phase = END_OF_ATTEMPT;
        begin_release(me);
        GAP
        end_release()
    }

    /* Death */
    :: atomic {
        my.phase != idle && lives(me) && TROUBLE ->
        COUNT_IT;
        if
        :: my.phase == holding && my.age < LEASE -> EVENT(HOLDER_CRASH)
        :: my.phase == waiting -> EVENT(WAITER_CRASH)
        :: else
        fi;
        my.phase = dead;
        leave_call()
    }
    :: atomic { my.phase == dead && !my.gone -> my.gone = true }
#ifdef ONCE
    :: atomic { !lives(me) -> clear(); break }
#else
    :: atomic {
        /* A queue that nobody asks for expires. */
        my.phase == dead && K != me && (entry[me].place == 0 || !any(lives)) ->
        forget(me);
        clear();
        my.phase = idle
    }
#endif
    od
}

/* --------------------------------------------------------------------------------------------- others, and the time */

#ifdef ONCE
#define ends(c)  (!lives(c))
#define ALL_ENDED all(ends)
#else
#define ALL_ENDED false
#endif

proctype Other_party() {
    byte head = NOBODY;

    do
    :: atomic { K == NOBODY && TROUBLE -> COUNT_IT; own(OTHER) }
    :: atomic { K == OTHER -> free() }
    :: atomic { K == OTHER -> free(); choose(NOBODY); GAP end_release() }
    :: ALL_ENDED -> break
    od
}

/* What a live client has to do. */
#define due(c) \
    (client[c].phase == releasing || client[c].phase == retracting || \
     (client[c].phase == holding && client[c].age >= LEASE) || \
     (client[c].phase == waiting && \
      (client[c].call != none || client[c].pushed || client[c].old || must_ask(c))))

#define asleep(c) (client[c].phase == waiting && (K == NOBODY || K == c))
#define awake(c)  (client[c].asleep <= THIRD + PROMPT)

#ifndef PROMPT
#define in_time(c) true
#elif PROMPT == 0
#define in_time(c) (!due(c))
#else
#define in_time(c) (!due(c) || !client[c].overdue)
#endif

/* A tick that would change nothing does not come, so a client that waits for ever is stuck in an end state. */
#define grows(c) \
    ((ages(c) && client[c].age < LEASE) || \
     (entry[c].place > 0 && entry[c].seen < HALF))

inline age_all() {
    i = 0;
    do
    :: i < CLIENTS ->
        if
        :: ages(i) && client[i].age < LEASE -> client[i].age++
        :: else
        fi;
        if
        :: entry[i].place > 0 && entry[i].seen < HALF -> entry[i].seen++
        :: else
        fi;
#if defined(PROMPT) && PROMPT > 0
        client[i].overdue = due(i);
#endif
        i++
    :: else -> break
    od;
    i = 0
}

inline count_sleep() {
    do
    :: i < CLIENTS ->
        if
        :: asleep(i) -> client[i].asleep++
        :: else -> client[i].asleep = 0
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

proctype Clock() {
    do
    :: d_step {
        (ttl > 0 || any(grows)) && all(in_time) ->
        age_all();
        if
        :: ttl == 1 -> EVENT(EXPIRY); free()
        :: ttl > 1 -> ttl--
        :: else
        fi;
#ifdef PROMPT
        count_sleep();
        CHECK(WAKE_UP, all(awake));
#endif
        check_holders()
    }
    :: ALL_ENDED -> break
    od
}

init {
    atomic {
        run Attempts(0);
        run Attempts(1);
#if CLIENTS == 3
        run Attempts(2);
#endif
        run Other_party();
        run Clock()
    }
}

#ifdef LIVENESS
ltl heard { [] (client[0].phase == waiting -> <> (client[0].phase != waiting)) }
#endif
