#include "redis/link.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hash.h"
#include "redis/reply.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SO_NOSIGPIPE does it there */
#endif

enum ask {
    ASK_AUTH,
    ASK_SELECT,
    ASK_NAME,
    ASK_ID,
    ASK_INFO,
    ASK_REPLICATION,
    ASK_MAY_KILL,
    ASK_MAY_PUBLISH,
    ASK_TIME,
    ASK_KILL,
    ASK_LOAD,
    ASK_EVAL,
    ASK_CLUSTER,
    ASKS
};

/* How a sentence about its refusal calls it. */
static const char *const ask_names[ASKS] = {
    [ASK_AUTH] = "AUTH",    [ASK_SELECT] = "SELECT",    [ASK_NAME] = "CLIENT SETNAME",  [ASK_ID] = "CLIENT ID",
    [ASK_INFO] = "INFO",    [ASK_REPLICATION] = "INFO", [ASK_MAY_KILL] = "CLIENT KILL", [ASK_MAY_PUBLISH] = "PUBLISH",
    [ASK_TIME] = "TIME",    [ASK_KILL] = "CLIENT KILL", [ASK_LOAD] = "SCRIPT LOAD",     [ASK_EVAL] = "EVAL",
    [ASK_CLUSTER] = "INFO",
};

static_assert(ASKS - 1 + DIBS__SCRIPT_COUNT <= sizeof((struct dibs__link *)0)->asks,
              "a greeting asks each of them once, but for ASK_LOAD: that once for each script");

/* No client has this id: 2^63 - 1. To a server before Redis 7, 0 stands for all of them. */
#define NOBODYS_ID "9223372036854775807"

/* ------------------------------------------------------------------- reader */

/* No reply that is asked for has more; one that claims to would have hiredis allocate it all before it comes. */
#define ELEMENTS_MAX 4096

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

static redisReplyObjectFunctions bounded_functions;
static void *(*create_array)(const redisReadTask *task, element_count count);

/* To the reader NULL means that memory is out, so it is noted that it is not. */
static void *create_bounded_array(const redisReadTask *task, element_count count)
{
    struct dibs__link *link = task->privdata;

    if (count <= ELEMENTS_MAX)
        return create_array(task, count);
    link->too_large = true;
    return NULL;
}

static void bound_functions(void)
{
    redisReader *reader = redisReaderCreate();

    if (!reader)
        return;
    bounded_functions = *reader->fn;
    create_array = bounded_functions.createArray;
    bounded_functions.createArray = create_bounded_array;
    redisReaderFree(reader);
}

static redisReader *new_reader(struct dibs__link *link)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    redisReader *reader = redisReaderCreate();

    pthread_once(&once, bound_functions);
    if (reader && create_array) {
        reader->fn = &bounded_functions;
        reader->privdata = link;
    }
    return reader;
}

/* ------------------------------------------------------------------- socket */

