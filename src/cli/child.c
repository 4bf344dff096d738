#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/child_tree.h"
#include "cli/cli.h"
#include "cli/run_signals.h"
#include "cli/run_terminal.h"

/* Runs in the forked child, where only what is safe in a signal handler may be called. */
static _Noreturn void become(char *const *command, bool gets_terminal, pid_t parent, int report)
{
    int error;

    setpgid(0, 0);
    if (gets_terminal)
        run_terminal_give(getpid());
    child_tree_die_with(parent);
    run_signals_restore();
    execvp(command[0], command);
    error = errno;
    while (write(report, &error, sizeof error) < 0 && errno == EINTR)
        ;
    _exit(127);
}

/* Waits until the program runs, which closes the descriptor, and returns 0; or returns errno of the failed execvp. */
static int report_of(int fd)
{
    int error = 0;
    ssize_t size;

    do
        size = read(fd, &error, sizeof error);
    while (size < 0 && errno == EINTR);
    return size == (ssize_t)sizeof error ? error : 0;
}

static pid_t start(char *const *command, bool gets_terminal, const int report[2])
{
    pid_t parent = getpid(), child;

    run_signals_block();
    child = fork();
    if (child == 0)
        become(command, gets_terminal, parent, report[1]);
    if (child > 0)
        setpgid(child, child); /* as the child does: whichever is first, the group must exist for both */
    run_signals_unblock();
    return child;
}

pid_t child_start(char *const *command, bool gets_terminal)
{
    int report[2], error;
    pid_t child;

    if (pipe(report) != 0)
        return -1;
    fcntl(report[0], F_SETFD, FD_CLOEXEC);
    fcntl(report[1], F_SETFD, FD_CLOEXEC);
    child = start(command, gets_terminal, report);
    error = errno;
    close(report[1]);
    if (child > 0)
        error = report_of(report[0]);
    close(report[0]);
    while (child > 0 && error && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    errno = error;
    return error ? -1 : child;
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

int child_refused_status(int error)
{
    bool none_left = error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE;

    return error == ENOENT ? 127 : none_left ? CLI_SYSTEM : 126;
}

int child_exit_status(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

void child_tell_end(const char *program, int wait_status)
{
    if (WIFSIGNALED(wait_status))
        cli_note("%s was ended by signal %d (%s)", program, WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
    else
        cli_note("%s ended with status %d", program, WEXITSTATUS(wait_status));
}
