/* A flash sale (19_sale_alone.c), for the ways of number 19. */
#ifndef DIBS_DEMO_SALE_H
#define DIBS_DEMO_SALE_H

#include "ways/way.h"

enum { SALE_PROCESSES = 4, SALE_BUYERS = 100, SALE_ITEMS = 5, SALE_STOCK = 4, SALE_LEASE_MS = 2000 };

void sale_buy(struct racer *me);

#endif
