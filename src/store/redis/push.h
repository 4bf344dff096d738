/*
 * The message by which a script tells a runtime that a lock was granted to one of its waiters, or, with fence 0, that
 * it may be free (serve.lua).
 */
#ifndef DIBS_STORE_REDIS_PUSH_H
#define DIBS_STORE_REDIS_PUSH_H

#include "store/store.h"

struct dibs__pushed {
    struct dibs__grant grant; /* its name and token point into this struct */
    char name[DIBS_NAME_MAX + 1], token[DIBS__TOKEN_MAX];
};

/*
 * Reads the bytes of a message, which a NUL must follow. False: this is no such message, or its lock is not under that
 * prefix.
 */
bool dibs__push_read(struct dibs__pushed *out, const char *key_prefix, const char *bytes, size_t size);

#endif
