#include "store/redis/codec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/require.h"
#include "base/text.h"
#include "redis/reply.h"

/* ------------------------------------------------------------------ the keys */

/* Redis hashes what is between the first { and the first } after that, if there is anything between them. */
static bool has_hash_tag(const char *key)
{
    const char *open = strchr(key, '{');
    const char *close = open ? strchr(open + 1, '}') : NULL;

    return close && close > open + 1;
}

bool dibs__key_splits(const char *lock)
{
    return strchr(lock, '}') && !has_hash_tag(lock);
}

#define SIDECAR 10 /* bytes of each word of `sidecars` */

/* dibs:fence:{LOCK}, or dibs:fencet:LOCK if the lock has a hash tag of its own. */
void dibs__key_of(struct dibs__key *out, enum dibs__key_kind kind, const char *prefix, const char *name)
{
    static const char sidecars[DIBS__KEY_KINDS][SIDECAR + 1] = {"", "dibs:fence", "dibs:queue", "dibs:probe"};
    char *lock = out->bytes + (kind == DIBS__KEY_LOCK ? 0 : SIDECAR + 2);
    char *end = dibs__put(dibs__put(lock, prefix, strlen(prefix)), name, strlen(name) + 1) - 1;

    if (kind != DIBS__KEY_LOCK) {
        bool tagged = has_hash_tag(lock);
        dibs__put(dibs__put(out->bytes, sidecars[kind], SIDECAR), tagged ? "t:" : ":{", 2);
        end = tagged ? end : dibs__put(end, "}", 2) - 1;
    }
    out->size = (size_t)(end - out->bytes);
}

const char *dibs__key_name(const char *prefix, const char *key, size_t size)
{
    size_t prefix_size = strlen(prefix);

    if (size <= prefix_size || size - prefix_size > DIBS_NAME_MAX || memcmp(key, prefix, prefix_size) != 0 ||
        memchr(key, '\0', size))
        return NULL;
    return key + prefix_size;
}

/* ------------------------------------------------- acquire.lua, requeue.lua */

/* Adds the number or, where there is none, that text in its place. */
static void add_number_or(struct dibs__words *words, bool is_there, int64_t number, const char *text)
{
    if (is_there)
        dibs__words_add_number(words, number);
    else
        dibs__words_add_text(words, text);
}

void dibs__codec_acquire(struct dibs__words *words, const struct dibs__ask_words *ask)
{
    dibs__words_add_text(words, ask->token);
    dibs__words_add_number(words, (int64_t)ask->number);
    dibs__words_add_number(words, ask->lease_ms);
    dibs__words_add_text(words, ask->channel ? ask->channel : "");
    dibs__words_add_number(words, ask->not_after);
    if (ask->leave || ask->run)
        add_number_or(words, ask->leave, (int64_t)ask->left_fence, "");
    if (!ask->run)
        return;
    dibs__words_add_text(words, ask->run);
    dibs__words_add_number(words, (int64_t)ask->quorum);
}

void dibs__codec_requeue(struct dibs__words *words, const char *token, const struct dibs__ask_words *ask)
{
    dibs__words_add_text(words, token);
    dibs__codec_acquire(words, ask);
}

/* The fence that a number of a reply stands for. 0: no script gives such a fence. */
static uint64_t fence_of(int64_t number)
{
    return number > 0 && number < DIBS__REPLY_MOST ? (uint64_t)number : 0;
}

/* ask.lua: in place of 1, the owner uses dibs, or 0, it does not. */
#define OWNER_RECALLED 2

/* {DIBS__ASK_TAKEN, PTTL, about the owner, subscribers or -1, the last fence or 0, how long K lives} */
static void read_taken(struct dibs__ask_reply *out, const redisReply *reply)
{
    int64_t by_dibs = 0, listeners = 0, fence = 0;

    dibs__reply_integer(reply, 2, &by_dibs);
    dibs__reply_integer(reply, 3, &listeners);
    dibs__reply_integer(reply, 4, &fence);
    out->lives_ms = out->remaining_ms;
    dibs__reply_integer(reply, 5, &out->lives_ms);
    out->by_dibs = by_dibs != 0;
    out->recalled = by_dibs == OWNER_RECALLED;
    out->listeners_known = listeners >= 0;
    out->listeners = listeners > 0 ? listeners : 0;
    out->last_fence = fence_of(fence);
}

