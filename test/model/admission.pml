/*
 * Which masters of a quorum may vote, where one after the other forgets what it granted.
 *
 * What is modelled
 *   Three masters. Each knows that it may vote, or waits, or does not know. Two clients: each asks the masters, holds the
 *   lock with a majority, and releases or loses it at any time.
 *   Masters 0 and 1 forget their keys, once each, in any order and at any time, also while the other waits: all is lost
 *   (FORGETS), or the data of an earlier time come back. Master 2 keeps its data, but may be slow to answer.
 *   A client that looks hears the masters one after the other. A master that does not know notes a mark when it is looked
 *   at, and forgets that with the rest. The client admits those that do not know: at once where the quorum is new, that is,
 *   where a look and the one before it found the same marks; and only where the mark is still there. Else they wait.
 *   The client was there before a master forgot, and heard a majority that knows: from then on a quorum is new to it only
 *   where it heard all masters. Before that it does without one that is silent.
 *   With -DNEW no master knows at first, another client has found all of them new and admits them at any time, and only
 *   master 0 forgets.
 *
 * What is not modelled
 *   Renewals, late requests, clocks: see quorum.pml. Fences: see fence.pml. With NEW, a client that comes later than the
 *   other, and to which a master is silent for longer than it is given: then it may know that the quorum is not new.
 *
 * Time
 *   A wait is over when every hold that was there, or asked for, when it began is over.
 *
 * Property: at most one client holds the lock.
 *
 * Faults; each breaks it (-DFAULT_...)
 *   ONE_KNOWS    a quorum is new where a majority does not know, though one that was heard knows.
 *   SILENT       it is new though one was not heard yet, also to a client that has heard a majority that knows.
 *   ONE_LOOK     it is new after one look, with whatever mark that found (with NEW).
 *   NO_MARK      a master is admitted at once whatever its mark is (with NEW).
 *   NO_WAIT      who is admitted votes at once.
 *   OLDER_VOTES  a master that came back with older data votes at once.
 *   OTHERS_ADMIT another application admits a master after the longest of its own leases, which are short.
 *   KEY_DELETED  the key of the lock alone is deleted at one master, which goes on voting. No rule stands against that.
 *
 * Switches: FAULT_..., and REACH=event: an error where the event happens, to see that it does.
 */

#define BOTH_LOST    1 /* neither of two masters knows */
#define WAITED       2 /* a client holds the lock with the vote of a master that forgot */
#define WITH_BOTH    3 /* and of both of them */
#define NOT_NEW      4 /* a majority does not know, and the third says so */
#define BEGUN        5 /* a master of a new quorum is admitted at once */
#define BEGUN_TWICE  6 /* and by another client, too */
#define UNMARKED     7 /* which finds that one of them has forgotten its mark meanwhile */
#define LEFT_OUT     8 /* a majority does not know, and the third is silent to a client that knows that there was a quorum */

#ifndef REACH
#define REACH 0
#endif
#define EVENT(event) assert(REACH != event)

#define MASTERS 3
#define NOBODY  2
#define AT(c, m) ((c) * MASTERS + (m))

mtype = { knows, waits, unknown, unheard };

#ifdef NEW
#define FIRST       unknown
#define FIRST_MARK  1
#define LAST_FORGETS 0
#else
#define FIRST       knows
#define FIRST_MARK  0
#define LAST_FORGETS 1
#endif
mtype state[MASTERS] = FIRST;
byte mark[MASTERS] = FIRST_MARK; /* 0: none; else 1, and 2 once the master has forgotten */
byte owner[MASTERS] = NOBODY;
bool forgot[MASTERS];
bool since[6]; /* AT(c, m): what c asks for or holds is older than the wait of m */
bool asks[2], holds[2];
bool begun; /* the client that looks has heard a majority that knows */

#define votes(c) ((owner[0] == c) + (owner[1] == c) + (owner[2] == c))

inline end_wait(m) {
    if
    :: state[m] == waits && !since[AT(0, m)] && !since[AT(1, m)] -> state[m] = knows
    :: else
    fi
}

inline end_claim(c) {
    asks[c] = false;
    holds[c] = false;
    for (m : 0 .. MASTERS - 1) {
        if
        :: owner[m] == c -> owner[m] = NOBODY
        :: else
        fi;
        since[AT(c, m)] = false;
        end_wait(m)
    }
    m = 0
}

proctype Client(byte c) {
    byte m = 0;

    do
    :: atomic { !asks[c] && !holds[c] -> asks[c] = true }
    :: atomic { asks[c] ->
        select (m : 0 .. MASTERS - 1);
        if
        :: owner[m] == NOBODY && state[m] == knows -> owner[m] = c
        :: else
        fi;
        m = 0
    }
    :: atomic { asks[c] && votes(c) >= 2 ->
        asks[c] = false;
        holds[c] = true;
        if
        :: (owner[0] == c && forgot[0]) || (owner[1] == c && forgot[1]) -> EVENT(WAITED)
        :: else
        fi;
        if
        :: owner[0] == c && forgot[0] && owner[1] == c && forgot[1] -> EVENT(WITH_BOTH)
        :: else
        fi;
        assert(!(holds[0] && holds[1]))
    }
    :: atomic { asks[c] || holds[c] -> end_claim(c) }
    od
}

