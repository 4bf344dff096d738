/*
 * Texts for people: names, in a form that can't drive a terminal, and their width; lengths of time, and times of day.
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
 * Writes text to out as it is shown: characters that print stay as they are, in the locale's encoding; a backslash is
 * written \\, and each other byte \xNN. What does not fit into size bytes is left out. Returns out.
 */
const char *cli_show(char *out, size_t size, const char *text);

/* As cli_show, but leaves backslashes alone: for a whole message, whose names were written by cli_show. */
const char *cli_show_message(char *out, size_t size, const char *text);

/* Whether the character has no width but changes how others are shown, such as those that reverse the direction. */
bool cli_misleads(uint32_t character);

/* The columns of a terminal that a shown text takes. */
size_t cli_width(const char *shown);

/*
 * Prints a shown text in that many columns: filled with blanks, which come first with `right`; or cut, in shown as
 * well, and then the last column is a +.
 */
void cli_print_cell(FILE *out, char *shown, size_t columns, bool right);

/* "0.4s", "28.4s", "3m12s", "2h05m", "3d04h"; "-" for a length that is not known (-1). Returns out. */
const char *cli_duration(char out[CLI_TIME_MAX], int64_t ms);

/* The local time that was ms milliseconds ago, "2026-11-22 17:05:33". Returns out. */
const char *cli_time_ago(char out[CLI_TIME_MAX], int64_t ms);

/* The same in UTC, for programs, "2026-11-22T17:05:33.123Z". Returns out. */
const char *cli_utc_ago(char out[CLI_TIME_MAX], int64_t ms);

#endif
