/*
 * Being told at once: the server tells the holder of a lease that its lock may have changed.
 *
 * What is modelled
 *   The store: whose the key K is, and whether the server tells the holder of K's next change, because the connection
 *   of the holder has read K since the last one. A script is one step.
 *   One process, which holds one lease after the other of the same lock. It has K looked at once the server tells of
 *   changes, renews the lease, and renews it at once when told. A look, or a renewal, is three steps: it is sent, it runs
 *   in the store, its answer is read. One of each at a time.
 *   Another party, which deletes K, and takes a free K, at any time. The server, which may forget what was read of K,
 *   as it has room for so many keys alone, and tells that as a change.
 *   Messages, at most MESSAGES of them under way. A message names the lock, not the lease: one may come at any time,
 *   also for an older lease. With TROUBLE a message may get lost or be doubled. The process may bring one about itself,
 *   by its release and by its next grant, which go over other connections.
 *   The connection breaks, and with it all that is under way but messages; then the server has forgotten what was read.
 *
 * What is not modelled
 *   The restoring of a lock, extensions, the probe, waiters, more than one lock: each lock is told of by itself.
 *
 * Time
 *   In ticks, without any bound on how slow somebody is. A lease is LEASE of them.
 *
 * Properties
 *   TRUE_LOSS  a lease is lost only where another party took its lock, or its time is over.
 *   BOUNDED    a holder whose lock was taken believes in its lease no longer than LEASE, whatever becomes of messages.
 *   TOLD       (without TROUBLE) where nothing is under way or due, no holder whose lock was looked at since the
 *              connection was made believes in a lease whose lock was taken.
 *
 * Faults; each breaks the property behind it (-DFAULT_...)
 *   MESSAGE_DECIDES  TRUE_LOSS  a message makes the lease lost. It is one for an older lease.
 *   PROLONGS         BOUNDED    a message makes the lease last longer.
 *   FORGOTTEN        TOLD       a message that comes while a renewal is in flight is forgotten. The renewal ran before.
 *   NOT_READ         TOLD       a renewal does not read K afterwards: the server tells of one change only.
 *   NOT_ANEW         TOLD       on a new connection, K is not looked at again.
 *
 * Switches: TROUBLE, FAULT_..., PROPERTY=... (checks that one only), and REACH=event: an error where the event happens,
 * to see that it does.
 */

#define TRUE_LOSS 1
#define BOUNDED   2
#define TOLD      3

#define LOST_MESSAGE    1
#define DOUBLED_MESSAGE 2
#define OLD_MESSAGE     3
#define OWN_MESSAGE     4
#define IN_FLIGHT       5
#define RECONNECT       6
#define LOSS_BY_MESSAGE 7
#define LOSS_BY_LOOK    8

#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef LEASE
#define LEASE 3
#endif
#ifndef REACH
#define REACH 0
#endif
#define EVENT(event) assert(REACH != event)

#ifdef PROPERTY
#define CHECK(property, condition) assert(PROPERTY != property || (condition))
#else
#define CHECK(property, condition) assert(condition)
#endif

mtype = { none, sent, found, missed }; /* a request; found: it ran, and K was the lease's */
mtype = { own, nobody, other };        /* whose K is */

mtype K = own;
bool tells = false;    /* the server tells of the next change of K */
byte messages = 0;     /* under way */
byte older = 0;        /* so many of them began before the lease did */

bool stands = true;    /* the connection, and the subscription */
bool holds = true;     /* the process believes in its lease */
byte age = 0;          /* ticks since the sending of what proves the lease was */
byte sent_age = 0;     /* ticks since the sending of the renewal in flight */
bool watched = false;  /* the look at K was sent on this connection */
bool due = false;      /* K must be renewed at once */
bool hinted = false;   /* because of a message; else because of a look */
bool changed = false;  /* a message came while a renewal was in flight */
mtype look = none;
mtype renewal = none;
bool taken = false;    /* another party took K from the lease */
byte taken_for = 0;    /* ticks since then */

inline check() {
    CHECK(BOUNDED, !(holds && taken && taken_for > LEASE))
#ifndef TROUBLE
    ;
    CHECK(TOLD, !(holds && taken && stands && watched && messages == 0 && !due && !changed && look == none &&
                  renewal == none))
#endif
}

/* K changes. by_us: over another connection of the process. */
inline change(by_us) {
    if
    :: tells && messages < MESSAGES ->
        messages++;
        tells = false;
        if
        :: by_us -> EVENT(OWN_MESSAGE)
        :: else
        fi
    :: !tells
    fi
}
#define room (!tells || messages < MESSAGES)