/*
 * If the lock was granted, the fence or, from a member of a quorum, {DIBS__ASK_GRANTED, fence, the server's time}. If
 * not, an array that begins with the code.
 */
bool dibs__codec_read_ask(struct dibs__ask_reply *out, const redisReply *reply)
{
    int64_t code, number;

    *out = (struct dibs__ask_reply){.code = DIBS__ASK_GRANTED};
    if (reply->type == REDIS_REPLY_INTEGER) {
        out->fence = fence_of(reply->integer);
        return true;
    }
    if (!dibs__reply_integer(reply, 0, &code) || !dibs__reply_integer(reply, 1, &number) || code < DIBS__ASK_NO_VOTE ||
        code > DIBS__ASK_GRANTED)
        return false;
    out->code = (enum dibs__ask_code)code;
    if (code == DIBS__ASK_LATE)
        out->server_us = number;
    if (code == DIBS__ASK_TAKEN) {
        out->remaining_ms = number;
        read_taken(out, reply);
    }
    if (code == DIBS__ASK_GRANTED)
        out->fence = fence_of(number);
    return code != DIBS__ASK_GRANTED || (dibs__reply_integer(reply, 2, &out->server_us) && out->server_us >= 0);
}

/* ------------------------------------- release.lua, requeue.lua, retract.lua */

/* release_common.lua. Any other code: nobody held the lock, or another token did. */
#define RELEASE_DONE 1
#define RELEASE_UNFINISHED 2 /* is added if the queue was not served to its end */
#define RELEASE_SHARED 4     /* of release.lua: done, and others share the lock */

void dibs__codec_release(struct dibs__words *words, const char *token, bool quiet, uint64_t ended_fence)
{
    DIBS__REQUIRE(!quiet || ended_fence == 0);
    dibs__words_add_text(words, token);
    if (quiet)
        dibs__words_add_text(words, "quiet");
    else if (ended_fence > 0)
        dibs__words_add_number(words, (int64_t)ended_fence);
}

/* The code or, from requeue.lua, the code and the reply to the ask. */
bool dibs__codec_read_release(struct dibs__release_reply *out, const redisReply *reply)
{
    int64_t code = reply->integer;
    bool is_requeue = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2;

    if (is_requeue ? !dibs__reply_integer(reply, 0, &code) : reply->type != REDIS_REPLY_INTEGER)
        return false;
    out->shared_on = code == RELEASE_SHARED;
    out->unfinished = !out->shared_on && code >= RELEASE_UNFINISHED;
    out->released = out->shared_on || (out->unfinished ? code - RELEASE_UNFINISHED : code) == RELEASE_DONE;
    out->ask = is_requeue ? reply->element[1] : NULL;
    return true;
}

void dibs__codec_retract(struct dibs__words *words, const char *token, bool surpasses, uint64_t fence)
{
    dibs__words_add_text(words, token);
    add_number_or(words, surpasses, (int64_t)fence, "");
}

bool dibs__codec_read_retract(const redisReply *reply, size_t count, int64_t *server_us)
{
    return dibs__reply_integer(reply, 0, server_us) && reply->elements == count + 1;
}

enum dibs__retract_code dibs__codec_read_retracted(const redisReply *reply, size_t i)
{
    int64_t code; /* of release_common.lua: whatever it is, the token does not have the lock */

    if (!dibs__reply_integer(reply, i + 1, &code))
        return DIBS__RETRACT_REFUSED;
    return code >= RELEASE_UNFINISHED ? DIBS__RETRACT_UNFINISHED : DIBS__RETRACT_GONE;
}

/* ------------------------------------------------------------------ renew.lua */

/* The marks before the fence, by enum dibs__use. */
static const char *const use_marks[] = {"", "+", "*", "-"};

#define ANY_FENCE "!" /* before the time for a restoring */

static uint32_t length_of(const struct dibs__renewal *lease)
{
    return lease->look ? 0 : lease->lease_ms;
}

void dibs__codec_renew(struct dibs__words *words, const struct dibs__renewal *lease, int64_t not_after,
                       enum dibs__restoring restoring)
{
    char text[DIBS__DIGITS + 4];

