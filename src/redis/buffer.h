/* Bytes to send to a server: commands, and the words of commands. */
#ifndef DIBS_REDIS_BUFFER_H
#define DIBS_REDIS_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero: the buffer is empty. Its owner guards it. */
struct dibs__buffer {
    char *bytes;
    size_t used;  /* bytes in use */
    size_t cap;   /* bytes that there is room for */
    bool is_lent; /* the bytes are memory of another, which the buffer does not free; it leaves them if it outgrows them
                   */
};

/*
 * Words of a command, written as they will be sent. All zero: there are none. If memory runs out, a word is missing,
 * and `failed` says so: then no command can be made of the words.
 */
struct dibs__words {
    struct dibs__buffer bytes;
    size_t count; /* number of words */
    bool failed;
};

void dibs__words_add(struct dibs__words *words, const char *bytes, size_t size);
void dibs__words_add_text(struct dibs__words *words, const char *text);
void dibs__words_add_number(struct dibs__words *words, int64_t number);
void dibs__words_free(struct dibs__words *words); /* there are no words afterwards, and others may be added */

/*
 * Appends one command in Redis' format: the words, which are texts that NULL ends, and behind them `more`, unless it is
 * NULL. False: no memory, and nothing was appended.
 */
bool dibs__buffer_command(struct dibs__buffer *buffer, const char *const *words, const struct dibs__words *more);

void dibs__buffer_drop(struct dibs__buffer *buffer, size_t size); /* removes the first `size` bytes */
void dibs__buffer_free(struct dibs__buffer *buffer);

#endif
