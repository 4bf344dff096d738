/* A red packet with several parts (19_packets_alone.c), for the ways of number 19. */
#ifndef DIBS_DEMO_PACKET_H
#define DIBS_DEMO_PACKET_H

#include "ways/way.h"

enum { PACKET_PROCESSES = 4, PACKET_TAKERS = 100, PACKET_PARTS = 5, PACKET_MONEY = 10000, PACKET_LEASE_MS = 2000 };

void packet_take(struct racer *me);

#endif
