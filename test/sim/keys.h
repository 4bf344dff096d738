/* The data of a server: strings and hashes, by their keys. */
#ifndef SIM_KEYS_H
#define SIM_KEYS_H

#include <string.h>

#include "server.h"

struct sim_text sim_copy_text(const char *bytes, size_t size);
void sim_free_text(struct sim_text text); /* a copy */
int64_t sim_number(const char *text);     /* a whole one, up to what is no digit */
struct sim_text sim_text_of(char out[24], int64_t number);

/* Names differ at their ends, mostly. */
static inline bool sim_same(const struct sim_text *a, const struct sim_text *b)
{
    return a->size == b->size && (a->size == 0 || (a->bytes[a->size - 1] == b->bytes[b->size - 1] &&
                                                   memcmp(a->bytes, b->bytes, a->size) == 0));
}

struct sim_object *sim_find(struct sim_table *table, const struct sim_text *key);
struct sim_object *sim_make(struct sim_table *table, const struct sim_text *key, bool is_hash);
bool sim_remove(struct sim_table *table, const struct sim_text *key);
void sim_clear(struct sim_table *table);
struct sim_object *sim_copy_object(const struct sim_object *object);
struct sim_object *sim_put_object(struct sim_table *table, struct sim_object *object); /* which becomes the table's */
void sim_free_object(struct sim_object *object);                                       /* in no table; NULL: none */
void sim_copy_table(struct sim_table *to, const struct sim_table *from);

void sim_set_value(struct sim_object *object, const char *bytes, size_t size);
struct sim_field *sim_field(struct sim_object *object, const struct sim_text *name);
bool sim_set_field(struct sim_object *object, const struct sim_text *name,
                   const struct sim_text *value); /* true: new */
bool sim_drop_field(struct sim_object *object, const struct sim_text *name);

/* Sorted sets (sorted.c). What an addition did; known: only members that are there already; adds: to their scores. */
struct sim_scored {
    bool has, changed; /* a score was set, maybe to what it was; one is another */
    int added;
    int64_t score; /* the last */
};
struct sim_scored sim_sorted_add(struct sim_object *set, int count, const struct sim_text *words, bool known,
                                 bool adds);

/* These write the reply; set may be NULL, limit -1: none. */
void sim_sorted_range(struct sim_buffer *out, struct sim_object *set, int64_t first, int64_t last, bool with_scores);
void sim_sorted_by_score(struct sim_buffer *out, struct sim_object *set, const char *least, const char *most,
                         int64_t limit);

#endif
