#include "support/common/redis_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

enum { PATH_SIZE = 160, BASE_MOST = 32 /* a socket's path has room for about a hundred bytes */ };
enum { PORT_TRIES = 100, PORT_MOST = 65535 - 10000 };

/* ------------------------------------------------------------------ folder */

bool temporary_folder(char *out, size_t size)
{
    const char *base = getenv("TMPDIR");

    if (!base || *base != '/' || strlen(base) > BASE_MOST)
        base = "/tmp";
    snprintf(out, size, "%s/dibs-XXXXXX", base);
    return mkdtemp(out) != NULL;
}

static int remove_entry(const char *path, const struct stat *info, int flag, struct FTW *position)
{
    (void)info;
    (void)flag;
    (void)position;
    return remove(path);
}

void remove_folder(const char *folder)
{
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* -------------------------------------------------------------------- port */

static int any_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 &&
                 getsockname(fd, (struct sockaddr *)&address, &length) == 0;

    if (fd >= 0)
        close(fd);
    return found ? ntohs(address.sin_port) : -1;
}

int free_port(void)
{
    for (int i = 0; i < PORT_TRIES; i++) {
        int port = any_free_port();
        if (port <= PORT_MOST)
            return port;
    }
    return -1;
}

/* ----------------------------------------------------------------- process */

void end_with_parent(pid_t parent)
{
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent)
        _exit(127);
}

static bool write_config(const char *path, const char *folder, const char *config)
{
    FILE *file = fopen(path, "we");

    if (!file)
        return false;
    fprintf(
        file,
        "port 0\nunixsocket %s/redis.sock\nunixsocketperm 700\ndir %s\nsave \"\"\nappendonly no\ndaemonize no\n%s\n",
        folder, folder, config);
    return fclose(file) == 0;
}

/* In the child, which may have been a process with threads: only what a signal handler might call, too. */
static void become_server(const char *chosen, const char *config_path, bool sentinel, int log_fd, pid_t parent)
{
    const char *const names[] = {chosen ? chosen : "redis-server", chosen ? chosen : "valkey-server"};
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    end_with_parent(parent);
    setpgid(0, 0); /* a ^C is for the parent, which then ends the server in order */
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        execlp(names[i], names[i], config_path, sentinel ? "--sentinel" : (char *)NULL, (char *)NULL);
    _exit(127);
}

static pid_t launch(const char *folder, const char *config, bool sentinel)
{
    char config_path[PATH_SIZE], log_path[PATH_SIZE];
    const char *chosen = getenv("DIBS_SERVER");
    pid_t parent = getpid();

    snprintf(config_path, sizeof config_path, "%s/redis.conf", folder);
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    if (!write_config(config_path, folder, config))
        return -1;
    int log_fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        become_server(chosen, config_path, sentinel, log_fd, parent);
    close(log_fd);
    return pid;
}

pid_t redis_launch(const char *folder, const char *config)
{
    return launch(folder, config, false);
}

pid_t redis_launch_sentinel(const char *folder, const char *config)
{
    return launch(folder, config, true);
}

void redis_show_log(const char *folder)
{
    char path[PATH_SIZE], line[512];

    snprintf(path, sizeof path, "%s/log", folder);
    FILE *log = fopen(path, "re");
    while (log && fgets(line, sizeof line, log))
        fputs(line, stderr);
    if (log)
        fclose(log);
}