    dibs__words_add_text(words, lease->token);
    dibs__words_add_number(words, length_of(lease));
    snprintf(text, sizeof text, "%s%" PRIu64, use_marks[lease->use], lease->fence);
    dibs__words_add_text(words, text);
    snprintf(text, sizeof text, "%s%" PRId64, restoring == DIBS__RESTORING_ANY_FENCE ? ANY_FENCE : "", not_after);
    add_number_or(words, lease->extension, not_after, "");
    dibs__words_add_text(words, restoring == DIBS__RESTORING_NO ? "" : text);
}

static bool same_length(const struct dibs__renewal *leases, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (length_of(&leases[i]) != length_of(&leases[0]))
            return false;
    return true;
}

/* The length of all leases, or '' if they differ; then the tokens; then, if they differ, the length of each. */
void dibs__codec_renew_short(struct dibs__words *words, const struct dibs__renewal *leases, size_t count)
{
    bool same = same_length(leases, count);

    add_number_or(words, same, length_of(&leases[0]), "");
    for (size_t i = 0; i < count; i++)
        dibs__words_add_text(words, leases[i].token);
    for (size_t i = 0; !same && i < count; i++)
        dibs__words_add_number(words, length_of(&leases[i]));
}

/* If renew_short.lua has renewed all leases, it replies with the time alone. */
bool dibs__codec_read_renew(const redisReply *reply, size_t count, int64_t *server_us)
{
    if (reply->type == REDIS_REPLY_INTEGER) {
        *server_us = reply->integer < DIBS__REPLY_MOST ? reply->integer : DIBS__REPLY_MOST;
        return reply->integer > 0;
    }
    return dibs__reply_integer(reply, count, server_us) && reply->elements == count + 1;
}

/* A negative number says that it was too late, and the amount is the server's time. */
struct dibs__renew_reply dibs__codec_read_renewed(const redisReply *reply, size_t i)
{
    int64_t result;

    if (reply->type == REDIS_REPLY_INTEGER)
        return (struct dibs__renew_reply){.code = DIBS__RENEW_DONE};
    if (!dibs__reply_integer(reply, i, &result))
        return (struct dibs__renew_reply){.code = DIBS__RENEW_REFUSED, .error = reply->element[i]};
    if (result < 0)
        return (struct dibs__renew_reply){.code = DIBS__RENEW_LATE, .server_us = -result};
    return (struct dibs__renew_reply){.code = result <= DIBS__RENEW_NOT_RAISED ? (enum dibs__renew_code)result
                                                                               : DIBS__RENEW_DONE};
}

/* ------------------------------------------------------- query.lua, force.lua */

#define QUERY_KEPT (-1) /* query.lua: in place of the number of sharers */

/* The newest sharer's token, its fence as text, and the number of sharers; or the lock is kept. */
static bool read_sharers(struct dibs__query_reply *out, const redisReply *reply)
{
    const redisReply *newest = reply->element[5], *fence = reply->element[6];
    int64_t sharers;

    if (newest->type != REDIS_REPLY_STRING || fence->type != REDIS_REPLY_STRING ||
        !dibs__reply_integer(reply, 7, &sharers) || sharers < QUERY_KEPT)
        return false;
    out->kept = sharers == QUERY_KEPT;
    if (out->kept)
        return true;
    out->sharers = (uint32_t)sharers;
    out->newest = newest->str;
    out->newest_size = (size_t)newest->len;
    out->newest_fence = strtoull(fence->str, NULL, 10);
    return true;
}

void dibs__codec_query(struct dibs__words *words, size_t waiters, size_t sharers)
{
    if (waiters > 0 || sharers > 0)
        dibs__words_add_number(words, (int64_t)waiters);
    if (sharers > 0)
        dibs__words_add_number(words, (int64_t)sharers);
}

#define QUERY_ALWAYS 5 /* elements of every reply */
#define QUERY_SHARED 8 /* elements of a reply if the lock is shared or kept */

/*
 * After the first five elements come three about who shares or keeps the lock; then, if they were asked for, the list
 * of waiters and the list of sharers.
 */
static bool is_query_reply(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements >= QUERY_ALWAYS && reply->elements <= QUERY_SHARED + 2;
}

