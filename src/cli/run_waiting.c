#include "cli/run_waiting.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/run_signals.h"
#include "cli/text.h"
#include "cli/owner_token.h"

#define TERMINAL_MS 1000
#define VERBOSE_MS 20 /* a free lock is acquired in less */

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
        cli_warn("%s: waits for the lock, which %s holds since %s", shown, who, cli_time_ago(since, owner->held_ms));
}

/* A token has only the first bytes of a long name, with the bytes that do not print replaced. */
static bool is_this_host(const char *host)
{
    char own[256] = "";

    (void)gethostname(own, sizeof own - 1);
    for (size_t i = 0; host[i]; i++)
        if (host[i] != own[i] && host[i] != '-')
            return false;
    return true;
}

/* A grant of this process may be at the store before the wait is over. Containers often have processes of one id. */
static bool is_own(const dibs_owner *owner)
{
    struct cli_who who = {0};

    cli_who_parse(&who, owner->token);
    return !who.foreign && strtol(who.pid, NULL, 10) == getpid() && is_this_host(who.host);
}

/* The first name that somebody else holds; NULL: none is known. */
static const char *find_taken(const struct run_waiting *waiting, dibs_owner *owner)
{
    const struct run_plan *plan = waiting->plan;

    for (size_t i = 0; i < plan->name_count; i++)
        if (dibs_query(waiting->rt, plan->names[i], owner) == DIBS_OK && owner->held && !is_own(owner))
            return plan->names[i];
    return NULL;
}

static void *tell(void *argument)
{
    const struct run_waiting *waiting = argument;
    struct pollfd over = {.fd = waiting->over[0], .events = POLLIN};
    dibs_owner owner;

    for (int ms = waiting->after_ms; poll(&over, 1, ms) == 0; ms = TERMINAL_MS) {
        const char *taken = find_taken(waiting, &owner);
        if (!taken)
            continue;
        if (poll(&over, 1, 0) == 0)
            say(taken, &owner);
        break;
    }
    return NULL;
}

void run_waiting_begin(struct run_waiting *waiting, const struct run_plan *plan, dibs_runtime *rt)
{
    *waiting = (struct run_waiting){.plan = plan, .rt = rt};
    waiting->after_ms = cli_is_verbose() ? VERBOSE_MS : TERMINAL_MS;
    if (plan->wait_ms == 0 || (!cli_is_verbose() && !isatty(STDERR_FILENO)) || pipe(waiting->over) != 0)
        return;
    run_signals_block();
    waiting->started = pthread_create(&waiting->thread, NULL, tell, waiting) == 0;
    run_signals_unblock();
    if (!waiting->started) {
        close(waiting->over[0]);
        close(waiting->over[1]);
    }
}

void run_waiting_end(struct run_waiting *waiting)
{
    if (!waiting->started)
        return;
    close(waiting->over[1]);
    pthread_join(waiting->thread, NULL);
    close(waiting->over[0]);
}