static void set_options(int fd, int family)
{
    int on = 1;

    if (family != AF_UNIX) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
#ifdef SO_NOSIGPIPE
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

/* 0: connected or about to be; else why not. */
static int try_to_connect(struct dibs__link *link)
{
    struct dibs__address *address = &link->addresses[link->address];
    int reason = connect(link->fd, (struct sockaddr *)&address->name, address->length) == 0 ? 0 : errno;

    link->backlog_full = reason == EAGAIN && address->name.ss_family == AF_UNIX;
    return link->backlog_full || reason == EINPROGRESS || reason == EINTR ? 0 : reason;
}

/* With the address that is tried now. */
static int begin_to_connect(struct dibs__link *link)
{
    int family = link->addresses[link->address].name.ss_family;

    dibs__fd_close(link->fd);
    link->address_until = 0;
    link->fd = dibs__fd_socket(family);
    if (link->fd < 0)
        return errno;
    set_options(link->fd, family);
    return try_to_connect(link);
}

/* From the address that is tried now on, the first that can be begun. `reason`: why the one before could not. */
static dibs_status connect_next(struct dibs__link *link, int reason, struct dibs__error *error)
{
    for (; link->address < link->address_count; link->address++) {
        reason = begin_to_connect(link);
        if (reason == 0)
            return DIBS_OK;
    }
    if (reason == EMFILE || reason == ENFILE || reason == ENOMEM)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no descriptor for a connection: %s", strerror(reason));
    dibs__endpoint_failed(link->endpoint);
    return dibs__error_set(error, DIBS_UNAVAILABLE, "can't connect to %s: %s", link->endpoint->url.shown,
                           strerror(reason));
}

dibs_status dibs__link_give_up(struct dibs__link *link, struct dibs__error *error)
{
    dibs__endpoint_failed(link->endpoint);
    return dibs__error_set(error, DIBS_UNAVAILABLE, "%s does not answer", link->endpoint->url.shown);
}

struct dibs__link *dibs__link_start(struct dibs__endpoint *endpoint, enum dibs__link_use use,
                                    const struct dibs__link_id *before, struct dibs__error *error)
{
    struct dibs__link *link = calloc(1, sizeof *link);

    if (link) {
        link->endpoint = endpoint;
        link->use = use;
        link->fd = -1;
        link->reader = new_reader(link);
    }
    if (!link || !link->reader) {
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a connection");
        goto fail;
    }
    if (before)
        link->before = *before;
    if (dibs__endpoint_addresses(endpoint, link->addresses, &link->address_count, error) != DIBS_OK ||
        connect_next(link, 0, error) != DIBS_OK)
        goto fail;
    return link;
fail:
    dibs__link_free(link);
    return NULL;
}

void dibs__link_free(struct dibs__link *link)
{
    if (!link)
        return;
    dibs__fd_close(link->fd);
    if (link->reader)
        redisReaderFree(link->reader);
    dibs__buffer_free(&link->out);
    free(link);
}

/* ----------------------------------------------------------------- greeting */

static bool ask(struct dibs__link *link, enum ask what, int count, const char *const *words)
{
    size_t sizes[4] = {0};

    for (int i = 0; i < count; i++)
        sizes[i] = strlen(words[i]);
    if (!dibs__buffer_command(&link->out, count, words, sizes))
        return false;
    link->asks[link->asked++] = (unsigned char)what;
    atomic_fetch_add_explicit(link->endpoint->commands, 1, memory_order_relaxed);
    return true;
}

#define ASK(link, what, ...)                                                                                           \
    ask(link, what, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)),                                \
        (const char *const[]){__VA_ARGS__})

static bool ask_to_be_let_in(struct dibs__link *link)
{
    const struct dibs__url *url = &link->endpoint->url;
    char db[12];

    if (url->user ? !ASK(link, ASK_AUTH, "AUTH", url->user, url->password)
                  : url->password && !ASK(link, ASK_AUTH, "AUTH", url->password))
        return false;
    snprintf(db, sizeof db, "%u", url->db);
    return url->db == 0 || link->use == DIBS__LINK_SUBSCRIPTIONS || ASK(link, ASK_SELECT, "SELECT", db);
}

static bool ask_for_scripts(struct dibs__link *link)
{
    bool asked = ASK(link, ASK_TIME, "TIME") && ASK(link, ASK_REPLICATION, "INFO", "replication");

    for (int i = 0; asked && i < DIBS__SCRIPT_COUNT; i++)
        asked = ASK(link, ASK_LOAD, "SCRIPT", "LOAD", dibs__script_text((enum dibs__script)i));
    return asked && ASK(link, ASK_EVAL, "EVAL", "return 1", "0") &&
           ASK(link, ASK_MAY_PUBLISH, "PUBLISH", link->endpoint->channel, "") && /* tells nobody anything */
           ASK(link, ASK_CLUSTER, "INFO", "cluster");
}

static dibs_status greet(struct dibs__link *link, int64_t now, struct dibs__error *error)
{
    bool asked = ask_to_be_let_in(link) && ASK(link, ASK_NAME, "CLIENT", "SETNAME", link->endpoint->client_name) &&
                 ASK(link, ASK_ID, "CLIENT", "ID") && ASK(link, ASK_INFO, "INFO", "server") &&
                 ASK(link, ASK_MAY_KILL, "CLIENT", "KILL", "ID", NOBODYS_ID) &&
                 (link->use == DIBS__LINK_SUBSCRIPTIONS || ask_for_scripts(link));

    link->greeted_at = now;
    link->state = DIBS__LINK_GREETING;
    return asked ? DIBS_OK : dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a connection");
}

