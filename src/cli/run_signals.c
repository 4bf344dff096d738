#include "cli/run_signals.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "cli/cli.h"

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

static struct sigaction before[COUNT]; /* read-only after the first run_signals_open */
static sigset_t mask_before, mask_now; /* read-only after the first run_signals_open */
static bool known;                     /* main thread only */
static int ends[2] = {-1, -1};         /* ends of the pipe; read-only after the last run_signals_open */

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

int run_signals_open(enum run_role role)
{
    remember();
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    if (!cli_open_pipe(ends))
        return -1;
    for (size_t i = 0; i < COUNT; i++)
        take(i, role);
    run_signals_unblock();
    return ends[0];
}

int run_signals_fd(void)
{
    return ends[0];
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

void run_signals_raise(int signal, bool whole_group)
{
    struct sigaction normal = {.sa_handler = SIG_DFL}, own = normal;

    sigemptyset(&normal.sa_mask);
    sigaction(signal, &normal, &own);
    kill(whole_group ? 0 : getpid(), signal);
    sigaction(signal, &own, NULL);
}
