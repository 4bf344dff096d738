/*
 * Any thread may shut down a connection, but only the listener's loop closes it, since the loop may be polling it. The
 * listener's mutex guards everything but the listener itself.
 */
#include "support/fake_redis.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "redis/scripts.h"
#include "redis/socket.h"
#include "support/listener.h"
#include "support/resp.h"
#include "support/test.h"

enum { PEERS_MAX = 32, RULES_MAX = 32, LOG_FIRST = 1024, TEXT_MAX = 160 };

struct peer {
    int fd; /* -1: free */
    unsigned number;
    bool shut, subscribed;
    struct bytes in, out;
};

struct rule {
    const char *prefix, *reply;
};

struct fake_redis {
    struct listener listener;
    struct peer peers[PEERS_MAX];
    struct rule rules[RULES_MAX];
    size_t rule_count;
    char (*log)[TEXT_MAX];
    unsigned log_count, log_room, accepted;
    bool held, deaf, refuse;
};

/* ----------------------------------------------------------------- answers */

static void send_out(struct peer *peer)
{
    send_all(peer->fd, peer->out.data, peer->out.length);
    peer->out.length = 0;
}

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* However many commands come while the thread that is to end the test is kept from the processor. */
static void make_room_in_log(fake_redis *f)
{
    if (f->log_count < f->log_room)
        return;
    f->log_room = f->log_room ? 2 * f->log_room : LOG_FIRST;
    f->log = realloc(f->log, f->log_room * sizeof *f->log);
    if (!f->log)
        abort();
}

static void write_log(fake_redis *f, char text[TEXT_MAX], const struct resp_words *words)
{
    size_t used = 0;

    for (long i = 0; i < words->count && used < TEXT_MAX; i++)
        used += (size_t)snprintf(text + used, TEXT_MAX - used, i ? " %.*s" : "%.*s",
                                 (int)(words->size[i] < TEXT_MAX ? words->size[i] : TEXT_MAX), words->at[i]);
    make_room_in_log(f);
    memcpy(f->log[f->log_count++], text, TEXT_MAX);
}

static void add_bulk(struct bytes *out, const char *data, size_t size)
{
    char head[32];
    int length = snprintf(head, sizeof head, "$%zu\r\n", size);

    bytes_add(out, head, (size_t)length);
    bytes_add(out, data, size);
    bytes_add(out, "\r\n", 2);
}

static void add_ones(struct bytes *out, long count)
{
    char head[32];

    snprintf(head, sizeof head, "*%ld\r\n", count);
    bytes_add_text(out, head);
    for (long i = 0; i < count; i++)
        bytes_add_text(out, ":1\r\n");
}

/* "" for a text that is none of ours. */
static const char *sha_of(const struct resp_words *words)
{
    for (int i = 0; i < DIBS__SCRIPT_COUNT; i++)
        if (resp_word_is(words, 2, dibs__scripts[i].text))
            return dibs__scripts[i].sha;
    return "";
}

/* What Redis would say. */
static void add_usual(struct peer *peer, const char *text, const struct resp_words *words)
{
    char reply[96];

    if (begins(text, "ECHO ")) {
        add_bulk(&peer->out, words->at[1], words->size[1]);
        return;
    }
    if (begins(text, "SCRIPT EXISTS")) {
        add_ones(&peer->out, words->count - 2);
        return;
    }
    if (begins(text, "SCRIPT LOAD")) {
        add_bulk(&peer->out, sha_of(words), strlen(sha_of(words)));
        return;
    }
    if (begins(text, "CLIENT ID"))
        snprintf(reply, sizeof reply, ":%u\r\n", peer->number);
    else if (begins(text, "INFO"))
        snprintf(reply, sizeof reply, "$49\r\nrun_id:%s\r\n\r\n", FAKE_RUN_ID);
    else if (begins(text, "CLIENT KILL") || begins(text, "WAIT "))
        snprintf(reply, sizeof reply, ":0\r\n");
    else if (begins(text, "TIME"))
        snprintf(reply, sizeof reply, "*2\r\n$1\r\n5\r\n$1\r\n7\r\n");
    else if (begins(text, "EVAL return 1"))
        snprintf(reply, sizeof reply, ":1\r\n");
    else
        snprintf(reply, sizeof reply, "+OK\r\n");
    bytes_add_text(&peer->out, reply);
}

