/* The data of a server. */
#include "server.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------- texts */

void sim_put_line(struct bytes *out, const char *format, ...)
{
    char line[512];
    va_list args;

    if (!strchr(format, '%')) {
        bytes_add_text(out, format);
        bytes_add_text(out, "\r\n");
        return;
    }
    va_start(args, format);
    int size = vsnprintf(line, sizeof line - 2, format, args);
    va_end(args);
    size = size > (int)sizeof line - 3 ? (int)sizeof line - 3 : size;
    memcpy(line + size, "\r\n", 2);
    bytes_add(out, line, (size_t)size + 2);
}

int64_t sim_number(const char *text)
{
    uint64_t number = 0;
    bool negative = *text == '-';

    for (text += negative; *text >= '0' && *text <= '9'; text++)
        number = number * 10 + (uint64_t)(*text - '0');
    return (int64_t)(negative ? 0 - number : number);
}

char *sim_digits(char out[24], int64_t number)
{
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    char *at = out + 23;

    *at = '\0';
    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        *--at = '-';
    return at;
}

void sim_put_head(struct bytes *out, char kind, long long number)
{
    char line[27]; /* a byte, the digits, which end at 24, and two more */
    char *at = sim_digits(line + 1, number) - 1;

    *at = kind;
    memcpy(line + 24, "\r\n", 2);
    bytes_add(out, at, (size_t)(line + 26 - at));
}

void sim_put_bulk(struct bytes *out, const char *text)
{
    size_t size = text ? strlen(text) : 0;

    sim_put_head(out, '$', text ? (long long)size : -1);
    if (!text)
        return;
    bytes_add(out, text, size);
    bytes_add(out, "\r\n", 2);
}

void sim_put_words(struct bytes *out, const char *const *words)
{
    size_t count = 0;

    while (words[count])
        count++;
    sim_put_head(out, '*', (long long)count);
    for (size_t i = 0; i < count; i++)
        sim_put_bulk(out, words[i]);
}

void sim_put_array(struct bytes *out, long long count, struct bytes *items)
{
    sim_put_head(out, '*', count);
    if (items->length > 0)
        bytes_add(out, items->data, items->length);
    free(items->data);
}

/* -------------------------------------------------------------------- tables */

static struct sim_object **place_of(struct sim_table *table, const char *key)
{
    uint64_t hash = 14695981039346656037u;
    struct sim_object **at;

    for (size_t i = 0; key[i]; i++)
        hash = (hash ^ (unsigned char)key[i]) * 1099511628211u;
    for (at = &table->buckets[(hash >> 20) % SIM_BUCKETS]; *at && strcmp((*at)->key, key) != 0; at = &(*at)->next)
        continue;
    return at;
}

struct sim_object *sim_find(struct sim_table *table, const char *key)
{
    return *place_of(table, key);
}

static struct sim_object *new_object(const char *key, bool is_hash)
{
    struct sim_object *object = calloc(1, sizeof *object);

    object->key = strdup(key);
    object->is_hash = is_hash;
    return object;
}

struct sim_object *sim_make(struct sim_table *table, const char *key, bool is_hash)
{
    return *place_of(table, key) = new_object(key, is_hash);
}

void sim_free_object(struct sim_object *object)
{
    if (!object)
        return;
    free(object->key);
    free(object->value);
    sim_drop_fields(object);
    free(object->fields);
    free(object);
}

bool sim_remove(struct sim_table *table, const char *key)
{
    struct sim_object **at = place_of(table, key), *object = *at;

    if (!object)
        return false;
    *at = object->next;
    sim_free_object(object);
    return true;
}

void sim_clear(struct sim_table *table)
{
    for (size_t i = 0; i < SIM_BUCKETS; i++)
        while (table->buckets[i])
            sim_remove(table, table->buckets[i]->key);
}

struct sim_object *sim_copy_object(const struct sim_object *object)
{
    struct sim_object *copy = new_object(object->key, object->is_hash);

    copy->expires = object->expires;
    if (object->value)
        copy->value = strdup(object->value);
    for (size_t i = 0; i < object->count; i++)
        sim_set_field(copy, object->fields[i].name, object->fields[i].value);
    return copy;
}

struct sim_object *sim_put_object(struct sim_table *table, struct sim_object *object)
{
    sim_remove(table, object->key);
    return *place_of(table, object->key) = object;
}

void sim_copy_table(struct sim_table *to, const struct sim_table *from)
{
    sim_clear(to);
    for (size_t i = 0; i < SIM_BUCKETS; i++)
        for (const struct sim_object *object = from->buckets[i]; object; object = object->next)
            sim_put_object(to, sim_copy_object(object));
}

/* -------------------------------------------------------------------- values */

void sim_set_value(struct sim_object *object, const char *value)
{
    free(object->value);
    object->value = strdup(value);
}

struct sim_field *sim_field(struct sim_object *object, const char *name)
{
    for (size_t i = 0; i < object->count; i++)
        if (strcmp(object->fields[i].name, name) == 0)
            return &object->fields[i];
    return NULL;
}

bool sim_set_field(struct sim_object *object, const char *name, const char *value)
{
    struct sim_field *field = sim_field(object, name);
    bool is_new = !field;

    if (is_new) {
        if (object->count == object->cap)
            object->fields = realloc(object->fields, (object->cap = 2 * object->cap + 4) * sizeof *object->fields);
        field = &object->fields[object->count++];
        *field = (struct sim_field){.name = strdup(name)};
    }
    free(field->value);
    field->value = strdup(value);
    return is_new;
}

bool sim_drop_field(struct sim_object *object, const char *name)
{
    struct sim_field *field = sim_field(object, name);

    if (!field)
        return false;
    free(field->name);
    free(field->value);
    memmove(field, field + 1, (size_t)(object->fields + --object->count - field) * sizeof *field);
    return true;
}

void sim_drop_fields(struct sim_object *object)
{
    while (object->count > 0) {
        free(object->fields[--object->count].name);
        free(object->fields[object->count].value);
    }
}

/* -------------------------------------------------------------------- sorted sets */

int64_t sim_score(const struct sim_field *member)
{
    return sim_number(member->value);
}

static int compare(const void *one, const void *other)
{
    const struct sim_field *a = one, *b = other;
    int64_t by = sim_score(a) - sim_score(b);

    return by < 0 ? -1 : by > 0 ? 1 : strcmp(a->name, b->name);
}

void sim_sort(struct sim_object *set)
{
    if (set && set->count > 1)
        qsort(set->fields, set->count, sizeof *set->fields, compare);
}