static bool has_all_shas(const struct dibs__link *link)
{
    for (int i = 0; i < DIBS__SCRIPT_COUNT; i++)
        if (!link->shas[i][0])
            return false;
    return true;
}

/*
 * Whether the connection is of no use because of this refusal. Most of the
 * greeting is good to have, and done without where a right is missing; but a
 * script can only be run by its sha, if SCRIPT LOAD told it, or by its text.
 */
static bool refusal_is_final(const struct dibs__link *link, enum ask what, const redisReply *reply)
{
    bool no_right = dibs__reply_is_error(reply, "NOPERM");

    switch (what) {
    case ASK_AUTH:
    case ASK_SELECT:
        return true;
    case ASK_LOAD:
        return !no_right;
    case ASK_EVAL:
        return !no_right || !has_all_shas(link);
    default:
        return !no_right && dibs__reply_status(reply->str) != DIBS_STORE_ERROR;
    }
}

/* What stands behind `field` in what INFO said. NULL: it is not there. */
static const char *info_of(const redisReply *reply, const char *field)
{
    const char *at = reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS ? reply->str : "";

    at = strstr(at, field);
    return at ? at + strlen(field) : NULL;
}

/* The 40 digits behind `field`. */
static void take_id(char out[41], const redisReply *reply, const char *field)
{
    const char *at = info_of(reply, field);

    if (at && strcspn(at, "\r\n") == 40)
        memcpy(out, at, 40);
}

static bool says_cluster(const redisReply *reply)
{
    const char *at = info_of(reply, "cluster_enabled:");

    return at && *at == '1';
}

static void take_time(struct dibs__link *link, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || !reply->element[0]->str || !reply->element[1]->str)
        return;
    long long s = strtoll(reply->element[0]->str, NULL, 10), us = strtoll(reply->element[1]->str, NULL, 10);
    if (s >= 0 && s < DIBS__REPLY_MOST / 1000000 && us >= 0 && us < 1000000)
        link->server_ahead_us = s * 1000000 + us - link->greeted_at / 1000;
}

/* False: it is neither a sha nor a refusal. */
static bool take_sha(struct dibs__link *link, const redisReply *reply)
{
    bool is_sha = reply->type == REDIS_REPLY_STRING && reply->len == 40;

    if (is_sha)
        memcpy(link->shas[link->loaded], reply->str, 40);
    link->loaded++;
    return is_sha || reply->type == REDIS_REPLY_ERROR;
}

static dibs_status take_answer(struct dibs__link *link, const redisReply *reply, struct dibs__error *error)
{
    enum ask what = (enum ask)link->asks[link->answered++];
    bool refused = reply->type == REDIS_REPLY_ERROR;

    if (refused && refusal_is_final(link, what, reply))
        return dibs__reply_refusal(error, reply, link->endpoint->url.shown, ask_names[what]);
    switch (what) {
    case ASK_ID:
        link->id.client = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
        break;
    case ASK_INFO:
        take_id(link->id.run_id, reply, "run_id:");
        break;
    case ASK_REPLICATION:
        take_id(link->replication_id, reply, "master_replid:");
        break;
    case ASK_MAY_KILL:
        link->id.may_kill = reply->type == REDIS_REPLY_INTEGER;
        break;
    case ASK_MAY_PUBLISH:
        link->may_publish = !refused;
        break;
    case ASK_TIME:
        take_time(link, reply);
        break;
    case ASK_KILL:
        link->ended_before = reply->type == REDIS_REPLY_INTEGER;
        break;
    case ASK_CLUSTER:
        link->cluster = says_cluster(reply);
        break;
    case ASK_LOAD:
        if (!take_sha(link, reply))
            return dibs__reply_refusal(error, reply, link->endpoint->url.shown, ask_names[what]);
        break;
    default:
        break;
    }
    return DIBS_OK;
}