static void answer(fake_redis *f, struct peer *peer, const struct resp_words *words)
{
    char text[TEXT_MAX] = "";

    write_log(f, text, words);
    peer->subscribed = peer->subscribed || begins(text, "SUBSCRIBE ");
    for (size_t i = f->rule_count; i > 0; i--) {
        if (begins(text, f->rules[i - 1].prefix)) {
            bytes_add_text(&peer->out, f->rules[i - 1].reply);
            return;
        }
    }
    add_usual(peer, text, words);
}

/* -------------------------------------------------------------------- loop */

static void close_peer(struct peer *peer)
{
    if (peer->fd >= 0)
        close(peer->fd);
    free(peer->in.data);
    free(peer->out.data);
    *peer = (struct peer){.fd = -1};
}

static void serve_peer(fake_redis *f, struct peer *peer)
{
    char chunk[65536];
    struct resp_words words;
    size_t length;
    ssize_t n = peer->shut ? 0 : recv(peer->fd, chunk, sizeof chunk, MSG_DONTWAIT);

    if (n <= 0) {
        close_peer(peer);
        return;
    }
    bytes_add(&peer->in, chunk, (size_t)n);
    while ((length = resp_take_words(&peer->in, &words)) > 0) {
        answer(f, peer, &words);
        bytes_drop(&peer->in, length);
    }
    if (!f->held)
        send_out(peer);
}

static void accepted(void *server, int fd)
{
    fake_redis *f = server;

    f->accepted++;
    for (size_t i = 0; i < PEERS_MAX && !f->refuse; i++) {
        if (f->peers[i].fd < 0) {
            f->peers[i] = (struct peer){.fd = fd, .number = f->accepted};
            return;
        }
    }
    close(fd);
}

static size_t watch(void *server, struct pollfd *fds)
{
    const fake_redis *f = server;

    for (size_t i = 0; i < PEERS_MAX; i++) {
        bool ignored = f->deaf && !f->peers[i].shut;
        fds[i] = (struct pollfd){.fd = ignored ? -1 : f->peers[i].fd, .events = POLLIN};
    }
    return PEERS_MAX;
}

static void serve(void *server, const struct pollfd *fds, size_t count)
{
    fake_redis *f = server;

    for (size_t i = 0; i < count; i++)
        if (fds[i].revents && (!f->deaf || f->peers[i].shut))
            serve_peer(f, &f->peers[i]);
}

/* --------------------------------------------------------- start and stop */

fake_redis *fake_redis_start(bool tcp)
{
    static const struct listener_ops ops = {watch, serve, accepted};
    fake_redis *f = calloc(1, sizeof *f);

    assert_non_null(f);
    for (size_t i = 0; i < PEERS_MAX; i++)
        f->peers[i].fd = -1;
    listener_start(&f->listener, &ops, f, tcp);
    return f;
}

void fake_redis_stop(fake_redis *f)
{
    if (!f)
        return;
    listener_stop(&f->listener);
    for (size_t i = 0; i < PEERS_MAX; i++)
        close_peer(&f->peers[i]);
    free(f->log);
    free(f);
}

const char *fake_redis_url(const fake_redis *f)
{
    return f->listener.url;
}

unsigned short fake_redis_port(const fake_redis *f)
{
    return f->listener.port;
}

/* ------------------------------------------------------------------ orders */

void fake_redis_answer(fake_redis *f, const char *prefix, const char *reply)
{
    listener_lock(&f->listener);
    if (f->rule_count == RULES_MAX)
        abort();
    f->rules[f->rule_count++] = (struct rule){prefix, reply};
    listener_unlock(&f->listener);
}

