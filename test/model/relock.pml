/*
 * Locking a name again by plain commands (rule 70), and releasing it by such (rule 71).
 *
 * What is modelled
 *   The store: the key K, its fence F, and whether the other client waits in the queue. A script is one step. Two clients:
 *   each asks by a script, or, where it released the lock before, by three commands between which anything may happen:
 *   EXISTS Q, SET K NX PX, GET F. The lock is granted by them where nobody waited, K was free, and F is the fence that the
 *   client had. Else a script gives K back to who waits, or asks with a new fence. The connection may break behind any of
 *   the three, and does where the server comes back: then the next one ends it, and a script asks.
 *   A client releases by a script, or by two commands between which anything may happen: K is deleted where it is the
 *   client's, then EXISTS Q. Where somebody waits, or K was not deleted, the script runs behind them. The connection may break
 *   behind each of the two, and does where the server comes back; then the script runs, too.
 *   With SHARING, each attempt is to have the lock alone, or to share it. A sharer that is the only one has K as one that is alone has it;
 *   the script of a second one makes K shared by both, and each is given its own fence. A sharer releases by the script.
 *   The store tells by two numbers whether somebody had the lock alone since a sharer: the fence of the newest sharer, and
 *   the largest that a lock held alone can have had before that one (`>` and `<`, rule 61).
 *   Another party takes a free K, and frees it without a look at the queue. The server may come back with an older F, as
 *   another server: so no client uses the fence again that it had before.
 *
 * What is not modelled
 *   Renewals, the end of leases, and pushes that get lost. The clock of the server, which a new fence is, counts up with each.
 *
 * Properties
 *   EXCLUSION  no two clients hold at the same time, unless both share.
 *   FENCE      each hold has a larger pair of fence and step than all before; a sharer, than all that were alone and than
 *              its own ones.
 *   ORDER      a client that waits is not passed by one that asks later.
 *   OVER       where all is done, K is free.
 *   ALONE      where the newest sharer's fence is F, no lock was held alone with a fence above `<`.
 *   SERVED     where a release is done, nobody waits for a K that is free, unless the other party freed it.
 *
 * Faults; each breaks the property behind it (-DFAULT_...)
 *   NO_LOOK_AT_F    FENCE      the fence is used again though another was granted the lock since.
 *   F_BEFORE_K      FENCE      F is read before K is set: another has the lock in between.
 *   NO_LOOK_AT_Q    ORDER      K is kept though somebody waited.
 *   OLD_FENCE       FENCE      after a break the script finds K its own, and answers with F as it is.
 *   ANY_SERVER      FENCE      a fence is used again at a server that may have forgotten others.
 *   ANY_KIND        ALONE      the fence of a sharer is used again by one that is alone.
 *   STAYS_SHARER    FENCE      who took K, and shares it with another before F was read, asks without having released it.
 *   Q_BEFORE_DELETE SERVED     a release looks at the queue before it deletes K.
 *   NO_SCRIPT       SERVED     no script runs though somebody waited.
 *   NO_SCRIPT_THEN  SERVED     no script runs though the connection broke.
 */

#define EXCLUSION 1
#define FENCE     2
#define ORDER     3
#define OVER      4
#define SERVED    5
#define ALONE     6

#ifdef PROPERTY
#define CHECK(property, condition) assert(PROPERTY != property || (condition))
#else
#define CHECK(property, condition) assert(condition)
#endif
#ifndef REACH
#define REACH 0
#endif
#define EVENT(event) assert(REACH != event)

#define GRANTED_AGAIN 1
#define REFUSED_BY_F  2
#define GIVEN_BACK    3
#define BROKEN        4
#define OLDER         5
#define RELEASED      6
#define SERVED_BEHIND 7
#define BROKEN_RELEASE 8
#define SHARED_AGAIN  9
#define JOINED        10

#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#define NOBODY 2

#define PARTY 3
#define BOTH  4 /* share K */

byte K = NOBODY, F, clock, server;
bool waits[2];          /* in the queue */
bool shares[2];         /* the attempt, or the hold */
bool within[2];         /* among those who share K */
byte own[2];            /* the fence of one that shares K */
byte newest, before;    /* `>` and `<` */
bool granted[2];        /* by a script of the other's */
bool holds[2];
byte fence[2], step[2]; /* of the newest hold */
byte noted[2], noted_step[2], noted_at[2]; bool noted_shared[2]; /* that may be used again; 0: none */
byte last, last_step;   /* of the newest hold of all */
byte last_alone, last_step_alone;
byte attempts[2];       /* that have begun */
byte snapshot, snapshot_newest, snapshot_before; /* earlier ones */
bool freed;             /* by the other party */

