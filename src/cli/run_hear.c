#include "cli/run_hear.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/run.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SIGPIPE is ignored in both processes */
#endif

/* ----------------------------------------------------------------- signals */

/* What each role does with each signal, in the order of enum run_role: h handles it, i ignores it, d: its default. */
static const struct {
    int number;
    char by_role[4];
    bool passed; /* to COMMAND */
} table[] = {{SIGINT, "hhh", true},   {SIGTERM, "hhh", true},   {SIGHUP, "hhh", true},   {SIGQUIT, "hhh", true},
             {SIGUSR1, "hhh", true},  {SIGUSR2, "hhh", true},   {SIGCHLD, "hhh", false}, {SIGTSTP, "hid", false},
             {SIGCONT, "hdd", false}, {SIGWINCH, "hdd", false}, {SIGTTIN, "iid", false}, {SIGTTOU, "iid", false},
             {SIGPIPE, "iii", false}, {SIGXFSZ, "iii", false}};

#define COUNT (sizeof table / sizeof table[0])

_Static_assert(COUNT <= sizeof((struct run_signals){.count = 0}).numbers / sizeof(int), "each signal has room, once");

static struct sigaction before[COUNT]; /* read-only after the first run_hear_begin */
static sigset_t mask_before, mask_now; /* read-only after the first run_hear_begin */
static bool known;                     /* main thread only */
static int ends[2] = {-1, -1};         /* ends of the pipe; read-only after the last run_hear_begin */

static void put(unsigned char number)
{
    int error = errno;

    while (write(ends[1], &number, 1) < 0 && errno == EINTR)
        ;
    errno = error;
}

static void on_signal(int number)
{
    put((unsigned char)number);
}

/* Remembers how dibs found the signals, at the first call. */
static void remember(void)
{
    if (known)
        return;
    known = true;
    pthread_sigmask(SIG_SETMASK, NULL, &mask_before);
    mask_now = mask_before;
    for (size_t i = 0; i < COUNT; i++) {
        sigaction(table[i].number, NULL, &before[i]);
        sigdelset(&mask_now, table[i].number);
    }
}

/* A signal that dibs was started to ignore, such as SIGHUP by nohup(1), is ignored by all of its processes. */
static void take(size_t i, enum run_role role)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    if (table[i].by_role[role] != 'h')
        action.sa_handler = table[i].by_role[role] == 'i' ? SIG_IGN : SIG_DFL;
    sigemptyset(&action.sa_mask);
    if (table[i].number == SIGCHLD || before[i].sa_handler != SIG_IGN)
        sigaction(table[i].number, &action, NULL);
}

int run_signals_next(void)
{
    unsigned char number;
    ssize_t size;

    do
        size = read(ends[0], &number, 1);
    while (size < 0 && errno == EINTR);
    return size == 1 ? number : 0;
}

void run_signals_wake(void)
{
    put(SIGCHLD);
}

void run_signals_block(void)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
}

void run_signals_unblock(void)
{
    pthread_sigmask(SIG_SETMASK, &mask_now, NULL);
}

void run_signals_restore(void)
{
    for (size_t i = 0; i < COUNT; i++)
        sigaction(table[i].number, &before[i], NULL);
    pthread_sigmask(SIG_SETMASK, &mask_before, NULL);
}

bool run_signals_passed(int signal)
{
    for (size_t i = 0; i < COUNT; i++)
        if (table[i].number == signal)
            return table[i].passed;
    return false;
}

void run_signals_note(struct run_signals *signals, int number)
{
    size_t kept = 0;

    for (size_t i = 0; i < signals->count; i++)
        if (signals->numbers[i] != number)
            signals->numbers[kept++] = signals->numbers[i];
    signals->numbers[kept] = number;
    signals->count = kept + 1;
}

void run_signals_raise(int signal, bool whole_group)
{
    struct sigaction normal = {.sa_handler = SIG_DFL}, own = normal;

    sigemptyset(&normal.sa_mask);
    sigaction(signal, &normal, &own);
    kill(whole_group ? 0 : getpid(), signal);
    sigaction(signal, &own, NULL);
}

/* ---------------------------------------------------------------- messages */

bool run_wire_open(int wire[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, wire) != 0)
        return false;
    for (int i = 0; i < 2; i++)
        fcntl(wire[i], F_SETFD, FD_CLOEXEC);
    return true;
}

/* A socket of this kind takes a short message whole or not at all. */
bool run_wire_send(int wire, enum run_word word, int number, int64_t value, const char *text)
{
    struct run_message message = {.word = (int)word, .number = number, .value = value};
    bool last = word == RUN_STATUS;
    int flags = MSG_NOSIGNAL | (last ? 0 : MSG_DONTWAIT);

    snprintf(message.text, sizeof message.text, "%s", text ? text : "");
    while (send(wire, &message, sizeof message, flags) < 0) {
        bool full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
        if (errno != EINTR && !(last && full))
            return !full;
        if (full)
            poll(NULL, 0, 10);
    }
    return true;
}

int run_wire_receive(int wire, struct run_message *out)
{
    ssize_t size;

    do
        size = recv(wire, out, sizeof *out, MSG_DONTWAIT);
    while (size < 0 && errno == EINTR);
    if (size == (ssize_t)sizeof *out)
        return 1;
    return size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
}

/* -------------------------------------------------------------------- ties */

#define LOOK_MS 500 /* between two looks at a process that has no descriptor */

/* Readable once the process has ended; -1: there is no such descriptor. Written by run_hear_begin alone. */
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

/* -------------------------------------------------------------- all of them */

bool run_hear_begin(enum run_role role)
{
    remember();
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    if (!cli_open_pipe(ends))
        return false;
    for (size_t i = 0; i < COUNT; i++)
        take(i, role);
    run_signals_unblock();
    if (run_plan.while_pid)
        process_fd = watch_process(run_plan.while_pid);
    return true;
}

void run_wait(int wire, int other, int ms)
{
    bool looks = run_plan.while_pid && process_fd < 0;
    struct pollfd fds[] = {{.fd = ends[0], .events = POLLIN},
                           {.fd = wire, .events = POLLIN},
                           {.fd = other, .events = POLLIN},
                           {.fd = process_fd, .events = POLLIN},
                           {.fd = run_plan.while_stdin ? STDIN_FILENO : -1, .events = POLLIN}};

    (void)poll(fds, sizeof fds / sizeof fds[0], looks && (ms < 0 || ms > LOOK_MS) ? LOOK_MS : ms);
}
