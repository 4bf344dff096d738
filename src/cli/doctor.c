/*
 * dibs doctor: what in the store endangers locks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/owner_token.h"
#include "cli/screen.h"
#include "cli/text.h"

/* clang-format off */
static const char help[] =
    "Usage: dibs doctor [OPTION...]\n"
    "       dibs doctor --admit TIME [OPTION...]\n"
    "\n"
    "Looks for what endangers locks in the store, checks that all who share a lock\n"
    "give the same limit, and acquires and releases a lock of a random name, of which\n"
    "nothing is left. Each line says ok, warn or bad; after an arrow comes what to\n"
    "do.\n"
    "\n"
    "With --admit it does none of that, but lets masters of a quorum that lost their\n"
    "data vote again: where another master that knows better is gone for good, or\n"
    "where every program was started after the loss. You vouch for two things: that\n"
    "these masters, and no others, are one quorum; and that no program which uses\n"
    "them has a lease longer than TIME. They vote after that time. If what you vouch\n"
    "for is wrong, two may hold the same lock.\n"
    "\n"
    "  --min-replicas N    as your programs lock: N replicas must have a grant\n"
    "  --admit TIME        lets masters vote again; TIME: the longest lease in use,\n"
    "                      such as 30 or 5m\n"
    CLI_JSON_HELP
    CLI_COMMON_HELP
    "\n"
    "Exit status: 0 if nothing is bad; 1 if something is; 64 for wrong usage; 69 if\n"
    "the server can't be reached, or refuses; 74 if the findings can't be written.\n";
/* clang-format on */

#define LEASE_MS 10000
#define LEASE_LEAST_MS 20 /* the shortest lease that dibs_open accepts */
#define LEASE_MOST_MS (INT64_C(24) * 3600 * 1000)
#define INDENT 21 /* columns before the text of a finding */
#define VERDICTS 3
#define TOLD_MOST 10  /* at most this many locks are named */
#define LIMITS_MOST 4 /* at most this many different limits of one lock are told */
#define ENTRIES_MOST 256
#define CONNECTION "connection" /* subject of the finding that says whether a server answers */

/* Set by the options. */
static struct {
    int64_t admit_ms; /* 0: without --admit */
    int min_replicas;
    bool json;
} given;

static const struct cli_option options[] = {
    {"admit", .time_ms = &given.admit_ms, .least = LEASE_LEAST_MS, .most = LEASE_MOST_MS},
    {"min-replicas", .number = &given.min_replicas, .most = CLI_REPLICAS_MOST, .what = "a number"},
    {"json", .flag = &given.json},
    {0},
};

/* What the command has told so far. */
static struct {
    bool begun;                 /* print_begin was called */
    unsigned counts[VERDICTS];  /* number of findings, by verdict */
    bool reached;               /* a server answers */
    char server[DIBS_NAME_MAX]; /* server of the last finding, as it was printed */
} doctor;

static const char *const verdicts[VERDICTS] = {
    [DIBS_VERDICT_OK] = "ok", [DIBS_VERDICT_WARN] = "warn", [DIBS_VERDICT_BAD] = "bad"};

/* ------------------------------------------------------------------ findings */

static void print_json(const dibs_finding *finding)
{
    cli_json_open(NULL, '{');
    cli_json_string("server", finding->server);
    cli_json_string("subject", finding->subject);
    cli_json_string("verdict", verdicts[finding->verdict]);
    cli_json_string("text", finding->text);
    cli_json_string("remedy", *finding->remedy ? finding->remedy : NULL);
    cli_json_close('}');
}

/* Begins the document, once: before the first finding, so that nothing is printed on wrong usage. */
static void print_begin(void)
{
    if (given.json && !doctor.begun) {
        cli_json_open(NULL, '{');
        cli_json_open("findings", '[');
    }
    doctor.begun = true;
}

/* The findings of one server are printed below its name. */
static void print_server(const char *server)
{
    char shown[sizeof doctor.server];

    if (strcmp(cli_show(shown, sizeof shown, server), doctor.server) == 0)
        return;
    printf("%s%s\n", *doctor.server ? "\n" : "", shown);
    snprintf(doctor.server, sizeof doctor.server, "%s", shown);
}

