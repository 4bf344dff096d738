/*
 * The guard of "dibs run": between the front and the holder. Processes that the holder leaves when it is killed become
 * children of the guard. The front may have other children, which the shell started before it ran dibs in its place,
 * and could not tell them from these; the guard has none but the holder's. Its name in ps(1) is no part of "dibs", so
 * that pkill(1) with that word does not reach it.
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/arguments.h"
#include "cli/child.h"
#include "cli/child_tree.h"
#include "cli/run.h"

static int status_of(pid_t process)
{
    int status = 0;
    pid_t ended;

    do
        ended = waitpid(-1, &status, 0);
    while (ended != process && (ended > 0 || errno == EINTR));
    return status;
}

/* All signals stay blocked: what ends a job is the holder's to pass on, and what stops one must not stop the guard. */
_Noreturn void run_guard(pid_t holder)
{
    int status;

    arguments_overwrite("lock-guard");
    child_close_files(false);
    status = status_of(holder);
    if (WIFEXITED(status))
        _exit(WEXITSTATUS(status));
    child_tree_kill_all();
    kill(getpid(), SIGKILL);
    _exit(128 + SIGKILL);
}
