/*
 * Lock discipline
 *
 * Each mutex guards the SSL objects or contexts to which it was given. All mutexes together guard `over`, which is read
 * under any of them and written under all. The fork handlers hold all across fork(2).
 */
#include "redis/tls_parts.h"

#ifdef DIBS_WITH_TLS

#include <stdatomic.h>

#include "base/once.h"

#define CONNECTIONS 16 /* mutexes for all connections; ThreadSanitizer can't follow a thread that holds 64 */

#define FOUR DIBS__MUTEX_INITIALIZER, DIBS__MUTEX_INITIALIZER, DIBS__MUTEX_INITIALIZER, DIBS__MUTEX_INITIALIZER

static struct dibs__mutex mutexes[] = {FOUR, FOUR, FOUR, FOUR, DIBS__MUTEX_INITIALIZER};
#define MUTEXES (sizeof mutexes / sizeof mutexes[0])
_Static_assert(MUTEXES == CONNECTIONS + 1, "the last mutex is that of the contexts");

static bool over DIBS__GUARDED_BY(dibs__tls_mutex);
static bool watches_forks; /* used by the one thread that runs `start`, and in a child before others are there */
static struct dibs__once starting; /* guards itself; runs start */
static atomic_uint connections;    /* atomic; number of connections that were given a mutex */

/* Not analysed: the analysis can't follow a loop that locks several mutexes of one class. */
static void lock_all(void) DIBS__UNANALYSED
{
    for (size_t i = 0; i < MUTEXES; i++)
        dibs__tls_mutex_lock(&mutexes[i]);
}

static void unlock_all(void) DIBS__UNANALYSED
{
    for (size_t i = 0; i < MUTEXES; i++)
        dibs__tls_mutex_unlock(&mutexes[i]);
}

static void after_fork_in_child(void) DIBS__UNANALYSED
{
    watches_forks = true; /* perhaps the parent had not recorded it yet */
    unlock_all();
}

/* OpenSSL calls this before it frees anything, when the process calls exit(3). */
static void on_end(void) DIBS__UNANALYSED
{
    lock_all();
    over = true;
    unlock_all();
}

static bool start(void)
{
    if (!watches_forks && pthread_atfork(lock_all, unlock_all, after_fork_in_child) != 0)
        return false;
    watches_forks = true;
    return OPENSSL_init_ssl(0, NULL) == 1 && OPENSSL_atexit(on_end) == 1;
}

bool dibs__tls_start(void)
{
    return dibs__once(&starting, start);
}

struct dibs__mutex *dibs__tls_mutex_for_connection(void)
{
    return &mutexes[atomic_fetch_add_explicit(&connections, 1, memory_order_relaxed) % CONNECTIONS];
}

struct dibs__mutex *dibs__tls_mutex_for_contexts(void)
{
    return &mutexes[CONNECTIONS];
}

bool dibs__tls_is_over(void)
{
    return over;
}

#endif
