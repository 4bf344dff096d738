/* The places: servers of each topology, and the URLs that lead to them, directly or over wires with a delay. */
#ifndef BENCH_TOPOLOGIES_PLACES_H
#define BENCH_TOPOLOGIES_PLACES_H

#include <stddef.h>

enum topology { ONE_SERVER, THREE_MASTERS, FIVE_MASTERS, CLUSTER_OF_THREE, TOPOLOGIES };

/* URLs for dibs_config. */
struct place {
    const char *urls[5];
    size_t url_count;
};

/*
 * Fills in how each topology is reached without a delay. Starts the servers, other ones for each topology, which end
 * with the program; bench_start was called.
 */
void places_start(struct place places[TOPOLOGIES]);

/* Fills in how each topology is reached where every reply is so late; half of the delay lies on the way of the command.
   To be called once. */
void places_delay(struct place places[TOPOLOGIES], unsigned delay_us);

#endif
