/*
 * A JSON document, written piece by piece. Whatever bytes a text has, the document is valid UTF-8: U+FFFD replaces each
 * byte that is not part of a character. Characters beyond ASCII are written as they are, except those that drive a
 * terminal.
 */
#ifndef DIBS_CLI_JSON_H
#define DIBS_CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cli_json {
    FILE *out;
    bool begun; /* the open object or array is not empty */
};

/* bracket: { or [ opens, } or ] closes. key, here and below: NULL in an array, and for the whole document. */
void cli_json_open(struct cli_json *json, const char *key, char bracket);
void cli_json_close(struct cli_json *json, char bracket);

/* text NULL: null. */
void cli_json_string(struct cli_json *json, const char *key, const char *text);
void cli_json_int(struct cli_json *json, const char *key, int64_t number);
void cli_json_double(struct cli_json *json, const char *key, double number);
void cli_json_bool(struct cli_json *json, const char *key, bool truth);

/* As a string, because many programs that read JSON keep no more than 53 bits of a number. */
void cli_json_fence(struct cli_json *json, const char *key, uint64_t fence);

/* Writes "name", the name of a lock, and, if the name is not UTF-8, "name_hex", its bytes. */
void cli_json_name(struct cli_json *json, const char *name);

#endif
