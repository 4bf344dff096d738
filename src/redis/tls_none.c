/* TLS in a library that is built without it: refused, with the reason. */
#include "redis/tls.h"

#ifndef DIBS_WITH_TLS

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

/* Never used, because no endpoint has a `tls`. */
const struct dibs__transport_ops dibs__tls_transport = {.open = NULL};

#endif
