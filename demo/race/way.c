/* What a way may call (ways/way.h). */
#include "ways/way.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "race/race.h"
#include "support/common/redis_connect.h"
#include "support/common/timing.h"

enum { LET_IT_SAY_US = 1000000 };

/* Other threads and processes will fail for the same reason: only the first one says it, and ends before the others. */
static atomic_bool *failed_flag;

void way_fail(const char *format, ...)
{
    va_list arguments;

    if (!failed_flag || !atomic_exchange(failed_flag, true)) {
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        fputc('\n', stderr);
    } else {
        pause_us(LET_IT_SAY_US);
    }
    _exit(2);
}

void way_fails_in(struct race *race)
{
    failed_flag = &race->failed;
}

const char *way_url(const struct crew *crew, unsigned server)
{
    return crew->race->urls[server];
}

/* ---------------------------------------------------------------- commands */

/* Says nothing where a private server does not answer: a scene may have killed it. Then the link has an error. */
static redisContext *connect_to(const char *url)
{
    static const char private[] = "unix:///";

    if (strncmp(url, private, sizeof private - 1) != 0)
        return redis_connect(url);
    return redisConnectUnixWithTimeout(url + sizeof private - 2, (struct timeval){.tv_sec = 1});
}

static redisContext *link_to(struct racer *me, unsigned server)
{
    redisContext **link = &me->links[server];

    if (*link && (*link)->err) {
        redisFree(*link);
        *link = NULL;
    }
    if (!*link)
        *link = connect_to(way_url(me->crew, server));
    return *link && !(*link)->err ? *link : NULL;
}

/* NULL where the server did not answer. */
static redisReply *send_to(struct racer *me, unsigned server, const char *format, va_list arguments)
{
    redisContext *link = link_to(me, server);

    atomic_fetch_add(&me->record->commands, 1);
    return link ? redisvCommand(link, format, arguments) : NULL;
}

static redisReply *accepted(struct racer *me, redisReply *reply)
{
    const char *why = me->links[0] ? me->links[0]->errstr : "no memory";

    if (!reply || reply->type == REDIS_REPLY_ERROR)
        way_fail("Redis%s: %s", reply ? "" : " does not answer", reply ? reply->str : why);
    return reply;
}

#define SEND(me, format, reply)                                                                                        \
    do {                                                                                                               \
        va_list arguments;                                                                                             \
        va_start(arguments, format);                                                                                   \
        (reply) = accepted(me, send_to(me, 0, format, arguments));                                                     \
        va_end(arguments);                                                                                             \
    } while (0)

redisReply *way_command(struct racer *me, const char *format, ...)
{
    redisReply *reply;

    SEND(me, format, reply);
    return reply;
}

/* Frees the reply. */
static long long number_of(redisReply *reply)
{
    long long number = reply->type == REDIS_REPLY_INTEGER ? reply->integer : reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return number;
}

long long way_ask(struct racer *me, const char *format, ...)
{
    redisReply *reply;

    SEND(me, format, reply);
    return number_of(reply);
}

long long way_ask_at(struct racer *me, unsigned server, const char *format, ...)
{
    redisReply *reply;
    va_list arguments;

    va_start(arguments, format);
    reply = send_to(me, server, format, arguments);
    va_end(arguments);
    if (reply && reply->type != REDIS_REPLY_ERROR)
        return number_of(reply);
    freeReplyObject(reply);
    return -1;
}

bool way_get(struct racer *me, char *out, size_t size, const char *format, ...)
{
    redisReply *reply;
    bool found;

    SEND(me, format, reply);
    found = reply->type == REDIS_REPLY_STRING;
    if (found)
        snprintf(out, size, "%s", reply->str);
    freeReplyObject(reply);
    return found;
}

/* ------------------------------------- commands that do not look whose lock it is */

enum owner { OWNER_NONE, OWNER_MINE, OWNER_ANOTHER };

/* Runs the prepared command, and tells what the key held just before. */
static enum owner run_blindly(struct racer *me, const char *key, const char *mine, const char *command, int length)
{
    redisContext *link = link_to(me, 0);
    redisReply *reply = NULL;
    enum owner owner = OWNER_NONE;

    atomic_fetch_add(&me->record->commands, 1);
    if (link) {
        redisAppendCommand(link, "MULTI");
        redisAppendCommand(link, "GET %s", key);
        redisAppendFormattedCommand(link, command, (size_t)length);
        redisAppendCommand(link, "EXEC");
        for (int i = 0; i < 4; i++) {
            freeReplyObject(reply);
            reply = NULL;
            if (redisGetReply(link, (void **)&reply) != REDIS_OK)
                break;
        }
    }
    accepted(me, reply);
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->type == REDIS_REPLY_STRING)
        owner = mine && strcmp(reply->element[0]->str, mine) == 0 ? OWNER_MINE : OWNER_ANOTHER;
    freeReplyObject(reply);
    return owner;
}

