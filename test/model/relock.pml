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
 *   Another party takes a free K, and frees it without a look at the queue. The server may come back with an older F, as
 *   another server: so no client uses the fence again that it had before.
 *
 * What is not modelled
 *   Renewals, the end of leases, and pushes that get lost. The clock of the server, which a new fence is, counts up with each.
 *
 * Properties
 *   EXCLUSION  no two clients hold at the same time.
 *   FENCE      each hold has a larger pair of fence and step than all before.
 *   ORDER      a client that waits is not passed by one that asks later.
 *   OVER       where all is done, K is free.
 *   SERVED     where a release is done, nobody waits for a K that is free, unless the other party freed it.
 *
 * Faults; each breaks the property behind it (-DFAULT_...)
 *   NO_LOOK_AT_F    FENCE      the fence is used again though another was granted the lock since.
 *   F_BEFORE_K      FENCE      F is read before K is set: another has the lock in between.
 *   NO_LOOK_AT_Q    ORDER      K is kept though somebody waited.
 *   OLD_FENCE       FENCE      after a break the script finds K its own, and answers with F as it is.
 *   ANY_SERVER      FENCE      a fence is used again at a server that may have forgotten others.
 *   Q_BEFORE_DELETE SERVED     a release looks at the queue before it deletes K.
 *   NO_SCRIPT       SERVED     no script runs though somebody waited.
 *   NO_SCRIPT_THEN  SERVED     no script runs though the connection broke.
 */

#define EXCLUSION 1
#define FENCE     2
#define ORDER     3
#define OVER      4
#define SERVED    5

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

#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#define NOBODY 2

#define PARTY 3

byte K = NOBODY, F, clock, server;
bool waits[2];          /* in the queue */
bool granted[2];        /* by a script of the other's */
bool holds[2];
byte fence[2], step[2]; /* of the newest hold */
byte noted[2], noted_step[2], noted_at[2]; /* that may be used again; 0: none */
byte last, last_step;   /* of the newest hold of all */
byte attempts[2];       /* that have begun */
byte snapshot;          /* an earlier F */
bool freed;             /* by the other party */

#define other (1 - me)

inline hold(with_fence, with_step) {
    CHECK(EXCLUSION, !holds[other]);
    CHECK(FENCE, with_fence > last || (with_fence == last && with_step > last_step));
    fence[me] = with_fence;
    step[me] = with_step;
    last = with_fence;
    last_step = with_step;
    holds[me] = true
}

inline new_fence() {
    clock++;
    F = clock
}

/* K is free: it goes to the other, where that waits. */
inline serve() {
    if
    :: waits[other] ->
        waits[other] = false;
        new_fence();
        K = other;
        granted[other] = true
    :: else
    fi
}

/* The scripts. An ask leaves in `answer` whether K is the client's. */
inline ask() {
    if
    :: K == NOBODY -> serve()
    :: else
    fi;
    if
    :: K == NOBODY -> new_fence(); K = me; answer = true
    :: K == me ->
#ifndef FAULT_OLD_FENCE
        new_fence();
#endif
        answer = true
    :: else -> waits[me] = true; answer = false
    fi;
    if
    :: answer -> waits[me] = false
    :: else
    fi
}

inline release() {
    if
    :: K == me -> K = NOBODY; serve()
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
    byte f, s, on;

    do
    :: atomic { attempts[me] < ATTEMPTS && !holds[me] && !waits[me] && !granted[me] ->
        attempts[me]++;
        answer = false;
        on = server;
        f = noted[me];
        s = noted_step[me];
#ifndef FAULT_ANY_SERVER
        if
        :: noted_at[me] != server -> f = 0
        :: else
        fi;
#endif
        noted[me] = 0
       }
       if
       :: f == 0 -> atomic { ask(); if :: answer -> hold(F, 0) :: else fi }
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
            :: atomic { server == on && took && same && !queued -> EVENT(GRANTED_AGAIN); hold(f, s) }
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
#ifndef FAULT_OLD_FENCE
                release();
#endif
                ask();
                if
                :: answer -> hold(F, 0)
                :: else
                fi
            }
       fi;
    over: atomic { took = false; same = false; queued = false; answer = false; f = 0; s = 0; on = 0 } /* fewer states */

    :: atomic { granted[me] -> granted[me] = false; CHECK(EXCLUSION, K == me); hold(F, 0) }
    :: atomic { holds[me] ->
        holds[me] = false;
        noted[me] = fence[me];
        noted_step[me] = step[me] + 1;
        noted_at[me] = server;
        on = server
       }
       if
       :: atomic { release() }
       :: /* by plain commands */
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
    :: atomic { waits[me] && K == NOBODY -> ask(); if :: answer -> hold(F, 0) :: else fi } /* it asks now and then */
    :: atomic { attempts[me] == ATTEMPTS && !holds[me] && !waits[me] && !granted[me] -> break }
    od
}

proctype Other_party() {
    atomic { K == NOBODY -> K = PARTY }
    atomic { K == PARTY -> K = NOBODY; freed = true }
}

/* The server comes back with an older F. */
proctype Server() {
    atomic { snapshot = F }
    atomic { K == NOBODY ->
        EVENT(OLDER);
        server++;
        F = snapshot
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
