/* Reads parts of the documents in doc, so that tests check what they say. A missing part fails the test. */
#ifndef DIBS_TEST_DOCUMENT_H
#define DIBS_TEST_DOCUMENT_H

#include <stddef.h>

enum { DOCUMENT_CELLS = 12 };

/* A row of a table: its cells without the blanks around them, "" where there are fewer. */
typedef struct document_row {
    char cells[DOCUMENT_CELLS][300];
} document_row;

/*
 * The rows of the first table below that heading ("## One server" without the ##), without its head. Returns how many
 * there are; at most `most`.
 */
size_t document_table(const char *file, const char *heading, document_row *rows, size_t most);

/*
 * The first block of code below that heading whose text begins with `start`: the text after `start`, in one line, each
 * run of blanks and line ends one blank. A \ at a line's end is none of it.
 */
const char *document_block(const char *file, const char *heading, const char *start);

/* The right that a row of a table is about: "CLIENT ID" as +client|id; a pattern, which stands in backticks, as it is.
 */
const char *document_right(const document_row *row);

/* All of a rule for an account but that word, which must be in it. */
const char *document_rule_without(const char *rule, const char *without);

#endif
