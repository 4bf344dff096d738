/* The URL of a Redis server, taken apart. */
#ifndef DIBS_REDIS_URL_H
#define DIBS_REDIS_URL_H

#include "base/error.h"

struct dibs__url {
    char *user;      /* NULL: the URL has none */
    char *password;  /* NULL: the URL has none, and no user either; "": it has a user without a password */
    char *host;      /* a name, or an address without brackets; NULL: a Unix socket */
    char *path;      /* of the Unix socket; NULL: TCP */
    unsigned port;   /* of TCP */
    unsigned db;     /* the number of the database */
    char shown[160]; /* the server's name in sentences, without credentials */
};

/*
 * Takes the text apart into *out, which is to be freed by dibs__url_free.
 * DIBS_INVALID: the error names the part at fault, and never shows the password.
 * DIBS_NO_MEMORY. On failure *out is empty.
 */
dibs_status dibs__url_parse(struct dibs__url *out, const char *text, struct dibs__error *error);
void dibs__url_free(struct dibs__url *url); /* all fields NULL is fine */

#endif
