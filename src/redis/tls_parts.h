/*
 * What the files of TLS share:
 *
 *     tls.c          the transport
 *     tls_bio.c      how OpenSSL reads and writes
 *     tls_context.c  the files, and what is expected of a server
 *     tls_error.c    what a failure of OpenSSL means
 *     tls_guard.c    when OpenSSL may be called: mutexes, forks, the end of the process
 */
#ifndef DIBS_REDIS_TLS_PARTS_H
#define DIBS_REDIS_TLS_PARTS_H

#include "redis/endpoint.h"
#include "redis/tls.h"

#ifdef DIBS_WITH_TLS

#include <openssl/ssl.h>

#include "base/mutex.h"

/* ----------------------------------------------------------------- tls_guard.c */

/*
 * Every call of OpenSSL is made under a mutex of this class. So a fork finds none of OpenSSL's own mutexes locked by a
 * thread of this library, and no call is under way when OpenSSL frees its memory at the end of the process. All these
 * mutexes are leaves; no call blocks.
 */
DIBS__MUTEX_CLASS(dibs__tls_mutex);

/* Must be called before anything else here. False: no memory; it must be called again. */
bool dibs__tls_start(void);

/* The mutex for a new connection, which some others share; and the one under which contexts are made. */
struct dibs__mutex *dibs__tls_mutex_for_connection(void);
struct dibs__mutex *dibs__tls_mutex_for_contexts(void);

/* True: OpenSSL has freed its memory, and none of its functions may be called any more. */
bool dibs__tls_is_over(void) DIBS__REQUIRES(dibs__tls_mutex);

/* ------------------------------------------------------------------- tls_bio.c */

#define DIBS__TLS_IN 16640 /* a record of the usual size, with what is needed to decrypt it */

/* The bytes between OpenSSL and a socket. Guarded by the connection's mutex. */
struct dibs__tls_wire {
    struct dibs__transport *socket;
    struct dibs__error broken; /* how the socket broke, if it did; OpenSSL does not tell */
    size_t used;               /* number of bytes in `in` */
    size_t given;              /* number of those bytes that OpenSSL has taken */
    char in[DIBS__TLS_IN];
};

/* Makes a BIO for an SSL object. The wire must outlive it. NULL: no memory. */
BIO *dibs__tls_bio(struct dibs__tls_wire *wire) DIBS__REQUIRES(dibs__tls_mutex);

/* --------------------------------------------------------------- tls_context.c */

/* The name that a server must prove: that of the host, unless the configuration names another. */
void dibs__tls_name(const struct dibs__tls *tls, const char *host, char name[DIBS__HOST_MAX]);

/*
 * Makes the SSL object of a connection to the server of that name. NULL: no memory, or no certificate can have that
 * name.
 */
SSL *dibs__tls_connection(const struct dibs__tls *tls, const char *name) DIBS__REQUIRES(dibs__tls_mutex);

/* ----------------------------------------------------------------- tls_error.c */

/* OpenSSL's reason for the first error in the calling thread. Never NULL; not valid for long. */
const char *dibs__tls_reason(void) DIBS__REQUIRES(dibs__tls_mutex);

/* Whether memory ran out, as far as OpenSSL tells. Clears all of OpenSSL's errors in the calling thread. */
bool dibs__tls_lacked_memory(void) DIBS__REQUIRES(dibs__tls_mutex);

/*
 * Called when a call on the SSL object failed although the socket works: fills the error. name: as for dibs__tls_name.
 */
dibs_status dibs__tls_failed(SSL *ssl, const char *shown, const char *name, bool has_talked, struct dibs__error *error)
    DIBS__REQUIRES(dibs__tls_mutex);

#endif
#endif
