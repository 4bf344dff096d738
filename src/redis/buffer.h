/* Bytes on their way to a server. */
#ifndef DIBS_REDIS_BUFFER_H
#define DIBS_REDIS_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct dibs__buffer { /* all zero: empty */
    char *bytes;
    size_t used, cap;
};

bool dibs__buffer_append(struct dibs__buffer *buffer, const void *bytes,
                         size_t size); /* false: no memory, nothing done */

/* One command as Redis wants it, formatted by hiredis. False: no memory, nothing done. */
bool dibs__buffer_command(struct dibs__buffer *buffer, int count, const char *const *words, const size_t *sizes);

void dibs__buffer_drop(struct dibs__buffer *buffer, size_t size); /* the first `size` bytes are done with */
void dibs__buffer_free(struct dibs__buffer *buffer);

#endif