/* From now on. */
inline admit(m, at_once) {
#ifdef FAULT_NO_WAIT
    state[m] = knows;
#else
    if
    :: at_once -> state[m] = knows
    :: else ->
        state[m] = waits;
        since[AT(0, m)] = asks[0] || holds[0];
        since[AT(1, m)] = asks[1] || holds[1];
        end_wait(m)
    fi
#endif
}

#define is_unknown(m) (heard[m] == unknown)
#define is_known(m)   (heard[m] == knows || heard[m] == waits)
#define is_marked(m)  (is_unknown(m) && seen[m] == before[m])
#define count(what)   (what(0) + what(1) + what(2))

#ifdef FAULT_ONE_KNOWS
#define nobody_knows true
#else
#define nobody_knows (count(is_known) == 0)
#endif
#define all_heard (count(is_known) + count(is_unknown) == MASTERS)
#ifdef FAULT_SILENT
#define all_had_time true
#elif defined(NEW)
#define all_had_time all_heard
#else
#define all_had_time (!begun || all_heard)
#endif
#ifdef FAULT_ONE_LOOK
#define all_are_marked true
#else
#define all_are_marked (count(is_marked) == count(is_unknown))
#endif
#ifdef FAULT_NO_MARK
#define has_its_mark(m) true
#else
#define has_its_mark(m) (mark[m] == seen[m])
#endif

inline hear(m) {
    heard[m] = state[m];
    if
    :: state[m] == unknown && mark[m] == 0 -> mark[m] = 1 + forgot[m]
    :: else
    fi;
    seen[m] = (state[m] == unknown -> mark[m] : 0)
}

inline admit_marked(m) {
    if
    :: state[m] == unknown && has_its_mark(m) -> admit(m, true)
    :: state[m] == unknown && !has_its_mark(m) -> EVENT(UNMARKED)
    :: else
    fi;
    heard[m] = waits
}

inline end_look(m) {
    before[m] = (heard[m] == unheard -> before[m] : seen[m]);
    heard[m] = unheard;
    seen[m] = 0
}

proctype Look() {
    mtype heard[MASTERS] = unheard;
    byte seen[MASTERS], before[MASTERS]; /* marks: of this look, and of the one before */
    byte m = 0;

    do
    :: atomic { heard[0] == unheard -> hear(0) }
    :: atomic { heard[1] == unheard -> hear(1) }
    :: atomic { heard[2] == unheard -> hear(2) }
    :: atomic { count(is_unknown) >= 2 && all_had_time && nobody_knows && all_are_marked ->
        EVENT(BEGUN_TWICE);
        /* Each is told by a message of its own. */
        do
        :: atomic { is_unknown(0) -> admit_marked(0) }
        :: atomic { is_unknown(1) -> admit_marked(1) }
        :: atomic { is_unknown(2) -> admit_marked(2) }
        :: atomic { !is_unknown(0) && !is_unknown(1) && !is_unknown(2) -> break }
        od;
        end_look(0);
        end_look(1);
        end_look(2)
    }
    :: atomic { count(is_known) > 0 || (begun && count(is_unknown) >= 2) ->
        if
        :: count(is_known) > 0 && count(is_unknown) >= 2 -> EVENT(NOT_NEW)
        :: count(is_known) == 0 && !all_heard -> EVENT(LEFT_OUT)
        :: else
        fi;
        begun = begun || count(is_known) >= 2;
        for (m : 0 .. MASTERS - 1) {
            if
            :: is_unknown(m) && state[m] == unknown -> admit(m, false)
            :: else
            fi;
            end_look(m)
        }
        m = 0
    }
    :: atomic { count(is_known) + count(is_unknown) > 0 ->
        end_look(0);
        end_look(1);
        end_look(2)
    }
    od
}

#ifdef NEW
#define may_forget true
#else
#define may_forget begun
#endif

active [1] proctype World() {
    byte m = 0;

    do
    :: atomic {
        select (m : 0 .. LAST_FORGETS);
        if
        :: !forgot[m] && may_forget ->
            forgot[m] = true;
            owner[m] = NOBODY;
            mark[m] = 0;
#ifndef FAULT_OLDER_VOTES
            state[m] = unknown;
            since[AT(0, m)] = false;
            since[AT(1, m)] = false;
#endif
            if
            :: state[0] == unknown && state[1] == unknown -> EVENT(BOTH_LOST)
            :: else
            fi
        :: else
        fi;
        m = 0
    }
#ifdef NEW
    :: atomic {
        select (m : 0 .. MASTERS - 1);
        if
        :: state[m] == unknown && mark[m] == FIRST_MARK -> EVENT(BEGUN); state[m] = knows
        :: else
        fi;
        m = 0
    }
#endif
#ifdef FAULT_OTHERS_ADMIT
    :: atomic { state[0] == unknown -> state[0] = knows }
#endif
#ifdef FAULT_KEY_DELETED
    :: atomic { owner[0] != NOBODY && !forgot[0] && !forgot[1] -> owner[0] = NOBODY }
#endif
    od
}

init {
    atomic {
        run Client(0);
        run Client(1);
        run Look()
    }
}
