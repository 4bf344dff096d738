/*
 * The command line of dibs, which ps(1) shows to everybody on the host.
 */
#ifndef DIBS_CLI_ARGUMENTS_H
#define DIBS_CLI_ARGUMENTS_H

#include <stdbool.h>

/* Remembers where the words are; must be called before the other functions. */
void arguments_keep(int argc, char **argv);

/* Overwrites the passwords of all URLs in a text. stays: it keeps its length, as in the command line. */
void arguments_hide_passwords(char *text, bool stays);

/* Replaces the whole command line by title. The process must not use its words any more. */
void arguments_overwrite(const char *title);

#endif