#define other (1 - me)

#define LARGER(f, s) (with_fence > f || (with_fence == f && with_step > s))

inline hold(with_fence, with_step) {
    CHECK(EXCLUSION, !holds[other] || (shares[me] && shares[other]));
    CHECK(ALONE, shares[me] || newest != F || with_fence <= before);
    CHECK(FENCE, LARGER(last, last_step) || (shares[me] && LARGER(last_alone, last_step_alone) && LARGER(fence[me], step[me])));
    if
    :: LARGER(last, last_step) -> last = with_fence; last_step = with_step
    :: else
    fi;
    if
    :: !shares[me] -> last_alone = with_fence; last_step_alone = with_step
    :: else
    fi;
    fence[me] = with_fence;
    step[me] = with_step;
    holds[me] = true
}

inline new_fence() {
    clock++;
    F = clock
}

/* K is free: that client has it. */
inline grant(client) {
    if
    :: shares[client] ->
        if
        :: newest != F -> before = F
        :: else
        fi;
        new_fence();
        newest = F
    :: else -> new_fence()
    fi;
    K = client
}

/* K is free: it goes to the other, where that waits. */
inline serve() {
    if
    :: waits[other] ->
        waits[other] = false;
        grant(other);
        granted[other] = true
    :: else
    fi
}

/* The scripts. An ask leaves in `answer` whether K is the client's, and in `said` its fence. */
inline ask() {
    if
    :: K == NOBODY -> serve()
    :: K == other && shares[me] && shares[other] && !waits[other] -> /* it is shared by several from now on */
        if
        :: newest != F -> before = F; newest = F
        :: else
        fi;
        own[other] = F;
        within[other] = true;
        K = BOTH
    :: else
    fi;
    if
    :: K == NOBODY -> grant(me); answer = true; said = F
    :: K == me ->
#ifndef FAULT_OLD_FENCE
        new_fence();
#endif
        answer = true;
        said = F
    :: K == BOTH && within[me] -> answer = true; said = own[me]
    :: K == BOTH && !within[me] && shares[me] && !waits[other] ->
        EVENT(JOINED);
        new_fence();
        newest = F;
        own[me] = F;
        within[me] = true;
        answer = true;
        said = F
    :: else -> waits[me] = true; answer = false
    fi;
    if
    :: answer -> waits[me] = false
    :: else
    fi
}

inline leave() {
    within[me] = false;
    own[me] = 0;
    if
    :: !within[other] -> K = NOBODY; serve()
    :: else
    fi
}

inline release() {
    if
    :: K == me -> K = NOBODY; serve()
    :: K == BOTH && within[me] -> leave()
    :: else
    fi
}

/* The script behind plain commands: where K is gone, it serves who waits. */
inline release_behind() {
    if
    :: K == me -> K = NOBODY; serve()
    :: K == NOBODY -> serve()
    :: else
    fi
}

