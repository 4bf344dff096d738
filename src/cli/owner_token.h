/*
 * The owner of a lock, from the text of its token: dibs:LABEL:HOST:PID:THREAD:RUNTIME:SEQUENCE, followed by ~LIMIT if
 * the owner shares the lock, or by ! if its process may keep the lease. Only the label may have colons, so the fields
 * are counted from the end.
 */
#ifndef DIBS_CLI_OWNER_TOKEN_H
#define DIBS_CLI_OWNER_TOKEN_H

#include <stdbool.h>

#include <dibs.h>

#define CLI_WHO_MAX (4 * sizeof((dibs_owner *)0)->token)

struct cli_who {
    char text[sizeof((dibs_owner *)0)->token]; /* the fields point into this */
    bool foreign;                              /* the token is not one of dibs, and the fields are "" */
    const char *label, *host, *pid, *thread, *runtime;
    const char *limit; /* of a sharer: how many may share the lock, in digits, 0 being any number; else NULL */
};

/* Takes the token apart. The fields point into *out, which must not be copied. */
void cli_who_parse(struct cli_who *out, const char *token);

/*
 * Writes "LABEL@HOST:PID", and "/THREAD" unless that is the first thread of the process. A foreign token is written in
 * quotes.
 */
const char *cli_who_show(char out[CLI_WHO_MAX], const char *token);

#endif