static bool knows_run_ids(const struct dibs__link *link)
{
    return link->before.run_id[0] && link->id.run_id[0];
}

/*
 * Everything was answered. Where the same server still runs, it may still have
 * the connection that was lost, so that one is ended. Another server never had
 * it. Nothing else proves that what was sent on it can't arrive any more.
 */
static dibs_status greeted(struct dibs__link *link, struct dibs__error *error)
{
    bool same_server = knows_run_ids(link) && strcmp(link->before.run_id, link->id.run_id) == 0;
    char id[24];

    link->asked = link->answered = 0;
    if (link->state != DIBS__LINK_KILLING)
        link->ended_before = knows_run_ids(link) && !same_server;
    if (link->state == DIBS__LINK_KILLING || !same_server || !dibs__link_can_be_ended(&link->before)) {
        link->state = DIBS__LINK_READY;
        return DIBS_OK;
    }
    link->state = DIBS__LINK_KILLING;
    snprintf(id, sizeof id, "%lld", (long long)link->before.client);
    return ASK(link, ASK_KILL, "CLIENT", "KILL", "ID", id) ? DIBS_OK
                                                           : dibs__error_set(error, DIBS_NO_MEMORY, "no memory");
}

uint64_t dibs__link_server(const struct dibs__link *link)
{
    if (!link->id.run_id[0])
        return 0;
    uint64_t server = dibs__hash(link->id.run_id, 40) ^ dibs__hash(link->replication_id, 40) * 3;
    return server ? server : 1;
}

bool dibs__link_can_be_ended(const struct dibs__link_id *id)
{
    return id->client > 0 && id->run_id[0] && id->may_kill;
}

static dibs_status take_answers(struct dibs__link *link, struct dibs__error *error)
{
    while (link->answered < link->asked) {
        redisReply *reply;
        if (dibs__link_next_reply(link, &reply, error) != DIBS_OK)
            return error->status;
        if (!reply)
            return DIBS_OK;
        dibs_status status = take_answer(link, reply, error);
        freeReplyObject(reply);
        if (status != DIBS_OK)
            return status;
    }
    return greeted(link, error);
}

/* ------------------------------------------------------------------ driving */

#define BACKLOG_PAUSE_MS 5

/* True: *reason says what came of it. False: not known yet. */
static bool has_connected(struct dibs__link *link, int *reason)
{
    struct pollfd fd = {.fd = link->fd, .events = POLLOUT};
    socklen_t size = sizeof *reason;

    *reason = 0;
    if (link->backlog_full) {
        *reason = try_to_connect(link);
        return !link->backlog_full;
    }
    if (poll(&fd, 1, 0) <= 0)
        return false;
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, reason, &size) != 0)
        *reason = errno;
    return true;
}

/* Still connecting: goes on when the connection stands, or to the next address. */
static dibs_status go_on_connecting(struct dibs__link *link, int64_t now, int64_t until, struct dibs__error *error)
{
    size_t left = link->address_count - link->address;
    int reason;

    if (link->address_until == 0)
        link->address_until = left > 1 ? now + (until - now) / (int64_t)left : until;
    if (!has_connected(link, &reason)) {
        if (left == 1 || now < link->address_until)
            return DIBS_OK;
        reason = ETIMEDOUT;
    }
    if (reason == 0)
        return greet(link, now, error);
    link->address++;
    return connect_next(link, reason, error);
}

/* Sending failed: a server that turns a connection away says why before it closes it. */
static dibs_status say_what_it_said(struct dibs__link *link, struct dibs__error *error)
{
    struct dibs__error said = {DIBS_OK, ""};

    if (dibs__link_receive(link, &said) > 0 && take_answers(link, &said) != DIBS_OK)
        *error = said;
    return error->status;
}

