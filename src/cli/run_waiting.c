#include "cli/run_waiting.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/text.h"
#include "cli/owner_token.h"

#define TERMINAL_MS 1000
#define VERBOSE_MS 20 /* a free lock is acquired sooner */
#define SELDOM_MS 5000

static struct {
    struct cli_thread thread;
    const struct run_lock *lock; /* read-only while the thread runs */
} waiting;

static void say(const char *name, const dibs_owner *owner)
{
    char shown[CLI_SHOWN_MAX], who[CLI_WHO_MAX], since[CLI_TIME_MAX];

    cli_show(shown, sizeof shown, name);
    cli_who_show(who, owner->token);
    if (owner->sharers > 1)
        cli_warn("%s: waits for the lock, which %s and %u more share", shown, who, (unsigned)owner->sharers - 1);
    else if (owner->held_ms < 0)
        cli_warn("%s: waits for the lock, which %s holds", shown, who);
    else
        cli_warn("%s: waits for the lock, which %s has held since %s", shown, who, cli_time_ago(since, owner->held_ms));
}

/* A token may have only the first bytes of the host's name, with - for each byte that can't be in a token. */
static bool is_this_host(const char *host)
{
    char own[256] = "";

    (void)gethostname(own, sizeof own - 1);
    for (size_t i = 0; host[i]; i++)
        if (host[i] != own[i] && host[i] != '-')
            return false;
    return true;
}

/*
 * Whether the owner is this process, which the store may have granted the lock just before the wait ends. The host is
 * compared because processes in different containers often have the same id.
 */
static bool is_own(const dibs_owner *owner)
{
    struct cli_who who = {0};

    cli_who_parse(&who, owner->token);
    return !who.foreign && strtol(who.pid, NULL, 10) == getpid() && is_this_host(who.host);
}

/* *name: the first name that is waited for and that somebody else holds; NULL: there is none. */
static dibs_status find_taken(const char **name, dibs_owner *owner)
{
    const struct run_lock *lock = waiting.lock;
    dibs_status status = DIBS_OK;

    *name = NULL;
    for (size_t i = 0; i < lock->count && !*name && status == DIBS_OK; i++) {
        status = dibs_query(lock->rt, lock->names[i], owner);
        if (status == DIBS_OK && owner->held && !is_own(owner))
            *name = lock->names[i];
    }
    return status;
}

/* Whether dibs says who has the lock. */
static bool tells_owner(void)
{
    return cli_common.verbosity == CLI_VERBOSE || isatty(STDERR_FILENO);
}

static bool wants_copies(void)
{
    return run_plan.min_replicas > 0 || run_plan.durable;
}

/* Says that dibs waits for replicas or the disk, because nobody else has the lock and it is still not granted. */
static void say_unconfirmed(void)
{
    char replicas[48] = "";

    if (run_plan.min_replicas > 0)
        snprintf(replicas, sizeof replicas, "%d %s%s", run_plan.min_replicas,
                 run_plan.min_replicas == 1 ? "replica" : "replicas", run_plan.durable ? " and " : "");
    cli_warn("%s: waits until %s%s confirm%s the lock", run_plan.shown, replicas,
             run_plan.durable ? "the server's disk" : "", run_plan.min_replicas + run_plan.durable == 1 ? "s" : "");
}

/* Says why dibs still waits though nobody has the lock. */
static void say_free(void)
{
    if (wants_copies())
        say_unconfirmed();
    else
        cli_warn("%s: waits for the lock, which nobody holds: the server does not grant it; \"dibs doctor\" tells why",
                 run_plan.shown);
}

/*
 * How many looks in a row must have found the lock free, which it may be for a moment. If somebody is in the queue, the
 * server takes requests, and grants the lock soon; so that is doubted only after a long time.
 */
static int looks_needed(const dibs_owner *owner, bool seldom)
{
    if (owner->waiters == 0 || wants_copies())
        return 2;
    return seldom ? 4 : INT_MAX;
}

static void *tell(void *unused)
{
    bool owner_told = !tells_owner(), free_told = false;
    int looks_free = 0, ms = cli_common.verbosity == CLI_VERBOSE ? VERBOSE_MS : TERMINAL_MS;
    const char *taken;
    dibs_owner owner = {0};

    for (; !(owner_told && free_told); ms = TERMINAL_MS) {
        bool seldom = owner_told && !wants_copies();
        if (cli_thread_must_end(&waiting.thread, seldom ? SELDOM_MS : ms))
            break;
        dibs_status status = find_taken(&taken, &owner);
        looks_free = status == DIBS_OK && !taken ? looks_free + 1 : 0;
        if (cli_thread_must_end(&waiting.thread, 0))
            break;
        if (!cli_may_say()) /* the end of the wait must not have to wait for a reader */
            continue;
        if (taken && !owner_told) {
            owner_told = true;
            say(taken, &owner);
        } else if (!free_told && looks_free >= looks_needed(&owner, seldom)) {
            free_told = true;
            say_free();
        }
    }
    return unused;
}

void run_waiting_begin(const struct run_lock *lock)
{
    waiting.lock = lock;
    if (run_plan.wait_ms != 0)
        (void)cli_thread_start(&waiting.thread, tell, NULL);
}

void run_waiting_end(void)
{
    cli_thread_end(&waiting.thread);
}
