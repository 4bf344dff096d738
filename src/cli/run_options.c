/*
 * The options of "dibs run" and "dibs hold".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run.h"
#include "cli/text.h"

#define DAY_MS INT64_C(86400000)
#define WAIT_MOST_MS (INT64_C(100) * 365 * DAY_MS)
#define LEASE_LEAST_MS 100
#define LEASE_MS INT64_C(30000)
#define GRACE_MS INT64_C(5000)
#define MARGIN_LEAST_MS INT64_C(20)
#define MARGIN_MOST_MS INT64_C(500)
#define LABEL_MOST 48

#define REPLICAS_MOST 1000

enum {
    OPTION_FAIR = CLI_OPTION_OWN,
    OPTION_ALSO,
    OPTION_SHARED,
    OPTION_SLOTS,
    OPTION_NO_REENTRY,
    OPTION_GRACE,
    OPTION_OUTAGE,
    OPTION_MIN_REPLICAS,
    OPTION_DURABLE,
    OPTION_AT_LEAST,
    OPTION_ON_LOST,
    OPTION_LEAVE,
    OPTION_NO_INHERIT,
    OPTION_WHILE_PID,
    OPTION_WHILE_STDIN
};

/* What "dibs run" and "dibs hold" have in common. */
#define COMMON_OPTIONS                                                                                                 \
    {"nonblock", no_argument, NULL, 'n'}, {"wait", required_argument, NULL, 'w'},                                      \
        {"lease", required_argument, NULL, 't'}, {"conflict-exit-code", required_argument, NULL, 'E'},                 \
        {"fair", no_argument, NULL, OPTION_FAIR}, {"no-reentry", no_argument, NULL, OPTION_NO_REENTRY},                \
        {"outage", required_argument, NULL, OPTION_OUTAGE}, {"also", required_argument, NULL, OPTION_ALSO},            \
        {"shared", no_argument, NULL, OPTION_SHARED}, {"slots", required_argument, NULL, OPTION_SLOTS},                \
        {"min-replicas", required_argument, NULL, OPTION_MIN_REPLICAS},                                                \
        {"durable", no_argument, NULL, OPTION_DURABLE},                                                                \
    {                                                                                                                  \
        "grace", required_argument, NULL, OPTION_GRACE                                                                 \
    }

static const struct option run_table[] = {COMMON_OPTIONS,
                                          {"command", required_argument, NULL, 'c'},
                                          {"at-least", required_argument, NULL, OPTION_AT_LEAST},
                                          {"on-lost", required_argument, NULL, OPTION_ON_LOST},
                                          {"no-inherit", no_argument, NULL, OPTION_NO_INHERIT},
                                          {"leave", no_argument, NULL, OPTION_LEAVE},
                                          CLI_LONG_OPTIONS};

static const struct option hold_table[] = {COMMON_OPTIONS,
                                           {"while-pid", required_argument, NULL, OPTION_WHILE_PID},
                                           {"while-stdin", no_argument, NULL, OPTION_WHILE_STDIN},
                                           CLI_LONG_OPTIONS};

/* Used while the options are read. */
struct reading {
    char **argv;
    const char *command; /* argv[0] */
    struct run_plan *plan;
    const char *shell_command;
    bool with_command; /* "dibs run" */
    bool once;         /* -n */
};

/* ------------------------------------------------------------------- one option */

static bool also(const struct reading *reading)
{
    struct run_plan *plan = reading->plan;

    if (plan->name_count < RUN_NAMES_MAX) {
        plan->names[plan->name_count++] = optarg;
        return true;
    }
    cli_usage_error(reading->command, "--also: more than %d names", RUN_NAMES_MAX);
    return false;
}

/* The flag that the option sets; NULL: it sets none. */
static bool *flag_of(struct reading *reading, int option)
{
    struct run_plan *plan = reading->plan;

    switch (option) {
    case 'n':
        return &reading->once;
    case OPTION_SHARED:
        return &plan->shared;
    case OPTION_FAIR:
        return &plan->fair;
    case OPTION_DURABLE:
        return &plan->durable;
    case OPTION_NO_REENTRY:
        return &plan->no_reentry;
    case OPTION_LEAVE:
        return &plan->leave;
    case OPTION_WHILE_STDIN:
        return &plan->while_stdin;
    case OPTION_NO_INHERIT:
        return &plan->no_inherit;
    default:
        return NULL;
    }
}

