#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/text.h"

/* ------------------------------------------------------------------ messages */

/*
 * Prints a message by one write, because several processes may share standard error. Nothing in it, such as a path or
 * the name of a program, can drive the terminal, and passwords of URLs are hidden.
 */
static void say(enum cli_verbosity least, const char *end, const char *format, va_list arguments)
{
    char line[CLI_SHOWN_MAX + 1024], shown[2 * sizeof line];

    if (cli_common.verbosity < least)
        return;
    if (vsnprintf(line, sizeof line, format, arguments) < 0)
        line[0] = '\0';
    cli_hide_passwords(line, false);
    fprintf(stderr, "dibs: %s%s\n", cli_show_message(shown, sizeof shown, line), end);
}

void cli_say(enum cli_verbosity least, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(least, "", format, arguments);
    va_end(arguments);
}

bool cli_may_say(void)
{
    struct pollfd error = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&error, 1, 0) != 0;
}

int cli_shown_length(const char *word)
{
    return (int)(*word == '-' ? strcspn(word, "=") : strlen(word));
}

int cli_usage_error(const char *format, ...)
{
    char end[128];
    va_list arguments;

    snprintf(end, sizeof end, " (\"dibs %s --help\" tells more)", cli_common.command);
    va_start(arguments, format);
    say(CLI_QUIET, end, format, arguments);
    va_end(arguments);
    return CLI_USAGE;
}

#define KNOWN_MAX 32

/* What the user calls an element of an array, such as urls[0], a word of size bytes. NULL: it is none. */
static const char *known_element(char out[KNOWN_MAX], const char *word, size_t size)
{
    if (size > 5 && memcmp(word, "urls[", 5) == 0) {
        snprintf(out, KNOWN_MAX, "URL %lu", strtoul(word + 5, NULL, 10) + 1);
        return out;
    }
    return size > 6 && memcmp(word, "names[", 6) == 0 ? "a NAME" : NULL;
}

/*
 * The option or variable that sets the field or flag of the library with that name of size bytes; out: room for it.
 * NULL: no such field.
 */
static const char *known_as(char out[KNOWN_MAX], const char *word, size_t size)
{
    static const char *const names[][2] = {
        {"urls", "--url or --url-file"},
        {"key_prefix", "--prefix"},
        {"tls_ca_file", "--tls-ca"},
        {"tls_cert_file", "--tls-cert"},
        {"tls_key_file", "--tls-key"},
        {"tls_server_name", "--tls-name"},
        {"sentinel_user", "$DIBS_SENTINEL_USER"},
        {"sentinel_password", "$DIBS_SENTINEL_PASSWORD"},
        {"limit", "--slots"},
        {"DIBS_FAIR", "--fair"},
        {"min_replicas", "--min-replicas"},
        {"durable", "--durable"},
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i][0]) == size && memcmp(word, names[i][0], size) == 0)
            return names[i][1];
    return known_element(out, word, size);
}

/* Prints text, with the names of the library's fields and flags replaced by what the user knows. */
static void say_invalid(const char *text)
{
    char line[1024] = "", room[KNOWN_MAX];

    for (size_t used = 0; *text && used < sizeof line - 1; used = strlen(line)) {
        size_t size = strcspn(text, " :,"), whole = size + strspn(text + size, " :,");
        const char *known = known_as(room, text, size);
        snprintf(line + used, sizeof line - used, "%s%.*s", known ? known : "", (int)(known ? whole - size : whole),
                 known ? text + size : text);
        text += whole;
    }
    cli_error("%s", line);
}

int cli_failed(dibs_status status)
{
    if (status == DIBS_INVALID)
        say_invalid(dibs_last_error());
    else
        cli_warn("%s", *dibs_last_error() ? dibs_last_error() : dibs_status_text(status));
    return cli_exit_of(status);
}

int cli_end(int result)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return result;
    cli_error("standard output: %s", strerror(errno));
    return CLI_OUTPUT;
}

/* ---------------------------------------------------------------- the system */

#ifdef CLOCK_BOOTTIME
#define CLOCK CLOCK_BOOTTIME
#else
#define CLOCK CLOCK_MONOTONIC
#endif

int64_t cli_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t cli_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool cli_open_pipe(int ends[2])
{
    if (pipe(ends) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    return true;
}

void cli_catch_ends(void (*handler)(int))
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;

    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        sigaction(numbers[i], NULL, &before);
        if (before.sa_handler != SIG_IGN) /* nohup(1) */
            sigaction(numbers[i], &action, NULL);
    }
}

bool cli_thread_start(struct cli_thread *thread, void *(*body)(void *), void *arg)
{
    sigset_t all, before;

    if (!cli_open_pipe(thread->quit))
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread->runs = pthread_create(&thread->id, NULL, body, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int i = 0; i < 2 && !thread->runs; i++)
        close(thread->quit[i]);
    return thread->runs;
}