void fake_redis_hold(fake_redis *f, bool held)
{
    listener_lock(&f->listener);
    f->held = held;
    for (size_t i = 0; i < PEERS_MAX && !held; i++)
        if (f->peers[i].fd >= 0)
            send_out(&f->peers[i]);
    listener_unlock(&f->listener);
}

void fake_redis_ignore_peers(fake_redis *f, bool deaf)
{
    listener_lock(&f->listener);
    f->deaf = deaf;
    listener_wake(&f->listener);
    listener_unlock(&f->listener);
}

static void push_to(fake_redis *f, bool all, const char *bytes)
{
    listener_lock(&f->listener);
    for (size_t i = 0; i < PEERS_MAX; i++) {
        if (f->peers[i].fd >= 0 && (all || f->peers[i].subscribed)) {
            bytes_add_text(&f->peers[i].out, bytes);
            send_out(&f->peers[i]);
        }
    }
    listener_unlock(&f->listener);
}

void fake_redis_push(fake_redis *f, const char *bytes)
{
    push_to(f, true, bytes);
}

void fake_redis_publish(fake_redis *f, const char *bytes)
{
    push_to(f, false, bytes);
}

void fake_redis_cut(fake_redis *f)
{
    listener_lock(&f->listener);
    for (size_t i = 0; i < PEERS_MAX; i++) {
        if (f->peers[i].fd >= 0) {
            f->peers[i].shut = true;
            shutdown(f->peers[i].fd, SHUT_RDWR);
        }
    }
    listener_wake(&f->listener);
    listener_unlock(&f->listener);
}

void fake_redis_refuse(fake_redis *f, bool refuse)
{
    listener_lock(&f->listener);
    f->refuse = refuse;
    listener_unlock(&f->listener);
}

/* ------------------------------------------------------------------ looking */

unsigned fake_redis_accepted(fake_redis *f)
{
    listener_lock(&f->listener);
    unsigned accepted = f->accepted;
    listener_unlock(&f->listener);
    return accepted;
}

unsigned fake_redis_count(fake_redis *f, const char *prefix)
{
    unsigned count = 0;

    listener_lock(&f->listener);
    for (unsigned i = 0; i < f->log_count; i++)
        count += begins(f->log[i], prefix);
    listener_unlock(&f->listener);
    return count;
}

static bool has_read_all(fake_redis *f)
{
    int unread, sum = 0;

    listener_lock(&f->listener);
    for (size_t i = 0; i < PEERS_MAX; i++)
        if (f->peers[i].fd >= 0 && ioctl(f->peers[i].fd, FIONREAD, &unread) == 0)
            sum += unread;
    listener_unlock(&f->listener);
    return sum == 0;
}

void fake_redis_settle(fake_redis *f)
{
    await_that(has_read_all(f));
}

void fake_redis_await(fake_redis *f, const char *prefix, unsigned count)
{
    await_or_say(fake_redis_count(f, prefix) >= count, "%u of %s", count, prefix);
}

int fake_redis_place(fake_redis *f, const char *prefix, unsigned nth)
{
    int place = -1;

    listener_lock(&f->listener);
    for (unsigned i = 0; i < f->log_count && place < 0; i++)
        if (begins(f->log[i], prefix) && --nth == 0)
            place = (int)i;
    listener_unlock(&f->listener);
    return place;
}

void fake_redis_endpoint(struct dibs__endpoint *out, const char *url, atomic_uint_fast64_t *commands,
                         atomic_uint_fast64_t *errors)
{
    struct dibs__url parts;
    struct dibs__error error;

    assert_status(DIBS_OK, dibs__url_parse(&parts, url, &error));
    dibs__endpoint_init(out, &parts);
    out->transport = &dibs__socket_transport;
    out->clock = &dibs__system_clock;
    out->connect_timeout_ms = out->command_timeout_ms = LIMIT_MS;
    out->commands = commands;
    out->errors = errors;
    snprintf(out->client_name, sizeof out->client_name, "tester");
    snprintf(out->channel, sizeof out->channel, "dibs:test");
}