/* Prints the rest of a line whose first indent columns are printed. On a terminal, wide lines are broken at blanks. */
static void print_text(const char *text, size_t indent)
{
    char shown[CLI_SHOWN_MAX];
    size_t used = 0, rows, columns;

    cli_screen_size(&rows, &columns);
    bool narrow = isatty(STDOUT_FILENO) && columns > indent + 20;
    cli_show_message(shown, sizeof shown, text);
    if (!narrow) {
        puts(shown);
        return;
    }
    for (char *rest = shown, *word; (word = strtok_r(rest, " ", &rest));) {
        size_t width = cli_width(word);
        if (used > 0 && indent + used + 1 + width > columns) {
            printf("\n%*s", (int)indent, "");
            used = 0;
        }
        printf("%s%s", used > 0 ? " " : "", word);
        used += (used > 0) + width;
    }
    putchar('\n');
}

static void print_line(const dibs_finding *finding)
{
    print_server(finding->server);
    printf("  %-4s  %-11s  ", verdicts[finding->verdict], finding->subject);
    print_text(finding->text, INDENT);
    if (!*finding->remedy)
        return;
    printf("%*s-> ", INDENT, "");
    print_text(finding->remedy, INDENT + 3);
}

static void tell(const dibs_finding *finding, void *arg)
{
    (void)arg;
    if (finding->verdict < DIBS_VERDICT_OK || finding->verdict > DIBS_VERDICT_BAD)
        return; /* a verdict of a later version of the library */
    doctor.counts[finding->verdict]++;
    if (strcmp(finding->subject, CONNECTION) == 0 && finding->verdict == DIBS_VERDICT_OK)
        doctor.reached = true;
    print_begin();
    if (given.json)
        print_json(finding);
    else
        print_line(finding);
}

/* Tells what the command itself found out, which does not concern a single server. */
static void tell_own(const char *subject, dibs_verdict verdict, const char *text, const char *remedy)
{
    const dibs_finding finding = {
        .server = "the store", .subject = subject, .verdict = verdict, .text = text, .remedy = remedy};

    tell(&finding, NULL);
}

/* Tells why the store could not be opened. */
static void tell_unreachable(void)
{
    char *urls = cli_show_urls();
    const dibs_finding finding = {
        .server = urls ? urls : "the store",
        .subject = CONNECTION,
        .verdict = DIBS_VERDICT_BAD,
        .text = dibs_last_error(),
        .remedy = "See that the server runs, and that --url or $DIBS_URL names it and the right account."};

    tell(&finding, NULL);
    free(urls);
}

/* ------------------------------------------------------------ locks that are held */

/*
 * Semaphores whose users give different limits (each call goes by its own, so there may be more holders than some of
 * them expect), and how many locks are kept.
 */
static struct {
    dibs_runtime *rt;
    size_t shared, wrong, kept; /* numbers of locks */
    dibs_sharer sharers[ENTRIES_MOST];
    dibs_waiter waiters[ENTRIES_MOST];
} census;

/* The different limits that the users of one lock give, and how many users give each. */
struct limits {
    uint64_t limits[LIMITS_MOST];
    unsigned users[LIMITS_MOST];
    size_t count;
};

static void note(struct limits *found, const char *token)
{
    struct cli_who who = {0};
    size_t i = 0;

    cli_who_parse(&who, token);
    if (!who.limit)
        return;
    uint64_t limit = strtoull(who.limit, NULL, 10);
    while (i < found->count && found->limits[i] != limit)
        i++;
    if (i == LIMITS_MOST)
        return;
    found->limits[i] = limit;
    found->users[i]++;
    found->count += i == found->count;
}

