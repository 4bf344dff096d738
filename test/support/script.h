/*
 * The interpreter of a script, which decides what happens to the commands and replies of a connection. Used only by
 * script_server.c, with its mutex held.
 */
#ifndef DIBS_TEST_SCRIPT_H
#define DIBS_TEST_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/resp.h"
#include "support/script_server.h"

enum { SCRIPT_RULES_MOST = 16 };

struct script_pending;

/* A client, and its connection to the backend. */
struct script_connection {
    int client;  /* -1: closed */
    int backend; /* -1: none, or closed */
    struct bytes request, reply;
    struct script_pending *first, **last; /* what becomes of the next replies */
    bool hold_requests;
    bool hold_replies;
    bool skip_rules; /* the next command was held back and is let go now: no rule applies to it again */
    bool subscribed; /* replies no longer answer one command each: they pass as they come */
};

struct script_active_rule {
    script_rule rule;
    unsigned seen;
};

/* All zero at first, but for the options. */
struct script {
    script_options options;
    struct script_active_rule rules[SCRIPT_RULES_MOST];
    size_t rule_count;
    unsigned fired;
    size_t cut_length; /* of the last reply or message that was cut, whole */
    bool drop_pushes, hold_pushes, drop_changes;
    bool cut_push; /* the next grant, to push_count bytes */
    size_t push_count;
    unsigned delay_ms;
    int64_t back_at; /* when the first client came after a rule had closed a connection; 0: none came yet */
};

/* A connection of that client, which has been greeted. */
struct script_connection *script_connect(struct script *s, int client);
void script_connection_free(struct script_connection *c);

/* Deals with what both sides have sent, and reads more of it where there were events. */
void script_serve(struct script *s, struct script_connection *c, short client_events, short backend_events);

/* Lets go what is held back. */
void script_release(struct script *s, struct script_connection *c);

/* Cuts the connection off. Commands that are held back are on their way to the backend: they stay. */
void script_cut(struct script_connection *c);

/* Closes both sides. */
void script_close(struct script_connection *c);

bool script_is_closed(const struct script_connection *c);

#endif
