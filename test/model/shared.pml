/*
 * The queue of a lock that may be shared: who is let in, by whom, and what becomes of those who die.
 *
 * What is modelled
 *   The store: who has the lock, alone or shared, the rest of each one's lease, and the queue in the order of arrival.
 *   A script is one step: an ask, the end of a hold, the end of a wait. Each serves the queue as serve.lua does: the
 *   head is let in if it fits, then the next, up to the first that does not; a head that is dead is taken out.
 *   CLIENTS clients: the first ALONE of them want the lock alone, the others share it. Each other one gives its own
 *   limit, LIMIT or with DIFFER one more. Each asks by one try, or waits; is told of its grant by a push that may be
 *   lost, or by its next ask; gives up, or releases; or dies, while it waits or holds. A dead one's lease runs out by
 *   ticks; a live one renews, and its renewals may come late, when its lease is over.
 *
 * What is not modelled
 *   The numbers of asks and the deadlines of holders, which are the same for both kinds: queue.pml. Fences, restarts,
 *   a quorum.
 *
 * Properties
 *   EXCLUSION  who has the lock alone has it alone.
 *   LIMIT      a client that is let in to share finds fewer sharers than its own limit.
 *   ORDER      nobody is let in to share while somebody waits who came before and wants the lock alone, and lives.
 *   SERVED     when a script ends, a live head of the queue does not fit.
 *   GONE       a dead one's place is nobody's once its lease is over: when a script has looked at the sharers.
 *
 * Faults; each breaks the property behind it (-DFAULT_...)
 *   PASSED_WRITER  ORDER   an ask to share does not look at the queue
 *   UNSERVED       SERVED  who gives up leaves the queue without serving it
 *   DEAD_KEPT      GONE    who counts the sharers does not take out the dead
 *   REVIVED        LIMIT   a renewal that comes late puts its token back. (Who was let in meanwhile is one too many.)
 *
 * Switches: CLIENTS, ALONE, LIMIT (0: none), DIFFER, FAULT_..., PROPERTY=..., REACH=event.
 */

#define EXCLUSION 1
#define AT_MOST   2
#define ORDER     3
#define SERVED    4
#define GONE      5

#define TOGETHER   1 /* two are let in by one script */
#define LOST_PUSH  2
#define LEFT_QUEUE 3 /* who gives up lets others in */
#define DEAD_HEAD  4
#define FREED      5 /* the lease of a dead sharer ends, beside one who lives */
#define LATE       6 /* a renewal comes when the lease is over */

#ifndef CLIENTS
#define CLIENTS 4
#endif
#ifndef ALONE
#define ALONE 1
#endif
#ifndef LIMIT
#define LIMIT 2
#endif
#ifndef REACH
#define REACH 0
#endif
#define LEASE 2

#ifdef PROPERTY
#define CHECK(property, condition) assert(PROPERTY != property || (condition))
#else
#define CHECK(property, condition) assert(condition)
#endif
#define EVENT(event) assert(REACH != event)

#define alone(c) (c < ALONE)
#ifdef DIFFER
#define limit(c) (LIMIT + (c % 2))
#else
#define limit(c) LIMIT
#endif

mtype:phase = { idle, waiting, holding, dead };

mtype:phase phase[CLIENTS];
bool has[CLIENTS];   /* the store: it has the lock */
byte left[CLIENTS];  /* of its lease, in the store */
byte place[CLIENTS]; /* in the queue, from 1; 0: none */
byte sharers, waiters, i, served;
bool taken, blocked; /* somebody has the lock alone; somebody who came before waits for it alone */

inline look() {
    sharers = 0;
    taken = false;
    i = 0;
    do
    :: i < CLIENTS ->
        if
        :: has[i] && alone(i) -> taken = true
        :: has[i] && !alone(i) -> sharers++
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

/* What every script does first: leases that are over end. */
inline sweep() {
    look();
    i = 0;
    do
    :: i < CLIENTS ->
        if
#ifdef FAULT_DEAD_KEPT
        :: has[i] && left[i] == 0 && alone(i) -> has[i] = false
#else
        :: has[i] && left[i] == 0 ->
            has[i] = false;
            if
            :: sharers > 1 -> EVENT(FREED)
            :: else
            fi
#endif
        :: else
        fi;
        CHECK(GONE, !has[i] || left[i] > 0);
        i++
    :: else -> break
    od;
    look()
}

#define fits(c) ((alone(c) && !taken && sharers == 0) || \
                 (!alone(c) && !taken && (limit(c) == 0 || sharers < limit(c))))

inline leave(c) {
    if
    :: place[c] > 0 ->
        i = 0;
        do
        :: i < CLIENTS ->
            if
            :: place[i] > place[c] -> place[i]--
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0;
        place[c] = 0;
        waiters--
    :: else
    fi
}

