/*
 * A JSON document, written piece by piece. Whatever bytes a text has, the document is valid UTF-8: U+FFFD stands for
 * each byte that is not part of a character. What is not ASCII is written as it is, except what drives a terminal.
 */
#ifndef DIBS_CLI_JSON_H
#define DIBS_CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cli_json {
    FILE *out;
    bool begun; /* something is in the object or array that is open */
};

/* Opens with { or [, and closes with } or ]. key: in an array, and around the whole document, NULL; so below. */
void cli_json_open(struct cli_json *json, const char *key, char bracket);
void cli_json_close(struct cli_json *json, char bracket);

/* text NULL: null. */
void cli_json_string(struct cli_json *json, const char *key, const char *text);
void cli_json_int(struct cli_json *json, const char *key, int64_t number);
void cli_json_double(struct cli_json *json, const char *key, double number);
void cli_json_bool(struct cli_json *json, const char *key, bool truth);
void cli_json_null(struct cli_json *json, const char *key);

/* As a string, because many programs that read JSON keep no more than 53 bits of a number. */
void cli_json_fence(struct cli_json *json, const char *key, uint64_t fence);

/* "name": the name of a lock; and if the name is not UTF-8, "name_hex": its bytes. */
void cli_json_name(struct cli_json *json, const char *name);

#endif
