/*
 * A way to lock, as one of the racers of demo/race uses it, and what a way may call.
 *
 * A race has processes, a process has racers (threads), and each racer gets into the lock once: lock, the critical
 * section, unlock. What the critical section does is the harness's: it reads a counter, and raises the counter if that
 * is below its limit. The harness looks from outside: it notes when each racer comes, is in and is out, and it counts
 * the commands.
 *
 * A file demo/ways/NN_name.c has one way: its functions as an article would print them, and below them, from the first
 * line that begins with "static const struct scene" or "const struct way" on, what the harness needs to know. ways.c
 * lists all ways.
 */
#ifndef DIBS_DEMO_WAY_H
#define DIBS_DEMO_WAY_H

#include <hiredis/hiredis.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>

enum { WAY_SERVERS_MOST = 8, WAY_EXTRAS = 4, SCENE_CUES = 10, SCENE_RACERS = 6 };

struct crew;
struct race;
struct record;
struct racer;

/* ------------------------------------------------------------------ scenes */

/*
 * A scene makes a flaw show that chance rarely shows: few racers, each in a process of its own, and cues, which say
 * what happens to a racer when it comes to a named point. Racers have numbers from 0.
 *
 * The harness's points, in this order: "arrive" (before lock), "enter" (inside), "work" (has read the counter), "check"
 * (is about to ask whether the lock is still its own), "write" (is about to raise the counter), "leave" (is about to
 * unlock), "left". A way names its own points, between two of its commands, by way_point.
 */
enum cue_kind {
    CUE_WAIT = 1, /* the racer waits until racer `whom` has come to the point `passes`, and `ms` more */
    CUE_QUEUED,   /* the racer waits until somebody is in the queue of dibs for the lock, at the server number `whom` */
    CUE_LOCKED,   /* the racer waits until the server number `whom` has the lock */
    CUE_DIE,      /* its process is killed, as by kill -9 */
    CUE_STOP,     /* its process is stopped (SIGSTOP), and goes on when racer `whom` has come to `passes` */
    CUE_FELL,     /* the server number `whom` is killed */
    CUE_CUT,      /* the replica number `whom` gets no more from its master */
    CUE_PROMOTE,  /* the replica that heard most becomes the master: the address leads to it, the others follow it */
};

struct cue {
    unsigned who;
    const char *at;
    enum cue_kind what;
    unsigned whom;
    const char *passes;
    unsigned ms;
};

/* What can be wrong with a race, according to its numbers. */
enum flaw {
    FLAW_COUNT = 1u,    /* the counter did not end at its limit */
    FLAW_OVERLAP = 2u,  /* two were inside at once */
    FLAW_DELETED = 4u,  /* a release deleted the lock of another */
    FLAW_LEFT = 8u,     /* a lock was left behind for ever, or racers waited for one and never got it */
    FLAW_ORDER = 16u,   /* (scenes only) one who came later was in earlier */
    FLAW_IDLE = 32u,    /* (scenes only) the lock was free for idle_ms or more, though somebody waited */
    FLAW_EXTRA = 64u,   /* the first of the way's own numbers is not 0 */
    FLAW_EXTRA_2 = 128u /* the second */
};

struct scene {
    const char *title; /* what is made to happen */
    unsigned racers;   /* 0: there is no such scene */
    unsigned limit;    /* of the counter */
    unsigned lease_ms;
    unsigned work_ms;
    unsigned patience_ms;           /* 0: 3000; a racer that waits longer gives up */
    unsigned idle_ms;               /* FLAW_IDLE: the lock was free for so long. 0: that is not looked at */
    int clock_off_ms[SCENE_RACERS]; /* how far the racer's clock is ahead */
    struct cue cues[SCENE_CUES];
    unsigned shows; /* the flaws that show every time. 0: none ever shows, whatever happens */
};

/* -------------------------------------------------------------------- ways */

struct way {
    int number;         /* as the gallery counts them */
    const char *name;   /* "set-del" */
    const char *title;  /* "SET NX PX, DEL" */
    const char *text;   /* two sentences: how it works, and its flaw */
    const char *source; /* __FILE__ */
    bool sound;         /* shows no flaw in any race */

    bool value_ends; /* the key needs no time to live, because its value says when the lock ends */

    bool no_lease; /* the lock does not end by itself: for the picture */

    /*
     * Servers, which way_ask_at, way_url and the cues count from 0. Masters know nothing of each other. With
     * replicas, server 0 has the counter alone; server 1 is a master behind an address that a promoted replica takes
     * over, and the replicas of that master come behind it. They are new in each round.
     */
    unsigned masters; /* 0 stands for 1 */
    unsigned replicas;

    /* Of its race by chance. threads 0: all of them are as the command line says. */
    unsigned processes, threads, lease_ms;

    unsigned room; /* how many may be inside at once; 0 stands for 1 */
    bool counts;   /* `run` raises the counter */
    bool lockless; /* there is no lock: `run` does without */

    /* Why the way can't be run here, in a few words; NULL: it can. */
    const char *(*missing)(void);

    /* In the program itself, around each round: what the way needs besides servers. NULL: nothing. */
    bool (*set_up)(struct race *race);
    void (*tear_down)(struct race *race);

    /* In each process, before its racers start and after they have ended. NULL: nothing. */
    void (*prepare)(struct crew *crew);
    void (*finish)(struct crew *crew);

    bool (*lock)(struct racer *me); /* false: way_retry said that it waited long enough, or way_refused was called */
    void (*unlock)(struct racer *me);

