#include "support/certificates.h"

#include <stdio.h>

#include "support/text.h"

const char *certificate_path(const char *folder, const char *file)
{
    return formatted("%s/%s", folder, file);
}

#ifdef DIBS_WITH_TLS

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/obj_mac.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/common/redis_process.h"
#include "support/test.h"

enum { HOUR = 3600, DAY = 24 * HOUR };

/* ------------------------------------------------------------------ one file */

static FILE *open_file(const char *folder, const char *name, const char *suffix, const char *mode)
{
    const char *path = formatted("%s/%s.%s", folder, name, suffix);
    FILE *file = fopen(path, mode);

    assert_that(file != NULL, "%s", path);
    return file;
}

static EVP_PKEY *new_key(void)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, NULL);
    EVP_PKEY *key = NULL;

    assert_true(context && EVP_PKEY_keygen_init(context) == 1);
    assert_int_equal(EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1), 1);
    assert_int_equal(EVP_PKEY_keygen(context, &key), 1);
    EVP_PKEY_CTX_free(context);
    return key;
}

static void extend(X509 *made, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;

    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, made, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(made, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static X509 *new_certificate(const struct certificate *what, EVP_PKEY *key)
{
    static long serial;
    X509 *made = X509_new();

    assert_non_null(made);
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), (long)getpid() * 1000 + ++serial);
    X509_gmtime_adj(X509_getm_notBefore(made), -DAY);
    X509_gmtime_adj(X509_getm_notAfter(made), what->expired ? -HOUR : DAY);
    X509_set_pubkey(made, key);
    assert_int_equal(X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                                                (const unsigned char *)what->file, -1, -1, 0),
                     1);
    return made;
}

void certificate_make(const char *folder, const struct certificate *what)
{
    EVP_PKEY *key = new_key(), *signing_key = key;
    X509 *made = new_certificate(what, key), *issuer = made;

    if (what->issuer) {
        FILE *file = open_file(folder, what->issuer, "crt", "re");
        issuer = PEM_read_X509(file, NULL, NULL, NULL);
        fclose(file);
        file = open_file(folder, what->issuer, "key", "re");
        signing_key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
        fclose(file);
        assert_true(issuer && signing_key);
    }
    X509_set_issuer_name(made, X509_get_subject_name(issuer));
    extend(made, issuer, NID_basic_constraints, what->authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
    extend(made, issuer, NID_subject_key_identifier, "hash");
    extend(made, issuer, NID_authority_key_identifier, "keyid");
    extend(made, issuer, NID_key_usage, what->authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature");
    if (what->names)
        extend(made, issuer, NID_subject_alt_name, what->names);
    assert_true(X509_sign(made, signing_key, EVP_sha256()) > 0);

    FILE *file = open_file(folder, what->file, "crt", "we");
    assert_int_equal(PEM_write_X509(file, made), 1);
    fclose(file);
    file = open_file(folder, what->file, "key", "we");
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
    if (issuer != made)
        X509_free(issuer);
    if (signing_key != key)
        EVP_PKEY_free(signing_key);
    X509_free(made);
    EVP_PKEY_free(key);
}

/* ---------------------------------------------------------------- the folder */

static char usual[64];
static pid_t owner;

static void remove_usual(void)
{
    if (getpid() == owner)
        remove_folder(usual);
}

const char *certificates_folder(void)
{
    static const struct certificate needed[] = {
        {.file = "ca", .authority = true},
        {.file = "server", .issuer = "ca", .names = "DNS:localhost,IP:127.0.0.1,IP:::1"},
        {.file = "client", .issuer = "ca"},
    };

    if (owner)
        return usual;
    assert_true(temporary_folder(usual, sizeof usual));
    owner = getpid();
    atexit(remove_usual);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        certificate_make(usual, &needed[i]);
    return usual;
}

#else

const char *certificates_folder(void)
{
    return NULL;
}

#endif
