/*
 * A store that is made of several others, its members: each name is granted by a majority of them
 * (the Redlock algorithm). Any two majorities have a member in common. A member votes for one token
 * at a time, and for none while it may have forgotten a vote
 * (src/redis/scripts/acquire_member.lua). So two tokens never have a name at the same time;
 * GUARANTEES.md says under which faults that holds. See PROTOCOL.md, rules 15, 35 to 37, 39 and 42
 * to 46.
 */
#ifndef DIBS_STORE_QUORUM_QUORUM_H
#define DIBS_STORE_QUORUM_QUORUM_H

#include "store/store.h"

/* Opens the quorum of config->urls, as dibs__store_open does. */
dibs_status dibs__quorum_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error);

#endif
