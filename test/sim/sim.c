/*
 * Runs of the library under simulation.
 *
 *   sim LIBRARY [--seed N] [--runs M] [--only WHAT] [--seconds S]
 *                                           M runs from seed N on, for S s of a processor at most
 *   sim LIBRARY --replay N [--only WHAT]    tells the story of one run
 *   sim LIBRARY --shrink N [--only WHAT]    leaves out what the run does not need to fail
 *   sim LIBRARY --commands N                commands to a server, or to N nodes of a cluster, from standard input: see
 *                                           take_command; END comes behind the replies
 *
 * LIBRARY is the library that was linked for the simulation: see seams.txt. Each run is a process of its own, so that
 * nothing it leaves behind affects another run.
 */
#include <errno.h>
#include <execinfo.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "judge.h"

#define NO_SEED UINT64_MAX
#define LIMIT_S 60 /* CPU time, for a run: other work of the machine does not count */

struct result {
    uint64_t hash;
    int64_t time;
    bool failed;
    struct sim_counts counts;
    uint64_t switches;
    char failure[256];
};

static struct {
    uint64_t seed, replay, shrink; /* NO_SEED: it was not asked for that */
    long runs, seconds;
    const char *only, *set;
    int commands; /* to so many servers; 0: it was not asked for that */
    bool twice, stops, bytes;
    struct sim_cut cut;
} options = {.seed = 1, .replay = NO_SEED, .shrink = NO_SEED, .runs = 100, .only = "", .set = ""};

/* The CPU time of the finished runs. Other work of the machine does not count. */
static double processor_time(void)
{
    struct rusage usage;

    getrusage(RUSAGE_CHILDREN, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* ----------------------------------------------------------------------- a run */

static struct sim_plan plan;
static int result_fd = 1;
static int64_t ended_at; /* the work; 0: not yet */

static struct result result_now(void)
{
    struct result result = {.hash = sim_hash,
                            .time = ended_at ? ended_at : sim_now,
                            .failed = sim_failure[0],
                            .counts = sim_counts,
                            .switches = sim_switches};

    memcpy(result.failure, sim_failure, sizeof result.failure);
    return result;
}

static void on_signal(int number)
{
    if (!sim_failure[0])
        snprintf(sim_failure, sizeof sim_failure, "%s at %.6f s",
                 number == SIGPROF ? "the run comes to no end" : strsignal(number), (double)sim_now / SIM_S);
    if (sim_telling) { /* "addr2line -fe build/sim/dibs.so" knows what lies there */
        void *calls[24];
        fflush(stdout);
        backtrace_symbols_fd(calls, backtrace(calls, 24), 1);
    }
    struct result result = result_now();
    if (write(result_fd, &result, sizeof result) < 0)
        _exit(3);
    fflush(stdout);
    _exit(1);
}

static bool never(void)
{
    return false;
}

static void run(uint64_t seed)
{
    int64_t most;

    sim_seed(seed);
    sim_plan_draw(&plan, seed, options.only);
    sim_plan_cut(&plan, &options.cut);
    if (sim_telling)
        sim_plan_print(&plan);
    sim_plan_begin(&plan);
    sim_judge_begin(&plan);
    sim_work_begin(&plan);
    most = 3 * plan.end + 20 * plan.lease_ms * SIM_MS + 120 * SIM_S;
    if (!sim_run(sim_work_is_over, most))
        sim_fail("nothing can happen any more");
    else if (!sim_work_is_over())
        sim_fail("the run did not come to its end in %.1f s", (double)most / SIM_S);
    if (!sim_failure[0]) {
        ended_at = sim_now;
        bool is_clean = plan.is_calm && plan.orphans == 0 && plan.bursts == 0;
        sim_run(never, sim_now + (is_clean ? 100 * SIM_MS : 4 * SIM_S)); /* what is under way arrives */
        sim_now += is_clean ? 0 : 8 * plan.lease_ms * SIM_MS + 60 * SIM_S;
        sim_judge_end();
    }
}

static struct result run_apart(uint64_t seed)
{
    struct result result = {.failed = true, .failure = "the process of the run ended early"};
    int fds[2];

    fflush(stdout);
    if (pipe(fds) != 0)
        exit(2);
    pid_t child = fork();
    if (child == 0) {
        result_fd = fds[1];
        setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = LIMIT_S}, NULL);
        run(seed);
        fflush(stdout);
        struct result done = result_now();
        _exit(write(fds[1], &done, sizeof done) < 0);
    }
    close(fds[1]);
    if (read(fds[0], &result, sizeof result) < 0)
        result.failed = true;
    close(fds[0]);
    waitpid(child, NULL, 0);
    return result;
}

/* ------------------------------------------------------------------- shrinking */

