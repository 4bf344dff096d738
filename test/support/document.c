/* Reads parts of the documents for tests. */
#include "support/document.h"

#include <ctype.h>

#include "support/process.h"
#include "support/test.h"
#include "support/text.h"

/* Opens the document, behind that heading. */
static FILE *open_behind(const char *file, const char *heading)
{
    char line[2000];
    FILE *document = fopen(source_path(file), "re");

    assert_that(document != NULL, "no %s", file);
    while (fgets(line, sizeof line, document)) {
        char *text = line + strspn(line, "#");
        line[strcspn(line, "\n")] = '\0';
        if (text > line && *text == ' ' && strcmp(text + 1, heading) == 0)
            return document;
    }
    fail_msg("%s has no heading %s", file, heading);
    return NULL;
}

static void trim(char *out, size_t size, const char *from, size_t length)
{
    while (length > 0 && isspace((unsigned char)*from))
        from++, length--;
    while (length > 0 && isspace((unsigned char)from[length - 1]))
        length--;
    assert_true(length < size);
    memcpy(out, from, length);
    out[length] = '\0';
}

static void read_row(document_row *row, const char *line)
{
    memset(row, 0, sizeof *row);
    for (size_t i = 0; i < DOCUMENT_CELLS && *line == '|' && line[1]; i++) {
        size_t length = strcspn(line + 1, "|\n");
        trim(row->cells[i], sizeof row->cells[i], line + 1, length);
        line += 1 + length;
    }
}

size_t document_table(const char *file, const char *heading, document_row *rows, size_t most)
{
    FILE *document = open_behind(file, heading);
    char line[2000];
    size_t count = 0, lines = 0;

    while (fgets(line, sizeof line, document) && *line != '#' && (*line == '|' || lines == 0)) {
        if (*line != '|' || lines++ < 2)
            continue;
        assert_true(count < most);
        read_row(&rows[count++], line);
    }
    fclose(document);
    assert_that(count > 0, "%s: no table below %s", file, heading);
    return count;
}

const char *document_block(const char *file, const char *heading, const char *start)
{
    FILE *document = open_behind(file, heading);
    const char *out = "";
    char line[2000];

    while (fgets(line, sizeof line, document) && *line != '#' && (!*out || strncmp(line, "    ", 4) == 0)) {
        char *at = line + strspn(line, " ");
        if (strncmp(line, "    ", 4) != 0 || (!*out && strncmp(at, start, strlen(start)) != 0))
            continue;
        at += *out ? 0 : strlen(start);
        for (const char *word = strtok(at, " \\\n"); word; word = strtok(NULL, " \\\n"))
            out = formatted("%s%s%s", out, *out ? " " : "", word);
    }
    fclose(document);
    assert_that(*out, "%s: no %s below %s", file, start, heading);
    return out;
}

const char *document_right(const document_row *row)
{
    const char *cell = row->cells[0];

    if (cell[0] == '`')
        return formatted("%.*s", (int)strlen(cell) - 2, cell + 1);
    char *right = formatted("+%s", cell);
    for (char *c = right; *c; c++)
        *c = *c == ' ' ? '|' : (char)tolower((unsigned char)*c);
    return right;
}

const char *document_rule_without(const char *rule, const char *without)
{
    size_t length = strlen(without), before = 0; /* the word begins behind the blank at `before`, or with the rule */
    const char *word = rule;

    while (*word && (strcspn(word, " ") != length || strncmp(word, without, length) != 0)) {
        before = (size_t)(word - rule) + strcspn(word, " ");
        word = rule + before + strspn(rule + before, " ");
    }
    assert_that(*word, "%s is not in the rule", without);
    return formatted("%.*s%s", (int)before, rule, word + length);
}
