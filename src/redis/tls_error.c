#include "redis/tls_parts.h"

#ifdef DIBS_WITH_TLS

#include <openssl/err.h>
#include <string.h>

const char *dibs__tls_reason(void)
{
    unsigned long code = ERR_peek_error();
    const char *reason =
        ERR_GET_LIB(code) == ERR_LIB_SYS ? strerror(ERR_GET_REASON(code)) : ERR_reason_error_string(code);

    return reason ? reason : "unknown";
}

/* The alert with which the server ended the connection; 0: there was none. */
static int alert(void)
{
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code) - SSL_AD_REASON_OFFSET;

    return ERR_GET_LIB(code) == ERR_LIB_SSL && reason > 0 && reason <= 255 ? reason : 0;
}

bool dibs__tls_lacked_memory(void)
{
    unsigned long code;
    bool lacked = false;

    while ((code = ERR_get_error()) != 0)
        lacked = lacked || ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
    return lacked;
}

/*
 * An alert refuses what this side offered. With TLS 1.3, a server that refuses the client's certificate says so only
 * after the handshake is over on this side.
 */
dibs_status dibs__tls_failed(SSL *ssl, const char *shown, const char *name, bool has_talked, struct dibs__error *error)
{
    long verdict = SSL_get_verify_result(ssl);
    int told = alert();
    bool is_other_name = verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH;

    if (verdict != X509_V_OK)
        dibs__error_set(error, DIBS_DENIED, "the certificate of %s is not accepted%s%s: %s", shown,
                        is_other_name ? " for the name " : "", is_other_name ? name : "",
                        X509_verify_cert_error_string(verdict));
    else if (has_talked || told == SSL_AD_INTERNAL_ERROR)
        dibs__error_set(error, DIBS_UNAVAILABLE, "the connection to %s broke: TLS: %s", shown, dibs__tls_reason());
    else if (told)
        dibs__error_set(error, DIBS_DENIED, "%s refuses the TLS connection: %s", shown, dibs__tls_reason());
    else
        dibs__error_set(error, DIBS_STORE_ERROR, "%s does not speak TLS as is needed: %s", shown, dibs__tls_reason());
    if (dibs__tls_lacked_memory() ||
        verdict == X509_V_ERR_OUT_OF_MEM) /* which may look like a certificate that nobody signed */
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a connection to %s", shown);
    return error->status;
}

#endif
