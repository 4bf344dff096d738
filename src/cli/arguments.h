/*
 * The words that dibs was started with, as ps(1) shows them to everybody on the host.
 */
#ifndef DIBS_CLI_ARGUMENTS_H
#define DIBS_CLI_ARGUMENTS_H

/* To be called first. */
void arguments_keep(int argc, char **argv);

/*
 * Returns a copy of an argument that has URLs, which belongs to the caller, and overwrites their passwords where the
 * argument is. NULL: no memory.
 */
char *arguments_take_url(char *argument);

/* Overwrites the passwords of all URLs in a text. */
void arguments_hide_passwords(char *text);

/* Overwrites all words by title. They are of no use to this process any more. */
void arguments_overwrite(const char *title);

#endif
