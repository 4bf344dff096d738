/*
 * The servers of the simulation: the part of Redis that dibs uses, with expiry by each server's own clock,
 * subscriptions, messages about keys that change, and replicas. They run the real scripts by liblua (script.c). A
 * sentinel is a server with other commands (sentinel.c).
 */
#ifndef SIM_SERVER_H
#define SIM_SERVER_H

#include <string.h>

#include "net.h"
#include "redis/slot.h"

#define SIM_CUT_OFF 32 /* processes are told apart by their number modulo this */
#define SIM_SERVERS 12
#define SIM_TRACKING "__redis__:invalidate"

void sim_put_line(struct bytes *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_put_head(struct bytes *out, char kind, long long number);           /* a line such as ":12" */
void sim_put_bulk(struct bytes *out, const char *text);                      /* NULL: there is none */
void sim_put_words(struct bytes *out, const char *const *words);             /* an array, up to NULL */
void sim_put_array(struct bytes *out, long long count, struct bytes *items); /* which it frees */

struct sim_object {
    struct sim_object *next;
    char *key;
    bool is_hash;
    char *value;
    struct sim_field {
        char *name, *value;
    } * fields;
    size_t count, cap;
    int64_t expires; /* ms of the server's clock; 0: never */
};

#define SIM_BUCKETS 64
struct sim_table {
    struct sim_object *buckets[SIM_BUCKETS];
};

struct sim_client {
    struct sim_client *next;
    struct sim_conn *conn;
    struct sim_server *server;
    int64_t id;
    struct bytes in, out;
    bool ended;
    struct sim_object channels[2]; /* to which it listens; the second ones are sharded */
    bool tracking, optout, noloop;
    struct sim_manner {
        bool not_cached, asking;
    } now, next_is; /* how the command is run that has come, and as is asked the one after it */
    int64_t redirect;
    struct sim_object tracked; /* keys */
    int64_t written;           /* the server's offset behind its last write */
    int waits_for;             /* replicas, in WAIT; 0: it does not wait */
    int64_t waits_until;
};

struct sim_server {
    struct sim_server *next;
    int number;
    bool alive;
    bool forgot; /* it has lost its data, or what it learned last */
    int64_t stopped_until;
    int64_t full_until; /* no new connection */
    int64_t no_memory_until;
    int64_t cut_off_until[SIM_CUT_OFF]; /* no new connection, and nothing on the open ones: from the process, */
    int64_t silent_until[SIM_CUT_OFF];  /* and to it */
    double rate;                        /* of its clock */
    int64_t offset;                     /* of its clock, ns */
    char run_id[41], replication_id[41];
    const char *version;          /* what INFO shows behind redis_version */
    struct sim_table keys, saved; /* and an older state */
    struct sim_client *clients;
    uint64_t scripts;            /* that it has, a bit for each */
    int64_t cost;                /* ns that a command takes it, */
    int64_t busy_until;          /* and when it is done with those that have come */
    unsigned denied;             /* rights that its account lacks: SIM_DENIES_... */
    struct sim_server *master;   /* NULL: it is one */
    bool linked;                 /* of a replica: it gets its master's changes */
    int64_t changes;             /* how many there were */
    int64_t heard, acknowledged; /* of a replica: up to which change */
    int64_t last_effect;         /* when the last one comes */
    int64_t replication_delay;
    struct sim_sentinel *sentinel; /* NULL: it is none */
    struct sim_cluster *cluster;   /* NULL: it is no node of one */
    int64_t killed_at, began_at;   /* last */
};

enum {
    SIM_DENIES_KILL = 1,
    SIM_DENIES_INFO = 2,
    SIM_DENIES_TRACKING = 4,
    SIM_DENIES_PUBLISH = 8,
    SIM_DENIES_SUBSCRIBE = 16
};

#define SIM_DELIFEQ "7.2.4\r\nvalkey_version:9.0.0"
extern struct sim_server *sim_servers;

struct sim_server *sim_server_new(int number);
struct sim_server *sim_server_of(int number); /* NULL: there is none */
struct sim_server *sim_server_at(uint32_t address, unsigned port);
const char *sim_server_name(const struct sim_server *server); /* its address as text */
int64_t sim_server_us(const struct sim_server *server);       /* by its clock */
int64_t sim_server_ms(const struct sim_server *server);
bool sim_server_expired(const struct sim_server *server, const struct sim_object *object);

/* Of the network. */
struct sim_client *sim_server_accept(struct sim_server *server, struct sim_conn *conn);
void sim_server_take(struct sim_client *client, const char *bytes, size_t size);
void sim_server_gone(struct sim_client *client);

/* How many bytes the first request takes, and its words; 0: it has not arrived completely. */
size_t sim_read_request(const struct bytes *in, const char **words, int *count);

/* Faults. */
void sim_server_kill(struct sim_server *server);
enum sim_data { SIM_KEEPS, SIM_FORGETS, SIM_RECALLS };
void sim_server_begin(struct sim_server *server, enum sim_data data);
void sim_server_save(struct sim_server *server);
void sim_server_flush(struct sim_server *server);                             /* FLUSHALL by another client */
void sim_server_follow(struct sim_server *server, struct sim_server *master); /* NULL: becomes a master */

bool sim_server_listens(const struct sim_client *client); /* to some channel */

/* For the judge. Expired keys do not exist. */
struct sim_object *sim_server_look(struct sim_server *server, const char *key);
size_t sim_server_keys(struct sim_server *server, const char *prefix);
const char *sim_server_eternal(const struct sim_server *server); /* a key that never expires; NULL: none */
void sim_server_print(struct sim_server *server);                /* into the story */

/* ------------------------------------------------------ commands and scripts */

struct sim_call {
    struct sim_server *server;
    struct sim_client *client;
    const char *const *words;
    int count;
    struct bytes *out;
    struct sim_call *script;       /* that calls it; NULL: a client does */
    const struct command *command; /* what is called */
    struct sim_object *object;     /* at its key, if it is about a single one; NULL: there is none */
    bool wrote;                    /* of a script */
};

void sim_server_call(struct sim_call *call);

/* EVAL and EVALSHA, SCRIPT EXISTS and SCRIPT FLUSH. */
void sim_script_init(void);
void sim_script_look_at(int entries); /* of a queue, in one call, instead of 256 */
void sim_script_eval(struct sim_call *call);
void sim_script_exist(struct sim_call *call);
void sim_script_flush(struct sim_call *call);

/* ---------------------------------------------------------------- sentinels */

struct sim_server *sim_sentinel_new(int number, struct sim_server *master); /* who is called "main" */
void sim_sentinel_answer(struct sim_call *call);
struct sim_server *sim_sentinel_master(void); /* that was elected last */
void sim_sentinel_fail_over(int64_t demoted_after);

/* --------------------------------------------------------------------- clusters */

struct sim_cluster {
    unsigned char owner[DIBS__SLOTS], to[DIBS__SLOTS], from[DIBS__SLOTS]; /* numbers of servers; 0: none */
};

void sim_cluster_begin(int nodes);                     /* all servers are nodes of one */
struct sim_server *sim_cluster_owner(const char *key); /* that has its slot */
const char *sim_cluster_refusal(const struct sim_call *call, const char *const *keys, int count, bool is_channel);
void sim_cluster_slots(struct sim_call *call);
void sim_cluster_pass_on(struct sim_server *to, const char *channel, const char *message);
void sim_cluster_move(const char *key, int which, int64_t pause, int64_t until);

void sim_cluster_own(struct sim_server *server, unsigned slot, int owner); /* the node learns that */

/* ------------------------------------------------- what the files of a server share */

void sim_server_wait(struct sim_client *client, int replicas, int64_t ms);
void sim_server_changed(struct sim_server *server, const char *key); /* for replicas. NULL: all keys */
void sim_server_end_client(struct sim_client *client, bool reset);
bool sim_server_drop(struct sim_server *server, const char *key); /* false: it was not there */
void sim_server_flush_clients(struct sim_server *server); /* sends the replies and messages that wait for the clients */
int sim_publish(struct sim_server *server, const char *channel, const char *message);
bool sim_is(const char *word, const char *name); /* whatever the case */

/* Of a cluster: the key goes to another node; the channels of a slot that is another's are. */
void sim_server_move(struct sim_server *from, struct sim_server *to, const char *key);
void sim_server_leave_slot(struct sim_server *server, unsigned slot);

void sim_judge_twice(const char *key); /* two nodes have it */

/* ------------------------------------------ the data: strings and hashes, by their keys */

int64_t sim_number(const char *text);           /* a whole one, up to what is no digit */
char *sim_digits(char out[24], int64_t number); /* its text, which lies in there */

struct sim_object *sim_find(struct sim_table *table, const char *key);
struct sim_object *sim_make(struct sim_table *table, const char *key, bool is_hash);
bool sim_remove(struct sim_table *table, const char *key);
void sim_clear(struct sim_table *table);
struct sim_object *sim_copy_object(const struct sim_object *object);
struct sim_object *sim_put_object(struct sim_table *table, struct sim_object *object); /* which becomes the table's */
void sim_free_object(struct sim_object *object);                                       /* in no table; NULL: none */
void sim_copy_table(struct sim_table *to, const struct sim_table *from);

void sim_set_value(struct sim_object *object, const char *value);
struct sim_field *sim_field(struct sim_object *object, const char *name);
bool sim_set_field(struct sim_object *object, const char *name, const char *value); /* true: new */
bool sim_drop_field(struct sim_object *object, const char *name);
void sim_drop_fields(struct sim_object *object);

/*
 * A sorted set is a hash whose values are the scores, which are whole numbers. A command for the one is not refused for
 * the other.
 */
int64_t sim_score(const struct sim_field *member);
void sim_sort(struct sim_object *set);

#endif