/* The list at that place after these elements; NULL: it was not asked for. */
static const redisReply *query_list(const redisReply *reply, size_t place)
{
    size_t first = reply->elements >= QUERY_SHARED ? QUERY_SHARED : QUERY_ALWAYS;

    if (!is_query_reply(reply) || first + place >= reply->elements)
        return NULL;
    const redisReply *list = reply->element[first + place];
    return list->type == REDIS_REPLY_ARRAY ? list : NULL;
}

/*
 * {owner or nil, PTTL, last fence as text or nil, number of waiters, the server's time}, and what is_query_reply says
 */
bool dibs__codec_read_query(struct dibs__query_reply *out, const redisReply *reply)
{
    int64_t remaining_ms, waiters;

    *out = (struct dibs__query_reply){.owner = NULL};
    if (!is_query_reply(reply) || !dibs__reply_integer(reply, 1, &remaining_ms) ||
        !dibs__reply_integer(reply, 3, &waiters) || !dibs__reply_integer(reply, 4, &out->server_us))
        return false;
    const redisReply *owner = reply->element[0], *fence = reply->element[2];
    if (owner->type == REDIS_REPLY_STRING) {
        out->owner = owner->str;
        out->owner_size = (size_t)owner->len;
        out->remaining_ms = remaining_ms;
    }
    if (fence->type == REDIS_REPLY_STRING)
        out->fence = strtoull(fence->str, NULL, 10);
    if (out->fence >= DIBS__REPLY_MOST)
        out->fence = 0;
    out->waiters = (uint32_t)waiters;
    return reply->elements < QUERY_SHARED || read_sharers(out, reply);
}

bool dibs__codec_read_waiter(const redisReply *reply, size_t i, const redisReply **token, int64_t *asked_us)
{
    const redisReply *entries = query_list(reply, 0);

    if (!entries || 2 * i + 1 >= entries->elements)
        return false;
    *token = entries->element[2 * i];
    return (*token)->type == REDIS_REPLY_STRING && dibs__reply_integer(entries, 2 * i + 1, asked_us);
}

bool dibs__codec_read_sharer(const redisReply *reply, size_t i, struct dibs__codec_sharer *out)
{
    const redisReply *sharers = query_list(reply, 1);

    if (!sharers || 3 * i + 2 >= sharers->elements)
        return false;
    const redisReply *fence = sharers->element[3 * i + 1];
    out->token = sharers->element[3 * i];
    out->fence = fence->type == REDIS_REPLY_STRING ? strtoull(fence->str, NULL, 10) : 0;
    return out->token->type == REDIS_REPLY_STRING && dibs__reply_integer(sharers, 3 * i + 2, &out->remaining_ms);
}

void dibs__codec_force(struct dibs__words *words, int64_t not_after, const struct dibs__query_reply *holder)
{
    dibs__words_add_number(words, not_after);
    if (holder->owner)
        dibs__words_add(words, holder->owner, holder->owner_size);
    if (holder->newest) {
        dibs__words_add_number(words, (int64_t)holder->newest_fence);
        dibs__words_add(words, holder->newest, holder->newest_size);
    }
}

/* A negative number says that it was too late; the amount is the server's time. */
static int64_t late_us(int64_t number)
{
    return number < -DIBS__REPLY_MOST ? DIBS__REPLY_MOST : -number;
}

/*
 * 1: done; 2: done, but the queue was not served to its end; 0: another token holds the lock; negative: too late, and
 * the amount is the server's time.
 */
bool dibs__codec_read_force(struct dibs__force_reply *out, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_INTEGER)
        return false;
    *out = (struct dibs__force_reply){.late_us = reply->integer < 0 ? late_us(reply->integer) : 0,
                                      .done = reply->integer > 0,
                                      .unfinished = reply->integer > 1};
    return true;
}

/* -------------------------------------------------------- vote.lua, raise.lua */

/* The words for what a vote does, by enum dibs__vote_what. */
static const char *const vote_words[] = {"look", "admit", "distrust", "floor"};

