/*
 * OpenSSL reads and writes by the functions of the socket transport, so that no SIGPIPE is raised. Received bytes are
 * kept, and OpenSSL takes the records from there one by one.
 */
#include "redis/tls_parts.h"

#ifdef DIBS_WITH_TLS

#include <string.h>

#include "base/once.h"

static BIO_METHOD *method;       /* read-only once made */
static struct dibs__once making; /* guards itself; runs make_method */

/* Translates a result for OpenSSL: -1 is final, unless a flag says that the call must be made again. */
static int result(BIO *bio, long count, int again)
{
    if (count == 0)
        BIO_set_flags(bio, again | BIO_FLAGS_SHOULD_RETRY);
    return count > 0 ? (int)count : -1;
}

static int write_bytes(BIO *bio, const char *bytes, int size)
{
    struct dibs__tls_wire *wire = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    return result(bio, wire->socket->ops->send(wire->socket, bytes, (size_t)size, &wire->broken), BIO_FLAGS_WRITE);
}

static int read_bytes(BIO *bio, char *bytes, int size)
{
    struct dibs__tls_wire *wire = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (wire->given == wire->used) {
        long received = wire->socket->ops->receive(wire->socket, wire->in, sizeof wire->in, &wire->broken);
        if (received <= 0)
            return result(bio, received, BIO_FLAGS_READ);
        wire->used = (size_t)received;
        wire->given = 0;
    }
    size_t count = wire->used - wire->given;
    if (count > (size_t)size)
        count = (size_t)size;
    memcpy(bytes, wire->in + wire->given, count);
    wire->given += count;
    return (int)count;
}

static long control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH; /* there is nothing to flush */
}

static bool make_method(void)
{
    int type = BIO_get_new_index();

    method = type > 0 ? BIO_meth_new(type | BIO_TYPE_SOURCE_SINK, "dibs") : NULL;
    return method && BIO_meth_set_write(method, write_bytes) == 1 && BIO_meth_set_read(method, read_bytes) == 1 &&
           BIO_meth_set_ctrl(method, control) == 1;
}

BIO *dibs__tls_bio(struct dibs__tls_wire *wire)
{
    BIO *bio = dibs__once(&making, make_method) ? BIO_new(method) : NULL;

    if (bio) {
        BIO_set_data(bio, wire);
        BIO_set_init(bio, 1);
    }
    return bio;
}

#endif
