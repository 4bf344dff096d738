/* Applies the rules to commands and replies; those without a rule pass. */
#include "support/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/listener.h"
#include "support/wait.h"

enum { CHUNK = 16384 };

#define CHANGES "\r\n__redis__:invalidate\r\n" /* the channel of what the server tells of keys that it tracks */

/* What becomes of the next reply of a connection. */
typedef struct script_pending {
    struct script_pending *next;
    bool pass;      /* the reply passes as it is; otherwise `action` says what becomes of it */
    bool forwarded; /* a reply will come from the backend */
    script_action action;
    const char *text;
    size_t count;
} pending;

typedef struct script_connection connection;

/* ------------------------------------------------------------- connections */

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void script_close(struct script_connection *c)
{
    close_end(&c->client);
    close_end(&c->backend);
}

/* Closes the connection because a rule says so. */
static void break_off(struct script *s, connection *c)
{
    script_close(c);
    s->back_at = 0;
}

static void push_pending(connection *c, pending what)
{
    pending *p = malloc(sizeof *p);

    if (!p)
        abort();
    *p = what;
    p->next = NULL;
    *c->last = p;
    c->last = &p->next;
}

static void pop_pending(connection *c)
{
    pending *p = c->first;

    c->first = p->next;
    if (!c->first)
        c->last = &c->first;
    free(p);
}

void script_connection_free(struct script_connection *c)
{
    script_close(c);
    while (c->first)
        pop_pending(c);
    free(c->request.data);
    free(c->reply.data);
    free(c);
}

static int connect_backend(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        close_end(&fd);
    return fd;
}

static void greet(struct script *s, connection *c)
{
    if (s->options.backend) {
        c->backend = connect_backend(s->options.backend);
        if (c->backend < 0)
            script_close(c);
        return;
    }
    if (s->options.greeting)
        send_text(c->client, s->options.greeting);
    if (s->options.greeting && s->options.hang_up)
        script_close(c);
}

struct script_connection *script_connect(struct script *s, int client)
{
    connection *c = calloc(1, sizeof *c);

    if (!c)
        abort();
    c->client = client;
    c->backend = -1;
    c->last = &c->first;
    if (s->back_at == 0)
        s->back_at = now_ms();
    greet(s, c);
    return c;
}

/* ------------------------------------------------------------------- rules */

static const script_rule *match_rule(struct script *s, const char *data, size_t length)
{
    const script_rule *found = NULL;

    for (size_t i = 0; i < s->rule_count; i++) {
        struct script_active_rule *r = &s->rules[i];

        if (*r->rule.match && !memmem(data, length, r->rule.match, strlen(r->rule.match)))
            continue;
        r->seen++;
        if (!found && (r->rule.nth == 0 || r->rule.nth == r->seen))
            found = &r->rule;
    }
    if (found)
        s->fired += !found->uncounted;
    return found;
}

static void note_subscription(connection *c, const char *data, size_t length)
{
    static const char *const verbs[] = {"\r\nSUBSCRIBE\r\n", "\r\nPSUBSCRIBE\r\n", "\r\nSSUBSCRIBE\r\n",
                                        "\r\nsubscribe\r\n"};

    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (memmem(data, length, verbs[i], strlen(verbs[i])))
            c->subscribed = true;
}

static void forward(connection *c, const char *data, size_t length)
{
    note_subscription(c, data, length);
    send_all(c->backend, data, length);
}

/* Deals with a command that no rule matches. */
static void pass_command(const struct script *s, connection *c, const char *data, size_t length)
{
    if (s->options.backend) {
        forward(c, data, length);
        push_pending(c, (pending){.pass = true, .forwarded = true});
    } else if (s->options.answer) {
        script_action action = s->options.hang_up ? SCRIPT_REPLACE_CLOSE : SCRIPT_REPLACE;

        push_pending(c, (pending){.action = action, .text = s->options.answer});
    }
}

/* False: the connection takes no more commands for now. */
static bool take_command(struct script *s, connection *c, size_t length)
{
    const char *data = c->request.data;
    const script_rule *rule = c->skip_rules ? NULL : match_rule(s, data, length);

    c->skip_rules = false;
    if (!rule) {
        pass_command(s, c, data, length);
        return true;
    }
    if (rule->action == SCRIPT_CLOSE_BEFORE) {
        break_off(s, c);
        return false;
    }
    if (rule->action == SCRIPT_STALL_REQUEST) {
        c->hold_requests = true;
        return false;
    }
    bool replaces = rule->action == SCRIPT_REPLACE || rule->action == SCRIPT_REPLACE_CLOSE;
    if (!replaces)
        forward(c, data, length);
    push_pending(c,
                 (pending){.forwarded = !replaces, .action = rule->action, .text = rule->bytes, .count = rule->count});
    return true;
}

