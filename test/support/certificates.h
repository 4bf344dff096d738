/* Certificates that a test makes when it needs them, if TLS is built in. */
#ifndef DIBS_TEST_CERTIFICATES_H
#define DIBS_TEST_CERTIFICATES_H

#include <stdbool.h>

struct certificate {
    const char *file;   /* FOLDER/file.crt and FOLDER/file.key are written */
    const char *names;  /* "DNS:localhost,IP:127.0.0.1"; NULL: none */
    const char *issuer; /* the `file` of another in the same folder; NULL: the certificate signs itself */
    bool authority;     /* it may sign others */
    bool expired;       /* since an hour */
};

/* An error fails the test. */
void certificate_make(const char *folder, const struct certificate *certificate);

/*
 * What most tests need: ca, an authority; server, signed by that, for localhost, 127.0.0.1 and ::1; client, signed by
 * that. A folder of the process' own, which is made by the first call and removed at exit. NULL where TLS is not built
 * in.
 */
const char *certificates_folder(void);

/* FOLDER/FILE for the configuration. */
const char *certificate_path(const char *folder, const char *file);

#endif
