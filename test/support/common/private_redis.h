/* A Redis (or Valkey) server of the program's own: on a Unix socket in a temporary folder, without persistence. */
#ifndef COMMON_PRIVATE_REDIS_H
#define COMMON_PRIVATE_REDIS_H

#include <stdbool.h>
#include <sys/types.h>

struct private_redis {
    char folder[80];
    char socket_path[96];
    char url[112]; /* unix://... */
    pid_t pid;     /* 0: none runs */
};

/*
 * Starts redis-server, or valkey-server where there is none, with those lines of configuration besides, and waits until
 * it answers. On failure, says why on stderr and leaves nothing behind. The server ends with private_redis_stop, and on
 * Linux also with the thread that started it, however the thread ends.
 */
bool private_redis_start_with(struct private_redis *redis, const char *config);

/* Ends the server and removes its folder. Does nothing where none was started, or the second time. */
void private_redis_stop(struct private_redis *redis);

#endif
