/*
 * The options of "dibs run" and "dibs hold".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run.h"
#include "cli/text.h"

#define WAIT_MOST_MS (RUN_DAY_MS * 365 * 100)
#define LEASE_LEAST_MS 100
#define LEASE_MS INT64_C(30000)
#define GRACE_MS INT64_C(5000)
#define MARGIN_LEAST_MS INT64_C(20)
#define MARGIN_MOST_MS INT64_C(500)
#define LABEL_MOST 48

struct run_plan run_plan = {
    .name_count = 1,
    .wait_ms = DIBS_WAIT_FOREVER,
    .lease_ms = -1,
    .grace_ms = -1,
    .outage_ms = -1,
    .not_acquired = CLI_FAILED,
};

static int also(const char *name, void *unused)
{
    (void)unused;

    for (size_t i = 1; i < run_plan.name_count; i++)
        if (strcmp(run_plan.names[i], name) == 0)
            return CLI_OK;
    if (run_plan.name_count == RUN_NAMES_MAX)
        return cli_usage_error("--also: more than %d names", RUN_NAMES_MAX);
    run_plan.names[run_plan.name_count++] = name;
    return CLI_OK;
}

const struct cli_option run_options[] = {
    {"nonblock", 'n', .flag = &run_plan.once},
    {"wait", 'w', .time_ms = &run_plan.wait_ms, .most = WAIT_MOST_MS},
    {"lease", 't', .time_ms = &run_plan.lease_ms, .least = LEASE_LEAST_MS, .most = RUN_DAY_MS},
    {"conflict-exit-code", 'E', .number = &run_plan.not_acquired, .most = 255, .what = "an exit status"},
    {"also", .take = also},
    {"shared", .flag = &run_plan.shared},
    {"slots", .number = &run_plan.slots, .least = 1, .most = INT32_MAX, .what = "a number"},
    {"fair", .flag = &run_plan.fair},
    {"no-reentry", .flag = &run_plan.no_reentry},
    {"outage", .time_ms = &run_plan.outage_ms, .most = WAIT_MOST_MS},
    {"min-replicas", .number = &run_plan.min_replicas, .most = CLI_REPLICAS_MOST, .what = "a number"},
    {"durable", .flag = &run_plan.durable},
    {"grace", .time_ms = &run_plan.grace_ms, .most = RUN_DAY_MS / 2},
    {0},
};

/* -------------------------------------------------------- what they mean together */

