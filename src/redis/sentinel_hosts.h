/* The sentinels that are known: those of the URL, and those of which they told. */
#ifndef DIBS_REDIS_SENTINEL_HOSTS_H
#define DIBS_REDIS_SENTINEL_HOSTS_H

#include "redis/endpoint.h"

#define DIBS__SENTINELS_LEARNED 16 /* of those that the URL does not name, so many are kept */

/* Why a sentinel was passed over in the last round. */
enum dibs__sentinel_fault {
    DIBS__FAULT_NONE,
    DIBS__FAULT_UNREACHED, /* no connection, or it broke */
    DIBS__FAULT_SILENT,
    DIBS__FAULT_DENIED,
    DIBS__FAULT_UNKNOWN,     /* it does not know the master */
    DIBS__FAULT_NO_SENTINEL, /* what it answered no sentinel answers */
    DIBS__FAULT_NO_MEMORY,
};

struct dibs__sentinel_host {
    struct dibs__endpoint endpoint;
    bool given; /* the URL names it */
    bool named; /* a sentinel named it since the last dibs__sentinel_hosts_learn_begin */
    enum dibs__sentinel_fault fault;
};

/* Used by one thread at a time. All zero: none. */
struct dibs__sentinel_hosts {
    struct dibs__sentinel_host **hosts;
    size_t count;
    size_t given;
    size_t room;
};

/* Those of the URL, with the counters, the TLS and the rest of that endpoint. False: no memory. */
bool dibs__sentinel_hosts_init(struct dibs__sentinel_hosts *hosts, const struct dibs__endpoint *master,
                               const char *user, const char *password);

/* A copy of all that are known, which lives as long as the endpoint. False: no memory. */
bool dibs__sentinel_hosts_copy(struct dibs__sentinel_hosts *out, const struct dibs__sentinel_hosts *hosts,
                               const struct dibs__endpoint *master);
void dibs__sentinel_hosts_free(struct dibs__sentinel_hosts *hosts);

/* No sentinel of the round that begins has a fault. */
void dibs__sentinel_hosts_begin(struct dibs__sentinel_hosts *hosts);

/*
 * What a sentinel tells of the others, each of which is noted between begin and
 * end. Those that the URL does not name, and the sentinel does not either, are
 * forgotten, but for the one at the place *at. *at: still the same one's place.
 */
void dibs__sentinel_hosts_learn_begin(struct dibs__sentinel_hosts *hosts);
void dibs__sentinel_hosts_learn(struct dibs__sentinel_hosts *hosts, const char *name, unsigned port);
void dibs__sentinel_hosts_learn_end(struct dibs__sentinel_hosts *hosts, size_t *at);

/* Fills the error: a sentence that names each sentinel and its fault; its status. master: the name. */
dibs_status dibs__sentinel_hosts_tell(const struct dibs__sentinel_hosts *hosts, const char *master,
                                      struct dibs__error *error);

#endif
