/*
 * How a Redis (or Valkey) server is started as a child, in a folder of its own. private_redis.c and the tests' server.c
 * are made of this; on Linux a child ends with the thread that started it, however that ends.
 */
#ifndef COMMON_REDIS_PROCESS_H
#define COMMON_REDIS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Makes a new folder below $TMPDIR, or below /tmp where that is unset or so long that a socket's path would not fit.
 * False: it could not be made; errno says why.
 */
bool temporary_folder(char *out, size_t size);

/* Removes the folder and all that is in it. */
void remove_folder(const char *folder);

/*
 * Starts $DIBS_SERVER, else redis-server, or valkey-server where there is none, without persistence: on the Unix socket
 * FOLDER/redis.sock, with those lines of configuration besides; its log is FOLDER/log. Does not wait until it answers.
 * Returns its process id, and -1 where there is none. Its exit status is 127 where no server is installed.
 */
pid_t redis_launch(const char *folder, const char *config);

/* The same in sentinel mode. */
pid_t redis_launch_sentinel(const char *folder, const char *config);

/*
 * A port of 127.0.0.1 that was free a moment ago: another program may take it first. The port that is larger by 10,000
 * exists as well, as a node of a cluster needs it. -1: no port was found.
 */
int free_port(void);

/* Copies the log to standard error. */
void redis_show_log(const char *folder);

/* For a forked child: it shall end with the thread that forked it. Where the parent has ended already, it ends now. */
void end_with_parent(pid_t parent);

#endif
