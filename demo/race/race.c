#include "race/race.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "race/servers.h"
#include "support/common/redis_process.h"
#include "support/common/timing.h"

enum { POLL_US = 1000, POLLS_FOR_PROGRESS = 50, GRACE_MS = 60000, READY_LIMIT_MS = 30000 };

static const size_t race_size = sizeof(struct race) + RACERS_MOST * sizeof(struct record);

static volatile sig_atomic_t signal_came;

static void take_signal(int number)
{
    signal_came = number;
}

static void install_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = take_signal};

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* ----------------------------------------------------------- open and close */

struct race *race_open(const char *program, const char *url)
{
    uint64_t mix = (uint64_t)time(NULL) ^ ((uint64_t)getpid() << 32);
    struct race *race = mmap(NULL, race_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (race == MAP_FAILED) {
        fprintf(stderr, "out of memory\n");
        return NULL;
    }
    snprintf(race->program, sizeof race->program, "%s:%016llx", program, (unsigned long long)next_random(&mix));
    install_signals();
    way_fails_in(race);
    servers_given(url);
    if (!servers_ready(race, 1, 0)) {
        race_close(race);
        return NULL;
    }
    return race;
}

void race_close(struct race *race)
{
    servers_stop(race);
    munmap(race, race_size);
}

noreturn void race_exit(struct race *race, int status)
{
    race_close(race);
    if (signal_came) {
        signal(signal_came, SIG_DFL);
        raise(signal_came);
    }
    exit(status);
}

/* ------------------------------------------------------------ the processes */

static void kill_all(const struct race *race)
{
    for (unsigned i = 0; i < race->options.processes; i++)
        if (race->alive[i]) {
            kill(race->alive[i], SIGKILL);
            waitpid(race->alive[i], NULL, 0);
        }
}

static noreturn void become_crew(struct race *race, unsigned number, pid_t parent, int other_end)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    end_with_parent(parent);
    close(other_end);
    crew_run(race, number);
}

/* Returns the end of the pipe that opens the gate when it is closed; -1: no process could be started. */
static int start_crews(struct race *race)
{
    int ends[2];
    pid_t parent = getpid();

    if (pipe(ends) != 0)
        return -1;
    race->gate = ends[0];
    fflush(NULL);
    for (unsigned i = 0; i < race->options.processes; i++) {
        pid_t pid = fork();
        if (pid == 0)
            become_crew(race, i, parent, ends[1]);
        if (pid < 0) {
            kill_all(race);
            close(ends[1]);
            ends[1] = -1;
            break;
        }
        race->alive[i] = pid;
    }
    close(ends[0]);
    return ends[1];
}

static bool was_to_die(const struct race *race, unsigned crew)
{
    for (unsigned i = 0; i < race->options.threads; i++)
        if (race->records[i].crew == crew && record_time(&race->records[i], HAPPENED_DIE))
            return true;
    return false;
}

/* Looks after one process. False: it ended as it should not. */
static bool look_after(struct race *race, unsigned crew)
{
    int status;

    if (!race->alive[crew])
        return true;
    if (waitpid(race->alive[crew], &status, WNOHANG | WUNTRACED) != race->alive[crew])
        return true;
    if (WIFSTOPPED(status)) {
        race->stopped[crew] = true;
        return true;
    }
    race->alive[crew] = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && was_to_die(race, crew))
        return true;
    if (!atomic_load(&race->failed) && !signal_came)
        fprintf(stderr, "a process of the race ended: %s %d\n", WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return false;
}

static void let_go_on(struct race *race, unsigned crew)
{
    if (!race->stopped[crew] || !race->alive[crew] || !cues_may_go_on(race, crew))
        return;
    race->stopped[crew] = false;
    kill(race->alive[crew], SIGCONT);
}

/* Looks after all processes; *left: how many go on. */
static bool look_after_all(struct race *race, unsigned *left)
{
    *left = 0;
    for (unsigned i = 0; i < race->options.processes; i++) {
        if (!look_after(race, i))
            return false;
        let_go_on(race, i);
        *left += race->alive[i] != 0;
    }
    return true;
}

static bool wait_until_ready(struct race *race)
{
    uint64_t limit = clock_ns() + READY_LIMIT_MS * UINT64_C(1000000);
    unsigned left;

    while (atomic_load(&race->ready) < race->options.threads) {
        if (!look_after_all(race, &left) || signal_came)
            return false;
        if (clock_ns() > limit) {
            fprintf(stderr, "the racers are not ready\n");
            return false;
        }
        pause_us(POLL_US);
    }
    return true;
}

