/*
 * Lock discipline
 *
 * Each mutex guards the SSL objects or contexts to which it was given. `over` is read under any of them; whoever sets
 * it locks each of them afterwards, so that no call goes on that began before. The fork handlers hold all across
 * fork(2).
 */
#include "redis/tls_parts.h"

#ifdef DIBS_WITH_TLS

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/once.h"

#define CONNECTIONS 16 /* mutexes for all connections; ThreadSanitizer can't follow a thread that holds 64 */

#define FOUR DIBS__MUTEX_INITIALIZER, DIBS__MUTEX_INITIALIZER, DIBS__MUTEX_INITIALIZER, DIBS__MUTEX_INITIALIZER

static struct dibs__mutex mutexes[] = {FOUR, FOUR, FOUR, FOUR, DIBS__MUTEX_INITIALIZER};
#define MUTEXES (sizeof mutexes / sizeof mutexes[0])
static struct dibs__mutex *const contexts = &mutexes[CONNECTIONS]; /* under which contexts are made */
_Static_assert(MUTEXES == CONNECTIONS + 1, "the last mutex is that of the contexts");

struct dibs__tls {
    SSL_CTX *context;  /* has its own guards */
    char *server_name; /* read-only; NULL: the host's name */
};

/* ------------------------------------------------- when OpenSSL may be called */

_Thread_local struct dibs__mutex *dibs__tls_inside;
static atomic_bool over;   /* atomic; set for good; whoever sets it waits for each mutex afterwards */
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

/*
 * OpenSSL calls this before it frees anything, when the process calls exit(3). If a signal handler calls that while its
 * thread is inside OpenSSL, that call can't be waited for, and never goes on.
 */
static void on_end(void) DIBS__UNANALYSED
{
    atomic_store(&over, true);
    for (size_t i = 0; i < MUTEXES; i++) {
        if (&mutexes[i] == dibs__tls_inside)
            continue;
        dibs__tls_mutex_lock(&mutexes[i]);
        dibs__tls_mutex_unlock(&mutexes[i]);
    }
}

static bool start(void)
{
    if (!watches_forks && pthread_atfork(lock_all, unlock_all, after_fork_in_child) != 0)
        return false;
    watches_forks = true;
    return OPENSSL_init_ssl(0, NULL) == 1 && OPENSSL_atexit(on_end) == 1;
}

struct dibs__mutex *dibs__tls_mutex_for_connection(void)
{
    return &mutexes[atomic_fetch_add_explicit(&connections, 1, memory_order_relaxed) % CONNECTIONS];
}

bool dibs__tls_is_over(void)
{
    return atomic_load(&over);
}

/* ---------------------------------------------------------- OpenSSL's failures */

const char *dibs__tls_reason(void)
{
    unsigned long code = ERR_peek_error();
    const char *reason =
        ERR_GET_LIB(code) == ERR_LIB_SYS ? strerror(ERR_GET_REASON(code)) : ERR_reason_error_string(code);

    return reason ? reason : "unknown";
}

bool dibs__tls_lacked_memory(void)
{
    unsigned long code;
    bool lacked = false;

    while ((code = ERR_get_error()) != 0)
        lacked = lacked || ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
    return lacked;
}

/* ------------------------------------------------------------------ the files */

static dibs_status no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for TLS");
}

/*
 * Opens a file that a program which another thread starts meanwhile does not inherit, as it would from OpenSSL's
 * functions.
 */
static BIO *open_file(const char *field, const char *path, struct dibs__error *error)
{
    FILE *file = fopen(path, "re");

    if (!file) {
        dibs__error_set(error, DIBS_INVALID, "%s: %s can't be read: %s", field, path, strerror(errno));
        return NULL;
    }
    BIO *bio = BIO_new_fp(file, BIO_CLOSE);
    if (!bio) {
        fclose(file);
        no_memory(error);
    }
    return bio;
}

static dibs_status useless(const char *field, const char *path, struct dibs__error *error)
    DIBS__REQUIRES(dibs__tls_mutex)
{
    dibs__error_set(error, DIBS_INVALID, "%s: %s can't be used: %s", field, path, dibs__tls_reason());
    return dibs__tls_lacked_memory() ? no_memory(error) : DIBS_INVALID;
}

/* Whether the last error is only the end of a file, which OpenSSL reports as an error. */
static bool is_end(void)
{
    return ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
}

/* For a key that has a password: OpenSSL would ask for it on the terminal, so this refuses. */
static int no_password(char *out, int size, int writing, void *context) /* NOLINT(readability-non-const-parameter) */
{
    (void)out;
    (void)size;
    (void)writing;
    (void)context;
    return -1;
}

static dibs_status trust(SSL_CTX *context, const char *path, struct dibs__error *error) DIBS__REQUIRES(dibs__tls_mutex)
{
    static const char field[] = "tls_ca_file";
    BIO *bio = open_file(field, path, error);
    X509 *certificate = bio ? PEM_read_bio_X509_AUX(bio, NULL, no_password, NULL) : NULL;
    bool good = certificate != NULL;

    if (!bio)
        return error->status;
    while (good && certificate) {
        good = X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate) == 1;
        X509_free(certificate);
        certificate = good ? PEM_read_bio_X509_AUX(bio, NULL, no_password, NULL) : NULL;
    }
    good = good && is_end();
    BIO_free(bio);
    return good ? DIBS_OK : useless(field, path, error);
}

