/* TLS in a library that is built without it: refused, with the reason. */
#include "redis/tls.h"

#ifndef DIBS_WITH_TLS

static dibs_status refuse(struct dibs__error *error)
{
    return dibs__error_set(
        error, DIBS_INVALID,
        "URL: this dibs was built without TLS: that needs hiredis_ssl, which comes with hiredis 1.0");
}

struct dibs__tls *dibs__tls_new(const struct dibs__tls_files *files, struct dibs__error *error)
{
    (void)files;
    refuse(error);
    return NULL;
}

void dibs__tls_free(struct dibs__tls *tls)
{
    (void)tls;
}

static struct dibs__transport *open_none(struct dibs__endpoint *endpoint, struct dibs__error *error)
{
    (void)endpoint;
    refuse(error);
    return NULL;
}

const struct dibs__transport_ops dibs__tls_transport = {.open = open_none};

#endif
