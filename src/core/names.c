#include "core/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define ROOM_FIRST 64
#define ROOM_MOST (UINT32_MAX / 4)

/* Where the name is in the table, or would be. */
static uint32_t *place_of(const struct dibs__names *names, const char *name)
{
    size_t mask = 2 * names->room - 1, at = (size_t)dibs__hash(name, strlen(name)) & mask;

    while (names->table[at] && strcmp(names->all[names->table[at] - 1], name) != 0)
        at = (at + 1) & mask;
    return &names->table[at];
}

static bool grow(struct dibs__names *names)
{
    size_t room = names->room ? 2 * names->room : ROOM_FIRST;
    uint32_t *table = room <= ROOM_MOST ? calloc(2 * room, sizeof *table) : NULL;
    char **all = table ? realloc(names->all, room * sizeof *all) : NULL;

    if (!all) {
        free(table);
        return false;
    }
    free(names->table);
    names->all = all;
    names->table = table;
    names->room = room;
    for (size_t i = 0; i < names->count; i++)
        *place_of(names, all[i]) = (uint32_t)i + 1;
    return true;
}

bool dibs__names_add(struct dibs__names *names, const char *name)
{
    if (names->count == names->room && !grow(names))
        return false;
    uint32_t *place = place_of(names, name);
    if (*place)
        return true;
    char *copy = strdup(name);
    if (!copy)
        return false;
    names->all[names->count++] = copy;
    *place = (uint32_t)names->count;
    return true;
}

void dibs__names_free(struct dibs__names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->all[i]);
    free(names->all);
    free(names->table);
}
