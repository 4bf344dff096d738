/*
 * A server that follows a script: one thread, one poll loop.
 *
 * Locks: s->mutex guards all of a script_server but what is written before the
 * thread starts. The loop holds it except inside poll. Its sends block, which
 * is fine: nobody else needs the mutex for long and the replies are small.
 */
#include "support/script_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/test.h"
#include "support/wait.h"

enum { RULES_MAX = 16, CONNECTIONS_MAX = 128, CHUNK = 16384 };

typedef struct bytes {
    char *data;
    size_t length;
    size_t capacity;
} bytes;

/* What becomes of the next reply of a connection. */
typedef struct pending {
    struct pending *next;
    bool pass;      /* on as it is; else as action says */
    bool forwarded; /* a reply will come from the backend */
    script_action action;
    const char *text;
    size_t count;
} pending;

typedef struct connection {
    int client;  /* -1: closed */
    int backend; /* -1: none, or closed */
    bytes request;
    bytes reply;
    pending *first;
    pending **last;
    bool hold_requests;
    bool hold_replies;
    bool skip_rules; /* for the one command that was held back and is now let go */
    bool subscribed; /* replies are no longer one to a command: they pass as they come */
} connection;

typedef struct active_rule {
    script_rule rule;
    unsigned seen;
} active_rule;

struct script_server {
    script_options options; /* read-only after the start, like the next five */
    char folder[64];
    char path[96];
    char url[160];
    int listener;
    int wake[2];
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t obeyed; /* signalled when done has reached ordered */
    unsigned long ordered; /* orders given */
    unsigned long done;    /* orders carried out */
    active_rule rules[RULES_MAX];
    size_t rule_count;
    connection *connections[CONNECTIONS_MAX]; /* touched by the loop's thread only, with the mutex held */
    size_t connection_count;
    unsigned fired;
    unsigned accepted;
    size_t cut_length;
    bool stopping;
    bool release;
    bool cut;
    bool down;
    bool drop_pushes, hold_pushes;
    bool cut_push; /* the next one, to push_count bytes */
    size_t push_count;
    unsigned delay_ms;
    int64_t back_at; /* 0: nobody came since a rule closed a connection */
};

/* ------------------------------------------------------------------- bytes */

static void bytes_add(bytes *b, const char *data, size_t length)
{
    if (b->length + length > b->capacity) {
        b->capacity = (b->length + length) * 2;
        b->data = realloc(b->data, b->capacity);
        if (!b->data)
            abort();
    }
    memcpy(b->data + b->length, data, length);
    b->length += length;
}

static void bytes_drop(bytes *b, size_t length)
{
    b->length -= length;
    memmove(b->data, b->data + length, b->length);
}

/* The length of the line that begins at data, with its \r\n; 0: not whole. */
static size_t line_length(const char *data, size_t length)
{
    const char *end = length ? memchr(data, '\n', length) : NULL;

    return end ? (size_t)(end - data) + 1 : 0;
}

/* The length of the command or reply (RESP 2 or 3) that begins at data; 0: not whole. A line, if it is neither. */
static size_t message_length(const char *data, size_t length)
{
    size_t used = line_length(data, length);
    long count;

    if (used == 0 || !memchr("$=!*~>%", data[0], 7))
        return used;
    count = strtol(data + 1, NULL, 10);
    if (count < 0)
        return used;
    if (memchr("$=!", data[0], 3))
        return length >= used + (size_t)count + 2 ? used + (size_t)count + 2 : 0;
    if (data[0] == '%')
        count *= 2;
    for (; count > 0; count--) {
        size_t part = message_length(data + used, length - used);

        if (part == 0)
            return 0;
        used += part;
    }
    return used;
}

static void send_all(int fd, const char *data, size_t length)
{
    while (fd >= 0 && length > 0) {
        ssize_t n = send(fd, data, length, MSG_NOSIGNAL);

        if (n <= 0)
            return; /* the next poll notices */
        data += n;
        length -= (size_t)n;
    }
}

static void send_text(int fd, const char *text)
{
    send_all(fd, text, strlen(text));
}

/* ------------------------------------------------------------- connections */

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_both(connection *c)
{
    close_end(&c->client);
    close_end(&c->backend);
}