/* Notes the limits of up to ENTRIES_MOST sharers and waiters. A waiter that wants the lock alone gives no limit. */
static void gather(const char *name, const dibs_owner *owner, struct limits *found)
{
    size_t count = 0;

    (void)dibs_query_sharers(census.rt, name, census.sharers, ENTRIES_MOST, &count);
    for (size_t i = 0; i < count; i++)
        note(found, census.sharers[i].token);
    if (owner->waiters == 0 || dibs_query_waiters(census.rt, name, census.waiters, ENTRIES_MOST, &count) != DIBS_OK)
        return;
    for (size_t i = 0; i < count; i++)
        note(found, census.waiters[i].token);
}

static void tell_of(const char *name, const struct limits *found)
{
    char shown[CLI_SHOWN_MAX], text[CLI_SHOWN_MAX + 256];

    int used = snprintf(text, sizeof text,
                        "Those who share %s, or wait to, give different limits:", cli_show(shown, sizeof shown, name));
    for (size_t i = 0; i < found->count; i++) {
        const char *comma = i > 0 ? "," : "";
        size_t at = (size_t)used;
        if (found->limits[i] == 0)
            used += snprintf(text + at, sizeof text - at, "%s none (%u)", comma, found->users[i]);
        else
            used +=
                snprintf(text + at, sizeof text - at, "%s %" PRIu64 " (%u)", comma, found->limits[i], found->users[i]);
    }
    snprintf(text + used, sizeof text - (size_t)used, ".");
    tell_own("limits", DIBS_VERDICT_WARN, text,
             "Give the same limit (--slots) wherever the name is used: each goes by its own, so more may be inside "
             "than the smallest says.");
}

static bool look_at(const char *name, const dibs_owner *owner, void *arg)
{
    struct limits found = {.count = 0};

    (void)arg;
    census.kept += owner->kept;
    if (owner->sharers == 0)
        return true;
    census.shared++;
    gather(name, owner, &found);
    if (found.count > 1 && census.wrong++ < TOLD_MOST)
        tell_of(name, &found);
    return true;
}

static void tell_of_limits(void)
{
    char text[128];

    if (census.wrong == 0) {
        snprintf(text, sizeof text, "%zu %s shared, with the same limit by all who use one.", census.shared,
                 census.shared == 1 ? "lock is" : "locks are");
        tell_own("limits", DIBS_VERDICT_OK, text, "");
    } else if (census.wrong > TOLD_MOST) {
        snprintf(text, sizeof text, "%zu more locks are shared with different limits.", census.wrong - TOLD_MOST);
        tell_own("limits", DIBS_VERDICT_WARN, text, "Give the same limit wherever a name is used.");
    }
}

/* A kept lock is granted a little later than a free one. That is no fault, but may explain a measurement. */
static void tell_of_kept(void)
{
    char text[256];

    snprintf(text, sizeof text,
             "%zu %s kept by a process that does not use it now (keep_ms). Who else asks for it waits for a message to "
             "that process, or for 200 ms and more where that process has died.",
             census.kept, census.kept == 1 ? "lock is" : "locks are each");
    tell_own("kept", DIBS_VERDICT_OK, text, "");
}

/* Names the first ten locks that are shared with different limits. Leaves out what can't be queried. */
static void examine_locks(dibs_runtime *rt)
{
    census.rt = rt;
    dibs_status status = dibs_list(rt, NULL, look_at, NULL);
    if (status == DIBS_OK && census.shared > 0)
        tell_of_limits();
    if (status == DIBS_OK && census.kept > 0)
        tell_of_kept();
}

/* -------------------------------------------------------------- a lock in use */

struct trial {
    dibs_runtime *rt;
    char name[CLI_OWN_NAME_MAX];
    double acquire_ms, release_ms;
    const char *failed; /* the step that failed, for a message; dibs_last_error says why */
};

/* The store and the holder must agree on who has the lock. */
static dibs_status look_at_held(struct trial *trial)
{
    dibs_hold hold;
    dibs_owner owner = {0};
    dibs_status status = dibs_hold_of(trial->rt, trial->name, &hold);

    trial->failed = "to hold";
    if (status == DIBS_OK) {
        trial->failed = "to look at";
        status = dibs_query(trial->rt, trial->name, &owner);
    }
    return status == DIBS_OK && !owner.held ? DIBS_LOST : status;
}