bool cli_thread_must_end(const struct cli_thread *thread, int ms)
{
    struct pollfd quit = {.fd = thread->quit[0], .events = POLLIN};

    return poll(&quit, 1, ms) != 0;
}

void cli_thread_end(struct cli_thread *thread)
{
    if (!thread->runs)
        return;
    thread->runs = false;
    close(thread->quit[1]);
    pthread_join(thread->id, NULL);
    close(thread->quit[0]);
}

/* ----------------------------------------------------------------- the store */

/* Splits text at blanks, in place, and returns the number of words. The caller must free *out; NULL: no memory. */
static size_t split(char *text, const char ***out)
{
    size_t count = 0;
    char *rest = text;

    *out = calloc(strlen(text) / 2 + 1, sizeof **out);
    for (char *word; *out && (word = strtok_r(rest, CLI_BLANKS, &rest));)
        (*out)[count++] = word;
    return count;
}

int cli_exit_of(dibs_status status)
{
    switch (status) {
    case DIBS_OK:
        return CLI_OK;
    case DIBS_INVALID:
        return CLI_USAGE;
    case DIBS_NO_MEMORY: /* or descriptor, or thread */
        return CLI_SYSTEM;
    case DIBS_LOST: /* of several locks, one was lost while another was waited for */
        return CLI_LOST;
    default:
        return CLI_UNAVAILABLE;
    }
}

/* NULL also where it is empty, as in a file of variables that has a line for each. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

dibs_status cli_open(dibs_runtime **out)
{
    const char *text = cli_common.urls ? cli_common.urls : getenv("DIBS_URL");
    char *copy = cli_common.urls ? strdup(cli_common.urls) : NULL;
    dibs_config config = cli_common.config;
    dibs_status status = DIBS_NO_MEMORY;

    *out = NULL;
    if (text && strstr(text, "-sentinel://")) { /* not from the command line, which everybody can see */
        config.sentinel_user = variable("DIBS_SENTINEL_USER");
        config.sentinel_password = variable("DIBS_SENTINEL_PASSWORD");
    }
    config.url_count = copy ? split(copy, (const char ***)&config.urls) : 0;
    if (config.url_count || !cli_common.urls)
        status = dibs_open(out, &config);
    free((void *)config.urls);
    free(copy);
    return status;
}

int cli_look(int (*look)(dibs_runtime *rt, char **words), char **words)
{
    dibs_runtime *rt;
    dibs_status status = cli_open(&rt);

    if (status != DIBS_OK)
        return cli_failed(status);
    int result = look(rt, words);
    dibs_close(rt);
    return cli_end(result);
}

/* Makes *owner the first sharer with a wanted token, if there is one. */
static dibs_status find_sharer(dibs_runtime *rt, const char *name, bool (*is_wanted)(const char *token),
                               dibs_owner *owner)
{
    dibs_sharer *sharers = calloc(DIBS_SHARERS_MAX, sizeof *sharers);
    size_t count = 0, i = 0;

    if (!sharers)
        return DIBS_NO_MEMORY;
    dibs_status status = dibs_query_sharers(rt, name, sharers, DIBS_SHARERS_MAX, &count);
    while (i < count && !is_wanted(sharers[i].token))
        i++;
    if (i < count) {
        memcpy(owner->token, sharers[i].token, sizeof owner->token);
        owner->remaining_ms = sharers[i].remaining_ms;
        owner->fence = sharers[i].fence;
        owner->held_ms = sharers[i].held_ms;
    }
    free(sharers);
    return status;
}

dibs_status cli_query(dibs_runtime *rt, const char *name, bool (*is_wanted)(const char *token), dibs_owner *out)
{
    dibs_status status = dibs_query(rt, name, out);

    if (status != DIBS_OK || out->sharers < 2) /* the time of *out is that of the longest lease of all sharers */
        return status;
    return find_sharer(rt, name, is_wanted, out);
}

char *cli_show_urls(void)
{
    const char *text = cli_common.urls ? cli_common.urls : getenv("DIBS_URL");
    char *shown =
        strdup(text && text[strspn(text, CLI_BLANKS)] ? text + strspn(text, CLI_BLANKS) : "redis://127.0.0.1:6379");
    size_t size = shown ? strlen(shown) : 0;

    if (!shown)
        return NULL;
    for (size_t i = 0; i < size; i++)
        if (strchr(CLI_BLANKS, shown[i]))
            shown[i] = ' ';
    while (shown[size - 1] == ' ')
        shown[--size] = '\0';
    cli_hide_passwords(shown, false);
    return shown;
}

void cli_make_name(char out[CLI_OWN_NAME_MAX], const char *what)
{
    uint64_t bits;
    FILE *source = fopen("/dev/urandom", "rb");

    if (!source || fread(&bits, sizeof bits, 1, source) != 1)
        bits = (uint64_t)cli_now_ns() * 2654435761u + (uint64_t)getpid();
    if (source)
        fclose(source);
    snprintf(out, CLI_OWN_NAME_MAX, "dibs-%s-%016" PRIx64, what, bits);
}