proctype Client(byte me) {
    bool answer, queued, took, same, deleted;
    byte f, s, on, said;

    do
    :: atomic { attempts[me] < ATTEMPTS && !holds[me] && !waits[me] && !granted[me] ->
        attempts[me]++;
        answer = false;
#ifdef SHARING
        if
        :: shares[me] = true
        :: shares[me] = false
        fi;
#endif
        on = server;
        f = noted[me];
        s = noted_step[me];
#ifndef FAULT_ANY_SERVER
        if
        :: noted_at[me] != server -> f = 0
        :: else
        fi;
#endif
#ifndef FAULT_ANY_KIND
        if
        :: noted_shared[me] != shares[me] -> f = 0
        :: else
        fi;
#endif
        noted[me] = 0
       }
       if
       :: f == 0 -> atomic { ask(); if :: answer -> hold(said, 0) :: else fi }
       :: f > 0 -> /* by plain commands, on a connection that may break behind each of them */
            took = false;
            atomic {
                queued = waits[other];
#ifdef FAULT_F_BEFORE_K
                same = (F == f);
#endif
                skip
            }
            if
            :: goto broken
            :: server == on
            fi;
            atomic {
                if
                :: server == on && K == NOBODY -> K = me; took = true
                :: else
                fi
            }
            if
            :: goto broken
            :: server == on
            fi;
            atomic {
#ifndef FAULT_F_BEFORE_K
                same = (F == f);
#endif
#ifdef FAULT_NO_LOOK_AT_F
                same = true;
#endif
#ifdef FAULT_NO_LOOK_AT_Q
                CHECK(ORDER, !(took && queued && waits[other]));
                queued = false;
#endif
                skip
            }
            if
            :: goto broken
            :: atomic { server == on && took && same && !queued ->
                if
                :: shares[me] -> EVENT(SHARED_AGAIN)
                :: else -> EVENT(GRANTED_AGAIN)
                fi;
                hold(f, s)
               }
            :: atomic { server == on && !(took && same && !queued) ->
                if
                :: took && !same -> EVENT(REFUSED_BY_F)
                :: took && same && waits[other] -> EVENT(GIVEN_BACK)
                :: else
                fi
               }
               goto script
            fi;
            goto over;
       broken:
            EVENT(BROKEN);
       script:
            atomic { /* requeue.lua: what was taken is given back first */
#ifdef FAULT_STAYS_SHARER
                if
                :: K == me -> release()
                :: else
                fi;
#else
#ifndef FAULT_OLD_FENCE
                release();
#endif
#endif
                ask();
                if
                :: answer -> hold(said, 0)
                :: else
                fi
            }
       fi;
    over: atomic { took = false; same = false; queued = false; answer = false; said = 0; f = 0; s = 0; on = 0 } /* fewer states */

    :: atomic { granted[me] ->
        granted[me] = false;
        CHECK(EXCLUSION, K == me || (K == BOTH && within[me]));
        if
        :: K == me -> said = F
        :: else -> said = own[me]
        fi;
        hold(said, 0);
        said = 0
       }
    :: atomic { holds[me] ->
        holds[me] = false;
        noted[me] = fence[me];
        noted_step[me] = step[me] + 1;
        noted_at[me] = server;
        noted_shared[me] = shares[me];
        on = server
       }
       if
       :: atomic { release() }
       :: !shares[me] -> /* by plain commands */
            deleted = false;
#ifdef FAULT_Q_BEFORE_DELETE
            queued = waits[other];
#endif
            atomic {
                if
                :: server == on && K == me -> K = NOBODY; deleted = true
                :: else
                fi
            }
            if
            :: goto broken_release
            :: server == on
            fi;
            atomic {
#ifndef FAULT_Q_BEFORE_DELETE
                queued = waits[other];
#endif
#ifdef FAULT_NO_SCRIPT
                queued = false;
#endif
                skip
            }
            if
            :: goto broken_release
            :: atomic { server == on && deleted && !queued -> EVENT(RELEASED) }
            :: atomic { server == on && !(deleted && !queued) -> EVENT(SERVED_BEHIND); release_behind() }
            fi;
            goto released;
       broken_release:
            atomic { EVENT(BROKEN_RELEASE); queued = false; deleted = false }
#ifndef FAULT_NO_SCRIPT_THEN
            atomic { release_behind() }
#endif
       fi;
    released: atomic { CHECK(SERVED, !(waits[other] && K == NOBODY) || freed);
        deleted = false;
        queued = false;
        on = 0
       }
    :: atomic { waits[me] && K == NOBODY -> ask(); if :: answer -> hold(said, 0) :: else fi } /* it asks now and then */
    :: atomic { attempts[me] == ATTEMPTS && !holds[me] && !waits[me] && !granted[me] -> break }
    od
}

proctype Other_party() {
    atomic { K == NOBODY -> K = PARTY }
    atomic { K == PARTY -> K = NOBODY; freed = true }
}

/* The server comes back with an older F. */
proctype Server() {
    atomic { snapshot = F; snapshot_newest = newest; snapshot_before = before }
    atomic { K == NOBODY ->
        EVENT(OLDER);
        server++;
        F = snapshot;
        newest = snapshot_newest;
        before = snapshot_before
    }
}

init {
    atomic {
        run Client(0);
        run Client(1);
        run Other_party();
        run Server()
    }
    atomic { _nr_pr == 1 -> CHECK(OVER, K == NOBODY) }
}
