/* What the files of a server share. */
#ifndef SIM_COMMANDS_H
#define SIM_COMMANDS_H

#include "keys.h"

void sim_server_wait(struct sim_client *client, int replicas, int64_t ms);
void sim_server_changed(struct sim_server *server, const struct sim_text *key); /* for replicas. NULL: all keys */
void sim_server_end_client(struct sim_client *client, bool reset);
bool sim_server_drop(struct sim_server *server, const struct sim_text *key); /* false: it was not there */
void sim_server_flush_clients(struct sim_server *server); /* sends the replies and messages that wait for the clients */
int sim_publish(struct sim_server *server, const struct sim_text *channel, const struct sim_text *message);
bool sim_is(const struct sim_text *word, const char *name);            /* whatever the case */
void sim_track(struct sim_client *client, const struct sim_text *key); /* that the client has read */
void sim_script_read(void);                                            /* the script that runs has read a key */

/* Of a cluster: the key goes to another node; the channels of a slot that is another's are. */
void sim_server_move(struct sim_server *from, struct sim_server *to, const struct sim_text *key);
void sim_server_leave_slot(struct sim_server *server, unsigned slot);

void sim_judge_twice(const struct sim_text *key);      /* two nodes have it */
void sim_fail_unknown(const struct sim_text *command); /* the simulation does not have it: see CONTRIBUTING.md */

#endif