void dibs__codec_vote(struct dibs__words *words, const struct dibs__vote *vote, int64_t not_after, const char *run)
{
    dibs__words_add_number(words, vote->longest_ms);
    dibs__words_add_text(words, vote_words[vote->what]);
    dibs__words_add_number(words, vote->wait_ms);
    dibs__words_add_number(words, not_after);
    dibs__words_add_text(words, run);
    dibs__words_add_number(words, (int64_t)vote->quorum);
    add_number_or(words, vote->floor > 0, (int64_t)vote->floor, "-");
    add_number_or(words, vote->mark > 0, (int64_t)vote->mark, "-");
}

#define VOTE_UNKNOWN (-1)
#define VOTE_RESTARTED (-2)

static uint64_t number_of(int64_t number)
{
    return number < 0 ? 0 : (uint64_t)number;
}

/*
 * {in how many ms the master may vote, or one of these two; the longest lease; the server's time; a number that no
 * fence exceeds; 1: the floor is known; the quorum; the mark}; or a negative number: too late, and the amount is the
 * server's time.
 */
bool dibs__codec_read_vote(struct dibs__vote *vote, bool *late, const redisReply *reply)
{
    int64_t in_ms, longest_ms, highest, ready, quorum, mark;

    *late = reply->type == REDIS_REPLY_INTEGER;
    if (*late) {
        vote->server_us = late_us(reply->integer);
        return reply->integer < 0;
    }
    if (!dibs__reply_integer(reply, 0, &in_ms) || !dibs__reply_integer(reply, 1, &longest_ms) ||
        !dibs__reply_integer(reply, 2, &vote->server_us) || vote->server_us < 0 ||
        !dibs__reply_integer(reply, 3, &highest) || !dibs__reply_integer(reply, 4, &ready) ||
        !dibs__reply_integer(reply, 5, &quorum) || !dibs__reply_integer(reply, 6, &mark))
        return false;
    vote->known = in_ms >= 0;
    vote->restarted = in_ms == VOTE_RESTARTED;
    vote->votes_in_ms = vote->known ? in_ms : 0;
    vote->ready = vote->known && in_ms == 0 && ready == 1;
    vote->highest = number_of(highest);
    vote->quorum = number_of(quorum);
    vote->mark = number_of(mark);
    if (in_ms != VOTE_UNKNOWN)
        vote->longest_ms = longest_ms > DIBS__LEASE_MAX_MS ? DIBS__LEASE_MAX_MS : (uint32_t)number_of(longest_ms);
    return true;
}

void dibs__codec_raise(struct dibs__words *words, const char *token, uint64_t fence, uint32_t lease_ms)
{
    dibs__words_add_text(words, token);
    dibs__words_add_number(words, (int64_t)fence);
    dibs__words_add_number(words, lease_ms);
}

bool dibs__codec_read_raise(bool *raised, const redisReply *reply)
{
    *raised = reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    return reply->type == REDIS_REPLY_INTEGER;
}

/* ----------------------------------------------------------------- serve.lua */

/*
 * Reads the number that the text begins with, as printf writes it, and passes over the blank after it. NULL: there is
 * none.
 */
static const char *take_number(const char *text, uint64_t *out)
{
    char *end;

    if (*text < '0' || *text > '9' || (*text == '0' && text[1] != ' '))
        return NULL;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == ' ' && errno == 0 ? end + 1 : NULL;
}

static const char *take_numbers(const char *text, uint64_t *out, int count)
{
    for (int i = 0; text && i < count; i++)
        text = take_number(text, &out[i]);
    return text;
}

/* Number of the ask, fence (0: a hint), length of the token, then token and key without anything between. */
bool dibs__push_read(struct dibs__pushed *out, const char *key_prefix, const char *bytes, size_t size)
{
    uint64_t numbers[3] = {0};

    if (memchr(bytes, '\0', size))
        return false;
    const char *token = take_numbers(bytes, numbers, 3);
    if (!token || numbers[2] == 0 || numbers[2] >= sizeof out->token)
        return false;
    size_t token_size = (size_t)numbers[2], left = strlen(token);
    const char *name = left > token_size ? dibs__key_name(key_prefix, token + token_size, left - token_size) : NULL;
    if (!name)
        return false;
    memcpy(out->token, token, token_size);
    out->token[token_size] = '\0';
    strcpy(out->name, name);
    out->grant =
        (struct dibs__grant){.name = out->name, .token = out->token, .number = numbers[0], .fence = numbers[1]};
    return out->grant.fence < UINT64_C(1) << 53;
}
