/* Bytes to send to a server. */
#ifndef DIBS_REDIS_BUFFER_H
#define DIBS_REDIS_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

/* All zero: the buffer is empty. Its owner guards it. */
struct dibs__buffer {
    char *bytes;
    size_t used; /* bytes in use */
    size_t cap;  /* bytes allocated */
};

/* False: no memory, and nothing was appended. */
bool dibs__buffer_append(struct dibs__buffer *buffer, const void *bytes, size_t size);

/*
 * Appends one command in Redis' format. If sizes is NULL, the words are texts that NULL ends, and count does not
 * matter. False: no memory, and nothing was appended.
 */
bool dibs__buffer_command(struct dibs__buffer *buffer, int count, const char *const *words, const size_t *sizes);

void dibs__buffer_drop(struct dibs__buffer *buffer, size_t size); /* removes the first `size` bytes */
void dibs__buffer_free(struct dibs__buffer *buffer);

#endif
