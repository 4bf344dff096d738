#include "cli/run_tie.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_MS 500 /* between two looks at a process that has no descriptor */

/* Readable once the process has ended; -1: there is no such descriptor. Written by run_tie_begin alone. */
static int process_fd = -1;

/*
 * Returns a descriptor of the process. Where the system has none, a process that has ended is taken to run until its
 * parent has waited for it, and so is a new process that gets the same number.
 */
static int watch_process(pid_t process)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, process, 0);
#else
    (void)process;
    return -1;
#endif
}

void run_tie_begin(void)
{
    if (run_plan.while_pid)
        process_fd = watch_process(run_plan.while_pid);
    if (process_fd >= 0)
        fcntl(process_fd, F_SETFD, FD_CLOEXEC);
}

void run_tie_watch(struct pollfd fds[RUN_TIES])
{
    fds[0] = (struct pollfd){.fd = process_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = run_plan.while_stdin ? STDIN_FILENO : -1, .events = POLLIN};
}

int run_tie_timeout(int most_ms)
{
    bool looks = run_plan.while_pid && process_fd < 0;

    return looks && (most_ms < 0 || most_ms > LOOK_MS) ? LOOK_MS : most_ms;
}

static bool process_has_ended(void)
{
    struct pollfd fd = {.fd = process_fd, .events = POLLIN};

    if (process_fd >= 0)
        return poll(&fd, 1, 0) > 0;
    return run_plan.while_pid && kill(run_plan.while_pid, 0) != 0 && errno == ESRCH;
}

/* Reads what is there and drops it, since nobody else reads it. */
static bool stdin_has_ended(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char unread[4096];
    ssize_t size;

    if (!run_plan.while_stdin || poll(&in, 1, 0) <= 0)
        return false;
    size = read(STDIN_FILENO, unread, sizeof unread);
    return size == 0 || (size < 0 && errno != EINTR && errno != EAGAIN);
}

const char *run_tie_ended(void)
{
    static char process[32];

    snprintf(process, sizeof process, "process %d", run_plan.while_pid);
    return process_has_ended() ? process : stdin_has_ended() ? "standard input" : NULL;
}
