/* What the files of a server share. */
#ifndef SIM_COMMANDS_H
#define SIM_COMMANDS_H

#include <string.h>

#include "server.h"

void sim_server_wait(struct sim_client *client, int replicas, int64_t ms);
void sim_server_changed(struct sim_server *server, const struct sim_text *key); /* for replicas. NULL: all keys */
void sim_server_end_client(struct sim_client *client, bool reset);
bool sim_server_drop(struct sim_server *server, const struct sim_text *key); /* false: it was not there */
void sim_server_flush_clients(struct sim_server *server); /* sends the replies and messages that wait for the clients */
int sim_publish(struct sim_server *server, const struct sim_text *channel, const struct sim_text *message);
bool sim_is(const struct sim_text *word, const char *name); /* whatever the case */

/* Of a cluster: the key goes to another node; the channels of a slot that is another's are. */
void sim_server_move(struct sim_server *from, struct sim_server *to, const struct sim_text *key);
void sim_server_leave_slot(struct sim_server *server, unsigned slot);

void sim_judge_twice(const struct sim_text *key);      /* two nodes have it */
void sim_fail_unknown(const struct sim_text *command); /* the simulation does not have it: see CONTRIBUTING.md */

/* ------------------------------------------ the data: strings and hashes, by their keys */

struct sim_text sim_copy_text(const char *bytes, size_t size);
void sim_free_text(struct sim_text text); /* a copy */
int64_t sim_number(const char *text);     /* a whole one, up to what is no digit */
struct sim_text sim_text_of(char out[24], int64_t number);
struct sim_text sim_word(const char *text);

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
void sim_drop_fields(struct sim_object *object);

/*
 * A sorted set is a hash whose values are the scores, which are whole numbers. A command for the one is not refused for
 * the other.
 */
int64_t sim_score(const struct sim_field *member);
void sim_sort(struct sim_object *set);

#endif
