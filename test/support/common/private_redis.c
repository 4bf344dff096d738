#include "support/common/private_redis.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "support/common/redis_process.h"
#include "support/common/timing.h"

enum { START_LIMIT_MS = 10000, STOP_LIMIT_MS = 2000, POLL_MS = 10 };

/* ----------------------------------------------------------------- process */

/* Whether the server has ended; then its process has been waited for, too. */
static bool has_ended(struct private_redis *redis, int *status)
{
    if (waitpid(redis->pid, status, WNOHANG) != redis->pid)
        return false;
    redis->pid = 0;
    return true;
}

static bool answers(const struct private_redis *redis)
{
    redisContext *context = redisConnectUnix(redis->socket_path);
    redisReply *reply = context && !context->err ? redisCommand(context, "PING") : NULL;
    bool pong = reply && reply->type == REDIS_REPLY_STATUS;

    if (reply)
        freeReplyObject(reply);
    if (context)
        redisFree(context);
    return pong;
}

static bool wait_until_up(struct private_redis *redis)
{
    int status;

    for (int waited = 0; waited < START_LIMIT_MS; waited += POLL_MS) {
        if (has_ended(redis, &status)) {
            if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
                fprintf(stderr, "neither redis-server nor valkey-server is installed\n");
            else
                fprintf(stderr, "the private Redis server ended at once:\n");
            return false;
        }
        if (answers(redis))
            return true;
        pause_us(POLL_MS * UINT64_C(1000));
    }
    fprintf(stderr, "the private Redis server does not answer:\n");
    return false;
}

/* -------------------------------------------------------------------- both */

static bool make_folder(struct private_redis *redis)
{
    if (!temporary_folder(redis->folder, sizeof redis->folder)) {
        fprintf(stderr, "no folder %s: %s\n", redis->folder, strerror(errno));
        redis->folder[0] = '\0';
        return false;
    }
    snprintf(redis->socket_path, sizeof redis->socket_path, "%s/redis.sock", redis->folder);
    snprintf(redis->url, sizeof redis->url, "unix://%s", redis->socket_path);
    return true;
}

bool private_redis_start_with(struct private_redis *redis, const char *config)
{
    memset(redis, 0, sizeof *redis);
    if (!make_folder(redis))
        return false;
    redis->pid = redis_launch(redis->folder, config);
    if (redis->pid < 0)
        redis->pid = 0;
    else if (wait_until_up(redis))
        return true;
    redis_show_log(redis->folder);
    private_redis_stop(redis);
    return false;
}

void private_redis_stop(struct private_redis *redis)
{
    int status;

    if (redis->pid > 0) {
        kill(redis->pid, SIGTERM);
        for (int waited = 0; waited < STOP_LIMIT_MS && !has_ended(redis, &status); waited += POLL_MS)
            pause_us(POLL_MS * UINT64_C(1000));
        if (redis->pid > 0) {
            kill(redis->pid, SIGKILL);
            waitpid(redis->pid, &status, 0);
            redis->pid = 0;
        }
    }
    if (redis->folder[0])
        remove_folder(redis->folder);
    redis->folder[0] = '\0';
}