/* Whether the run still fails with an error that begins with the same words. Then that is the best cut. */
static bool try_cut(struct sim_cut *best, const struct sim_cut *cut, const char *failure)
{
    options.cut = *cut;
    if (strncmp(run_apart(options.shrink).failure, failure, 12) != 0)
        return false;
    *best = *cut;
    return true;
}

/* Also true if that was tried before. */
static bool try_setting(struct sim_cut *best, const char *setting, const char *failure)
{
    struct sim_cut cut = *best;

    if (strstr(cut.settings, setting))
        return true;
    strncat(cut.settings, " ", sizeof cut.settings - strlen(cut.settings) - 1);
    strncat(cut.settings, setting, sizeof cut.settings - strlen(cut.settings) - 1);
    return try_cut(best, &cut, failure);
}

static void try_fewer(struct sim_cut *best, const char *of, int than, const char *failure)
{
    char setting[32];

    for (int number = 1; number < than; number++) {
        snprintf(setting, sizeof setting, "%s=%d", of, number);
        if (try_setting(best, setting, failure))
            return;
    }
}

/* Shortens a failing run, by one thing after the other, as long as it still fails. */
static int shrink(void)
{
    struct sim_cut best = {0};
    struct result whole = run_apart(options.shrink);

    if (!whole.failed) {
        printf("seed %" PRIu64 " does not fail\n", options.shrink);
        return 1;
    }
    sim_seed(options.shrink);
    sim_plan_draw(&plan, options.shrink, options.only);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < plan.fault_count; i++) {
            struct sim_cut cut = best;
            cut.without |= UINT64_C(1) << i;
            try_cut(&best, &cut, whole.failure);
        }
        try_fewer(&best, "procs", plan.procs, whole.failure);
        try_fewer(&best, "threads", plan.threads, whole.failure);
        try_fewer(&best, "names", plan.names, whole.failure);
        try_setting(&best, sim_quiet[0], whole.failure);
        try_setting(&best, sim_quiet[1], whole.failure);
    }
    printf("%s\n--replay %" PRIu64 "%s%s --without 0x%" PRIx64 " --set \"%s\"\n", whole.failure, options.shrink,
           options.only[0] ? " --only " : "", options.only, best.without, best.settings);
    return 0;
}

/* -------------------------------------------------------------------- commands */

#define CLIENTS 6

/* For the simulation itself: OOM with 0 or 1, IMPORT, MIGRATE and OWN, with a slot and a node, MOVE with a key and a
 * node. */
static bool take_order(struct sim_server *server, const char *const *words)
{
    unsigned slot = words[1] ? (unsigned)atoi(words[1]) : 0;
    int node = words[1] && words[2] ? atoi(words[2]) : 0;

    if (strcmp(words[0], "OOM") == 0)
        sim_servers->no_memory_until = words[1][0] == '1' ? SIM_NEVER : 0;
    else if (strcmp(words[0], "IMPORT") == 0)
        server->cluster->from[slot] = (unsigned char)node;
    else if (strcmp(words[0], "MIGRATE") == 0)
        server->cluster->to[slot] = (unsigned char)node;
    else if (strcmp(words[0], "OWN") == 0)
        sim_cluster_own(server, slot, node);
    else if (strcmp(words[0], "MOVE") == 0)
        sim_server_move(server, sim_server_of(node), words[1]);
    else
        return false;
    sim_run(never, sim_now + SIM_MS / 5);
    return true;
}

/* The words of a request: which client sends the command, the time of the servers' clocks in us, and the command. */
static void take_command(const char *const *words, struct sim_conn *clients)
{
    struct sim_conn *conn = &clients[atoi(words[0])];
    int64_t us = atoll(words[1]);
    struct bytes out = {NULL, 0, 0};

    for (struct sim_server *server = sim_servers; us && server; server = server->next)
        server->offset += 1000 * (us - sim_server_us(server));
    if (!take_order(conn->server, words + 2) && conn->client) {
        sim_put_words(&out, words + 2);
        sim_server_take(conn->client, out.data, out.length);
        sim_run(never, sim_now + SIM_MS / 5);
    }
    bytes_add_text(&conn->in, "+END\r\n");
    if (write(1, conn->in.data, conn->in.length) < 0)
        exit(2);
    conn->in.length = 0;
    free(out.data);
}

static int run_commands(void)
{
    static struct sim_proc nobody = {.number = 1};
    static struct sim_conn clients[CLIENTS];
    static char some[1 << 16];
    struct bytes in = {NULL, 0, 0};
    const char *words[256];
    ssize_t size;
    int count;

    sim_seed(options.seed);
    for (int i = 1; i <= options.commands; i++)
        sim_server_new(i);
    if (options.commands > 1)
        sim_cluster_begin(options.commands);
    for (int i = 0; i < CLIENTS; i++) {
        struct sim_server *server = sim_servers;
        for (int node = i % options.commands; node > 0; node--)
            server = server->next;
        clients[i] = (struct sim_conn){.proc = &nobody, .server = server, .state = SIM_OPEN};
        clients[i].client = sim_server_accept(server, &clients[i]);
    }
    while ((size = read(0, some, sizeof some)) > 0) {
        bytes_add(&in, some, (size_t)size);
        while ((size = (ssize_t)sim_read_request(&in, words, &count)) > 0) {
            words[count] = NULL;
            take_command(words, clients);
            bytes_drop(&in, (size_t)size);
        }
    }
    return 0;
}

