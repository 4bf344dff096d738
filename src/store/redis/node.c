/*
 * What a node of a cluster does besides locks: it says which node has which slot, redirects commands because their slot
 * is elsewhere or moving, and takes over from other nodes what has moved.
 */
#include <stdlib.h>
#include <string.h>

#include "redis/reply.h"
#include "redis/slot.h"
#include "store/redis/redis_store.h"

/* ----------------------------------------------------------------- the slots */

struct slots_call {
    struct dibs__redis_store *store;
    dibs__slots_fn *told;
    void *context;
};

/* {first, last, {host, port, ...}, replicas...}. False: the reply is no such range. */
static bool read_range(struct dibs__slot_range *out, const redisReply *reply)
{
    int64_t first, last, port;

    if (!dibs__reply_integer(reply, 0, &first) || !dibs__reply_integer(reply, 1, &last) || reply->elements < 3 ||
        !dibs__reply_integer(reply->element[2], 1, &port))
        return false;
    const redisReply *host = reply->element[2]->element[0];
    bool known = host->type == REDIS_REPLY_STRING && strcmp(host->str, "?") != 0;
    *out = (struct dibs__slot_range){(unsigned)first, (unsigned)last, known ? host->str : "", (unsigned)port};
    return first >= 0 && first <= last && last < DIBS__SLOTS && port > 0 && port < 65536;
}

static void tell_slots(const struct slots_call *call, const redisReply *reply, const struct dibs__error *failure)
{
    static const struct dibs__error none = {DIBS_OK, ""};
    const char *shown = call->store->endpoint.url.shown;
    struct dibs__slot_range *ranges = NULL;
    struct dibs__error error;
    size_t count = 0;
    bool good = true;

    if (!reply) {
        call->told(call->context, NULL, 0, failure);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY) {
        dibs__reply_refusal(&error, reply, shown, "CLUSTER SLOTS");
        call->told(call->context, NULL, 0, &error);
        return;
    }
    ranges = malloc((reply->elements + 1) * sizeof *ranges);
    for (; ranges && good && count < reply->elements; count += good)
        good = read_range(&ranges[count], reply->element[count]);
    if (!ranges)
        dibs__error_set(&error, DIBS_NO_MEMORY, "no memory for the slots of a cluster");
    else if (!good)
        dibs__error_set(&error, DIBS_STORE_ERROR, "%s answered CLUSTER SLOTS as no Redis server does", shown);
    call->told(call->context, ranges, ranges && good ? count : 0, ranges && good ? &none : &error);
    free(ranges);
}

static const struct dibs__command slots_command = {.words = (const char *const[]){"CLUSTER", "SLOTS", NULL}};

static void on_slots(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    tell_slots(arg, reply, error);
    free(arg);
}

bool dibs__redis_ask_slots(struct dibs__store *base, dibs__slots_fn *told, void *context)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct dibs__link_view view;

    if (!dibs__channel_view(store->background, &view))
        return false;
    struct slots_call *call = malloc(sizeof *call);
    if (!call)
        return false;
    *call = (struct slots_call){store, told, context};
    if (dibs__channel_submit(store->background, view.serial, &slots_command, on_slots, call))
        return true;
    free(call);
    return false;
}

dibs_status dibs__redis_await_slots(struct dibs__store *base, int64_t deadline, dibs__slots_fn *told, void *context,
                                    struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct slots_call call = {store, told, context};
    struct dibs__exchange exchange = {.deadline = deadline, .error = error};
    struct dibs__link_view view;

    if (dibs__channel_open(store->channels[0], deadline, &view, error) != DIBS_OK)
        return error->status;
    struct dibs__request *request =
        dibs__channel_send(store->channels[0], view.serial, &slots_command, deadline, error);
    if (!request || dibs__channel_wait(store->channels[0], request, &exchange) != DIBS_OK)
        return error->status;
    tell_slots(&call, exchange.reply, NULL);
    freeReplyObject(exchange.reply);
    return DIBS_OK;
}