static dibs_status try_out(struct trial *trial)
{
    int64_t begin = cli_now_ns();
    dibs_status status = dibs_trylock(trial->rt, trial->name);

    trial->failed = "to acquire";
    trial->acquire_ms = (double)(cli_now_ns() - begin) / 1e6;
    if (status != DIBS_OK)
        return status;
    status = look_at_held(trial);
    begin = cli_now_ns();
    dibs_status released = dibs_unlock(trial->rt, trial->name);
    trial->release_ms = (double)(cli_now_ns() - begin) / 1e6;
    if (status != DIBS_OK || released == DIBS_OK)
        return status;
    trial->failed = "to release";
    return released;
}

static int examine_use(dibs_runtime *rt)
{
    struct trial trial = {.rt = rt};
    char text[1024];

    cli_make_name(trial.name, "doctor");
    dibs_status status = try_out(&trial);
    if (status == DIBS_OK) {
        (void)dibs_forget(rt, trial.name); /* what a failed call leaves expires */
        snprintf(text, sizeof text, "A lock was acquired in %.1f ms, looked at, and released in %.1f ms.",
                 trial.acquire_ms, trial.release_ms);
        tell_own("lock", DIBS_VERDICT_OK, text, "");
        return CLI_OK;
    }
    snprintf(text, sizeof text, "It was not possible %s a lock: %s", trial.failed,
             status == DIBS_LOST ? "the store has lost the lock." : dibs_last_error());
    tell_own("lock", DIBS_VERDICT_BAD, text, "See the lines above.");
    return status == DIBS_UNAVAILABLE && !doctor.reached ? CLI_UNAVAILABLE : CLI_FAILED;
}

/* ------------------------------------------------------------------- command */

static int examine_store(dibs_runtime *rt)
{
    dibs_status status = dibs_examine(rt, tell, NULL);

    if (status != DIBS_OK)
        return cli_failed(status);
    if (doctor.reached)
        examine_locks(rt);
    return examine_use(rt);
}

static void print_end(void)
{
    const unsigned *counts = doctor.counts;

    print_begin();
    if (given.json) {
        cli_json_close(']');
        for (int i = 0; i < VERDICTS; i++)
            cli_json_int(verdicts[i], counts[i]);
        cli_json_close('}');
    } else {
        printf("\n%u ok, %u warn, %u bad\n", counts[DIBS_VERDICT_OK], counts[DIBS_VERDICT_WARN],
               counts[DIBS_VERDICT_BAD]);
    }
}

/* Lets masters vote again. The operator vouches that no lease is longer, so this runtime's must not be either. */
static int admit(dibs_runtime *rt)
{
    dibs_status status = dibs_admit(rt, cli_common.config.lease_ms, tell, NULL);

    return status == DIBS_OK ? CLI_OK : cli_failed(status);
}

/* With a wrong URL nothing is printed, because half a document would be of no use. */
static int run(char **words)
{
    bool admits = given.admit_ms > 0;
    dibs_runtime *rt;

    (void)words;
    cli_common.config.lease_ms = admits ? (uint32_t)given.admit_ms : LEASE_MS;
    cli_common.config.min_replicas = (uint32_t)given.min_replicas;
    dibs_status status = cli_open(&rt);
    if (status == DIBS_INVALID)
        return cli_failed(status);
    int result = cli_exit_of(status);
    if (status == DIBS_OK)
        result = admits ? admit(rt) : examine_store(rt);
    else if (admits)
        result = cli_failed(status);
    else
        tell_unreachable();
    dibs_close(rt);
    if (!admits || result == CLI_OK)
        print_end();
    return cli_end(result == CLI_OK && doctor.counts[DIBS_VERDICT_BAD] > 0 ? CLI_FAILED : result);
}

const struct cli_command cli_doctor = {
    .name = "doctor",
    .summary = "looks for what in the store endangers locks",
    .help = help,
    .options = {options},
    .arguments = CLI_NO_ARGUMENT,
    .run = run,
};