/* As a rule has it. */
static void break_off(script_server *s, connection *c)
{
    close_both(c);
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

static void free_connection(connection *c)
{
    close_both(c);
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

static void greet(script_server *s, connection *c)
{
    if (s->options.backend) {
        c->backend = connect_backend(s->options.backend);
        if (c->backend < 0)
            close_both(c);
        return;
    }
    if (s->options.greeting)
        send_text(c->client, s->options.greeting);
    if (s->options.greeting && s->options.hang_up)
        close_both(c);
}

static void accept_client(script_server *s)
{
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
    connection *c;

    if (fd < 0)
        return;
    s->accepted++;
    if (s->down || s->connection_count == CONNECTIONS_MAX) {
        close(fd);
        return;
    }
    c = calloc(1, sizeof *c);
    if (!c)
        abort();
    c->client = fd;
    c->backend = -1;
    c->last = &c->first;
    s->connections[s->connection_count++] = c;
    if (s->back_at == 0)
        s->back_at = now_ms();
    greet(s, c);
}

/* ------------------------------------------------------------------- rules */

static const script_rule *match_rule(script_server *s, const char *data, size_t length)
{
    const script_rule *found = NULL;

    for (size_t i = 0; i < s->rule_count; i++) {
        active_rule *r = &s->rules[i];

        if (*r->rule.match && !memmem(data, length, r->rule.match, strlen(r->rule.match)))
            continue;
        r->seen++;
        if (!found && (r->rule.nth == 0 || r->rule.nth == r->seen))
            found = &r->rule;
    }
    if (found)
        s->fired++;
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

/* A command that no rule is about. */
static void pass_command(const script_server *s, connection *c, const char *data, size_t length)
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
static bool take_command(script_server *s, connection *c, size_t length)
{
    const char *data = c->request.data;
    const script_rule *rule = c->skip_rules ? NULL : match_rule(s, data, length);
    bool replaces;

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
    replaces = rule->action == SCRIPT_REPLACE || rule->action == SCRIPT_REPLACE_CLOSE;
    if (!replaces)
        forward(c, data, length);
    push_pending(c,
                 (pending){.forwarded = !replaces, .action = rule->action, .text = rule->bytes, .count = rule->count});
    return true;
}

static void take_commands(script_server *s, connection *c)
{
    size_t length;

    while (!c->hold_requests && (length = message_length(c->request.data, c->request.length)) > 0) {
        if (!take_command(s, c, length))
            return;
        bytes_drop(&c->request, length);
    }
}

/* ----------------------------------------------------------------- replies */

static void cut_reply(script_server *s, connection *c, size_t length)
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
static bool give_scripted(script_server *s, connection *c, size_t length)
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

/* False: it can't be passed now, or never. */
static bool give_message(script_server *s, connection *c, size_t length)
{
    if (s->hold_pushes)
        return false;
    if (s->cut_push) {
        s->cut_push = false;
        s->fired++;
        s->cut_length = length;
        send_all(c->client, c->reply.data, s->push_count < length ? s->push_count : length);
        break_off(s, c);
        return false;
    }
    if (!s->drop_pushes)
        send_all(c->client, c->reply.data, length);
    return true;
}

/* On a subscribed connection: whatever came whole. */
static void give_pushes(script_server *s, connection *c)
{
    size_t length;

    while (!c->hold_replies && (length = message_length(c->reply.data, c->reply.length)) > 0) {
        if (!memmem(c->reply.data, length, "message\r\n", 9))
            send_all(c->client, c->reply.data, length);
        else if (!give_message(s, c, length))
            return;
        bytes_drop(&c->reply, length);
    }
}

static void give_replies(script_server *s, connection *c)
{
    if (c->subscribed) {
        give_pushes(s, c);
        return;
    }
    while (c->first && !c->hold_replies) {
        bool forwarded = c->first->forwarded;
        size_t length = forwarded ? message_length(c->reply.data, c->reply.length) : 0;

        if (forwarded && length == 0)
            return;
        if (forwarded && s->delay_ms)
            pause_ms(s->delay_ms); /* one after the other: a long way, and a narrow one */
        if (c->first->pass)
            send_all(c->client, c->reply.data, length);
        else if (!give_scripted(s, c, length))
            return;
        if (forwarded)
            bytes_drop(&c->reply, length);
        pop_pending(c);
    }
}

/* -------------------------------------------------------------------- loop */

static bool receive(int fd, bytes *into)
{
    char chunk[CHUNK];
    ssize_t n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);

    if (n > 0)
        bytes_add(into, chunk, (size_t)n);
    return n > 0;
}

/* A client that left while its commands were held: they still go to the server when they are let go. */
static void client_left(connection *c)
{
    close_end(&c->client);
    if (!c->hold_requests)
        close_end(&c->backend);
}

static void serve(script_server *s, connection *c, short client_events, short backend_events)
{
    if (c->client >= 0 && client_events && !receive(c->client, &c->request))
        client_left(c);
    take_commands(s, c);
    if (c->backend >= 0 && backend_events && !receive(c->backend, &c->reply))
        close_end(&c->backend);
    give_replies(s, c);
    if (s->options.backend && c->backend < 0)
        close_end(&c->client);
    if (c->client < 0 && !c->hold_requests)
        close_end(&c->backend);
}

static void obey(script_server *s)
{
    for (size_t i = 0; i < s->connection_count; i++) {
        connection *c = s->connections[i];

        if (s->cut && c->hold_requests) {
            client_left(c);
            continue;
        }
        if (s->cut || s->down) {
            close_both(c);
            continue;
        }
        if (!s->release)
            continue;
        c->skip_rules = c->hold_requests;
        c->hold_requests = false;
        c->hold_replies = false;
        serve(s, c, 0, 0);
    }
    s->cut = false;
    s->release = false;
    s->done = s->ordered;
    pthread_cond_broadcast(&s->obeyed);
}

static void sweep(script_server *s)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->connection_count; i++) {
        connection *c = s->connections[i];

        if (c->client < 0 && c->backend < 0)
            free_connection(c);
        else
            s->connections[kept++] = c;
    }
    s->connection_count = kept;
}

