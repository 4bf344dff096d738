/* How a store reports a finding of an examination. */
#ifndef DIBS_STORE_FINDINGS_H
#define DIBS_STORE_FINDINGS_H

#include "store/store.h"

#define DIBS__FINDING_MAX 512 /* bytes of a text or a remedy including the NUL; longer text is cut */

/* The text is given as for printf. remedy: "" if the verdict is ok. */
void dibs__found(struct dibs__examination *examination, const char *server, const char *subject, dibs_verdict verdict,
                 const char *remedy, const char *format, ...) DIBS__PRINTF(6, 7);
#endif