static int64_t within(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static int64_t margin_of(int64_t lease_ms)
{
    return within(lease_ms / 20, MARGIN_LEAST_MS, MARGIN_MOST_MS);
}

/*
 * A lease is renewed when a third of it has passed. COMMAND is ended when only the grace time and the margin are left
 * of the lease. Together they are at most half of it, so that a renewal has time to succeed.
 */
static int settle_times(void)
{
    if (run_plan.lease_ms < 0)
        run_plan.lease_ms = within(2 * (run_plan.grace_ms + MARGIN_MOST_MS), LEASE_MS, RUN_DAY_MS);
    if (run_plan.grace_ms < 0)
        run_plan.grace_ms = within(run_plan.lease_ms / 4, 0, GRACE_MS);
    run_plan.margin_ms = margin_of(run_plan.lease_ms);
    int64_t room_ms = run_plan.lease_ms / 2 - run_plan.margin_ms;
    if (run_plan.grace_ms > room_ms)
        return cli_usage_error("--grace %g does not fit into a lease (-t) of %g s: at most %g",
                               (double)run_plan.grace_ms / 1000, (double)run_plan.lease_ms / 1000,
                               (double)room_ms / 1000);
    return CLI_OK;
}

int64_t run_end_ms(int64_t lease_ms)
{
    return lease_ms / 4 + margin_of(lease_ms);
}

bool run_fit_times(int64_t lease_ms)
{
    lease_ms = within(lease_ms, LEASE_LEAST_MS, RUN_DAY_MS);
    if (lease_ms >= run_plan.lease_ms)
        return false;
    run_plan.lease_ms = lease_ms;
    run_plan.grace_ms = within(run_plan.grace_ms, 0, lease_ms / 4);
    run_plan.margin_ms = margin_of(lease_ms);
    return true;
}

static int settle_wait(void)
{
    if (run_plan.once && run_plan.wait_ms > 0)
        return cli_usage_error("-n and -w exclude each other");
    if (run_plan.once)
        run_plan.wait_ms = 0;
    run_plan.wait_until = run_plan.wait_ms > 0 ? cli_now_ms() + run_plan.wait_ms : 0;
    return CLI_OK;
}

static int settle_sharing(void)
{
    if (run_plan.shared && run_plan.slots > 0)
        return cli_usage_error("--shared and --slots exclude each other: --slots shares the lock as well");
    run_plan.shared = run_plan.shared || run_plan.slots > 0;
    return CLI_OK;
}

static void show_names(void)
{
    static char shown[CLI_SHOWN_MAX + 32];
    char name[DIBS_NAME_MAX + 1];
    size_t others = run_plan.name_count - 1;

    snprintf(name, sizeof name, "%.*s", cli_shown_length(run_plan.names[0]), run_plan.names[0]);
    cli_show(shown, CLI_SHOWN_MAX, name);
    if (others > 0)
        snprintf(shown + strlen(shown), 32, " and %zu more", others);
    run_plan.shown = shown;
}

/* A name that is given twice is locked once: those of --also differ from each other, and here from NAME. */
static int settle_names(const char *name)
{
    size_t count = 1;
    int result = CLI_OK;

    run_plan.names[0] = name;
    for (size_t i = 1; i < run_plan.name_count; i++)
        if (strcmp(run_plan.names[i], name) != 0)
            run_plan.names[count++] = run_plan.names[i];
    run_plan.name_count = count;
    show_names();
    for (size_t i = 0; i < run_plan.name_count && result == CLI_OK; i++)
        result = cli_check_name(run_plan.names[i]);
    return result;
}

/* ------------------------------------------------------------------- COMMAND */

static char **shell(const char *text)
{
    static char dash_c[] = "-c", standard[] = "/bin/sh";
    static char *words[4];
    char *own = getenv("SHELL");

    words[0] = own && *own ? own : standard;
    words[1] = dash_c;
    words[2] = (char *)text;
    return words;
}

/* The label of COMMAND's token: the last part of its path, with ? for each colon and each byte that does not print. */
static const char *label_of(const char *program)
{
    static char label[LABEL_MOST + 1];
    const char *slash = strrchr(program, '/');

    snprintf(label, sizeof label, "%s", slash && slash[1] ? slash + 1 : program);
    for (char *c = label; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == ':')
            *c = '?';
    return *label ? label : NULL;
}

static int refuse_option(const char *word, const char *hint)
{
    return cli_usage_error("%.*s is in the wrong place: options come before NAME%s", cli_shown_length(word), word,
                           hint);
}

/* Returns how many words are -c TEXT, -cTEXT, --command TEXT or --command=TEXT; -1: TEXT is missing. */
static int take_text(char *const *words)
{
    const char *word = *words ? *words : "";

    if (strcmp(word, "-c") == 0 || strcmp(word, "--command") == 0) {
        run_plan.shell_command = words[1];
        return words[1] ? 2 : -1;
    }
    if (strncmp(word, "--command=", strlen("--command=")) == 0)
        run_plan.shell_command = word + strlen("--command=");
    else if (strncmp(word, "-c", 2) == 0)
        run_plan.shell_command = word + 2;
    else
        return 0;
    return 1;
}

/* words: what comes after NAME: COMMAND; or -c TEXT, which may also have come before NAME. */
static int settle_command(char **words)
{
    int taken = run_plan.shell_command ? 0 : take_text(words);

    if (taken < 0)
        return cli_usage_error("%s needs an argument: the text that the shell runs", *words);
    words += taken;
    if (run_plan.shell_command && *words)
        return cli_usage_error(
            "unexpected argument \"%.*s\": with -c there is no COMMAND; quote a TEXT that has blanks",
            cli_shown_length(*words), *words);
    if (*words && **words == '-' && strcmp(*words, "--") != 0)
        return refuse_option(*words, ", and -- before a COMMAND that begins with -");
    if (*words && !strcmp(*words, "--"))
        words++;
    if (!run_plan.shell_command && !*words)
        return cli_usage_error("COMMAND is missing");
    run_plan.command = run_plan.shell_command ? shell(run_plan.shell_command) : words;
    run_plan.label = label_of(run_plan.command[0]);
    return CLI_OK;
}

static int settle_no_command(char **words)
{
    if (!*words)
        return CLI_OK;
    return **words == '-' ? refuse_option(*words, "") : cli_refuse_argument(*words);
}

int run_settle(char **words, bool with_command)
{
    int result = settle_names(words[0]);

    if (result == CLI_OK)
        result = with_command ? settle_command(words + 1) : settle_no_command(words + 1);
    if (result == CLI_OK)
        result = settle_times();
    if (result == CLI_OK)
        result = settle_wait();
    return result == CLI_OK ? settle_sharing() : result;
}
