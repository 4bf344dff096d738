/*
 * The transport of encrypted connections: TLS over the sockets of socket.c.
 * hiredis_ssl begins each, and OpenSSL does the rest. Where the library is built
 * without them (tls_none.c), dibs__tls_new refuses.
 *
 * A server is accepted only if its certificate has a valid chain and bears the
 * name of the host, or the IP address where the URL has one.
 */
#ifndef DIBS_REDIS_TLS_H
#define DIBS_REDIS_TLS_H

#include "redis/transport.h"

/* What the encrypted connections of a runtime have in common; read-only once made, and used by any thread. */
struct dibs__tls;

/* Names of files in PEM format; NULL: not given. */
struct dibs__tls_files {
    const char *ca;          /* whom to trust; NULL: whom the system trusts */
    const char *certificate; /* of the client, with its chain */
    const char *key;         /* of that certificate */
    const char *server_name; /* is expected, and sent, instead of the name of the host; no file */
};

/* NULL on failure: DIBS_INVALID, where a file is of no use or TLS is not built in, or DIBS_NO_MEMORY. */
struct dibs__tls *dibs__tls_new(const struct dibs__tls_files *files, struct dibs__error *error);
void dibs__tls_free(struct dibs__tls *tls); /* NULL is fine; no connection is left */

/* For an endpoint that has a `tls`. */
extern const struct dibs__transport_ops dibs__tls_transport;

#endif
