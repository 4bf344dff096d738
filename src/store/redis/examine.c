/* What of one server endangers locks. */
#include "store/redis/redis_store.h"

dibs_status dibs__redis_examine(struct dibs__store *base, const struct dibs__examination *examination,
                                struct dibs__error *error)
{
    const struct dibs__redis_store *store = dibs__redis_of(base);
    const dibs_finding connection = {.server = store->endpoint.url.shown,
                                     .subject = "connection",
                                     .verdict = DIBS_VERDICT_OK,
                                     .text = "The server answers.",
                                     .remedy = ""};

    return examination->found(examination->context, &connection)
               ? DIBS_OK
               : dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a finding");
}
