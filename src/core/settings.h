/* The configuration of dibs_open: checked, copied, and with defaults filled in. Read-only after open. */
#ifndef DIBS_CORE_SETTINGS_H
#define DIBS_CORE_SETTINGS_H

#include "store/store.h"

typedef dibs_status dibs__store_opener(struct dibs__store **out, const struct dibs__store_config *config,
                                       struct dibs__error *error);

struct dibs__settings {
    char **urls; /* of one store, or of the members of a quorum */
    size_t url_count;
    char *key_prefix, *label;
    const char *reserved;        /* no name may begin with this, which makes "dibs:" after key_prefix; NULL: any may */
    uint32_t lease_ms, renew_ms; /* renew_ms 0: a third of each lease */
    uint32_t connect_timeout_ms, command_timeout_ms, outage_ms, handoff_ms;
    uint32_t spin_us; /* 0: no thread polls */
    uint32_t keep_ms; /* 0: no lease is kept */
    uint32_t min_replicas, replica_timeout_ms;
    bool durable;
    struct dibs__access *access; /* NULL: dibs_open was given none */
    dibs_event_fn *on_event;
    void *on_event_arg;
    dibs__store_opener *open_store; /* NULL: dibs__store_open; tests put a store of their own in its place */
};

/* Adds a copy of the URL, which has that many bytes. False: no memory. */
bool dibs__settings_add_url(struct dibs__settings *settings, const char *url, size_t size);

/* Frees the strings. The numbers stay, url_count too: calls check arguments by them while dibs_close runs. */
void dibs__settings_free(struct dibs__settings *settings);

#endif
