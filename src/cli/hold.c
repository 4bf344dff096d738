/*
 * "dibs hold": holds a lock until a signal arrives.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/run.h"
#include "cli/run_hear.h"
#include "cli/run_inside.h"

/* clang-format off */
static const char help[] =
    "Usage: dibs hold [OPTION...] NAME\n"
    "\n"
    "Waits for the lock of NAME, says so in one line on standard output, and holds\n"
    "the lock until a signal arrives. As a service of systemd (Type=notify) it is\n"
    "ready once it holds the lock.\n"
    "\n"
    RUN_COMMON_HELP
    "      --grace TIME    if the lease can't be renewed, dibs begins to end TIME\n"
    "                      before the lease does (default 5, or a quarter of a\n"
    "                      shorter lease), and has ended before it\n"
    "      --while-pid PID   ends as soon as the process PID has ended\n"
    "      --while-stdin   ends as soon as standard input has ended\n"
    CLI_COMMON_HELP
    "\n"
    RUN_TIMES_HELP
    "\n"
    "The exit status is 0 if SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 or SIGUSR2\n"
    "arrived while the lock was held, or PID or standard input ended; 128+N if signal\n"
    "N arrived before; CODE if the lock was not acquired; 69 if the server can't be\n"
    "reached, refuses, or does not confirm the lock; 76 if the lease was lost, or\n"
    "can't be renewed in time; 64 for wrong usage; 71 if this host has no memory or\n"
    "descriptor left. Where the line can't be written, dibs says so on standard error\n"
    "and goes on holding the lock.\n";
/* clang-format on */

static const struct cli_option options[] = {
    {"while-pid", .number = &run_plan.while_pid, .least = 1, .most = INT32_MAX, .what = "a process id"},
    {"while-stdin", .flag = &run_plan.while_stdin},
    {0},
};

/* The size of *address; 0: the name is no address. In an abstract name the leading @ stands for a NUL. */
static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    size_t size = strlen(name);

    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if ((*name != '/' && *name != '@') || size < 2 || size >= sizeof address->sun_path)
        return 0;
    memcpy(address->sun_path, name, size);
    if (*name == '@')
        address->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + (*name == '/'));
}

/* Tells systemd the state, lines such as "READY=1", if $NOTIFY_SOCKET is set (sd_notify(3)). Ignores failures. */
static void notify(const char *state)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address;
    socklen_t size = name ? address_of(name, &address) : 0;
    int fd = size ? socket(AF_UNIX, SOCK_DGRAM, 0) : -1;

    if (fd < 0)
        return;
    (void)sendto(fd, state, strlen(state), MSG_DONTWAIT, (const struct sockaddr *)&address,
                 size); /* a datagram raises no SIGPIPE */
    close(fd);
}

/* Whether dibs must end: a signal has arrived that ends it, or what dibs is tied to has ended. */
static bool told_to_end(void)
{
    const char *ended = run_tie_ended();

    if (ended) {
        cli_note("%s has ended", ended);
        return true;
    }
    for (int signal; (signal = run_signals_next()) != 0;)
        if (run_signals_passed(signal)) {
            cli_note("signal %d", signal);
            return true;
        }
    return false;
}

static void tell_why(const struct run_lock *lock)
{
    if (run_remaining_ms(lock) < 0)
        run_tell_loss();
    else
        cli_warn("%s: the lease can't be renewed, and is about to end", run_plan.shown);
}

/* Returns false, after a message, if the lease was lost or is about to end. */
static bool hold(const struct run_lock *lock)
{
    while (!told_to_end()) {
        int64_t remaining = run_remaining_ms(lock);

        run_inside_fit();
        int64_t left = remaining - run_plan.grace_ms - run_plan.margin_ms;
        if (left <= 0) {
            tell_why(lock);
            return false;
        }
        run_wait(-1, -1, (int)(left > 60000 ? 60000 : left));
    }
    return true;
}

/* Runs while the lock is released. */
static struct {
    struct cli_thread thread;
    int left_ms; /* read-only while the thread runs */
} limit;

static void *exit_before_the_lease(void *unused)
{
    if (!cli_thread_must_end(&limit.thread, limit.left_ms))
        _exit(CLI_LOST);
    return unused;
}

/*
 * The lock can't be renewed, so its release may take longer than its lease: who waits for the end of dibs must not take
 * that for a lock that is still held.
 */
static void limit_release(const struct run_lock *lock)
{
    int64_t left = run_remaining_ms(lock) - run_plan.margin_ms;

    limit.left_ms = left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
    (void)cli_thread_start(&limit.thread, exit_before_the_lease, NULL);
}

/* If the line can't be written, a message on standard error says so, and dibs goes on holding the lock. */
static void say_held(const struct run_lock *lock)
{
    printf("%s held, fence %llu\n", run_plan.shown, (unsigned long long)lock->fence);
    (void)cli_end(CLI_OK);
    notify("READY=1\nSTATUS=holds the lock");
}

static int run(char **words)
{
    struct run_lock lock;
    bool kept;
    int status = run_settle(words, false);

    if (status != CLI_OK)
        return status;
    if (!run_hear_begin(RUN_ALONE)) {
        cli_error("no descriptor to be had");
        return CLI_SYSTEM;
    }
    notify("STATUS=waits for the lock");
    status = run_acquire(-1, &lock);
    if (status != RUN_HOLDS)
        return status;
    say_held(&lock);
    kept = hold(&lock);
    notify("STOPPING=1");
    if (!kept && run_remaining_ms(&lock) >= 0)
        limit_release(&lock);
    if (!run_release(&lock, 0) && kept) {
        run_tell_loss();
        kept = false;
    }
    cli_thread_end(&limit.thread);
    return kept ? CLI_OK : CLI_LOST;
}

const struct cli_command cli_hold = {
    .name = "hold",
    .summary = "holds a lock until a signal arrives",
    .help = help,
    .options = {options, run_options},
    .arguments = CLI_NAME_AND_MORE,
    .run = run,
};
