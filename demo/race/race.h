/*
 * A race: processes and threads that get into one lock, once each, to raise a counter that must stop at its limit.
 *
 * The program itself (one thread) starts servers and, for each round, the processes; it waits for them and reads the
 * records. What it shares with them lies in struct race, in a mapping that fork inherits. A racer's thread is in
 * racer.c, the cues of a scene in cues.c, what the records say in count.c.
 */
#ifndef DIBS_DEMO_RACE_H
#define DIBS_DEMO_RACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/types.h>

#include "race/record.h"
#include "ways/way.h"

enum { RACERS_MOST = 900, PROCESSES_MOST = 64, STALLS_INSIDE = 4, KEY_LIFE_S = 600, URL_SIZE = 200 };

struct race_options {
    unsigned processes, threads; /* threads of all processes together, at least one each */
    unsigned lease_ms, work_ms, delay_ms, chance, limit, patience_ms;
    uint64_t seed;
    bool fenced; /* the counter looks at fences */
};

/*
 * In shared memory. What is read-only is so while the round's processes run; what is the program's, no racer looks at.
 */
struct race {
    struct race_options options; /* read-only */
    const struct way *way;       /* read-only */
    const struct scene *scene;   /* read-only. NULL: chance alone */
    unsigned round;              /* read-only */
    char program[64];            /* read-only; begins all names and keys */
    char name[96];               /* read-only */
    char key[112];               /* read-only */
    char counter[112];           /* read-only */
    unsigned servers;            /* read-only */
    unsigned address; /* read-only: which server is the address of a master with replicas; 0: there is none */
    char urls[WAY_SERVERS_MOST][URL_SIZE]; /* read-only */
    pid_t pids[WAY_SERVERS_MOST];          /* read-only. 0: not the program's */
    int gate;                              /* read-only: read end of a pipe; it closes when the round begins */
    uint64_t began;                        /* the program's; ns */

    atomic_uint ready, inside, done;
    atomic_bool failed;           /* some racer could not go on, and said why */
    atomic_bool cues[SCENE_CUES]; /* what each cue waits for has happened */
    atomic_bool stuck;            /* what a cue waits for has not happened within 10 s */
    _Atomic uint64_t crew_commands[PROCESSES_MOST];
    atomic_uint crew_threads[PROCESSES_MOST];
    pid_t alive[PROCESSES_MOST];  /* the program's: 0 once the process has ended */
    bool stopped[PROCESSES_MOST]; /* the program's */
    long long final;              /* the program's: the counter, when the round was over */
    unsigned left_keys;           /* the program's: keys of the lock that stayed behind, for ever */
    double seconds;               /* the program's */
    struct record records[];      /* of options.threads; record.h */
};

/* Called while a round runs, every 20 ms or so, if it is not NULL. */
typedef void race_progress_fn(const struct race *race, void *arg);

/*
 * The shared memory, and the server: that of the URL, or one of its own where the URL is NULL. program begins the names
 * of all keys. From now on SIGINT, SIGTERM and SIGHUP end the program in order. On failure says why on stderr and
 * returns NULL.
 */
struct race *race_open(const char *program, const char *url);

/* Stops what was started, and deletes what was left in a server that was not. */
void race_close(struct race *race);

/* race_close, and the program ends: by the signal that came, where one did. */
noreturn void race_exit(struct race *race, int status);

/* Runs one round. False: it could not be run; why was said on stderr. Ends the program if a signal came. */
bool race_round(struct race *race, const struct way *way, const struct scene *scene, const struct race_options *options,
                unsigned round, race_progress_fn *progress, void *arg);

/* What a scene has instead of the options of a race by chance. */
struct race_options race_scene_options(const struct scene *scene, uint64_t seed);

/* "7.0.15", of the first server. */
void race_server_version(struct race *race, char *out, size_t size);

/* ---------------------------------------------------------- in the processes (racer.c, cues.c) */

/* Where way_fail says that it was called. */
void way_fails_in(struct race *race);

/* One process of a round: its threads race; ends the process. */
noreturn void crew_run(struct race *race, unsigned number);

/* What the scene wants of a racer at that point. */
void cues_at(struct racer *me, const char *point);

/* Whether what the stopped process of that number waits for has happened. */
bool cues_may_go_on(const struct race *race, unsigned crew);

/* Whether the largest of that number of the way's own counts, not the sum. */
bool way_keeps_most(const struct way *way, unsigned which);

/* How many may be inside at once, and whether the way's race raises the counter. */
unsigned way_room(const struct way *way);
bool way_counts(const struct way *way);

/* splitmix64 */
uint64_t next_random(uint64_t *state);

#endif