/* Whether somebody who lives and wants the lock alone waits before c. */
inline look_before(c) {
    blocked = false;
    i = 0;
    do
    :: i < CLIENTS ->
        if
        :: place[i] > 0 && alone(i) && phase[i] == waiting && (place[c] == 0 || place[i] < place[c]) -> blocked = true
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

inline let_in(c) {
    look_before(c);
    CHECK(ORDER, alone(c) || !blocked);
    CHECK(AT_MOST, alone(c) || (!taken && (limit(c) == 0 || sharers < limit(c))));
    CHECK(EXCLUSION, !alone(c) || (!taken && sharers == 0));
    blocked = false;
    leave(c);
    has[c] = true;
    left[c] = LEASE;
    look()
}

byte head;

inline find_head() {
    head = 0;
    do
    :: head < CLIENTS && place[head] != 1 -> head++
    :: else -> break
    od
}

inline serve() {
    served = 0;
    find_head();
    do
    :: head < CLIENTS && phase[head] != waiting -> EVENT(DEAD_HEAD); leave(head); find_head()
    :: head < CLIENTS && phase[head] == waiting && fits(head) ->
        let_in(head);
        served++;
        if
        :: served > 1 -> EVENT(TOGETHER)
        :: else
        fi;
        if
        :: phase[head] == waiting -> phase[head] = holding /* by a push */
        :: true -> EVENT(LOST_PUSH) /* the client asks again, and finds that it has the lock */
        fi;
        find_head()
    :: else -> break
    od;
    CHECK(SERVED, head == CLIENTS || !fits(head));
    head = 0
}

/* Who lives renews in time. */
inline tick() {
    i = 0;
    do
    :: i < CLIENTS ->
        if
        :: left[i] > 0 && phase[i] == dead -> left[i]--
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

inline ask(c, waits) {
    sweep();
    if
    :: has[c] -> phase[c] = holding
    :: else ->
#ifdef FAULT_PASSED_WRITER
        if
        :: !alone(c) && fits(c) -> let_in(c); phase[c] = holding
        :: else
        fi;
#endif
        serve();
        if
        :: has[c] -> phase[c] = holding
        :: !has[c] && waiters == 0 && fits(c) -> let_in(c); phase[c] = holding
        :: !has[c] && (waiters > 0 || !fits(c)) && waits && place[c] == 0 ->
            waiters++;
            place[c] = waiters;
            phase[c] = waiting;
            serve()
        :: else
        fi
    fi;
    served = 0
}

inline end(c) {
    has[c] = false;
    left[c] = 0;
    sweep();
    leave(c);
    phase[c] = idle;
    serve();
    served = 0
}

inline give_up(c) {
    sweep();
    leave(c);
    if
    :: has[c] -> has[c] = false; look()
    :: else
    fi;
    phase[c] = idle;
#ifdef FAULT_UNSERVED
    find_head();
    CHECK(SERVED, head == CLIENTS || phase[head] != waiting || !fits(head));
    head = 0
#else
    serve();
    if
    :: served > 0 -> EVENT(LEFT_QUEUE)
    :: else
    fi
#endif
    ;
    served = 0
}

proctype Client(byte c) {
    do
    :: atomic { phase[c] == idle -> ask(c, true) }
    :: atomic { phase[c] == idle -> ask(c, false) }
    :: atomic { phase[c] == waiting -> ask(c, true) }
    :: atomic { phase[c] == waiting -> give_up(c) }
    :: atomic { phase[c] == holding -> end(c) }
    :: atomic { phase[c] == waiting || phase[c] == holding -> phase[c] = dead }
    :: atomic { phase[c] == dead && !has[c] && place[c] == 0 -> left[c] = 0; phase[c] = idle } /* another in its place */
    :: atomic { phase[c] == dead && place[c] > 0 && left[c] == 0 -> sweep(); serve(); served = 0 } /* somebody asks */
    :: atomic { phase[c] == dead && has[c] && left[c] == 0 -> sweep(); serve(); served = 0 }
    :: atomic { phase[c] == dead && !alone(c) && has[c] == false && place[c] == 0 -> /* its renewal was stuck on its way */
        EVENT(LATE);
#ifdef FAULT_REVIVED
        sweep();
        has[c] = true;
        left[c] = LEASE;
        look();
        CHECK(AT_MOST, limit(c) == 0 || sharers <= limit(c));
#endif
        phase[c] = idle;
        left[c] = 0;
        has[c] = false
    }
    od
}

active proctype Time() {
    do
    :: atomic { tick() }
    od
}

init {
    atomic {
        i = 0;
        do
        :: i < CLIENTS -> phase[i] = idle; run Client(i); i++
        :: else -> break
        od;
        i = 0
    }
}
