/* What endangers locks at the members, and at all of them together. Lock discipline: quorum_parts.h. */
#include "store/quorum/quorum_parts.h"

dibs_status dibs__quorum_examine(struct dibs__store *base, const struct dibs__examination *examination,
                                 struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);

    for (size_t i = 0; i < q->count; i++) {
        struct dibs__store *store = q->members[i].store;
        if (store->ops->examine(store, examination, error) != DIBS_OK)
            return error->status;
    }
    return DIBS_OK;
}