/* -------------------------------------------------------------- redirections */

#define HOST_MAX 256 /* with the NUL */

/*
 * "host:port", where the host may hold colons itself; "" or "?": the host is not known. False: the text is no such
 * address.
 */
static bool read_address(const char *text, char host[HOST_MAX], unsigned *port)
{
    const char *colon = strrchr(text, ':');
    size_t size = colon ? (size_t)(colon - text) : 0;
    char *end;

    if (!colon || size >= HOST_MAX)
        return false;
    memcpy(host, text, size);
    host[size] = '\0';
    if (strcmp(host, "?") == 0)
        host[0] = '\0';
    *port = (unsigned)strtoul(colon + 1, &end, 10);
    return end > colon + 1 && (*end == '\0' || *end == ' ') && *port > 0 && *port < 65536;
}

/* "MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381" */
static void *read_redirection(const struct dibs__node_hooks *hooks, const char *text, bool ask)
{
    char host[HOST_MAX], *end;
    unsigned port;

    text = strchr(text, ' ') + 1;
    unsigned long slot = strtoul(text, &end, 10);
    if (*end != ' ' || slot >= DIBS__SLOTS || !read_address(end + 1, host, &port))
        return NULL;
    return hooks->redirected(hooks->context, ask, (unsigned)slot, host, port);
}

bool dibs__redis_turned_away(const struct dibs__node_hooks *node, struct dibs__redirect *redirect,
                             const redisReply *reply, bool all_moved)
{
    struct dibs__redirect said = {.kind = DIBS__REDIRECT_NONE};
    bool asks = reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "ASK ", 4) == 0;
    bool is_on_its_way = asks && ((redirect && redirect->asking) || !all_moved);

    if (reply->type != REDIS_REPLY_ERROR || !node)
        return false;
    if (strncmp(reply->str, "MOVED ", 6) == 0)
        said.kind = DIBS__REDIRECT_MOVED;
    else if (strncmp(reply->str, "TRYAGAIN", 8) == 0 || is_on_its_way)
        said.kind = DIBS__REDIRECT_AGAIN;
    else if (asks)
        said.kind = DIBS__REDIRECT_ASK;
    if (said.kind == DIBS__REDIRECT_MOVED || said.kind == DIBS__REDIRECT_ASK)
        said.to = read_redirection(node, reply->str, asks);
    if (redirect) {
        redirect->asking = redirect->asking && !is_on_its_way;
        redirect->kind = said.kind;
        redirect->to = said.to;
    }
    return said.kind != DIBS__REDIRECT_NONE;
}

/* ------------------------------------------------------------ what is known */

uint64_t dibs__redis_server(struct dibs__store *base)
{
    return atomic_load_explicit(&dibs__redis_of(base)->renewal_server, memory_order_relaxed);
}

uint64_t dibs__redis_lease_server(const struct dibs__lease_store_state *lease)
{
    return ((const struct dibs__redis_lease *)lease)->server;
}

void dibs__redis_lease_came(struct dibs__store *base, struct dibs__lease_store_state *lease)
{
    dibs__redis_lease_of(lease)->server = dibs__redis_server(base);
}

/* ---------------------------------------------------------- from node to node */

bool dibs__redis_attempt_is_in_doubt(const struct dibs__attempt *attempt)
{
    return ((const struct dibs__redis_attempt *)&attempt->store_state)->doubt != NULL;
}

uint64_t dibs__redis_attempt_server(const struct dibs__attempt *attempt)
{
    return ((const struct dibs__redis_attempt *)&attempt->store_state)->seen_server;
}

void dibs__redis_attempt_came(struct dibs__store *base, struct dibs__attempt *attempt, bool knows)
{
    struct dibs__redis_attempt *store_state = dibs__redis_attempt_of(attempt);

    DIBS__REQUIRE(!store_state->doubt);
    store_state->channel = 0;
    if (knows)
        store_state->seen_server = dibs__redis_server(base);
}