static bool wait_until_over(struct race *race, race_progress_fn *progress, void *arg)
{
    uint64_t limit = race->began + (race->options.patience_ms + GRACE_MS) * UINT64_C(1000000);
    unsigned left = 1;

    for (unsigned polls = 0; left > 0; polls++) {
        if (!look_after_all(race, &left) || signal_came)
            return false;
        if (clock_ns() > limit) {
            fprintf(stderr, "%s: the round does not end\n", race->way->name);
            return false;
        }
        if (progress && polls % POLLS_FOR_PROGRESS == 0)
            progress(race, arg);
        pause_us(POLL_US);
    }
    return true;
}

static bool run_crews(struct race *race, race_progress_fn *progress, void *arg)
{
    int gate = start_crews(race);
    bool good = gate >= 0 && wait_until_ready(race);

    if (gate >= 0) {
        race->began = clock_ns();
        close(gate);
    }
    good = good && wait_until_over(race, progress, arg);
    if (!good)
        kill_all(race);
    race->seconds = (double)(clock_ns() - race->began) / 1e9;
    return good;
}

/* ---------------------------------------------------------------- one round */

static long long number_of(redisReply *reply)
{
    long long number = 0;

    if (reply && reply->type == REDIS_REPLY_INTEGER)
        number = reply->integer;
    else if (reply && reply->type == REDIS_REPLY_STRING)
        number = strtoll(reply->str, NULL, 10);
    if (reply)
        freeReplyObject(reply);
    return number;
}

/*
 * Whether a racer is in the queue of a way that has one. A key of another type gives an error reply, which is no
 * number.
 */
static bool is_queued_for(redisContext *redis, const char *key)
{
    return number_of(redisCommand(redis, "LLEN %s:queue", key)) > 0 ||
           number_of(redisCommand(redis, "ZCARD %s:queue", key)) > 0 ||
           number_of(redisCommand(redis, "XLEN %s:queue", key)) > 0;
}

/* False: the first server, which no scene kills, is gone. PTTL: -1 for a key without an end, -2 for no key. */
static bool look_at_the_end(struct race *race)
{
    redisContext *redis = servers_first(race);

    if (!redis)
        return false;
    race->final = number_of(redisCommand(redis, "GET %s", race->counter));
    race->left_keys = !race->way->value_ends && number_of(redisCommand(redis, "PTTL %s", race->key)) == -1;
    race->left_keys += is_queued_for(redis, race->key);
    number_of(redisCommand(redis, "DEL %s %s:queue %s %s:fence", race->key, race->key, race->counter, race->counter));
    if (redis->err)
        fprintf(stderr, "the Redis server is gone: %s\n", redis->errstr);
    return !redis->err;
}

static void make_ready(struct race *race)
{
    size_t from = offsetof(struct race, began);

    memset((char *)race + from, 0, race_size - from);
    for (unsigned i = 0; i < SCENE_CUES; i++)
        atomic_init(&race->cues[i], false);
    snprintf(race->name, sizeof race->name, "%s:%s:%u%s", race->program, race->way->name, race->round,
             race->scene ? "s" : "");
    snprintf(race->key, sizeof race->key, "lock:%s", race->name);
    snprintf(race->counter, sizeof race->counter, "%s:count", race->name);
    number_of(redisCommand(servers_first(race), "SET %s 0 EX %d", race->counter, KEY_LIFE_S));
}

bool race_round(struct race *race, const struct way *way, const struct scene *scene, const struct race_options *options,
                unsigned round, race_progress_fn *progress, void *arg)
{
    bool good;

    race->options = *options;
    race->way = way;
    race->scene = scene;
    race->round = round;
    if (!servers_ready(race, way->masters ? way->masters : 1, way->replicas))
        return false;
    make_ready(race);
    good = (!way->set_up || way->set_up(race)) && run_crews(race, progress, arg);
    if (way->tear_down)
        way->tear_down(race);
    if (signal_came)
        race_exit(race, 2);
    return good && look_at_the_end(race);
}

struct race_options race_scene_options(const struct scene *scene, uint64_t seed)
{
    return (struct race_options){
        .processes = scene->racers,
        .threads = scene->racers,
        .lease_ms = scene->lease_ms,
        .work_ms = scene->work_ms,
        .limit = scene->limit,
        .patience_ms = scene->patience_ms ? scene->patience_ms : 3000,
        .seed = seed,
        .fenced = true,
    };
}

void race_server_version(struct race *race, char *out, size_t size)
{
    redisContext *redis = servers_first(race);
    redisReply *reply = redis ? redisCommand(redis, "INFO server") : NULL;
    const char *at = reply && reply->type == REDIS_REPLY_STRING ? strstr(reply->str, "redis_version:") : NULL;

    snprintf(out, size, "%.*s", at ? (int)strcspn(at + 14, "\r\n") : 1, at ? at + 14 : "?");
    if (reply)
        freeReplyObject(reply);
}
