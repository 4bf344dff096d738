/* The URLs of a Redis server, taken apart. */
#ifndef DIBS_REDIS_URL_H
#define DIBS_REDIS_URL_H

#include "base/error.h"

struct dibs__url {
    char *user;     /* NULL where the URL has none, so are the others */
    char *password; /* a user without a password has "" */
    char *host;     /* a name or an address without brackets; NULL: a Unix socket */
    char *path;     /* of the Unix socket; NULL: TCP */
    unsigned port;
    unsigned db;
    char shown[160]; /* where to, for sentences: no credentials */
};

/*
 * Takes text apart into *out, to be freed by dibs__url_free. On failure the
 * error names the part at fault, never the password, and *out is empty:
 * DIBS_INVALID or DIBS_NO_MEMORY.
 */
dibs_status dibs__url_parse(struct dibs__url *out, const char *text, struct dibs__error *error);
void dibs__url_free(struct dibs__url *url); /* all fields NULL is fine */

#endif
