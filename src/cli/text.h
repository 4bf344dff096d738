/*
 * Texts for people: names that can't drive a terminal, and how wide they are; lengths of time, and times of day.
 */
#ifndef DIBS_CLI_TEXT_H
#define DIBS_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <dibs.h>

#define CLI_SHOWN_MAX (4 * DIBS_NAME_MAX + 1) /* bytes of the longest name that is shown, with the NUL */
#define CLI_TIME_MAX 32

/*
 * Writes text to out as it is shown: what prints stays, in the locale's encoding; each byte of anything else is written
 * \xNN, and a backslash \\. What does not fit is left out. Returns out.
 */
const char *cli_show(char *out, size_t size, const char *text);

/* The same for a whole message, in which names are shown already: a backslash stays. */
const char *cli_show_message(char *out, size_t size, const char *text);

/* Characters without a width that change how others are shown, such as those that turn the direction of writing. */
bool cli_misleads(uint32_t character);

/* The columns of a terminal that a shown text takes. */
size_t cli_width(const char *shown);

/* Cuts a shown text to at most that many columns. The last one is a + where anything was cut off. */
void cli_cut(char *shown, size_t columns);

/* Prints a shown text, and blanks up to that many columns: after the text, or, flush right, before it. */
void cli_pad(FILE *out, const char *shown, size_t columns, bool right);

/* "0.4s", "28.4s", "3m12s", "2h05m", "3d04h"; "-" for a length that is not known (-1). Returns out. */
const char *cli_duration(char out[CLI_TIME_MAX], int64_t ms);

/* The time of day that was so long ago, "2026-11-22 17:05:33", by the local clock. Returns out. */
const char *cli_time_ago(char out[CLI_TIME_MAX], int64_t ms);

/* The same for programs, "2026-11-22T17:05:33.123Z". Returns out. */
const char *cli_utc_ago(char out[CLI_TIME_MAX], int64_t ms);

/* A clock that only goes forward. */
int64_t cli_now_ns(void);

#endif
