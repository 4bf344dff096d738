/*
 * Which parts of the library work on a server with a given account, found by trying all of them. The result for a
 * part is the word in its column of the tables in doc/ACCOUNTS.md and doc/SERVERS.md, which are what the tests expect.
 */
#ifndef DIBS_TEST_ABILITY_H
#define DIBS_TEST_ABILITY_H

#include <dibs.h>

#include "support/server.h"

enum ability_column {
    ABILITY_OPEN,     /* dibs_open: OK or another status */
    ABILITY_LOCK,     /* dibs_trylock and dibs_unlock */
    ABILITY_LOOK,     /* dibs_query and dibs_force_unlock */
    ABILITY_SHARE,    /* DIBS_SHARED, alone and beside another, and dibs_unlock */
    ABILITY_KEPT,     /* leases are renewed: yes or no */
    ABILITY_WAIT,     /* a waiter gets the lock by push, or by polling: push, poll, or a status */
    ABILITY_FAIR,     /* the same with DIBS_FAIR */
    ABILITY_TOLD,     /* changes are told (dibs_stats.tracking): yes or no */
    ABILITY_RESTORED, /* a server that forgot a lock is told of it: yes or no */
    ABILITY_COLUMNS
};

typedef char ability_word[24];

typedef struct ability {
    ability_word words[ABILITY_COLUMNS]; /* "-": could not be tried, because something before it did not work */
    char errors[4000];                   /* what dibs_last_error said, one a line */
} ability;

/*
 * Tries everything on the server, which is restarted without its data at the end; look is called before (NULL: nothing
 * is). expected: what to wait for a little longer, where it says "yes".
 */
typedef void ability_look(server *s, void *arg);
void ability_try(ability *out, server *s, const char *url, const dibs_config *config, const ability_word *expected,
                 ability_look *look, void *arg);

/* What works where nothing is missing. */
extern const ability_word ability_full[ABILITY_COLUMNS];

#endif
