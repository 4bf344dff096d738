#include "store/redis/redirect.h"

#include <stdlib.h>
#include <string.h>

#include "redis/slot.h"

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
