/*
 * The guard of "dibs run": the process between the front and the holder. When the holder is killed, its descendants
 * become children of the guard, which kills them. The front could not tell them from other children that it may have,
 * which the shell started before it ran dibs in its place. The guard's name in ps(1) does not contain "dibs", so that
 * pkill(1) with that word does not reach it.
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/arguments.h"
#include "cli/child.h"
#include "cli/child_tree.h"
#include "cli/run.h"

/* Waits for the end of the process, and returns its status of waitpid(2). */
static int status_of(pid_t process)
{
    int status = 0;
    pid_t ended;

    do
        ended = waitpid(-1, &status, 0);
    while (ended != process && (ended > 0 || errno == EINTR));
    return status;
}

/* All signals stay blocked: the holder passes on those that end a job; those that stop one must not stop the guard. */
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