void way_delete(struct racer *me, const char *key, const char *mine)
{
    char *command;
    int length = redisFormatCommand(&command, "DEL %s", key);
    uint64_t before = clock_ns();
    enum owner owner = run_blindly(me, key, mine, command, length);

    redisFreeCommand(command);
    if (owner == OWNER_ANOTHER)
        record_note(me->record, mine ? HAPPENED_ANOTHERS : HAPPENED_UNKNOWN, before);
}

bool way_overwrite(struct racer *me, const char *key, const char *value, unsigned ms)
{
    char *command;
    int length = redisFormatCommand(&command, "SET %s %s PX %u", key, value, ms);
    enum owner owner = run_blindly(me, key, value, command, length);

    redisFreeCommand(command);
    way_leased(me, ms);
    return owner == OWNER_ANOTHER;
}

/* ------------------------------------------------------------ what happened */

uint64_t way_now(struct racer *me, const char *point)
{
    way_point(me, point);
    return clock_ns();
}

void way_deleted(struct racer *me, uint64_t before)
{
    record_note(me->record, HAPPENED_UNKNOWN, before);
}

void way_leased(struct racer *me, unsigned ms)
{
    atomic_store(&me->record->lease_end, clock_ns() + ms * UINT64_C(1000000));
}

void way_lost(struct racer *me)
{
    if (!me->gone)
        record_note(me->record, HAPPENED_LOST, clock_ns());
    me->gone = true;
}

void way_commands(struct crew *crew, uint64_t commands)
{
    atomic_fetch_add(&crew->race->crew_commands[crew->number], commands);
}

bool way_keeps_most(const struct way *way, unsigned which)
{
    return strncmp(way->extras[which], "most", 4) == 0 || strncmp(way->extras[which], "deepest", 7) == 0;
}

unsigned way_room(const struct way *way)
{
    return way->room ? way->room : 1;
}

bool way_counts(const struct way *way)
{
    return !way->run || way->counts;
}

void way_extra(struct racer *me, unsigned which, unsigned amount)
{
    _Atomic uint64_t *number = &me->record->extras[which];
    uint64_t seen = atomic_load(number);

    if (!way_keeps_most(me->way, which))
        atomic_fetch_add(number, amount);
    else
        while (seen < amount && !atomic_compare_exchange_weak(number, &seen, amount)) {
            /* a helper changed the number, which `seen` now holds */
        }
}

void way_refused(struct racer *me)
{
    record_note(me->record, HAPPENED_DENIED, clock_ns());
    me->gone = true;
}

void way_gave_up(struct racer *me)
{
    record_note(me->record, HAPPENED_GIVE_UP, clock_ns());
}

/* ------------------------------------------------------- chance, and clocks */

void way_point(struct racer *me, const char *name)
{
    const struct race_options *options = &me->crew->race->options;

    cues_at(me, name);
    if (me->worked && next_random(&me->random) % 100 < options->chance)
        pause_us(options->delay_ms * UINT64_C(1000));
}

bool way_retry(struct racer *me, unsigned ms)
{
    cues_at(me, "retry");
    pause_us(ms * UINT64_C(1000));
    return clock_ns() - me->arrived < me->crew->race->options.patience_ms * UINT64_C(1000000);
}

uint64_t way_time_ms(const struct racer *me)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + me->clock_off_ms);
}

/* ----------------------------------------------------------------- helpers */

struct helper {
    struct racer racer; /* first: the helper's racer is given to the way */
    void (*run)(struct racer *helper);
    pthread_t thread;
};

static void *helper_main(void *arg)
{
    struct helper *helper = arg;

    helper->run(&helper->racer);
    return NULL;
}

struct racer *way_thread(struct racer *me, void (*run)(struct racer *helper))
{
    struct helper *helper = calloc(1, sizeof *helper);

    if (!helper) {
        way_fail("out of memory");
        return NULL;
    }
    helper->racer = *me;
    helper->racer.worked = true;
    memset(helper->racer.links, 0, sizeof helper->racer.links);
    helper->run = run;
    atomic_fetch_add(&me->record->threads, 1);
    if (pthread_create(&helper->thread, NULL, helper_main, helper) != 0)
        way_fail("no thread could be started");
    return &helper->racer;
}

bool way_over(struct racer *helper)
{
    return atomic_load(&helper->over);
}

bool way_sleep(struct racer *helper, unsigned ms)
{
    uint64_t end = clock_ns() + ms * UINT64_C(1000000);

    while (clock_ns() < end && !way_over(helper))
        pause_us(1000);
    return !way_over(helper);
}

void way_join(struct racer *racer)
{
    struct helper *helper = (struct helper *)racer;

    atomic_store(&racer->over, true);
    pthread_join(helper->thread, NULL);
    for (unsigned i = 0; i < WAY_SERVERS_MOST; i++)
        if (racer->links[i])
            redisFree(racer->links[i]);
    free(helper);
}
