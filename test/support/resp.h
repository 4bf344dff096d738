/*
 * The Redis protocol from the server's side: a buffer of bytes, the length of a whole message, the words of a command.
 * Uses only the C library, so that the fuzzers can share it.
 */
#ifndef DIBS_TEST_RESP_H
#define DIBS_TEST_RESP_H

#include <stdbool.h>
#include <stddef.h>

/* All zero at first. The owner frees data. */
struct bytes {
    char *data; /* followed by a NUL that is not counted, once anything was added */
    size_t length, room;
};

void bytes_add(struct bytes *b, const char *data, size_t length);
void bytes_add_text(struct bytes *b, const char *text);

/* Drops that many from the start. */
void bytes_drop(struct bytes *b, size_t length);

/* The length of the message (RESP 2 or 3) at the start of data: a line, if it is neither. 0: it is not whole. */
size_t resp_message_length(const char *data, size_t length);

enum { RESP_WORDS_MOST = 512 };

/* The words of a command, in the buffer that they were taken from: good until that changes. */
struct resp_words {
    long count; /* may be larger than RESP_WORDS_MOST; then only the first are given */
    const char *at[RESP_WORDS_MOST];
    size_t size[RESP_WORDS_MOST];
};

/*
 * The length of the command at the start of the buffer, and its words. 0: it is not whole. The library sends nothing
 * but arrays of bulk strings; anything else aborts.
 */
size_t resp_take_words(const struct bytes *b, struct resp_words *words);

/* Whether that word is there and is that text. */
bool resp_word_is(const struct resp_words *words, size_t i, const char *text);

#endif