static void drain(int fd)
{
    char chunk[64];

    while (read(fd, chunk, sizeof chunk) > 0)
        ;
}

static void *run(void *arg)
{
    script_server *s = arg;
    struct pollfd polled[2 + 2 * CONNECTIONS_MAX];

    pthread_mutex_lock(&s->mutex);
    while (!s->stopping) {
        size_t count = s->connection_count;

        polled[0] = (struct pollfd){.fd = s->wake[0], .events = POLLIN};
        polled[1] = (struct pollfd){.fd = s->listener, .events = POLLIN};
        for (size_t i = 0; i < count; i++) {
            polled[2 + 2 * i] = (struct pollfd){.fd = s->connections[i]->client, .events = POLLIN};
            polled[3 + 2 * i] = (struct pollfd){.fd = s->connections[i]->backend, .events = POLLIN};
        }
        pthread_mutex_unlock(&s->mutex);
        poll(polled, 2 + 2 * count, -1);
        pthread_mutex_lock(&s->mutex);
        drain(s->wake[0]);
        obey(s);
        for (size_t i = 0; i < count; i++)
            serve(s, s->connections[i], polled[2 + 2 * i].revents, polled[3 + 2 * i].revents);
        if (polled[1].revents)
            accept_client(s);
        sweep(s);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* --------------------------------------------------------- start and stop */

static void listen_unix(script_server *s)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(s->folder, sizeof s->folder, "/tmp/dibs-XXXXXX");
    assert_true(mkdtemp(s->folder) != NULL);
    snprintf(s->path, sizeof s->path, "%s/script.sock", s->folder);
    snprintf(s->url, sizeof s->url, "unix://%s", s->path);
    memcpy(address.sun_path, s->path, strlen(s->path));
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(s->listener >= 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, sizeof address), 0);
}

static void listen_tcp(script_server *s)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;

    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(s->listener >= 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&address, &length), 0);
    snprintf(s->url, sizeof s->url, "redis://127.0.0.1:%d", ntohs(address.sin_port));
}