static void take_commands(struct script *s, connection *c)
{
    size_t length;

    while (!c->hold_requests && (length = resp_message_length(c->request.data, c->request.length)) > 0) {
        if (!take_command(s, c, length))
            return;
        bytes_drop(&c->request, length);
    }
}

/* ----------------------------------------------------------------- replies */

static void cut_reply(struct script *s, connection *c, size_t length)
{
    const pending *p = c->first;

    s->cut_length = length;
    send_all(c->client, c->reply.data, p->count < length ? p->count : length);
    if (p->action == SCRIPT_TRUNCATE_HANG)
        c->hold_replies = true;
    else
        break_off(s, c);
}

/* False: the connection gives no more replies for now. */
static bool give_scripted(struct script *s, connection *c, size_t length)
{
    switch (c->first->action) {
    case SCRIPT_REPLACE:
        send_text(c->client, c->first->text);
        break;
    case SCRIPT_REPLACE_CLOSE:
        send_text(c->client, c->first->text);
        break_off(s, c);
        return false;
    case SCRIPT_TRUNCATE:
    case SCRIPT_TRUNCATE_HANG:
        cut_reply(s, c, length);
        return false;
    case SCRIPT_STALL_REPLY:
        c->hold_replies = true;
        c->first->pass = true;
        return false;
    case SCRIPT_CLOSE_AFTER:
    case SCRIPT_CLOSE_BEFORE:
    case SCRIPT_STALL_REQUEST:
        break_off(s, c);
        return false;
    }
    return true;
}

/* Deals with one message of a subscription. False: the connection gives no more for now, or is closed. */
static bool give_message(struct script *s, connection *c, size_t length)
{
    bool is_change = memmem(c->reply.data, length, CHANGES, strlen(CHANGES)) != NULL;

    if (s->hold_pushes)
        return false;
    if (s->cut_push && !is_change) {
        s->cut_push = false;
        s->fired++;
        s->cut_length = length;
        send_all(c->client, c->reply.data, s->push_count < length ? s->push_count : length);
        break_off(s, c);
        return false;
    }
    if (!s->drop_pushes && !(s->drop_changes && is_change))
        send_all(c->client, c->reply.data, length);
    return true;
}

/* On a subscribed connection: passes on whole messages. */
static void give_pushes(struct script *s, connection *c)
{
    size_t length;

    while (!c->hold_replies && (length = resp_message_length(c->reply.data, c->reply.length)) > 0) {
        if (!memmem(c->reply.data, length, "message\r\n", 9))
            send_all(c->client, c->reply.data, length);
        else if (!give_message(s, c, length))
            return;
        bytes_drop(&c->reply, length);
    }
}

static void give_replies(struct script *s, connection *c)
{
    if (c->subscribed) {
        give_pushes(s, c);
        return;
    }
    while (c->first && !c->hold_replies) {
        bool forwarded = c->first->forwarded;
        size_t length = forwarded ? resp_message_length(c->reply.data, c->reply.length) : 0;

        if (forwarded && length == 0)
            return;
        if (forwarded && s->delay_ms)
            pause_ms(s->delay_ms); /* each reply is delayed by itself, one after the other */
        if (c->first->pass)
            send_all(c->client, c->reply.data, length);
        else if (!give_scripted(s, c, length))
            return;
        if (forwarded)
            bytes_drop(&c->reply, length);
        pop_pending(c);
    }
}

/* ----------------------------------------------------------------- serving */

static bool receive(int fd, struct bytes *into)
{
    char chunk[CHUNK];
    ssize_t n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);

    if (n > 0)
        bytes_add(into, chunk, (size_t)n);
    return n > 0;
}

/*
 * The client is gone. What it sent still reaches the backend, unless it is held back, and the backend closes the
 * connection when it has executed that. A backend whose reply finds the connection closed would drop the commands that
 * it has not read yet.
 */
static void end_requests(connection *c)
{
    if (c->client < 0 && c->backend >= 0 && !c->hold_requests)
        shutdown(c->backend, SHUT_WR);
}

void script_cut(struct script_connection *c)
{
    close_end(&c->client);
    if (!c->hold_requests)
        close_end(&c->backend);
}

void script_serve(struct script *s, struct script_connection *c, short client_events, short backend_events)
{
    if (c->client >= 0 && client_events && !receive(c->client, &c->request))
        close_end(&c->client);
    take_commands(s, c);
    if (c->backend >= 0 && backend_events && !receive(c->backend, &c->reply))
        close_end(&c->backend);
    if (c->client >= 0)
        give_replies(s, c);
    if (s->options.backend && c->backend < 0)
        close_end(&c->client);
    end_requests(c);
}

void script_release(struct script *s, struct script_connection *c)
{
    c->skip_rules = c->hold_requests;
    c->hold_requests = false;
    c->hold_replies = false;
    script_serve(s, c, 0, 0);
}

bool script_is_closed(const struct script_connection *c)
{
    return c->client < 0 && c->backend < 0;
}
