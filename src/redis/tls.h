/*
 * The transport of encrypted connections: TLS over the sockets of socket.c. hiredis_ssl begins each connection, and
 * OpenSSL does the rest. If the library is built without them, dibs__tls_new refuses.
 *
 * A server is accepted only if its certificate has a valid chain and names the host, or the IP address if the URL has
 * one.
 */
#ifndef DIBS_REDIS_TLS_H
#define DIBS_REDIS_TLS_H

#include "redis/transport.h"

/* What all encrypted connections of a runtime share; read-only once made, and used by any thread. */
struct dibs__tls;

/* Names of files in PEM format; NULL: not given. */
struct dibs__tls_files {
    const char *ca;          /* authorities to trust; NULL: those that the system trusts */
    const char *certificate; /* certificate of the client, with its chain */
    const char *key;         /* key of that certificate */
    const char *server_name; /* not a file: the name that is expected, and sent, instead of the name of the host */
};

/* NULL on failure: DIBS_INVALID if a file can't be used or TLS is not built in, or DIBS_NO_MEMORY. */
struct dibs__tls *dibs__tls_new(const struct dibs__tls_files *files, struct dibs__error *error);
void dibs__tls_free(struct dibs__tls *tls); /* NULL is fine; no connection may be left */

/* For endpoints whose `tls` is set. */
extern const struct dibs__transport_ops dibs__tls_transport;

#endif