inline lose() {
    CHECK(TRUE_LOSS, taken || age >= LEASE);
    holds = false;
    due = false;
    hinted = false
}

/* The lease ended; its requests may be under way still, but their answers are for nobody. */
inline begin_lease() {
    holds = true;
    age = 0;
    watched = false;
    due = false;
    hinted = false;
    changed = false;
    look = none;
    renewal = none;
    sent_age = 0;
    taken = false;
    taken_for = 0;
    older = messages
}

inline hear() {
    if
    :: older > 0 ->
        older--;
        if
        :: holds && watched -> EVENT(OLD_MESSAGE)
        :: else
        fi
    :: else
    fi;
    if
    :: holds && watched ->
#ifdef FAULT_MESSAGE_DECIDES
        lose()
#else
#ifdef FAULT_PROLONGS
        age = 0;
#endif
        if
        :: renewal != none ->
            EVENT(IN_FLIGHT);
#ifndef FAULT_FORGOTTEN
            changed = true
#else
            skip
#endif
        :: else ->
            due = true;
            hinted = true
        fi
#endif
    :: else
    fi
}

inline break_off() {
    stands = false;
    tells = false;
#ifndef FAULT_NOT_ANEW
    watched = false;
#endif
    look = none;
    if
    :: renewal != none -> due = true
    :: else
    fi;
    renewal = none;
    sent_age = 0
}

active proctype Process() {
    do
    :: atomic { stands && holds && !watched && renewal == none -> watched = true; look = sent; check() }
    :: atomic { look == sent -> look = (K == own -> found : missed); tells = stands; check() }
    :: atomic {
        look == found || look == missed ->
        if
        :: look == missed && holds && renewal == none -> due = true
        :: look == missed && holds && renewal != none -> changed = true
        :: else
        fi;
        look = none;
        check()
    }
    :: atomic { stands && holds && renewal == none -> renewal = sent; due = false; sent_age = 0; check() }
    :: atomic {
        renewal == sent ->
        renewal = (K == own -> found : missed);
#ifndef FAULT_NOT_READ
        tells = stands;
#endif
        check()
    }
    :: atomic {
        renewal == found && holds ->
        renewal = none;
        age = sent_age;
        due = changed;
        changed = false;
        hinted = false;
        sent_age = 0;
        check()
    }
    :: atomic {
        renewal == missed && holds ->
        renewal = none;
        sent_age = 0;
        if
        :: hinted -> EVENT(LOSS_BY_MESSAGE)
        :: !hinted && watched -> EVENT(LOSS_BY_LOOK)
        :: else
        fi;
        changed = false;
        lose();
        check()
    }
    :: atomic { holds && age >= LEASE -> lose(); check() }
    :: atomic { holds && K == own && room -> change(true); K = nobody; holds = false; check() }
    :: atomic { !holds && K != other && room -> change(true); K = own; begin_lease(); check() }
    od
}

active proctype Messages() {
    do
    :: atomic { messages > 0 -> messages--; hear(); check() }
#ifdef TROUBLE
    :: atomic {
        messages > 0 ->
        EVENT(LOST_MESSAGE);
        messages--;
        if
        :: older > 0 -> older--
        :: else
        fi
    }
    :: atomic { messages > 0 -> EVENT(DOUBLED_MESSAGE); hear(); check() }
#endif
    od
}

active proctype World() {
    do
    :: atomic {
        K == own && room ->
        change(false);
        K = nobody;
        if
        :: holds -> taken = true
        :: else
        fi;
        check()
    }
    :: atomic { K == nobody && room -> change(false); K = other; check() }
    :: atomic { K == other && room -> change(false); K = nobody; check() }
    :: atomic { tells && room -> change(false); check() }
    :: atomic { stands -> break_off(); check() }
    :: atomic { !stands -> EVENT(RECONNECT); stands = true; check() }
    od
}

active proctype Clock() {
    do
    :: d_step {
        /* who holds looks at its deadline before it relies on the lease */
        !(holds && age >= LEASE) ->
        if
        :: holds -> age++
        :: else
        fi;
        if
        :: renewal != none && sent_age < LEASE -> sent_age++
        :: else
        fi;
        if
        :: holds && taken && taken_for <= LEASE -> taken_for++
        :: else
        fi;
        check()
    }
    od
}
