/*
 * A real Redis (or Valkey) server of a test's own: in a folder of its own, on a Unix socket, without persistence. The
 * server ends with the test's process. Used by the test's own thread only. A failure here fails the test.
 *
 * If $DIBS_TEST_TLS is set and TLS is built in, each server is started as with `tls`, and the system trusts its
 * certificate. So tests that know nothing of TLS run with TLS.
 */
#ifndef DIBS_TEST_SERVER_H
#define DIBS_TEST_SERVER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <sys/types.h>

#include "support/text.h"

typedef struct server_options {
    bool tcp;             /* also on a free port of 127.0.0.1; url is then redis:// */
    const char *config;   /* lines for redis.conf, after the default ones */
    const char *preload;  /* a library for LD_PRELOAD: test/support/shim */
    const char *password; /* sets requirepass; the test's own commands use it; not in url */
    bool sentinel;        /* in sentinel mode: what sentinels.h starts */
    const char *tls; /* a folder of certificates.h: a port of 127.0.0.1 with TLS, and none without; url is rediss:// */
    const char *certificate; /* with tls: the `file` in that folder; NULL: "server" */
} server_options;

typedef struct server {
    char folder[64];
    char socket_path[96]; /* of the Unix socket: there is always one */
    const char *url;
    int port;  /* 0: no TCP */
    pid_t pid; /* 0: not running */
    bool paused;
    server_options options; /* its texts are copies */
    redisContext *admin;    /* of server_command, NULL until used */
} server;

/*
 * Starts one and waits till it answers. With $DIBS_TEST_ACL, the heading of a rule in doc/ACCOUNTS.md, url names an
 * account that has these rights; the test's own commands do not use it. options may be NULL. Never NULL; freed by
 * server_stop.
 */
server *server_start(const server_options *options);

/* SIGTERM, then SIGKILL; removes the folder. NULL is fine. */
void server_stop(server *s);

/* Returns it; it is stopped at the end of the test. */
server *test_server(server *s);

/* kill -9: the data are gone, the folder stays. */
void server_kill(server *s);

/* Starts it again on the same socket and port, after server_kill; waits till it answers. */
void server_restart(server *s);

/* As server_kill and server_restart, of a server with TLS: with another certificate of its folder. */
void server_certify(server *s, const char *certificate);

/* SIGSTOP, on return it has stopped; SIGCONT. A paused server accepts connections (the kernel does) and says nothing.
 */
void server_pause(server *s);
void server_resume(server *s);

/*
 * Sends a command on the test's own connection (hiredis's format). The reply
 * is the caller's to free; an error reply fails the test, unless it is sent by
 * server_try, which returns whatever came.
 */
redisReply *server_command(server *s, const char *format, ...);
redisReply *server_try(server *s, const char *format, ...);

/*
 * As server_command: for the effect alone, for an integer reply, and for a string, which is copied and cut to size
 * (false: nil).
 */
void server_do(server *s, const char *format, ...);
long long server_integer(server *s, const char *format, ...);
bool server_string(server *s, char *out, size_t size, const char *format, ...);

/* As server_command, for a string, which must be there; it lives as long as the process. */
char *server_text(server *s, const char *format, ...);

/* An account that has these rights, as of ACL SETUSER, and no others. Returns its URL. */
const char *server_account(server *s, const char *user, const char *rights);

/* Whether the key exists; whether it goes away within limit_ms. */
bool server_has(server *s, const char *key);
bool server_wait_gone(server *s, const char *key, int64_t limit_ms);

/* How often a command was called since the server began, by scripts too; its name in small letters. */
long long server_calls(server *s, const char *command);

/*
 * How many scripts clients have run so far. server_await_ask waits until there are more than `before`: so a test sees
 * that a call which waits has asked the store.
 */
long long server_asks(server *s);

/* How many connections of dibs it has, without those that subscribe. */
long long server_clients(server *s);
void server_await_ask(server *s, long long before);

/* Waits until no client has run a script for a second: many times as long as a waiter that polls rests between asks. */
void server_await_rest(server *s);

/*
 * Both fail the test where a key, in any database, has no expiry; the second also where any key is left that begins
 * with "lock:". A server that was killed passes.
 */
void server_assert_clean(server *s);
void server_assert_no_locks(server *s);

/* The value of the key; "" where there is none. And a wait until it is that, at most LIMIT_MS. */
const char *server_value(server *s, const char *key);
void server_await_value(server *s, const char *key, const char *value);

/* Whether the server refuses commands for lack of memory. */
void server_set_memory_out(server *s, bool out);

/* Waits until the server, a node of a cluster, finds that all slots are served, at most LIMIT_MS. */
void server_await_cluster(server *s);

#endif
