#include "support/private_redis.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

enum { START_LIMIT_MS = 10000, STOP_LIMIT_MS = 2000, POLL_MS = 10 };

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
}

/* ------------------------------------------------------------------ folder */

static bool make_folder(struct private_redis *redis)
{
    const char *base = getenv("TMPDIR");

    /* A socket's path has room for about a hundred bytes only. */
    if (!base || *base != '/' || strlen(base) > sizeof redis->folder - sizeof "/dibs-demo-XXXXXX")
        base = "/tmp";
    snprintf(redis->folder, sizeof redis->folder, "%s/dibs-demo-XXXXXX", base);
    if (!mkdtemp(redis->folder)) {
        fprintf(stderr, "no folder %s: %s\n", redis->folder, strerror(errno));
        redis->folder[0] = '\0';
        return false;
    }
    snprintf(redis->socket_path, sizeof redis->socket_path, "%s/redis.sock", redis->folder);
    snprintf(redis->url, sizeof redis->url, "unix://%s", redis->socket_path);
    return true;
}

static void remove_folder(struct private_redis *redis)
{
    DIR *folder = redis->folder[0] ? opendir(redis->folder) : NULL;
    struct dirent *entry;

    if (!folder)
        return;
    while ((entry = readdir(folder)) != NULL)
        /* NOLINTNEXTLINE(clang-analyzer-unix.StdCLibraryFunctions): the folder is open, so dirfd does not fail */
        unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(redis->folder);
    redis->folder[0] = '\0';
}

static void show_log(const struct private_redis *redis)
{
    char path[sizeof redis->folder + 8], line[512];
    FILE *log;

    snprintf(path, sizeof path, "%s/log", redis->folder);
    log = fopen(path, "r");
    while (log && fgets(line, sizeof line, log))
        fputs(line, stderr);
    if (log)
        fclose(log);
}

/* ----------------------------------------------------------------- process */

/* In the child, which may have been a process with threads: only what a signal handler might call, too. */
static void become_server(const struct private_redis *redis, int log_fd, pid_t parent)
{
    static const char *const names[] = {"redis-server", "valkey-server"};
    char *arguments[] = {NULL,
                         "--port",
                         "0",
                         "--unixsocket",
                         (char *)redis->socket_path,
                         "--unixsocketperm",
                         "700",
                         "--save",
                         "",
                         "--appendonly",
                         "no",
                         "--daemonize",
                         "no",
                         "--dir",
                         (char *)redis->folder,
                         NULL};
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent)
        _exit(1);
    setpgid(0, 0); /* a ^C is for the parent, which then ends it in order */
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        arguments[0] = (char *)names[i];
        execvp(names[i], arguments);
    }
    _exit(127);
}

static bool spawn(struct private_redis *redis)
{
    char path[sizeof redis->folder + 8];
    pid_t parent = getpid();
    int log_fd;

    snprintf(path, sizeof path, "%s/log", redis->folder);
    log_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (log_fd < 0)
        return false;
    redis->pid = fork();
    if (redis->pid == 0)
        become_server(redis, log_fd, parent);
    close(log_fd);
    if (redis->pid > 0)
        return true;
    redis->pid = 0;
    return false;
}

/* Whether the server has ended; then there is nothing left to wait for. */
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
        nap();
    }
    fprintf(stderr, "the private Redis server does not answer:\n");
    return false;
}

/* -------------------------------------------------------------------- both */

bool private_redis_start(struct private_redis *redis)
{
    memset(redis, 0, sizeof *redis);
    if (!make_folder(redis))
        return false;
    if (spawn(redis) && wait_until_up(redis))
        return true;
    show_log(redis);
    private_redis_stop(redis);
    return false;
}

void private_redis_stop(struct private_redis *redis)
{
    int status;

    if (redis->pid > 0) {
        kill(redis->pid, SIGTERM);
        for (int waited = 0; waited < STOP_LIMIT_MS && !has_ended(redis, &status); waited += POLL_MS)
            nap();
        if (redis->pid > 0) {
            kill(redis->pid, SIGKILL);
            waitpid(redis->pid, &status, 0);
            redis->pid = 0;
        }
    }
    remove_folder(redis);
}
