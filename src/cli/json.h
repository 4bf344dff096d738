/*
 * A JSON document, written piece by piece on standard output; a process writes one. Whatever bytes a text has, the
 * document is valid UTF-8: U+FFFD replaces each byte that is not part of a character. Characters beyond ASCII are
 * written as they are, except those that drive a terminal. A newline follows the document.
 */
#ifndef DIBS_CLI_JSON_H
#define DIBS_CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>

/* bracket: { or [ opens, } or ] closes. key, here and below: NULL in an array, and for the whole document. */
void cli_json_open(const char *key, char bracket);
void cli_json_close(char bracket);

/* What is not known is null: a text that is NULL, a number that is less than 0, the fence 0. */
void cli_json_string(const char *key, const char *text);
void cli_json_int(const char *key, int64_t number);
void cli_json_us(const char *key, int64_t ns); /* in microseconds, with decimals */
void cli_json_bool(const char *key, bool truth);

/* As a string, because many programs that read JSON keep no more than 53 bits of a number. */
void cli_json_fence(const char *key, uint64_t fence);

/* Writes "name", the name of a lock, and, if the name is not UTF-8, "name_hex", its bytes. */
void cli_json_name(const char *name);

#endif
