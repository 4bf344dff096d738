#include "support/team.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/common/cleanup.h"
#include "support/common/redis_process.h"
#include "support/common/timing.h"

enum { MOST = 16, HELPERS = 64, AWAIT_US = 200, REAP_US = 10000 };

static atomic_int members[MOST];    /* process ids; 0: none, or it has ended */
static atomic_int helpers[HELPERS]; /* likewise */
static atomic_bool killing;         /* set by team_kill: the children that it kills need not be reported */

void *team_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANON, -1, 0);

    if (memory == MAP_FAILED)
        cleanup_fail("no memory for %zu bytes", size);
    return memory;
}

void team_await(const atomic_uint *value, unsigned least)
{
    while (atomic_load(value) < least)
        pause_us(AWAIT_US);
}

void team_meet(atomic_uint *arrived, unsigned count)
{
    atomic_fetch_add(arrived, 1);
    team_await(arrived, count);
}

static void kill_all(atomic_int *pids, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        pid_t pid = atomic_load(&pids[i]);
        if (pid > 0)
            kill(pid, SIGKILL);
    }
}

void team_kill(void)
{
    atomic_store(&killing, true);
    kill_all(members, MOST);
    kill_all(helpers, HELPERS);
}

static pid_t start(unsigned number, void (*work)(unsigned number, void *memory), void *memory)
{
    pid_t parent = getpid(), pid = fork();

    if (pid != 0)
        return pid;
    end_with_parent(parent);
    work(number, memory);
    cleanup_exit(0);
}

/* A child that failed by itself has said why; one that was killed could not. */
static bool succeeded(int status)
{
    if (WIFSIGNALED(status) && !atomic_load(&killing))
        fprintf(stderr, "a process was killed by signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* How many still run; *failed: one has ended otherwise than it should. */
static unsigned reap(bool *failed)
{
    unsigned running = 0;
    int status;

    for (unsigned i = 0; i < MOST; i++) {
        pid_t pid = atomic_load(&members[i]);
        if (pid <= 0)
            continue;
        if (waitpid(pid, &status, WNOHANG) != pid) {
            running++;
            continue;
        }
        atomic_store(&members[i], 0);
        if (!*failed)
            *failed = !succeeded(status);
    }
    return running;
}

bool team_run(unsigned size, void (*work)(unsigned number, void *memory), void *memory, unsigned limit_s)
{
    double limit = now_ns() + limit_s * 1e9;
    bool failed = false;

    atomic_store(&killing, false);
    fflush(stdout); /* or every child would say it again */
    for (unsigned i = 0; i < size && !failed; i++) {
        atomic_store(&members[i], start(i, work, memory));
        failed = atomic_load(&members[i]) <= 0;
    }
    if (failed)
        fprintf(stderr, "no process could be started\n");
    while (reap(&failed) > 0) {
        if (!failed && now_ns() > limit) {
            fprintf(stderr, "not ended after %u s\n", limit_s);
            failed = true;
        }
        if (failed) {
            atomic_store(&killing, true);
            kill_all(members, MOST);
        }
        pause_us(REAP_US);
    }
    return !failed;
}

int helper_start(unsigned number, void (*work)(unsigned number, void *memory), void *memory)
{
    unsigned place = 0;

    while (place < HELPERS && atomic_load(&helpers[place]) != 0)
        place++;
    fflush(stdout); /* or the child would say it again */
    pid_t pid = place < HELPERS ? start(number, work, memory) : -1;
    if (pid < 0)
        cleanup_fail("no process could be started");
    atomic_store(&helpers[place], pid);
    return pid;
}

void helper_stop(int pid)
{
    int status;

    for (unsigned i = 0; i < HELPERS; i++)
        if (atomic_load(&helpers[i]) == pid) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            atomic_store(&helpers[i], 0);
        }
}