static bool take_option(struct reading *reading, int option, const char *help, struct cli_common *common)
{
    struct run_plan *plan = reading->plan;
    bool *flag = flag_of(reading, option);

    common->status = CLI_USAGE;
    if (flag)
        return (*flag = true);
    switch (option) {
    case 'w':
        return cli_time(reading->command, 0, WAIT_MOST_MS, &plan->wait_ms);
    case 't':
        return cli_time(reading->command, LEASE_LEAST_MS, DAY_MS, &plan->lease_ms);
    case 'E':
        return cli_number(reading->command, "an exit status", 0, 255, &plan->not_acquired);
    case 'c':
        return (reading->shell_command = optarg) != NULL;
    case OPTION_ALSO:
        return also(reading);
    case OPTION_SLOTS:
        return cli_number(reading->command, "a number", 1, INT32_MAX, &plan->slots);
    case OPTION_GRACE:
        return cli_time(reading->command, 0, DAY_MS / 2, &plan->grace_ms);
    case OPTION_OUTAGE:
        return cli_time(reading->command, 0, WAIT_MOST_MS, &plan->outage_ms);
    case OPTION_MIN_REPLICAS:
        return cli_number(reading->command, "a number", 0, REPLICAS_MOST, &plan->min_replicas);
    case OPTION_AT_LEAST:
        return cli_time(reading->command, 0, DAY_MS, &plan->at_least_ms);
    case OPTION_WHILE_PID:
        return cli_number(reading->command, "a process id", 1, INT32_MAX, &plan->while_pid);
    case OPTION_ON_LOST:
        return (plan->on_lost = optarg) != NULL;
    default:
        return cli_common_option(option, reading->argv, help, common);
    }
}

/* -------------------------------------------------------- what they mean together */

