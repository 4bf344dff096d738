/* A plain hiredis connection to the server of a URL, for what is done in Redis without dibs. */
#ifndef COMMON_REDIS_CONNECT_H
#define COMMON_REDIS_CONNECT_H

#include <hiredis/hiredis.h>
#include <stdarg.h>

/*
 * Understands redis://[user[:password]@]host[:port][/db] and
 * unix://[user[:password]@]/path[?db=N], without percent-encoding but in the
 * password. Returns NULL after saying on stderr what went wrong; otherwise the
 * connection is the caller's, to be given to redisFree.
 */
redisContext *redis_connect(const char *url);

/*
 * As redisCommand and redisvCommand, which write with write(2): without the SIGPIPE that comes where the server has
 * just closed the connection.
 */
redisReply *redis_try(redisContext *redis, const char *format, ...);
redisReply *redis_vtry(redisContext *redis, const char *format, va_list arguments);

#endif
