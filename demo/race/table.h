/* What a terminal shows of races: a table of the ways, scenes line by line, and how far a round is. */
#ifndef DIBS_DEMO_TABLE_H
#define DIBS_DEMO_TABLE_H

#include "race/count.h"
#include "race/race.h"

void table_head(const struct race_options *options, unsigned rounds);
void table_row(const struct race *race, struct tally *tally);

/* A scene's line: in how many of its rounds did what it was to show show. */
void table_scenes_head(unsigned rounds);
void table_scene_way(const struct way *way);
void table_unforeseen(const struct race *race, const struct tally *tally); /* one round */
void table_scene(const struct race *race, const struct tally *tally, unsigned as_expected);

/* A race_progress_fn; arg: the number of rounds (unsigned *). Writes only where standard error is a terminal. */
void table_progress(const struct race *race, void *arg);
void table_progress_over(void);

/* The numbers of a scene in words: "counter 2 of 1, 2 inside at once". */
void table_words(const struct race *race, const struct tally *tally, char *out, size_t size);

#endif
