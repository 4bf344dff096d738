/*
 * A server that follows a script, to confront the library with what a network or a broken server can do. With a
 * backend, it is a proxy of a real server, and passes everything on unless a rule says otherwise. Without one, it
 * answers every command with the same bytes.
 *
 * The server runs on a thread of its own. Its functions may be called by any thread and take effect at once; only the
 * test's thread may start and stop it.
 */
#ifndef DIBS_TEST_SCRIPT_SERVER_H
#define DIBS_TEST_SCRIPT_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct script_server script_server;

typedef enum script_action {
    SCRIPT_REPLACE,       /* not forwarded: bytes are the reply */
    SCRIPT_REPLACE_CLOSE, /* the same, then the connection is closed */
    SCRIPT_TRUNCATE,      /* forwarded; the first count bytes of the reply, then the connection is closed */
    SCRIPT_TRUNCATE_HANG, /* the same, but nothing is closed: the rest never comes */
    SCRIPT_CLOSE_BEFORE,  /* not forwarded, the connection is closed */
    SCRIPT_CLOSE_AFTER,   /* forwarded and executed; closed without a reply */
    SCRIPT_STALL_REPLY,   /* forwarded and executed; its reply and all later ones are held until released */
    SCRIPT_STALL_REQUEST  /* this command and all later ones of the connection are held until released, even if the
                             client closes meanwhile: they then reach the server late, as from a slow network */
} script_action;

typedef struct script_rule {
    const char *match; /* bytes somewhere in the command, as sent; "" matches every command */
    unsigned nth;      /* only the nth command that matches, from 1; 0: every one */
    script_action action;
    const char *bytes; /* of SCRIPT_REPLACE*, with their \r\n */
    size_t count;      /* of SCRIPT_TRUNCATE* */
    bool uncounted;    /* it is none of those whose firings are counted */
} script_rule;

/*
 * What renewals of the lock x have as sent, and nothing else: in renew.lua alone the lock's key comes behind the number
 * of two keys, in renew_short.lua alone behind that of one. The key alone would also match the command that makes the
 * store watch the lock. In full are an extension, and what may restore the lease.
 */
#define RENEWAL_OF_X "\r\n$1\r\n1\r\n$6\r\nlock:x\r\n"
#define FULL_RENEWAL_OF_X "\r\n$1\r\n2\r\n$6\r\nlock:x\r\n"

/*
 * What an ask for the lock x and its release have, and nothing else: scripts of three keys. On a slow machine the lock
 * may be watched at any time.
 */
#define ASK_OR_RELEASE_OF_X "\r\n$1\r\n3\r\n$6\r\nlock:x\r\n"

typedef struct script_options {
    const char *backend;  /* the path of a real server's Unix socket, NULL: none */
    bool tcp;             /* listens on 127.0.0.1, not on a Unix socket */
    const char *greeting; /* without a backend: sent on accept, NULL: nothing */
    const char *answer;   /* without a backend: the reply to every command, NULL: none ever */
    bool hang_up;         /* without a backend: closes after the greeting, or after the first answer */
} script_options;

/* Never NULL: what goes wrong fails the test. The server keeps copies of the texts in options and rules. */
script_server *script_server_start(const script_options *options);
void script_server_stop(script_server *s);

/* What to put into dibs_config.urls; lives as long as the server. */
const char *script_server_url(const script_server *s);

/* The first rule that matches a command wins; nth counts from the moment it was added. */
void script_server_add(script_server *s, script_rule rule);
void script_server_clear(script_server *s);

/* Adds the rule that bytes are the reply to each command that matches, which is not forwarded. */
void script_server_answer(script_server *s, const char *match, const char *bytes);

/* From now on these rules and no others, in one step: no command meets some of the old ones, or none. */
void script_server_set(script_server *s, const script_rule *rules, size_t count);

/* Lets go what is stalled, on all connections; rules stay. */
void script_server_release(script_server *s);

/*
 * Whether all commands have been answered, except subscriptions: nothing is held back, or on its way to the backend or
 * from there.
 */
bool script_server_has_answered(script_server *s);

/*
 * Closes all connections (commands that are held stay held: they are on their way to the server); while down, new ones
 * are closed as soon as they are made.
 */
void script_server_cut(script_server *s);
void script_server_set_down(script_server *s, bool down);

/* From now on, every reply takes so much longer: a store that is far away. */
void script_server_delay(script_server *s, unsigned ms);

/* While set, messages of subscriptions are thrown away: the subscription looks sound, but is deaf. */
void script_server_drop_pushes(script_server *s, bool drop);

/* While set, only messages of keys that have changed (CLIENT TRACKING) are thrown away. */
void script_server_drop_changes(script_server *s, bool drop);

/* The next message of a grant is cut to count bytes, then the connection is closed. Counts as a firing. */
void script_server_cut_push(script_server *s, size_t count);

/* While set, messages of subscriptions are kept back; false lets them go. */
void script_server_hold_pushes(script_server *s, bool hold);

/*
 * How often a rule fired; how many connections were accepted; the whole length of the last reply or message that was
 * cut.
 */
unsigned script_server_fired(script_server *s);
unsigned script_server_accepted(script_server *s);
size_t script_server_cut_length(script_server *s);

/* Waits until rules have fired more often than `before`. */
void script_server_await_fired(script_server *s, unsigned before);

/* When (now_ms) the first connection was accepted since a rule last closed one; 0: none yet. */
int64_t script_server_back_at(script_server *s);

#endif