static int64_t within(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/*
 * A lease is renewed when a third of it has passed. COMMAND is ended when only the grace time and the margin are left
 * of the lease. Together they are at most half of it, so that a renewal has time to succeed.
 */
static bool settle_times(const struct reading *reading)
{
    struct run_plan *plan = reading->plan;

    if (plan->lease_ms < 0)
        plan->lease_ms = within(2 * (plan->grace_ms + MARGIN_MOST_MS), LEASE_MS, DAY_MS);
    if (plan->grace_ms < 0)
        plan->grace_ms = within(plan->lease_ms / 4, 0, GRACE_MS);
    plan->margin_ms = within(plan->lease_ms / 20, MARGIN_LEAST_MS, MARGIN_MOST_MS);
    int64_t room_ms = plan->lease_ms / 2 - plan->margin_ms;
    if (plan->grace_ms <= room_ms)
        return true;
    cli_usage_error(reading->command, "--grace %g does not fit into a lease (-t) of %g s: at most %g",
                    (double)plan->grace_ms / 1000, (double)plan->lease_ms / 1000, (double)room_ms / 1000);
    return false;
}

static bool settle_wait(const struct reading *reading)
{
    struct run_plan *plan = reading->plan;

    if (reading->once && plan->wait_ms > 0) {
        cli_usage_error(reading->command, "-n and -w exclude each other");
        return false;
    }
    if (reading->once)
        plan->wait_ms = 0;
    plan->wait_until = plan->wait_ms > 0 ? cli_now_ms() + plan->wait_ms : 0;
    return true;
}

static bool settle_sharing(const struct reading *reading)
{
    struct run_plan *plan = reading->plan;

    if (plan->shared && plan->slots > 0) {
        cli_usage_error(reading->command, "--shared and --slots exclude each other: --slots shares the lock as well");
        return false;
    }
    plan->shared = plan->shared || plan->slots > 0;
    return true;
}

static void show_names(struct run_plan *plan)
{
    static char shown[CLI_SHOWN_MAX + 32];
    char name[DIBS_NAME_MAX + 1];
    size_t others = plan->name_count - 1;

    snprintf(name, sizeof name, "%.*s", cli_shown_length(plan->names[0]), plan->names[0]);
    cli_show(shown, CLI_SHOWN_MAX, name);
    if (others > 0)
        snprintf(shown + strlen(shown), 32, " and %zu more", others);
    plan->shown = shown;
}

/* A name that is given twice is locked once. */
static void drop_repeated(struct run_plan *plan)
{
    size_t count = 0;

    for (size_t i = 0; i < plan->name_count; i++) {
        size_t j = 0;
        while (j < count && strcmp(plan->names[j], plan->names[i]) != 0)
            j++;
        if (j == count)
            plan->names[count++] = plan->names[i];
    }
    plan->name_count = count;
}

static bool settle_names(const struct reading *reading, const char *name)
{
    struct run_plan *plan = reading->plan;

    if (!name) {
        cli_usage_error(reading->command, "NAME is missing");
        return false;
    }
    plan->names[0] = name;
    drop_repeated(plan);
    show_names(plan);
    for (size_t i = 0; i < plan->name_count; i++)
        if (!cli_check_name(reading->command, plan->names[i]))
            return false;
    return true;
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

/* Says that an option comes after NAME. */
static bool refuse_option(const struct reading *reading, const char *word)
{
    cli_usage_error(reading->command, "%.*s comes after NAME; options come before it%s", cli_shown_length(word), word,
                    reading->with_command ? ", and -- before a COMMAND that begins with -" : "");
    return false;
}

/* Reads a -c after NAME, which words begin with. Returns the words after TEXT; NULL, after a message: no TEXT. */
static char **take_shell_command(struct reading *reading, char **words)
{
    reading->shell_command = words[1];
    if (words[1])
        return words + 2;
    cli_usage_error(reading->command, "%s needs an argument: the text that the shell runs", *words);
    return NULL;
}

/* words: what comes after NAME. */
static bool settle_command(struct reading *reading, char **words)
{
    if (!reading->shell_command && *words && (!strcmp(*words, "-c") || !strcmp(*words, "--command")) &&
        !(words = take_shell_command(reading, words)))
        return false;
    if (reading->shell_command) {
        if (*words)
            cli_usage_error(reading->command,
                            "unexpected argument \"%.*s\": with -c there is no COMMAND; quote a TEXT that has blanks",
                            cli_shown_length(*words), *words);
        reading->plan->command = shell(reading->shell_command);
        return !*words;
    }
    if (*words && **words == '-' && strcmp(*words, "--") != 0)
        return refuse_option(reading, *words);
    if (!*words || (!strcmp(*words, "--") && !*++words))
        cli_usage_error(reading->command, "COMMAND is missing");
    else
        reading->plan->command = words;
    return reading->plan->command != NULL;
}

/* words: NAME, and what comes after it. */
static bool settle_rest(struct reading *reading, char **words)
{
    if (!settle_names(reading, *words))
        return false;
    if (reading->with_command) {
        if (!settle_command(reading, words + 1))
            return false;
        reading->plan->label = label_of(reading->plan->command[0]);
    } else if (words[1] && *words[1] == '-') {
        return refuse_option(reading, words[1]);
    } else if (words[1]) {
        cli_refuse_argument(reading->command, words[1]);
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------- the whole */

bool run_options(int argc, char **argv, const char *help, bool with_command, struct run_plan *plan, int *status)
{
    struct reading reading = {.argv = argv, .command = argv[0], .plan = plan, .with_command = with_command};
    struct cli_common common = {NULL, CLI_USAGE};
    const char *letters = with_command ? "+:nw:t:E:c:" CLI_SHORT_OPTIONS : "+:nw:t:E:" CLI_SHORT_OPTIONS;
    int option;

    *plan = (struct run_plan){.name_count = 1,
                              .wait_ms = DIBS_WAIT_FOREVER,
                              .lease_ms = -1,
                              .grace_ms = -1,
                              .outage_ms = -1,
                              .not_acquired = CLI_FAILED};
    while ((option = cli_next_option(argc, argv, letters, with_command ? run_table : hold_table)) != -1)
        if (!take_option(&reading, option, help, &common)) {
            *status = common.status;
            return false;
        }
    plan->url = common.url;
    *status = CLI_USAGE;
    return settle_rest(&reading, argv + optind) && settle_times(&reading) && settle_wait(&reading) &&
           settle_sharing(&reading);
}
