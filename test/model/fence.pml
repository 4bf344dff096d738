/*
 * The fences of a quorum of five masters. Two of them may fail at a time.
 *
 * What is modelled
 *   One name. Each master keeps F, its last fence. A fence is the master's clock, or one more than the last, or than the
 *   master's floor, whichever is largest; the clock of master 0 is ahead of the others by more than all fences that are
 *   given here. A script is one step.
 *   One client makes an attempt after the other: the lock itself is the model's quorum.pml. A client asks all masters.
 *   Where a majority granted the lock, it raises the fence on a majority, one master after the other, and holds. It may
 *   give up at any time. Masters fail, at most two at a time: one is away for a while (KILLS), or loses its data
 *   (WIPES). Who lost its data does not vote before the attempt that was under way then is over: each lease that the
 *   master granted is over by then. Then its floor is read at three masters that may vote, one after the other, and it
 *   may vote.
 *
 * What is not modelled
 *   Time: see quorum.pml. Raises that arrive late: they make F larger, and nobody holds by them. Older data: that is a
 *   smaller loss than all data.
 *
 * Property: every hold has a larger fence than the hold before.
 *
 * Faults; each breaks it (-DFAULT_...)
 *   NO_FLOOR    who lost its data votes with whatever its clock shows.
 *   CLOCKS      the floor is what the clocks show of those that can be reached.
 *   TOO_SOON    the floor is read before the wait is over.
 *   FEW         two masters tell the floor.
 *   ANY_SOURCE  masters that wait themselves tell the floor, too.
 *
 *   Two masters with right clocks can be wiped, and the one that is ahead: the others are like them.
 *
 * Switches: ATTEMPTS, WIPES, KILLS: how many in all. FAULT_..., and REACH=event: an error where the event happens, to see that it does.
 */

#define FLOORED  1 /* a master that lost its data has a vote in a hold */
#define TWO_LOST 2 /* two masters wait at the same time */
#define CUT      3 /* a master loses its data while a fence is raised */

#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef WIPES
#define WIPES 1
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef REACH
#define REACH 0
#endif
#define EVENT(event) assert(REACH != event)

#define MASTERS  5
#define MAJORITY 3
#define AHEAD    8
#ifdef FAULT_FEW
#define SOURCES 2
#else
#define SOURCES 3
#endif

#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define clock(m)  ((m) == 0 -> AHEAD : 0)

byte F[MASTERS], floor[MASTERS];
bool away[MASTERS];
bool votes[MASTERS] = true;
bool waits[MASTERS]; /* it lost its data, and the attempt that was under way is not over */
byte asked[MASTERS]; /* so many sources of its floor were read */
byte read_at[MASTERS]; /* the set of those */
byte highest[MASTERS]; /* what they told */
bool owns[MASTERS];  /* the key is there, of the attempt that is under way */
byte got[MASTERS];   /* the fence that the client knows the master to have; 0: not granted */
#if REACH == FLOORED
bool lost[MASTERS];
#endif

bool attempting, raising;
byte fence, last, attempts, wipes, kills;

#define granted ((got[0] > 0) + (got[1] > 0) + (got[2] > 0) + (got[3] > 0) + (got[4] > 0))
#define has(m) (got[m] >= fence)
#define raised (has(0) + has(1) + has(2) + has(3) + has(4))
#define is_faulty(m) (away[m] || !votes[m])
#define faulty (is_faulty(0) + is_faulty(1) + is_faulty(2) + is_faulty(3) + is_faulty(4))

inline end_attempt() {
    for (m : 0 .. MASTERS - 1) {
        owns[m] = false;
        got[m] = 0;
        waits[m] = false
    }
    m = 0;
    attempting = false;
    raising = false;
    fence = 0
}

active proctype Client() {
    byte m = 0;

    do
    :: atomic { !attempting && attempts < ATTEMPTS -> attempts++; attempting = true }
    :: atomic { attempting && !raising && granted >= MAJORITY ->
        raising = true;
        for (m : 0 .. MASTERS - 1) {
            fence = MAX(fence, got[m])
        }
        m = 0
    }
    :: atomic { raising && raised >= MAJORITY ->
#if REACH == FLOORED
        for (m : 0 .. MASTERS - 1) {
            if
            :: lost[m] && got[m] >= fence -> EVENT(FLOORED)
            :: else
            fi
        }
        m = 0;
#endif
        assert(fence > last);
        last = fence;
        end_attempt()
    }
    :: atomic { attempting -> end_attempt() }
    od
}

/* A master, as a client meets it. */
proctype Master(byte m) {
    do
    :: atomic { attempting && !raising && got[m] == 0 && !away[m] && votes[m] ->
        F[m] = MAX(MAX(F[m] + 1, floor[m] + 1), clock(m));
        got[m] = F[m];
        owns[m] = true
    }
    :: atomic { raising && got[m] > 0 && got[m] < fence && !away[m] && owns[m] ->
        F[m] = MAX(F[m], fence);
        got[m] = F[m]
    }
    od
}

/* What happens to it. */
proctype World(byte m) {
    byte s = 0;

    do
    :: atomic { kills < KILLS && !away[m] && (faulty < 2 || is_faulty(m)) -> kills++; away[m] = true }
    :: atomic { away[m] -> away[m] = false }
    :: atomic { wipes < WIPES && m <= 2 && !away[m] && (faulty < 2 || is_faulty(m)) ->
        wipes++;
        if
        :: raising && owns[m] -> EVENT(CUT)
        :: else
        fi;
        F[m] = 0;
        floor[m] = 0;
        owns[m] = false;
        votes[m] = false;
        waits[m] = attempting;
        asked[m] = 0;
        read_at[m] = 0;
        highest[m] = 0;
#if REACH == FLOORED
        lost[m] = true;
#endif
#if REACH == TWO_LOST
        assert((!votes[0]) + (!votes[1]) + (!votes[2]) + (!votes[3]) + (!votes[4]) < 2)
#endif
    }
#ifndef FAULT_NO_FLOOR
    /* A source. What it says of its fences is no smaller than its floor, nor than its clock. */
    :: atomic { !votes[m] && !away[m] && asked[m] < SOURCES &&
#ifndef FAULT_TOO_SOON
        !waits[m] &&
#endif
        true ->
        select (s : 0 .. MASTERS - 1);
        if
        :: s != m && !away[s] && !(read_at[m] >> s & 1) &&
#ifndef FAULT_ANY_SOURCE
           votes[s] &&
#endif
           true ->
            read_at[m] = read_at[m] | (1 << s);
            asked[m]++;
#ifdef FAULT_CLOCKS
            highest[m] = MAX(highest[m], clock(s))
#else
            highest[m] = MAX(highest[m], MAX(F[s], MAX(floor[s], clock(s))))
#endif
        :: else
        fi;
        s = 0
    }
#endif
    :: atomic { !votes[m] && !away[m] && !waits[m] &&
#ifndef FAULT_NO_FLOOR
        asked[m] >= SOURCES &&
#endif
        true ->
        floor[m] = highest[m];
        votes[m] = true;
        asked[m] = 0;
        read_at[m] = 0;
        highest[m] = 0
    }
    od
}

init {
    byte i = 0;

    atomic {
        for (i : 0 .. MASTERS - 1) {
            run Master(i);
            run World(i)
        }
        i = 0
    }
}
