#include "cli/screen.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/text.h"

/* ENTER switches to the alternate buffer, hides the cursor and turns line wrapping off; LEAVE undoes that. */
#define ENTER "\x1b[?1049h\x1b[?25l\x1b[?7l"
#define LEAVE "\x1b[?7h\x1b[?25h\x1b[?1049l"
#define TOP_LEFT "\x1b[H"
#define CLEAR_LINE "\x1b[K"

/*
 * Used by the thread and by signal handlers. Changes only while no handler is installed, or within a handler, which
 * blocks all signals.
 */
static struct {
    volatile sig_atomic_t entered;
    bool has_keys;       /* standard input is a terminal */
    struct termios kept; /* its modes before cli_screen_enter */
    int wake[2];         /* a pipe, which gets a byte for each reason to draw again */
    char bytes[64];      /* sent by the terminal, and not read as keys yet */
    size_t byte_count;
} screen;

/* --------------------------------------------------------------------- modes */

static bool write_all(const char *text, size_t size)
{
    while (size > 0) {
        ssize_t done = write(STDOUT_FILENO, text, size);
        if (done < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        if (done < 0 && errno == EAGAIN) /* another program may have left the terminal so that it never blocks */
            (void)poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, -1);
        if (done > 0) {
            text += done;
            size -= (size_t)done;
        }
    }
    return true;
}

/* May be called by a signal handler. */
static void set_modes(void)
{
    screen.has_keys = tcgetattr(STDIN_FILENO, &screen.kept) == 0;
    if (screen.has_keys) {
        struct termios modes = screen.kept;
        modes.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        modes.c_cc[VMIN] = 1;
        modes.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSADRAIN, &modes);
    }
    write_all(ENTER, sizeof ENTER - 1);
    screen.entered = 1;
}

/* May be called by a signal handler. */
static void restore_modes(void)
{
    if (!screen.entered)
        return;
    screen.entered = 0;
    write_all(LEAVE, sizeof LEAVE - 1);
    if (screen.has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &screen.kept);
}

/* ------------------------------------------------------------------- signals */

static void wake(void)
{
    int kept = errno;

    (void)!write(screen.wake[1], "", 1); /* a full pipe wakes as well */
    errno = kept;
}

static void on_resized(int number)
{
    (void)number;
    wake();
}

/* The signal is blocked until the handler returns; then it ends the process as if there had been no handler. */
static void on_end(int number)
{
    restore_modes();
    signal(number, SIG_DFL);
    kill(getpid(), number);
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

    sigfillset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void on_stop(int number)
{
    int kept = errno;
    sigset_t stop;

    restore_modes();
    signal(number, SIG_DFL);
    sigemptyset(&stop);
    sigaddset(&stop, number);
    kill(getpid(), number);
    pthread_sigmask(SIG_UNBLOCK, &stop, NULL); /* here the process stops */
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    handle(number, on_stop);
    set_modes();
    errno = kept;
    wake();
}

static void handle_all(bool entered)
{
    cli_catch_ends(entered ? on_end : SIG_DFL);
    handle(SIGTSTP, entered ? on_stop : SIG_DFL);
    handle(SIGWINCH, entered ? on_resized : SIG_DFL);
}

/* ---------------------------------------------------------------- the screen */

bool cli_screen_possible(void)
{
    const char *terminal = getenv("TERM");

    return isatty(STDOUT_FILENO) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

bool cli_screen_enter(void)
{
    if (!cli_open_pipe(screen.wake))
        return false;
    handle_all(true);
    set_modes();
    return true;
}

void cli_screen_leave(void)
{
    restore_modes();
    handle_all(false);
    close(screen.wake[0]);
    close(screen.wake[1]);
}

void cli_screen_size(size_t *rows, size_t *columns)
{
    struct winsize size = {0};

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    *rows = size.ws_row;
    *columns = size.ws_col;
}

/* Each line is cleared before it is written: afterwards the cursor may be on the last character of a full line. */
bool cli_screen_show(const char *frame)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return true;
    fputs(TOP_LEFT, out);
    for (const char *end; (end = strchr(frame, '\n')); frame = end + 1)
        fprintf(out, CLEAR_LINE "%.*s%s", (int)(end - frame), frame, end[1] ? "\r\n" : "");
    bool shown = fclose(out) != 0 || write_all(text, size);
    free(text);
    return shown;
}

/* ---------------------------------------------------------------------- keys */

/* The key that a sequence of size bytes after an ESC stands for. */
static int key_of(const char *sequence, size_t size)
{
    static const struct {
        const char *sequence;
        int key;
    } keys[] = {
        {"[A", CLI_KEY_UP},       {"OA", CLI_KEY_UP},         {"[B", CLI_KEY_DOWN}, {"OB", CLI_KEY_DOWN},
        {"[5~", CLI_KEY_PAGE_UP}, {"[6~", CLI_KEY_PAGE_DOWN}, {"[H", CLI_KEY_HOME}, {"OH", CLI_KEY_HOME},
        {"[1~", CLI_KEY_HOME},    {"[F", CLI_KEY_END},        {"OF", CLI_KEY_END},  {"[4~", CLI_KEY_END},
    };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strlen(keys[i].sequence) == size && memcmp(keys[i].sequence, sequence, size) == 0)
            return keys[i].key;
    return CLI_KEY_REDRAW;
}

/* How many bytes the first key has. */
static size_t size_of_key(void)
{
    size_t end = 2;

    if (screen.bytes[0] != '\x1b')
        return 1;
    while (end < screen.byte_count &&
           !((screen.bytes[end] >= 'A' && screen.bytes[end] <= 'Z') || screen.bytes[end] == '~'))
        end++;
    return end < screen.byte_count ? end + 1 : screen.byte_count;
}

static int take_key(void)
{
    size_t size = size_of_key();
    char first = screen.bytes[0];
    int key = first >= ' ' && first <= '~' ? first : CLI_KEY_REDRAW;

    if (first == '\x1b')
        key = key_of(screen.bytes + 1, size - 1);
    screen.byte_count -= size;
    memmove(screen.bytes, screen.bytes + size, screen.byte_count);
    return key;
}

static int read_key(void)
{
    ssize_t size = read(STDIN_FILENO, screen.bytes, sizeof screen.bytes);

    if (size <= 0) {
        screen.has_keys = size < 0 && (errno == EINTR || errno == EAGAIN);
        return CLI_KEY_REDRAW;
    }
    screen.byte_count = (size_t)size;
    return take_key();
}

int cli_screen_wait(int64_t until_ms)
{
    struct pollfd watched[] = {{.fd = screen.wake[0], .events = POLLIN},
                               {.fd = screen.has_keys ? STDIN_FILENO : -1, .events = POLLIN}};
    char dropped[64];

    if (screen.byte_count > 0)
        return take_key();
    for (;;) {
        int64_t left = until_ms - cli_now_ms();
        int ready = poll(watched, 2, left < 0 ? 0 : (int)(left < 60000 ? left : 60000));
        if (ready == 0 && cli_now_ms() >= until_ms)
            return CLI_KEY_NONE;
        if (ready > 0 && watched[0].revents) {
            while (read(screen.wake[0], dropped, sizeof dropped) > 0) {
            }
            return CLI_KEY_REDRAW;
        }
        if (ready > 0 && watched[1].revents)
            return read_key();
    }
}