/* ----------------------------------------------------------------------- many */

static int run_many(void)
{
    struct result sum = {0};
    long failures = 0, done = 0;

    for (; done < options.runs && (options.seconds == 0 || processor_time() < (double)options.seconds) &&
           !(failures > 0 && options.stops);
         done++) {
        uint64_t seed = options.seed + (uint64_t)done;
        struct result result = run_apart(seed);
        if (options.twice && !result.failed && run_apart(seed).hash != result.hash) {
            result.failed = true;
            strcpy(result.failure, "the second run of this seed had another trace");
        }
        if (result.failed)
            printf("seed %" PRIu64 ": %s\n", seed, result.failure);
        failures += result.failed;
        sum.time += result.time;
        sum.switches += result.switches;
        sum.hash = sum.hash * 31 + result.hash;
        for (size_t i = 0; i < sizeof sum.counts / sizeof(long); i++)
            ((long *)&sum.counts)[i] += ((const long *)&result.counts)[i];
    }
    double took = processor_time();
    printf("%ld runs, %ld failures; of a processor %.1f s; simulated %.0f s (%.0f a second of that, %.1f runs)\n", done,
           failures, took, (double)sum.time / SIM_S, (double)sum.time / SIM_S / took, (double)done / took);
    printf("%ld grants, %ld of them shared, %ld over kept leases, %ld losses, %ld calls, %ld of them begun, %ld "
           "cancels, %" PRIu64 " switches; trace %016" PRIx64 "\n",
           sum.counts.grants, sum.counts.shared, sum.counts.retaken, sum.counts.losses, sum.counts.calls,
           sum.counts.begun, sum.counts.cancelled, sum.switches, sum.hash);
    return failures > 0;
}

static int replay(void)
{
    sim_telling = 1 + options.bytes;
    run(options.replay);
    printf("seed %" PRIu64 ": %s; trace %016" PRIx64 "\n", options.replay, sim_failure[0] ? sim_failure : "no failure",
           sim_hash);
    fflush(stdout);
    _exit(sim_failure[0] != 0);
}

static const struct option {
    const char *name;
    void *to;
    size_t size; /* of the number; 0: a text; 1: a flag, behind which no word comes */
} known[] = {
    {"--twice", &options.twice, 1},
    {"--bytes", &options.bytes, 1},
    {"--stop", &options.stops, 1},
    {"--seed", &options.seed, sizeof options.seed},
    {"--runs", &options.runs, sizeof options.runs},
    {"--seconds", &options.seconds, sizeof options.seconds},
    {"--commands", &options.commands, sizeof options.commands},
    {"--only", &options.only, 0},
    {"--replay", &options.replay, sizeof options.replay},
    {"--shrink", &options.shrink, sizeof options.shrink},
    {"--without", &options.cut.without, sizeof options.cut.without},
    {"--set", &options.set, 0},
};

static void read_options(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        const struct option *option = known, *end = known + sizeof known / sizeof *known;
        while (option < end && strcmp(argv[i], option->name) != 0)
            option++;
        if (option == end || (option->size != 1 && i + 1 == argc)) {
            fprintf(stderr, "unknown option %s\n", argv[i]);
            exit(2);
        }
        uint64_t number = option->size == 1 ? 1 : strtoull(argv[++i], NULL, 0);
        if (option->size == 0)
            *(const char **)option->to = argv[i];
        else
            memcpy(option->to, &number, option->size);
    }
}

int main(int argc, char **argv)
{
    static char name[] = "sim", stack[65536];
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};

    if (argc < 2)
        return 2;
    int before = personality(0xffffffff); /* addresses are the same each time */
    if (!(before & ADDR_NO_RANDOMIZE) && personality((unsigned long)before | ADDR_NO_RANDOMIZE) >= 0)
        execv("/proc/self/exe", argv);
    program_invocation_short_name = name; /* is in the tokens, and so in the trace */
    read_options(argc, argv);
    snprintf(options.cut.settings, sizeof options.cut.settings, "%s", options.set);
    sim_proc_load(argv[1]);
    sim_script_init();
    backtrace(&(void *){NULL}, 1); /* loads what it needs */
    sigaltstack(&alternate, NULL);
    sigaction(SIGPROF, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
    int status = options.shrink != NO_SEED   ? shrink()
                 : options.commands          ? run_commands()
                 : options.replay != NO_SEED ? replay()
                                             : run_many();
    fflush(stdout);
    _exit(status); /* the libraries' own exits are not for this process */
}
