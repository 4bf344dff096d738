/*
 * A transport over plain sockets that behaves like an SSL object: connecting takes more steps; sending accepts only a
 * few bytes at a time, and now and then none; receiving may have to send first; and bytes that were read from the
 * socket are given out in pieces, of which poll(2) does not know.
 */
#ifndef DIBS_TEST_ODD_TRANSPORT_H
#define DIBS_TEST_ODD_TRANSPORT_H

#include "redis/transport.h"

extern const struct dibs__transport_ops odd_transport;

#endif
