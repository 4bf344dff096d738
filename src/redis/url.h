/* The URL of a store in Redis, taken apart. */
#ifndef DIBS_REDIS_URL_H
#define DIBS_REDIS_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum dibs__url_kind {
    DIBS__URL_SERVER,   /* one server */
    DIBS__URL_SENTINEL, /* the master that sentinels name; the hosts are the sentinels */
    DIBS__URL_CLUSTER   /* a cluster; the hosts are some of its nodes */
};

struct dibs__host {
    char *name; /* a name, or an address without brackets */
    unsigned port;
};

struct dibs__url {
    enum dibs__url_kind kind;
    bool tls;                 /* the connections are encrypted */
    char *user;               /* user of the servers that keep the locks; NULL: the URL has none */
    char *password;           /* NULL: the URL has no password and no user; "": it has a user without a password */
    struct dibs__host *hosts; /* a server has one; NULL: a Unix socket */
    size_t host_count;
    char *path;        /* path of the Unix socket; NULL: TCP */
    char *master_name; /* name of the master, for the sentinels; else NULL */
    unsigned db;       /* number of the database */
    char shown[160];   /* name in sentences, without credentials */
};

/*
 * Takes the text apart into *out, which must be freed by dibs__url_free.
 * DIBS_INVALID: the error names the part at fault, and never shows the password.
 * DIBS_NO_MEMORY. On failure *out is empty.
 */
dibs_status dibs__url_parse(struct dibs__url *out, const char *text, struct dibs__error *error);

/* Makes the URL of one server without a text, with user and password as in the struct. DIBS_NO_MEMORY; as above. */
dibs_status dibs__url_at(struct dibs__url *out, bool tls, const char *user, const char *password, const char *host,
                         unsigned port, struct dibs__error *error);
void dibs__url_free(struct dibs__url *url); /* all fields NULL is fine */

#endif
