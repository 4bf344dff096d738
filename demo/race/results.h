/*
 * A run's results in a file, from which the page is made (page.c). Text, one item a line: a word, a space, and what the
 * word is about, up to the end of the line. Readers pass over words that they do not know. Times are in microseconds
 * since the round began, unless the word says otherwise.
 *
 *   dibs-race 1                  the first line: the format's version
 *   date 2026-11-22 18:45 UTC
 *   server 7.0.15                the version of Redis
 *   seed 1234
 *
 *   way 3                        a way begins; what follows is about it, up to the next "way"
 *   name set-del
 *   title SET NX PX, DEL
 *   text One command takes ...   its two sentences
 *   source demo/ways/03_set_del.c
 *   sound 0                      1: it shows no flaw whatever happens
 *   missing no ZooKeeper ...     it could not be run here, and why
 *
 *   run race                     a race by chance begins, with all its rounds; or
 *   run scene work outlasts ...  a scene
 *   rounds 5
 *   setting threads 100          and so on: processes, lease_ms, work_ms, delay_ms, chance, limit, counts (1: the race
 *                                raises the counter), room (for so many inside), shows (the flaws of a scene)
 *   foretold 5                   (scenes) in how many rounds did what the scene is to show show
 *   words counter 2 of 1, ...    (scenes) the last round's numbers in words
 *   counts 11 12 11 10 11        where the counter ended, round by round
 *   figure most 2                a number each, where it means something: holds, gave_up, noticed, denied, most, pairs,
 *                                outlasted, left, deleted, inverted_percent, idle_ms, commands_per_acquire, wait_ms_50,
 *                                wait_ms_90, wait_ms_99, wait_ms_100, commands, threads_per_round, seconds
 *   flaws 7                      the bits of enum flaw (ways/way.h) that these numbers show
 *   extra 0 3 wrong releases     one of the way's own numbers: 1: a good one, else 0; the number; what it counts
 *   hold 4 1 0 120 81000 50120 1 one racer of the first round (a scene: of the last one): its number, its process, when
 *                                it arrived, had the lock, began to unlock; when its lease was to end (0: not known);
 *                                1: it found the counter below its limit; which of several locks
 *   mark 4 deleted 82000         what happened to a racer: deleted (the lock of another), lost, refused, stop, go, die,
 *                                give-up, denied; arrive, done (only of one that never was inside)
 *   end                          of the run
 */
#ifndef DIBS_DEMO_RESULTS_H
#define DIBS_DEMO_RESULTS_H

#include <stdio.h>

#include "race/count.h"
#include "race/race.h"

/* Each function does nothing where the file is NULL. */
void results_head(FILE *out, struct race *race, uint64_t seed);
void results_way(FILE *out, const struct way *way);
void results_missing(FILE *out, const char *why); /* behind results_way */

/*
 * A run's lanes are those of the round whose records the race has now: results_begin must be called after the round
 * that is shown, and results_end with the numbers of all.
 */
void results_begin(FILE *out, const struct race *race);
void results_end(FILE *out, const struct race *race, struct tally *tally, unsigned foretold);

#endif
