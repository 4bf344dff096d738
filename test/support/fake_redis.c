/*
 * One thread, one poll loop. f->mutex guards all but what is written before
 * the thread starts; the loop lets go of it inside poll alone. Connections are
 * shut down by anybody and closed by the loop, which may be polling them.
 */
#include "support/fake_redis.h"

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

enum { PEERS_MAX = 32, RULES_MAX = 32, LOG_MAX = 8192, WORDS_MAX = 512, TEXT_MAX = 160 };

struct bytes {
    char *data;
    size_t length;
};

struct peer {
    int fd; /* -1: free */
    unsigned number;
    bool shut;
    struct bytes in, out;
};

struct rule {
    const char *prefix, *reply;
};

struct words {
    long count;
    const char *at[WORDS_MAX];
    size_t size[WORDS_MAX];
};

struct fake_redis {
    char folder[64], path[96], url[160]; /* these five are read-only after the start */
    unsigned short port;
    int listener, wake[2];
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the rest */
    struct peer peers[PEERS_MAX];
    struct rule rules[RULES_MAX];
    size_t rule_count;
    char (*log)[TEXT_MAX];
    unsigned log_count, accepted;
    bool held, deaf, refuse, stopping;
};

/* ------------------------------------------------------------------- bytes */

static void bytes_add(struct bytes *b, const char *data, size_t length)
{
    b->data = realloc(b->data, b->length + length + 1);
    if (!b->data)
        abort();
    memcpy(b->data + b->length, data, length);
    b->length += length;
}

static void bytes_drop(struct bytes *b, size_t length)
{
    b->length -= length;
    memmove(b->data, b->data + length, b->length);
}

/* Reads the number of a line that begins with mark at *used and moves on behind it. False: it isn't all there. */
static bool take_number(const struct bytes *b, char mark, size_t *used, long *number)
{
    const char *end = *used < b->length ? memchr(b->data + *used, '\n', b->length - *used) : NULL;

    if (!end)
        return false;
    if (b->data[*used] != mark)
        abort(); /* the library sends nothing but arrays of bulk strings */
    *number = strtol(b->data + *used + 1, NULL, 10);
    *used = (size_t)(end - b->data) + 1;
    return true;
}

/* The length of the command at the start, 0: it isn't all there. */
static size_t take_words(const struct bytes *b, struct words *words)
{
    size_t used = 0;
    long size;

    if (!take_number(b, '*', &used, &words->count))
        return 0;
    if (words->count > WORDS_MAX)
        abort();
    for (long i = 0; i < words->count; i++) {
        if (!take_number(b, '$', &used, &size) || b->length - used < (size_t)size + 2)
            return 0;
        words->at[i] = b->data + used;
        words->size[i] = (size_t)size;
        used += (size_t)size + 2;
    }
    return used;
}

/* ----------------------------------------------------------------- answers */