/* Reads the certificate, and behind it those of the authorities between it and the root. */
static dibs_status use_certificate(SSL_CTX *context, const char *path, struct dibs__error *error)
    DIBS__REQUIRES(dibs__tls_mutex)
{
    static const char field[] = "tls_cert_file";
    BIO *bio = open_file(field, path, error);
    X509 *certificate = bio ? PEM_read_bio_X509_AUX(bio, NULL, no_password, NULL) : NULL;

    if (!bio)
        return error->status;
    bool good = certificate && SSL_CTX_use_certificate(context, certificate) == 1;
    X509_free(certificate);
    while (good && (certificate = PEM_read_bio_X509(bio, NULL, no_password, NULL)) != NULL) {
        good = SSL_CTX_add0_chain_cert(context, certificate) == 1;
        if (!good)
            X509_free(certificate);
    }
    good = good && is_end();
    BIO_free(bio);
    return good ? DIBS_OK : useless(field, path, error);
}

static dibs_status use_key(SSL_CTX *context, const struct dibs__tls_files *files, struct dibs__error *error)
    DIBS__REQUIRES(dibs__tls_mutex)
{
    static const char field[] = "tls_key_file";
    BIO *bio = open_file(field, files->key, error);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;

    if (!bio)
        return error->status;
    BIO_free(bio);
    if (!key)
        return useless(field, files->key, error);
    ERR_clear_error();
    bool fits = SSL_CTX_use_PrivateKey(context, key) == 1 && SSL_CTX_check_private_key(context) == 1;
    EVP_PKEY_free(key);
    if (fits)
        return DIBS_OK;
    dibs__error_set(error, DIBS_INVALID, "%s: %s does not fit tls_cert_file, %s: %s", field, files->key,
                    files->certificate, dibs__tls_reason());
    return dibs__tls_lacked_memory() ? no_memory(error) : DIBS_INVALID;
}

static dibs_status read_files(SSL_CTX *context, const struct dibs__tls_files *files, struct dibs__error *error)
    DIBS__REQUIRES(dibs__tls_mutex)
{
    if (files->ca && trust(context, files->ca, error) != DIBS_OK)
        return error->status;
    if (!files->ca && SSL_CTX_set_default_verify_paths(context) != 1)
        return no_memory(error);
    ERR_clear_error();
    if (files->certificate && use_certificate(context, files->certificate, error) != DIBS_OK)
        return error->status;
    ERR_clear_error();
    return files->key ? use_key(context, files, error) : DIBS_OK;
}

/* ---------------------------------------------------------------- the context */

/* What was not written is passed again from another address, with more behind it: see transport.h. */
static SSL_CTX *new_context(void) DIBS__REQUIRES(dibs__tls_mutex)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());

    if (!context)
        return NULL;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1)
        return context;
    SSL_CTX_free(context);
    return NULL;
}

struct dibs__tls *dibs__tls_new(const struct dibs__tls_files *files, struct dibs__error *error)
{
    struct dibs__tls *tls = calloc(1, sizeof *tls);
    dibs_status status = DIBS_NO_MEMORY;

    if (!tls || !dibs__once(&starting, start) ||
        (files->server_name && !(tls->server_name = strdup(files->server_name))))
        goto fail;
    dibs__tls_enter(contexts);
    ERR_clear_error();
    if (!dibs__tls_is_over())
        tls->context = new_context();
    if (tls->context)
        status = read_files(tls->context, files, error);
    dibs__tls_leave(contexts);
    if (status == DIBS_OK)
        return tls;
fail:
    if (status == DIBS_NO_MEMORY)
        no_memory(error);
    dibs__tls_free(tls);
    return NULL;
}

void dibs__tls_free(struct dibs__tls *tls)
{
    if (!tls)
        return;
    dibs__tls_enter(contexts);
    if (!dibs__tls_is_over())
        SSL_CTX_free(tls->context);
    dibs__tls_leave(contexts);
    free(tls->server_name);
    free(tls);
}

/* ------------------------------------------------------------------ the names */

/* Removes the dot at the end of a host's name, and the zone of an IPv6 address, which no certificate has. */
void dibs__tls_name(const struct dibs__tls *tls, const char *host, char name[DIBS__HOST_MAX])
{
    snprintf(name, DIBS__HOST_MAX, "%s", tls->server_name ? tls->server_name : host);
    if (strchr(name, ':'))
        name[strcspn(name, "%")] = '\0';
    size_t size = strlen(name);
    if (size > 1 && name[size - 1] == '.')
        name[size - 1] = '\0';
}

/* An IP address may not be sent as the name in the client hello. */
static bool expect_name(SSL *ssl, const char *name) DIBS__REQUIRES(dibs__tls_mutex)
{
    X509_VERIFY_PARAM *expected = SSL_get0_param(ssl);

    X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (X509_VERIFY_PARAM_set1_ip_asc(expected, name) == 1)
        return true;
    return *name && X509_VERIFY_PARAM_set1_host(expected, name, 0) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

SSL *dibs__tls_connection(const struct dibs__tls *tls, const char *name)
{
    SSL *ssl = SSL_new(tls->context);

    if (ssl && expect_name(ssl, name))
        return ssl;
    SSL_free(ssl);
    return NULL;
}

#else

/* The library is built without TLS, which is refused, with the reason. */
struct dibs__tls *dibs__tls_new(const struct dibs__tls_files *files, struct dibs__error *error)
{
    (void)files;
    dibs__error_set(error, DIBS_INVALID,
                    "URL: this dibs was built without TLS: that needs hiredis_ssl, which comes with hiredis 1.0");
    return NULL;
}

void dibs__tls_free(struct dibs__tls *tls)
{
    (void)tls;
}

#endif