dibs_status dibs__link_step(struct dibs__link *link, int64_t now, int64_t until, struct dibs__error *error)
{
    if (link->state == DIBS__LINK_CONNECTING && go_on_connecting(link, now, until, error) != DIBS_OK)
        return error->status;
    if (link->state == DIBS__LINK_CONNECTING)
        return DIBS_OK;
    while (link->state != DIBS__LINK_READY) {
        if (link->out.used > 0) {
            long sent = dibs__link_send(link, link->out.bytes, link->out.used, error);
            if (sent < 0)
                return say_what_it_said(link, error);
            dibs__buffer_drop(&link->out, (size_t)sent);
        }
        long received = dibs__link_receive(link, error);
        if (received < 0)
            return error->status;
        enum dibs__link_state state = link->state;
        if (take_answers(link, error) != DIBS_OK)
            return error->status;
        if (received == 0 && state == link->state)
            return DIBS_OK;
    }
    return DIBS_OK;
}

struct pollfd dibs__link_interest(const struct dibs__link *link, int64_t now, int64_t *deadline)
{
    struct pollfd fd = {.fd = link->fd, .events = POLLIN};

    *deadline = DIBS__NEVER;
    if (link->state != DIBS__LINK_CONNECTING) {
        fd.events = link->out.used > 0 ? POLLIN | POLLOUT : POLLIN;
        return fd;
    }
    fd.events = POLLOUT;
    *deadline = link->address_until; /* 0: at once, to have it settled */
    if (link->backlog_full) {
        fd.fd = -1;
        *deadline = dibs__after_ms(now, BACKLOG_PAUSE_MS);
    }
    return fd;
}

dibs_status dibs__link_finish(struct dibs__link *link, const struct dibs__clock *clock, int64_t deadline, int64_t until,
                              struct dibs__error *error)
{
    for (;;) {
        int64_t now = dibs__now(clock), again;
        if (dibs__link_step(link, now, until, error) != DIBS_OK)
            return error->status;
        if (link->state == DIBS__LINK_READY)
            return DIBS_OK;
        if (now >= deadline)
            return DIBS_TIMEOUT;
        struct pollfd fd = dibs__link_interest(link, now, &again);
        clock->poll(clock, &fd, 1, again < deadline ? again : deadline);
    }
}

/* ---------------------------------------------------------------- the bytes */

static long broken(struct dibs__link *link, const char *why, struct dibs__error *error)
{
    dibs__error_set(error, DIBS_UNAVAILABLE, "the connection to %s broke: %s", link->endpoint->url.shown, why);
    return -1;
}

long dibs__link_send(struct dibs__link *link, const char *bytes, size_t size, struct dibs__error *error)
{
    for (;;) {
        ssize_t sent = send(link->fd, bytes, size, MSG_NOSIGNAL);
        if (sent >= 0)
            return (long)sent;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return 0;
        if (errno != EINTR)
            return broken(link, strerror(errno), error);
    }
}

long dibs__link_receive(struct dibs__link *link, struct dibs__error *error)
{
    for (;;) {
        ssize_t received = recv(link->fd, link->in, sizeof link->in, 0);
        if (received > 0) {
            atomic_fetch_add_explicit(&link->endpoint->received, 1, memory_order_relaxed);
            if (redisReaderFeed(link->reader, link->in, (size_t)received) != REDIS_OK)
                return broken(link, "no memory for its reply", error);
            return (long)received;
        }
        if (received == 0)
            return broken(link, "the server closed it", error);
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return 0;
        if (errno != EINTR)
            return broken(link, strerror(errno), error);
    }
}

enum dibs__link_sight dibs__link_look(const struct dibs__link *link)
{
    char byte;
    ssize_t there = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (there > 0)
        return DIBS__LINK_BYTES_THERE;
    if (there < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return DIBS__LINK_NOTHING_THERE;
    return DIBS__LINK_AT_ITS_END;
}

dibs_status dibs__link_next_reply(struct dibs__link *link, redisReply **reply, struct dibs__error *error)
{
    void *next = NULL;

    *reply = NULL;
    if (redisReaderGetReply(link->reader, &next) != REDIS_OK) {
        if (link->reader->err == REDIS_ERR_OOM && !link->too_large)
            return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for an answer of %s", link->endpoint->url.shown);
        /* Not what the reader says of the bytes: they may be what we sent, a password with it. */
        return dibs__error_set(error, DIBS_STORE_ERROR, "%s does not speak as a Redis server does",
                               link->endpoint->url.shown);
    }
    *reply = next;
    return DIBS_OK;
}
