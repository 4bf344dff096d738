/*
 * A transport over plain sockets with the habits of an SSL object: connecting takes more steps, sending takes a few
 * bytes at a time and now and then none, receiving may first want to send, and what has been taken from the socket is
 * given out in pieces that poll(2) does not report.
 */
#ifndef DIBS_TEST_ODD_TRANSPORT_H
#define DIBS_TEST_ODD_TRANSPORT_H

#include "redis/transport.h"

extern const struct dibs__transport_ops odd_transport;

#endif
