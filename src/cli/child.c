#include "cli/child.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "cli/run_hear.h"
#include "cli/run_terminal.h"

#define ROUND_MS 10
#define ROUNDS 1000

/* --------------------------------------------------------------------- start */

/* In a forked child, which is then killed when the thread that forked it ends. parent: its process. */
static void die_with(pid_t parent)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent)
        _exit(128 + SIGKILL); /* the parent ended before the call of prctl */
#else
    (void)parent;
#endif
}

/* Runs in the forked child, where only what is safe in a signal handler may be called. */
static _Noreturn void become(char *const *command, bool gets_terminal, pid_t parent, int report)
{
    int error;

    setpgid(0, 0);
    if (gets_terminal)
        run_terminal_give(getpid());
    die_with(parent);
    run_signals_restore();
    execvp(command[0], command);
    error = errno;
    while (write(report, &error, sizeof error) < 0 && errno == EINTR)
        ;
    _exit(127);
}

pid_t child_start(char *const *command, bool gets_terminal, int *report)
{
    int ends[2];
    pid_t parent = getpid(), child;

    if (pipe(ends) != 0)
        return -1;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC); /* so a process that becomes the program, or ends, closes it */
    run_signals_block();
    child = fork();
    if (child == 0)
        become(command, gets_terminal, parent, ends[1]);
    int error = errno;
    if (child > 0)
        setpgid(child, child); /* as the child does: whichever is first, the group must exist for both */
    run_signals_unblock();
    close(ends[1]);
    if (child > 0)
        *report = ends[0];
    else
        close(ends[0]);
    errno = error;
    return child;
}

int child_report(int report, int ms)
{
    struct pollfd ready = {.fd = report, .events = POLLIN};
    int error = 0;
    ssize_t size;

    if (poll(&ready, 1, ms) <= 0)
        return -1;
    do
        size = read(report, &error, sizeof error);
    while (size < 0 && errno == EINTR);
    close(report);
    return size == (ssize_t)sizeof error ? error : 0;
}

void child_close_files(bool keep_output)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0)
        return;
    dup2(null, STDIN_FILENO);
    if (!keep_output)
        dup2(null, STDOUT_FILENO);
    if (null > STDERR_FILENO)
        close(null);
}

/* --------------------------------------------------------------- descendants */

bool child_tree_is_alone(void)
{
    siginfo_t child;

    return getpid() != 1 && waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

void child_tree_kill_all(void)
{
    for (int round = 0; round < ROUNDS && child_tree_signal(SIGKILL, 0, getpid(), false) > 0; round++) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        poll(NULL, 0, ROUND_MS);
    }
}

void child_tree_adopt(void)
{
#ifdef __linux__
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
#endif
}

void child_tree_call_me(const char *name)
{
#ifdef __linux__
    prctl(PR_SET_NAME, name, 0, 0, 0);
#else
    (void)name;
#endif
}

/* In a PID namespace, /proc may be that of another one, whose numbers stand for other processes here. */
bool child_tree_is_visible(void)
{
    char text[24];
    ssize_t size = readlink("/proc/self", text, sizeof text - 1);

    text[size > 0 ? size : 0] = '\0';
    return strtol(text, NULL, 10) == getpid();
}

static int spare[2] = {-1, -1}; /* what a walk through /proc opens at a time; closed while one is under way */

bool child_tree_reserve(void)
{
    for (int i = 0; i < 2; i++)
        if (spare[i] < 0)
            spare[i] = open("/", O_RDONLY | O_CLOEXEC);
    return spare[0] >= 0 && spare[1] >= 0;
}

static void give_way(void)
{
    for (int i = 0; i < 2; i++) {
        if (spare[i] >= 0)
            close(spare[i]);
        spare[i] = -1;
    }
}

struct process {
    pid_t pid, parent, group;
    bool ours;
};

struct processes {
    struct process *all;
    size_t count, room;
};

/* Reads what follows the last ), because the program's name, in parentheses, may have any characters. */
static bool read_process(pid_t pid, struct process *out)
{
    char path[64], text[1024];
    const char *rest;
    ssize_t size;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (size <= 0)
        return false;
    text[size] = '\0';
    rest = strrchr(text, ')');
    /* NOLINTNEXTLINE(cert-err34-c): the kernel wrote these numbers */
    if (!rest || sscanf(rest + 1, " %*c %d %d", &out->parent, &out->group) != 2)
        return false;
    out->pid = pid;
    out->ours = false;
    return true;
}

static bool add_process(struct processes *list, pid_t pid)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 256;
        struct process *more = realloc(list->all, room * sizeof *more);

        if (!more)
            return false;
        list->all = more;
        list->room = room;
    }
    list->count += read_process(pid, &list->all[list->count]);
    return true;
}

static void walk(struct processes *list)
{
    DIR *proc = opendir("/proc");

    for (struct dirent *entry; proc && (entry = readdir(proc));)
        if (isdigit((unsigned char)entry->d_name[0]) && !add_process(list, (pid_t)strtol(entry->d_name, NULL, 10)))
            break;
    if (proc)
        closedir(proc);
}

static void list_processes(struct processes *list)
{
    *list = (struct processes){NULL, 0, 0};
    if (!child_tree_is_visible())
        return;
    give_way();
    walk(list);
    child_tree_reserve();
}

static int by_pid(const void *left, const void *right)
{
    const struct process *a = left, *b = right;

    return (a->pid > b->pid) - (a->pid < b->pid);
}

static bool is_ours(const struct processes *list, const struct process *process, pid_t root)
{
    struct process key = {.pid = process->parent};
    const struct process *parent;

    if (process->parent == root)
        return true;
    parent = bsearch(&key, list->all, list->count, sizeof key, by_pid);
    return parent && parent->ours;
}

/* Marks all descendants of root, at least one generation in each round. */
static void mark(struct processes *list, pid_t root)
{
    bool more = true;

    if (list->count)
        qsort(list->all, list->count, sizeof list->all[0], by_pid);
    while (more) {
        more = false;
        for (size_t i = 0; i < list->count; i++)
            if (!list->all[i].ours && is_ours(list, &list->all[i], root))
                more = list->all[i].ours = true;
    }
}

/* Signals the group only if one of ours is in it: otherwise a new group may have got the same number. */
size_t child_tree_signal(int signal, pid_t group, pid_t root, bool spares_group)
{
    struct processes list;
    bool group_done = spares_group;
    size_t found = 0;

    list_processes(&list);
    mark(&list, root);
    if (list.count == 0 && group > 0 && !group_done) /* there is no /proc */
        found = kill(-group, signal) == 0;
    for (size_t i = 0; i < list.count; i++) {
        const struct process *process = &list.all[i];

        if (!process->ours)
            continue;
        found++;
        if (process->group != group)
            kill(process->pid, signal);
        else if (!group_done)
            group_done = kill(-group, signal) == 0;
    }
    free(list.all);
    return found;
}
