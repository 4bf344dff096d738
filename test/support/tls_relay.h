/*
 * A relay between the client and a real server, on a port of 127.0.0.1. It either ends TLS, and so sees what the client
 * says in its handshake, or passes on the encrypted bytes, in small pieces if the test wants that. Only available if
 * TLS is built in.
 *
 * Runs on threads of its own; its functions must be called by the test's thread.
 */
#ifndef DIBS_TEST_TLS_RELAY_H
#define DIBS_TEST_TLS_RELAY_H

#include <stddef.h>

typedef struct tls_relay tls_relay;

typedef struct tls_relay_options {
    const char *backend;     /* ends TLS: the path of the server's Unix socket. With neither: never says anything */
    int backend_port;        /* passes on: the server's port with TLS */
    const char *folder;      /* with backend: of certificates.h */
    const char *certificate; /* NULL: "server"; another `file` in that folder */
    int most;                /* with backend: the newest version to be spoken, as OpenSSL calls it; 0: any */
    unsigned new_keys_every; /* with backend: after so many replies, both sides must change their keys; 0: never */
    size_t piece;            /* with backend_port: so many bytes at a time; 0: as they come */
} tls_relay_options;

/* Never NULL: what goes wrong fails the test. The texts in options must live as long as the relay. */
tls_relay *tls_relay_start(const tls_relay_options *options);
void tls_relay_stop(tls_relay *relay);

int tls_relay_port(const tls_relay *relay);

/* Ends all connections; new ones are served. */
void tls_relay_cut(tls_relay *relay);

/* The name of the server that the last client asked for; "": it asked for none, "?": no client came yet. */
const char *tls_relay_name(tls_relay *relay);

/* How often a client has changed its keys. */
unsigned tls_relay_new_keys(tls_relay *relay);

#endif
