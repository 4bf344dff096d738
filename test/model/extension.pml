/*
 * Extensions of a lease by an account that can't end its old connections: one that was cut off may still arrive.
 *
 * What is modelled
 *   The store: the key K with its owner and the rest of its lease. One holder, which renews its lease and extends it to
 *   a short length and to a long one, in any order and number, one request at a time. A renewal never shortens; an
 *   extension sets the lease to its length, unless its time (NOT_AFTER from its sending) is over.
 *   The connection of a request may break: before the request ran, so that it may still run while its time is not over,
 *   or be lost; or after it ran. The holder can't tell these apart, and goes on over another connection.
 *   The holder believes that it holds until a deadline, which an answer moves: the length counts from the sending of
 *   the request. The sending of an extension moves the deadline to what the extension leaves, if that is earlier.
 *
 * The rule that is shown
 *   As long as an extension that was never answered may arrive, no answer moves the deadline past what that one would
 *   leave. It can no longer arrive once the server answers with a time that is past the extension's own.
 *
 * What is not modelled
 *   Accounts that may end the old connection (nothing of it arrives later then), other holders (whoever believes that it
 *   holds owns K, and K lives at least as long as the belief: so nobody else is granted it), a restart of the store,
 *   clocks that drift.
 *
 * Property
 *   OWNED  who believes that it holds is the owner of K, and K lives at least as long as the belief.
 *
 * Faults; each breaks that property (-DFAULT_...)
 *   NO_BOUND     the rule is left out. The short extension is stuck, is sent again and answered, a long one is
 *                answered; then the stuck one arrives.
 *   NO_TIME      an extension has no time after which it does nothing, though the rule takes it to have one.
 *   NOT_EARLIER  the sending of an extension does not move the deadline. The extension runs, and its answer is lost.
 *
 * Switches: FAULT_..., and REACH=event: an error where the event happens, to see that it does.
 */

#define SHORT     2
#define LONG      6
#define NOT_AFTER 3
#define STUCK     2 /* so many at most, at a time */

#define LATE_ARRIVAL  1
#define LONG_ANSWERED 2
#define FREED         3
#define LOST_LEASE    4

#ifndef REACH
#define REACH 0
#endif
#define EVENT(event) assert(REACH != event)

mtype = { none, sent, ran };

typedef Request {
    mtype state = none;
    bool extends;
    byte length;
    byte age;   /* ticks since it was sent, LONG of them at most */
    bool done;  /* it ran in time */
    bool freed; /* when it ran, what was unanswered before it could no longer arrive */
};

typedef Stuck {
    byte length; /* 0: none */
    byte age;
};

Request request;
Stuck stuck[STUCK];
byte ttl = LONG;    /* of K; 0: it is gone */
byte sure = LONG;   /* of the belief; 0: the lease is lost */
byte usual = LONG;  /* of later renewals */
byte bound;         /* the shortest extension that may still arrive, as the holder knows; 0: none */
byte bound_age;     /* ticks since the newest of these was sent */

byte i; /* for loops; 0 between them */

#define in_time(a) (a <= NOT_AFTER)

inline check() { assert(sure == 0 || ttl >= sure) }

inline send(extension, ms) {
    request.state = sent;
    request.extends = extension;
    request.length = ms;
    request.age = 0;
    request.done = false;
    request.freed = false;
#ifndef FAULT_NOT_EARLIER
    if
    :: extension && ms < sure -> sure = ms
    :: else
    fi
#else
    skip
#endif
}

/* A key that is gone stays gone. */
inline execute() {
    request.state = ran;
    request.freed = (bound > 0 && !in_time(bound_age));
    if
    :: ttl > 0 && request.extends && in_time(request.age) ->
        ttl = request.length;
        request.done = true
    :: ttl > 0 && !request.extends ->
        if
        :: ttl < request.length -> ttl = request.length
        :: else
        fi;
        request.done = true
    :: else
    fi
}

inline limit(ms) {
#ifndef FAULT_NO_BOUND
    if
    :: bound > 0 && bound < ms -> ms = bound
    :: else
    fi
#else
    skip
#endif
}

inline take_answer() {
    request.state = none;
    if
    :: request.freed -> EVENT(FREED); bound = 0; bound_age = 0
    :: else
    fi;
    if
    :: request.done && sure > 0 ->
        if
        :: request.extends -> usual = request.length
        :: else
        fi;
        limit(request.length);
        sure = (request.length > request.age -> request.length - request.age : 0);
        if
        :: sure > SHORT -> EVENT(LONG_ANSWERED)
        :: else
        fi
    :: request.done && sure == 0
    :: !request.done && ttl == 0 -> sure = 0
    :: else
    fi;
    request.length = 0
}

/* The request's connection breaks. The holder takes every extension that was not answered for one that may arrive. */
inline cut_off() {
    if
    :: request.extends ->
        if
        :: bound == 0 || request.length < bound -> bound = request.length
        :: else
        fi;
        if
        :: request.state == sent ->
            do
            :: stuck[i].length > 0 -> i++
            :: else -> break
            od;
            stuck[i].length = request.length;
            stuck[i].age = request.age;
            i = 0
        :: else
        fi;
        bound_age = request.age
    :: else
    fi;
    request.state = none;
    request.length = 0
}

inline arrive() {
    if
#ifdef FAULT_NO_TIME
    :: ttl > 0 ->
#else
    :: ttl > 0 && in_time(stuck[i].age) ->
#endif
        EVENT(LATE_ARRIVAL);
        ttl = stuck[i].length
    :: else
    fi;
    stuck[i].length = 0;
    stuck[i].age = 0
}

#define room (stuck[0].length == 0 || stuck[1].length == 0)

active proctype Holder() {
    do
    :: atomic { request.state == none && sure > 0 -> send(true, SHORT) }
    :: atomic { request.state == none && sure > 0 -> send(true, LONG) }
    :: atomic { request.state == none && sure > 0 -> send(false, usual) }
    :: atomic { request.state == sent -> execute(); check() }
    :: atomic { request.state == ran -> take_answer(); check() }
    :: atomic { request.state != none && room -> cut_off() }
    od
}

active proctype Network() {
    do
    :: atomic { stuck[0].length > 0 -> arrive(); check() }
    :: atomic { stuck[1].length > 0 -> i = 1; arrive(); i = 0; check() }
    od
}

inline grow(ticks) {
    if
    :: ticks <= NOT_AFTER -> ticks++
    :: else
    fi
}

inline shrink(rest) {
    if
    :: rest > 0 -> rest--
    :: else
    fi
}

/* The belief ends before the lease does: the margin is more than nothing. */
active proctype Clock() {
    do
    :: d_step {
        true ->
        if
        :: sure == 1 -> EVENT(LOST_LEASE)
        :: else
        fi;
        shrink(sure);
        shrink(ttl);
        if
        :: request.state != none && request.age < LONG -> request.age++
        :: else
        fi;
        if
        :: stuck[0].length > 0 -> grow(stuck[0].age)
        :: else
        fi;
        if
        :: stuck[1].length > 0 -> grow(stuck[1].age)
        :: else
        fi;
        if
        :: bound > 0 -> grow(bound_age)
        :: else
        fi;
        check()
    }
    od
}