script_server *script_server_start(const script_options *options)
{
    script_server *s = calloc(1, sizeof *s);

    assert_true(s != NULL);
    s->options = *options;
    if (options->tcp)
        listen_tcp(s);
    else
        listen_unix(s);
    assert_int_equal(listen(s->listener, CONNECTIONS_MAX), 0);
    assert_int_equal(pipe2(s->wake, O_CLOEXEC | O_NONBLOCK), 0);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->obeyed, NULL);
    assert_int_equal(pthread_create(&s->thread, NULL, run, s), 0);
    return s;
}

static void wake(script_server *s)
{
    ssize_t written = write(s->wake[1], "", 1);

    (void)written; /* a full pipe wakes as well */
}

void script_server_stop(script_server *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    s->stopping = true;
    pthread_mutex_unlock(&s->mutex);
    wake(s);
    pthread_join(s->thread, NULL);
    for (size_t i = 0; i < s->connection_count; i++)
        free_connection(s->connections[i]);
    close(s->listener);
    close(s->wake[0]);
    close(s->wake[1]);
    if (!s->options.tcp) {
        unlink(s->path);
        rmdir(s->folder);
    }
    pthread_cond_destroy(&s->obeyed);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

const char *script_server_url(const script_server *s)
{
    return s->url;
}

/* ------------------------------------------------------------------ orders */

void script_server_add(script_server *s, script_rule rule)
{
    pthread_mutex_lock(&s->mutex);
    if (s->rule_count == RULES_MAX)
        abort();
    s->rules[s->rule_count++] = (active_rule){.rule = rule};
    pthread_mutex_unlock(&s->mutex);
}

void script_server_clear(script_server *s)
{
    pthread_mutex_lock(&s->mutex);
    s->rule_count = 0;
    pthread_mutex_unlock(&s->mutex);
}

/* Returns when the loop has done it. */
static void set(script_server *s, bool *flag, bool value)
{
    unsigned long order;

    pthread_mutex_lock(&s->mutex);
    *flag = value;
    order = ++s->ordered;
    wake(s);
    while (s->done < order)
        pthread_cond_wait(&s->obeyed, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

void script_server_release(script_server *s)
{
    set(s, &s->release, true);
}

void script_server_cut(script_server *s)
{
    set(s, &s->cut, true);
}

void script_server_set_down(script_server *s, bool down)
{
    set(s, &s->down, down);
}

void script_server_drop_pushes(script_server *s, bool drop)
{
    set(s, &s->drop_pushes, drop);
}

void script_server_hold_pushes(script_server *s, bool hold)
{
    set(s, &s->hold_pushes, hold);
}

void script_server_cut_push(script_server *s, size_t count)
{
    pthread_mutex_lock(&s->mutex);
    s->cut_push = true;
    s->push_count = count;
    pthread_mutex_unlock(&s->mutex);
}

void script_server_delay(script_server *s, unsigned ms)
{
    pthread_mutex_lock(&s->mutex);
    s->delay_ms = ms;
    pthread_mutex_unlock(&s->mutex);
}

static unsigned get(script_server *s, const unsigned *number)
{
    unsigned value;

    pthread_mutex_lock(&s->mutex);
    value = *number;
    pthread_mutex_unlock(&s->mutex);
    return value;
}

unsigned script_server_fired(script_server *s)
{
    return get(s, &s->fired);
}

struct firing {
    script_server *server;
    unsigned before;
};

static bool has_fired(void *arg)
{
    const struct firing *f = arg;

    return script_server_fired(f->server) > f->before;
}

void script_server_await_fired(script_server *s, unsigned before)
{
    assert_that(wait_until(has_fired, &(struct firing){s, before}, LIMIT_MS), "no rule fires");
}

unsigned script_server_accepted(script_server *s)
{
    return get(s, &s->accepted);
}

size_t script_server_cut_length(script_server *s)
{
    size_t value;

    pthread_mutex_lock(&s->mutex);
    value = s->cut_length;
    pthread_mutex_unlock(&s->mutex);
    return value;
}

int64_t script_server_back_at(script_server *s)
{
    int64_t value;

    pthread_mutex_lock(&s->mutex);
    value = s->back_at;
    pthread_mutex_unlock(&s->mutex);
    return value;
}
