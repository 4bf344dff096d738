/*
 * A server that follows a script: accepts connections, and takes the orders of the test. script.c decides what happens
 * to commands and replies.
 */
#include "support/script_server.h"

#include <unistd.h>

#include "support/listener.h"
#include "support/script.h"
#include "support/test.h"

enum { CONNECTIONS_MAX = LISTENER_FDS_MOST / 2 };

/* A copy of what a test has named: a test that fails leaves the server running, when the test's own text may be gone.
 */
struct text {
    struct text *next;
    char bytes[];
};

/* All but the listener is guarded by its mutex. */
struct script_server {
    struct listener listener;
    struct script script;
    pthread_cond_t obeyed; /* signalled when done has reached ordered */
    unsigned long ordered; /* orders given */
    unsigned long done;    /* orders carried out */
    struct script_connection *connections[CONNECTIONS_MAX];
    size_t connection_count;
    unsigned accepted;
    bool release;
    bool cut;
    bool down;
    struct text *texts; /* all copies, which live as long as the server */
};

/* Requires the mutex, or that the server has not started. */
static const char *keep(script_server *s, const char *text)
{
    size_t size = text ? strlen(text) + 1 : 0;
    struct text *copy = text ? malloc(sizeof *copy + size) : NULL;

    if (!text)
        return NULL;
    if (!copy)
        abort();
    memcpy(copy->bytes, text, size);
    copy->next = s->texts;
    s->texts = copy;
    return copy->bytes;
}

static void drop_texts(script_server *s)
{
    while (s->texts) {
        struct text *next = s->texts->next;
        free(s->texts);
        s->texts = next;
    }
}

/* -------------------------------------------------------------------- loop */

static size_t watch(void *server, struct pollfd *fds)
{
    script_server *s = server;

    for (size_t i = 0; i < s->connection_count; i++) {
        fds[2 * i] = (struct pollfd){.fd = s->connections[i]->client, .events = POLLIN};
        fds[2 * i + 1] = (struct pollfd){.fd = s->connections[i]->backend, .events = POLLIN};
    }
    return 2 * s->connection_count;
}

static void accepted(void *server, int fd)
{
    script_server *s = server;

    s->accepted++;
    if (s->down || s->connection_count == CONNECTIONS_MAX)
        close(fd);
    else
        s->connections[s->connection_count++] = script_connect(&s->script, fd);
}

static void obey(script_server *s)
{
    for (size_t i = 0; i < s->connection_count; i++) {
        struct script_connection *c = s->connections[i];

        if (s->cut && c->hold_requests)
            script_cut(c);
        else if (s->cut || s->down)
            script_close(c);
        else if (s->release)
            script_release(&s->script, c);
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
        if (script_is_closed(s->connections[i]))
            script_connection_free(s->connections[i]);
        else
            s->connections[kept++] = s->connections[i];
    }
    s->connection_count = kept;
}

static void serve(void *server, const struct pollfd *fds, size_t count)
{
    script_server *s = server;

    obey(s);
    for (size_t i = 0; i < count / 2; i++)
        script_serve(&s->script, s->connections[i], fds[2 * i].revents, fds[2 * i + 1].revents);
    sweep(s);
}

/* --------------------------------------------------------- start and stop */

script_server *script_server_start(const script_options *options)
{
    static const struct listener_ops ops = {watch, serve, accepted};
    script_server *s = calloc(1, sizeof *s);

    assert_non_null(s);
    s->script.options = *options;
    s->script.options.backend = keep(s, options->backend);
    s->script.options.greeting = keep(s, options->greeting);
    s->script.options.answer = keep(s, options->answer);
    pthread_cond_init(&s->obeyed, NULL);
    listener_start(&s->listener, &ops, s, options->tcp);
    return s;
}

void script_server_stop(script_server *s)
{
    if (!s)
        return;
    listener_stop(&s->listener);
    for (size_t i = 0; i < s->connection_count; i++)
        script_connection_free(s->connections[i]);
    pthread_cond_destroy(&s->obeyed);
    drop_texts(s);
    free(s);
}

const char *script_server_url(const script_server *s)
{
    return s->listener.url;
}

/* ------------------------------------------------------------------ orders */

/* Requires the mutex. */
static void add(script_server *s, script_rule rule)
{
    if (s->script.rule_count == SCRIPT_RULES_MOST)
        abort();
    rule.match = keep(s, rule.match);
    rule.bytes = keep(s, rule.bytes);
    s->script.rules[s->script.rule_count++] = (struct script_active_rule){.rule = rule};
}

void script_server_add(script_server *s, script_rule rule)
{
    listener_lock(&s->listener);
    add(s, rule);
    listener_unlock(&s->listener);
}

void script_server_answer(script_server *s, const char *match, const char *bytes)
{
    script_server_add(s, (script_rule){.match = match, .action = SCRIPT_REPLACE, .bytes = bytes});
}

void script_server_set(script_server *s, const script_rule *rules, size_t count)
{
    listener_lock(&s->listener);
    s->script.rule_count = 0;
    for (size_t i = 0; i < count; i++)
        add(s, rules[i]);
    listener_unlock(&s->listener);
}

void script_server_clear(script_server *s)
{
    script_server_set(s, NULL, 0);
}

/* Sets the flag, and returns when the loop has acted on it. */
static void set(script_server *s, bool *flag, bool value)
{
    listener_lock(&s->listener);
    *flag = value;
    unsigned long order = ++s->ordered;
    listener_wake(&s->listener);
    while (s->done < order)
        pthread_cond_wait(&s->obeyed, &s->listener.mutex);
    listener_unlock(&s->listener);
}

void script_server_release(script_server *s)
{
    set(s, &s->release, true);
}

bool script_server_has_answered(script_server *s)
{
    bool all = true;

    listener_lock(&s->listener);
    for (size_t i = 0; i < s->connection_count; i++)
        all = all && (s->connections[i]->subscribed || !s->connections[i]->first);
    listener_unlock(&s->listener);
    return all;
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
    set(s, &s->script.drop_pushes, drop);
}

void script_server_drop_changes(script_server *s, bool drop)
{
    set(s, &s->script.drop_changes, drop);
}

void script_server_hold_pushes(script_server *s, bool hold)
{
    set(s, &s->script.hold_pushes, hold);
}

void script_server_cut_push(script_server *s, size_t count)
{
    listener_lock(&s->listener);
    s->script.cut_push = true;
    s->script.push_count = count;
    listener_unlock(&s->listener);
}

void script_server_delay(script_server *s, unsigned ms)
{
    listener_lock(&s->listener);
    s->script.delay_ms = ms;
    listener_unlock(&s->listener);
}

static unsigned get(script_server *s, const unsigned *number)
{
    listener_lock(&s->listener);
    unsigned value = *number;
    listener_unlock(&s->listener);
    return value;
}

unsigned script_server_fired(script_server *s)
{
    return get(s, &s->script.fired);
}

void script_server_await_fired(script_server *s, unsigned before)
{
    await_or_say(script_server_fired(s) > before, "no rule fires");
}

unsigned script_server_accepted(script_server *s)
{
    return get(s, &s->accepted);
}

size_t script_server_cut_length(script_server *s)
{
    listener_lock(&s->listener);
    size_t value = s->script.cut_length;
    listener_unlock(&s->listener);
    return value;
}

int64_t script_server_back_at(script_server *s)
{
    listener_lock(&s->listener);
    int64_t value = s->script.back_at;
    listener_unlock(&s->listener);
    return value;
}
