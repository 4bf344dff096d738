/*
 * A quorum: a lock on three servers that know nothing of one another. Any one of them may fail.
 *
 *     cc quorum.c -o quorum $(pkg-config --cflags --libs dibs)
 *     ./quorum redis://host-a redis://host-b redis://host-c
 *
 * 3, 5, ... 15 URLs; all clients give the same ones.
 */
#include <dibs.h>
#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    const dibs_config config = {
        .urls = (const char *const *)(argv + 1),
        .url_count = (size_t)(argc - 1),
        .lease_ms = 10000,
    };
    dibs_runtime *rt;
    dibs_owner owner;
    dibs_hold hold;

    if (argc < 4 || argc % 2 != 0) {
        fprintf(stderr, "usage: %s URL URL URL ...\n", argv[0]);
        return 2;
    }
    if (dibs_open(&rt, &config) != DIBS_OK) { /* also needs a majority */
        fprintf(stderr, "no quorum: %s\n", dibs_last_error());
        return 1;
    }
    if (dibs_timedlock(rt, "leader", 5000) != DIBS_OK) {
        fprintf(stderr, "not the leader: %s\n", dibs_last_error());
        return 1;
    }
    if (dibs_hold_of(rt, "leader", &hold) == DIBS_OK && dibs_query(rt, "leader", &owner) == DIBS_OK && owner.held)
        printf("a majority of %d servers has the lock, with fence %" PRIu64 "\n", argc - 1, hold.fence);
    if (dibs_unlock(rt, "leader") != DIBS_OK)
        fprintf(stderr, "unlock: %s\n", dibs_last_error());
    dibs_close(rt);
    return 0;
}
