/*
 * What is said on a new link before it can be used: the account and the
 * database, and what the link needs to know of the server. All of that goes out
 * at once. Where the answers call for it, more follows: the end of the link that
 * this one replaces, and the scripts. The commands are a table in greeting.c.
 */
#ifndef DIBS_REDIS_GREETING_H
#define DIBS_REDIS_GREETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct dibs__link;

/* What is known of the part that a server plays in its replication. */
enum dibs__role {
    DIBS__ROLE_UNKNOWN, /* the account may not ask */
    DIBS__ROLE_MASTER,
    DIBS__ROLE_REPLICA, /* or any other that takes no writes */
};

/* The connecting thread's. Which answer comes next; all zero: the first. */
struct dibs__greeting {
    size_t command;       /* its place in the table */
    int round;            /* of a command that is said once for each script: which script */
    bool no_eval;         /* the account may not use EVAL, so the server must be given the scripts */
    enum dibs__role role; /* only of a server that sentinels named */
};

/* Writes the greeting to the link's `out`. Requires a link that has just connected. */
dibs_status dibs__greeting_begin(struct dibs__link *link, int64_t now, struct dibs__error *error);

/*
 * Takes the answers that are complete. When the last is there, the link is
 * ready, or it is DIBS__LINK_FOLLOWING and what follows is in `out`. Any status
 * but DIBS_OK: the link is of no use.
 */
dibs_status dibs__greeting_take(struct dibs__link *link, struct dibs__error *error);

#endif
