/*
 * A store that is made of several others, its members: each name is granted by a
 * majority of them (the Redlock algorithm). Two majorities have a member in common,
 * and a member votes for one token at a time, and for none where it may have
 * forgotten a vote (src/redis/scripts/acquire_member.lua). So no two tokens have a
 * name at once; GUARANTEES.md says under which faults. See PROTOCOL.md, rules 15,
 * 35 to 37, 39 and 42 to 46.
 */
#ifndef DIBS_STORE_QUORUM_QUORUM_H
#define DIBS_STORE_QUORUM_QUORUM_H

#include "store/store.h"

/* Opens the quorum of config->urls. As dibs__store_open. */
dibs_status dibs__quorum_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error);

#endif