    bool (*still)(struct racer *me);     /* whether the lock is still the racer's; NULL: the way cannot tell */
    uint64_t (*fence)(struct racer *me); /* for the counter, which then refuses older ones; NULL: the way has none */

    /* Instead of lock, the critical section and unlock: a race of another kind. It calls way_enter and way_leave. */
    void (*run)(struct racer *me);

    const char *extras[WAY_EXTRAS];   /* what the way's own numbers count (way_extra); NULL where there are no more */
    bool extras_are_good[WAY_EXTRAS]; /* is no flaw, and not shown in red */
    const struct scene *scenes;       /* ends with one of no racers; NULL: none */
};

/* One process. */
struct crew {
    struct race *race; /* read-only; race.h */
    unsigned number;   /* read-only */
    unsigned lease_ms; /* read-only */
    const char *name;  /* read-only: of the lock, unique to the round */
    void *own;         /* the way's: prepare sets it, and then it is read-only */
};

/*
 * One thread, or a helper of it. Read-only means so from the thread's start; what is the thread's, its helpers have
 * copies of, as it was when they began.
 */
struct racer {
    const struct way *way; /* read-only */
    struct crew *crew;     /* read-only */
    const char *key;       /* read-only: the key of the lock in Redis */
    const char *name;      /* read-only: of the lock; key is "lock:" and the name */
    const char *counter;   /* read-only: the key of the counter in Redis */
    unsigned limit;        /* read-only: of the counter */
    unsigned number;       /* read-only: among all */
    unsigned lease_ms;     /* read-only */
    char token[112];       /* read-only: unique in the world */
    char thread_name[24];  /* read-only: unique in its process alone, "thread-3" */
    int clock_off_ms;      /* read-only */
    struct record *record; /* read-only; record.h */

    /* For the way to use. */
    void *own;      /* the thread's */
    uint64_t place; /* the thread's */
    char text[112]; /* the thread's */
    unsigned item;  /* the thread's: which of several locks, where its race has several */

    /* For the harness alone. */
    redisContext *links[WAY_SERVERS_MOST]; /* the thread's: made when they are needed, and not copied */
    uint64_t random;                       /* the thread's */
    uint64_t arrived;                      /* the thread's; ns */
    bool worked;                           /* the thread's: found the counter below its limit */
    bool gone;                             /* the thread's: noticed that it had lost the lock, or can't have it */
    atomic_bool over;                      /* of a helper: it is to end */
};

/* ---------------------------------------------------- what a way may call */

/*
 * Sends a command to the first server. Where Redis fails, the race ends with a message.
 *
 *   way_ask      the number of the reply: its integer, 1 for a status such as OK, 0 for nil
 *   way_get      the text of the reply; false for nil
 *   way_command  the reply itself, which is the caller's to free
 */
long long way_ask(struct racer *me, const char *format, ...);
bool way_get(struct racer *me, char *out, size_t size, const char *format, ...);
redisReply *way_command(struct racer *me, const char *format, ...);

/* way_ask at one of the way's servers; -1 where that server does not answer, or refuses. */
long long way_ask_at(struct racer *me, unsigned server, const char *format, ...);

const char *way_url(const struct crew *crew, unsigned server);

/*
 * DEL. Tells the harness whose lock that was: `mine` is the value that the racer believes to be there (a GET in the
 * same transaction looks); NULL: the lock belongs to the one who got in last.
 */
void way_delete(struct racer *me, const char *key, const char *mine);

/* SET key value PX ms, without looking at the owner; true: it overwrote another's lock. */
bool way_overwrite(struct racer *me, const char *key, const char *value, unsigned ms);

/*
 * A command of the way's own deleted a lock; who had got in last, just before the command, tells whose lock that was.
 * way_now is way_point, and returns the time.
 */
uint64_t way_now(struct racer *me, const char *point);
void way_deleted(struct racer *me, uint64_t before);

/* Commands that a library sent for this process. */
void way_commands(struct crew *crew, uint64_t commands);

/* Ends the race, with a message. */
noreturn void way_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The lease was set again, for so long from now: for the picture. */
void way_leased(struct racer *me, unsigned ms);

/* The way told the racer that its lock was lost. */
void way_lost(struct racer *me);

/* The racer was told that it can't have the lock safely, which is no flaw. */
void way_refused(struct racer *me);

/* Where `run` is set: the racer waited for as long as it has patience. */
void way_gave_up(struct racer *me);

/* Sleeps, then says whether the racer is to try again, or has waited long enough. */
bool way_retry(struct racer *me, unsigned ms);

/* A place where the machine may hold a thread up: it does so by chance, and in scenes as the cues say. */
void way_point(struct racer *me, const char *name);

/* What the racer's clock shows, in ms since 1970. Clocks differ, in scenes. */
uint64_t way_time_ms(const struct racer *me);

/* Adds to one of the way's own numbers. Those that begin with "most" or "deepest" keep the largest instead. */
void way_extra(struct racer *me, unsigned which, unsigned amount);

/* Where `run` is set: the racer is inside; works there for as long as the race says; and is out. */
void way_enter(struct racer *me);
void way_work(struct racer *me);
void way_leave(struct racer *me);

/*
 * Starts a thread that helps the racer. It is given a racer like `me` with connections of its own. way_sleep sleeps
 * until the time is over, or the helper is to end; way_over: whether it is to end. way_join ends and frees it.
 */
struct racer *way_thread(struct racer *me, void (*run)(struct racer *helper));
bool way_sleep(struct racer *helper, unsigned ms); /* false: it is to end */
bool way_over(struct racer *helper);
void way_join(struct racer *helper);

#endif
