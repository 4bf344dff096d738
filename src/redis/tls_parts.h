/* What the files of TLS share; doc/ARCHITECTURE.md says what each of them is for. */
#ifndef DIBS_REDIS_TLS_PARTS_H
#define DIBS_REDIS_TLS_PARTS_H

#include "redis/endpoint.h"
#include "redis/tls.h"

#ifdef DIBS_WITH_TLS

#include <openssl/ssl.h>

#include "base/mutex.h"

/*
 * Every call of OpenSSL is made under a mutex of this class. So a fork finds none of OpenSSL's own mutexes locked by a
 * thread of this library, and no call is under way when OpenSSL frees its memory at the end of the process. All these
 * mutexes are leaves; no call blocks.
 */
DIBS__MUTEX_CLASS(dibs__tls_mutex);

extern _Thread_local struct dibs__mutex
    *dibs__tls_inside; /* the calling thread's; the mutex that it has locked, or is about to lock; else NULL */

static inline void dibs__tls_enter(struct dibs__mutex *mutex) DIBS__ACQUIRES(dibs__tls_mutex)
{
    dibs__tls_inside = mutex;
    dibs__tls_mutex_lock(mutex);
}

static inline void dibs__tls_leave(struct dibs__mutex *mutex) DIBS__RELEASES(dibs__tls_mutex)
{
    dibs__tls_mutex_unlock(mutex);
    dibs__tls_inside = NULL;
}

/* The mutex for a new connection, which some others share. */
struct dibs__mutex *dibs__tls_mutex_for_connection(void);

/* True: OpenSSL has freed its memory, and none of its functions may be called any more. */
bool dibs__tls_is_over(void) DIBS__REQUIRES(dibs__tls_mutex);

/* The name that a server must prove: that of the host, unless the configuration names another. */
void dibs__tls_name(const struct dibs__tls *tls, const char *host, char name[DIBS__HOST_MAX]);

/*
 * Makes the SSL object of a connection to the server of that name. NULL: no memory, or no certificate can have that
 * name.
 */
SSL *dibs__tls_connection(const struct dibs__tls *tls, const char *name) DIBS__REQUIRES(dibs__tls_mutex);

/* OpenSSL's reason for the first error in the calling thread. Never NULL; not valid for long. */
const char *dibs__tls_reason(void) DIBS__REQUIRES(dibs__tls_mutex);

/* Whether memory ran out, as far as OpenSSL tells. Clears all of OpenSSL's errors in the calling thread. */
bool dibs__tls_lacked_memory(void) DIBS__REQUIRES(dibs__tls_mutex);

#endif
#endif