static void send_out(struct peer *peer)
{
    size_t sent = 0;

    while (sent < peer->out.length) {
        ssize_t n = send(peer->fd, peer->out.data + sent, peer->out.length - sent, MSG_NOSIGNAL);
        if (n <= 0)
            break; /* the next poll notices */
        sent += (size_t)n;
    }
    peer->out.length = 0;
}

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static void write_log(fake_redis *f, char text[TEXT_MAX], const struct words *words)
{
    size_t used = 0;

    for (long i = 0; i < words->count && used < TEXT_MAX; i++)
        used += (size_t)snprintf(text + used, TEXT_MAX - used, i ? " %.*s" : "%.*s",
                                 (int)(words->size[i] < TEXT_MAX ? words->size[i] : TEXT_MAX), words->at[i]);
    if (f->log_count == LOG_MAX)
        abort();
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

/* What Redis would say. */
static void add_usual(fake_redis *f, struct peer *peer, const char *text, const struct words *words)
{
    char reply[96];

    if (begins(text, "ECHO ")) {
        add_bulk(&peer->out, words->at[1], words->size[1]);
        return;
    }
    if (begins(text, "CLIENT ID"))
        snprintf(reply, sizeof reply, ":%u\r\n", peer->number);
    else if (begins(text, "INFO"))
        snprintf(reply, sizeof reply, "$49\r\nrun_id:%s\r\n\r\n", FAKE_RUN_ID);
    else if (begins(text, "CLIENT KILL"))
        snprintf(reply, sizeof reply, ":0\r\n");
    else if (begins(text, "TIME"))
        snprintf(reply, sizeof reply, "*2\r\n$1\r\n5\r\n$1\r\n7\r\n");
    else if (begins(text, "SCRIPT LOAD"))
        snprintf(reply, sizeof reply, "$40\r\n%040u\r\n", f->log_count);
    else if (begins(text, "EVAL return 1"))
        snprintf(reply, sizeof reply, ":1\r\n");
    else
        snprintf(reply, sizeof reply, "+OK\r\n");
    bytes_add(&peer->out, reply, strlen(reply));
}

static void answer(fake_redis *f, struct peer *peer, const struct words *words)
{
    char text[TEXT_MAX] = "";

    write_log(f, text, words);
    for (size_t i = f->rule_count; i > 0; i--) {
        if (begins(text, f->rules[i - 1].prefix)) {
            bytes_add(&peer->out, f->rules[i - 1].reply, strlen(f->rules[i - 1].reply));
            return;
        }
    }
    add_usual(f, peer, text, words);
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

static void serve(fake_redis *f, struct peer *peer)
{
    char chunk[65536];
    struct words words;
    size_t length;
    ssize_t n = peer->shut ? 0 : recv(peer->fd, chunk, sizeof chunk, MSG_DONTWAIT);

    if (n <= 0) {
        close_peer(peer);
        return;
    }
    bytes_add(&peer->in, chunk, (size_t)n);
    while ((length = take_words(&peer->in, &words)) > 0) {
        answer(f, peer, &words);
        bytes_drop(&peer->in, length);
    }
    if (!f->held)
        send_out(peer);
}

static void accept_peer(fake_redis *f)
{
    int fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    f->accepted++;
    for (size_t i = 0; i < PEERS_MAX && !f->refuse; i++) {
        if (f->peers[i].fd < 0) {
            f->peers[i] = (struct peer){.fd = fd, .number = f->accepted};
            return;
        }
    }
    close(fd);
}

static void *run(void *arg)
{
    fake_redis *f = arg;
    struct pollfd polled[PEERS_MAX + 2];
    char drained[64];

    pthread_mutex_lock(&f->mutex);
    while (!f->stopping) {
        for (size_t i = 0; i < PEERS_MAX; i++) {
            bool ignored = f->deaf && !f->peers[i].shut;
            polled[i] = (struct pollfd){.fd = ignored ? -1 : f->peers[i].fd, .events = POLLIN};
        }
        polled[PEERS_MAX] = (struct pollfd){.fd = f->listener, .events = POLLIN};
        polled[PEERS_MAX + 1] = (struct pollfd){.fd = f->wake[0], .events = POLLIN};
        pthread_mutex_unlock(&f->mutex);
        poll(polled, PEERS_MAX + 2, -1);
        pthread_mutex_lock(&f->mutex);
        while (read(f->wake[0], drained, sizeof drained) > 0)
            ;
        for (size_t i = 0; i < PEERS_MAX; i++)
            if (polled[i].revents && (!f->deaf || f->peers[i].shut))
                serve(f, &f->peers[i]);
        if (polled[PEERS_MAX].revents)
            accept_peer(f);
    }
    pthread_mutex_unlock(&f->mutex);
    return NULL;
}

/* --------------------------------------------------------- start and stop */

static void listen_unix(fake_redis *f)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    snprintf(f->folder, sizeof f->folder, "/tmp/dibs-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/fake.sock", f->folder);
    snprintf(f->url, sizeof f->url, "unix://%s", f->path);
    memcpy(name.sun_path, f->path, strlen(f->path));
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(f->listener >= 0);
    assert_int_equal(bind(f->listener, (struct sockaddr *)&name, sizeof name), 0);
}

static void listen_tcp(fake_redis *f)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;

    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(f->listener >= 0);
    assert_int_equal(bind(f->listener, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(getsockname(f->listener, (struct sockaddr *)&name, &length), 0);
    f->port = ntohs(name.sin_port);
    snprintf(f->url, sizeof f->url, "redis://127.0.0.1:%u", f->port);
}

fake_redis *fake_redis_start(bool tcp)
{
    fake_redis *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->log = calloc(LOG_MAX, sizeof *f->log);
    assert_non_null(f->log);
    for (size_t i = 0; i < PEERS_MAX; i++)
        f->peers[i].fd = -1;
    if (tcp)
        listen_tcp(f);
    else
        listen_unix(f);
    assert_int_equal(listen(f->listener, PEERS_MAX), 0);
    assert_int_equal(pipe2(f->wake, O_CLOEXEC | O_NONBLOCK), 0);
    pthread_mutex_init(&f->mutex, NULL);
    assert_int_equal(pthread_create(&f->thread, NULL, run, f), 0);
    return f;
}

/* Requires mutex. */
static void wake(fake_redis *f)
{
    ssize_t written = write(f->wake[1], "", 1);

    (void)written; /* a full pipe wakes as well */
}

void fake_redis_stop(fake_redis *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->mutex);
    f->stopping = true;
    wake(f);
    pthread_mutex_unlock(&f->mutex);
    pthread_join(f->thread, NULL);
    for (size_t i = 0; i < PEERS_MAX; i++)
        close_peer(&f->peers[i]);
    close(f->listener);
    close(f->wake[0]);
    close(f->wake[1]);
    if (f->path[0]) {
        unlink(f->path);
        rmdir(f->folder);
    }
    pthread_mutex_destroy(&f->mutex);
    free(f->log);
    free(f);
}

const char *fake_redis_url(const fake_redis *f)
{
    return f->url;
}

unsigned short fake_redis_port(const fake_redis *f)
{
    return f->port;
}

/* ------------------------------------------------------------------ orders */

void fake_redis_answer(fake_redis *f, const char *prefix, const char *reply)
{
    pthread_mutex_lock(&f->mutex);
    if (f->rule_count == RULES_MAX)
        abort();
    f->rules[f->rule_count++] = (struct rule){prefix, reply};
    pthread_mutex_unlock(&f->mutex);
}

void fake_redis_hold(fake_redis *f, bool held)
{
    pthread_mutex_lock(&f->mutex);
    f->held = held;
    for (size_t i = 0; i < PEERS_MAX && !held; i++)
        if (f->peers[i].fd >= 0)
            send_out(&f->peers[i]);
    pthread_mutex_unlock(&f->mutex);
}

void fake_redis_deafen(fake_redis *f, bool deaf)
{
    pthread_mutex_lock(&f->mutex);
    f->deaf = deaf;
    wake(f);
    pthread_mutex_unlock(&f->mutex);
}

void fake_redis_push(fake_redis *f, const char *bytes)
{
    pthread_mutex_lock(&f->mutex);
    for (size_t i = 0; i < PEERS_MAX; i++) {
        if (f->peers[i].fd >= 0) {
            bytes_add(&f->peers[i].out, bytes, strlen(bytes));
            send_out(&f->peers[i]);
        }
    }
    pthread_mutex_unlock(&f->mutex);
}

void fake_redis_cut(fake_redis *f)
{
    pthread_mutex_lock(&f->mutex);
    for (size_t i = 0; i < PEERS_MAX; i++) {
        if (f->peers[i].fd >= 0) {
            f->peers[i].shut = true;
            shutdown(f->peers[i].fd, SHUT_RDWR);
        }
    }
    wake(f);
    pthread_mutex_unlock(&f->mutex);
}

void fake_redis_refuse(fake_redis *f, bool refuse)
{
    pthread_mutex_lock(&f->mutex);
    f->refuse = refuse;
    pthread_mutex_unlock(&f->mutex);
}

/* ------------------------------------------------------------------ looking */

unsigned fake_redis_accepted(fake_redis *f)
{
    pthread_mutex_lock(&f->mutex);
    unsigned accepted = f->accepted;
    pthread_mutex_unlock(&f->mutex);
    return accepted;
}

unsigned fake_redis_count(fake_redis *f, const char *prefix)
{
    unsigned count = 0;

    pthread_mutex_lock(&f->mutex);
    for (unsigned i = 0; i < f->log_count; i++)
        count += begins(f->log[i], prefix);
    pthread_mutex_unlock(&f->mutex);
    return count;
}

struct expected {
    fake_redis *f;
    const char *prefix;
    unsigned count;
};

static bool has_come(void *arg)
{
    const struct expected *e = arg;

    return fake_redis_count(e->f, e->prefix) >= e->count;
}

void fake_redis_await(fake_redis *f, const char *prefix, unsigned count)
{
    struct expected e = {f, prefix, count};

    assert_that(wait_until(has_come, &e, LIMIT_MS), "%u of %s", count, prefix);
}

int fake_redis_place(fake_redis *f, const char *prefix, unsigned nth)
{
    int place = -1;

    pthread_mutex_lock(&f->mutex);
    for (unsigned i = 0; i < f->log_count && place < 0; i++)
        if (begins(f->log[i], prefix) && --nth == 0)
            place = (int)i;
    pthread_mutex_unlock(&f->mutex);
    return place;
}

void fake_redis_endpoint(struct dibs__endpoint *out, const char *url, atomic_uint_fast64_t *commands,
                         atomic_uint_fast64_t *errors)
{
    struct dibs__url parts;
    struct dibs__error error;

    assert_status(DIBS_OK, dibs__url_parse(&parts, url, &error));
    dibs__endpoint_init(out, &parts);
    out->commands = commands;
    out->errors = errors;
    snprintf(out->client_name, sizeof out->client_name, "tester");
    snprintf(out->channel, sizeof out->channel, "dibs:test");
}
