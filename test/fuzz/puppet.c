#include "fuzz/puppet.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/random.h"
#include "fuzz/fuzz.h"
#include "redis/scripts.h"

/* ----------------------------------------------------------------- no chance */

/* Both replace the functions of src/base/random.c, which then is not linked: the same input makes the same run. */
bool dibs__random_bytes(void *out, size_t size)
{
    memset(out, 7, size);
    return true;
}

int64_t dibs__jitter(int64_t low, int64_t high)
{
    return low + (high - low) / 2;
}

/* ----------------------------------------------------------------- listening */

static char folder[64], path[96], url[160];
static int listener = -1;

static void stop_listening(void)
{
    close(listener);
    unlink(path);
    rmdir(folder);
}

static void start_listening(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    snprintf(folder, sizeof folder, "/tmp/dibs-fuzz-XXXXXX");
    promise(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    snprintf(url, sizeof url, "unix://user:" PUPPET_PASSWORD "@%s?db=3", path);
    memcpy(name.sun_path, path, strlen(path) + 1);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    promise(listener >= 0 && fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    promise(bind(listener, (struct sockaddr *)&name, sizeof name) == 0 && listen(listener, 64) == 0);
    promise(atexit(stop_listening) == 0);
}

const char *puppet_url(void)
{
    if (listener < 0)
        start_listening();
    return url;
}

/* ------------------------------------------------------------------ commands */

static bool runs_script(const struct resp_words *command)
{
    return resp_word_is(command, 0, "EVALSHA") ||
           (resp_word_is(command, 0, "EVAL") && !resp_word_is(command, 1, "return 1"));
}

static bool is_of_greeting(const struct resp_words *command)
{
    bool kills =
        resp_word_is(command, 0, "CLIENT") && resp_word_is(command, 1, "KILL") && !resp_word_is(command, 3, "0");

    return !kills && !runs_script(command) && !resp_word_is(command, 0, "WAIT") &&
           !resp_word_is(command, 0, "SUBSCRIBE") && !resp_word_is(command, 0, "PING");
}

/* --------------------------------------------------------------- by the book */

static enum dibs__script script_of(const struct resp_words *command)
{
    for (int i = 0; i < DIBS__SCRIPT_COUNT; i++)
        if (resp_word_is(command, 1, dibs__scripts[i].sha) || resp_word_is(command, 1, dibs__scripts[i].text))
            return (enum dibs__script)i;
    abort();
}

static void answer_script(struct puppet *puppet, const struct resp_words *command, char *out, size_t size)
{
    long long fence = (long long)++puppet->fence, now_us = (long long)(puppet->time / 1000);
    int at = 0;

    switch (script_of(command)) {
    case DIBS__SCRIPT_acquire:
        snprintf(out, size, ":%lld\r\n", fence);
        break;
    case DIBS__SCRIPT_release:
        snprintf(out, size, ":1\r\n");
        break;
    case DIBS__SCRIPT_retract:
        at = snprintf(out, size, "*%ld\r\n:%lld\r\n", (command->count - 3) / 4 + 1, now_us);
        for (long i = 0; i < (command->count - 3) / 4; i++)
            at += snprintf(out + at, size - (size_t)at, ":1\r\n");
        break;
    case DIBS__SCRIPT_requeue:
        snprintf(out, size, "*2\r\n:1\r\n:%lld\r\n", fence);
        break;
    case DIBS__SCRIPT_renew_short:
        snprintf(out, size, ":%lld\r\n", now_us);
        break;
    case DIBS__SCRIPT_renew: /* a lock has two keys and five arguments */
        at = snprintf(out, size, "*%ld\r\n", (command->count - 3) / 7 + 1);
        for (long i = 0; i < (command->count - 3) / 7; i++)
            at += snprintf(out + at, size - (size_t)at, ":1\r\n");
        snprintf(out + at, size - (size_t)at, ":%lld\r\n", now_us);
        break;
    case DIBS__SCRIPT_query:
        snprintf(out, size, "*4\r\n$2\r\nt1\r\n:900\r\n$1\r\n7\r\n:2\r\n");
        break;
    default:
        snprintf(out, size, ":1\r\n");
    }
}

/* Every second script is there. */
static void answer_exists(const struct resp_words *command, char *out, size_t size)
{
    int at = snprintf(out, size, "*%ld\r\n", command->count - 2);

    for (long i = 2; i < command->count; i++)
        at += snprintf(out + at, size - (size_t)at, ":%ld\r\n", i % 2);
}

static void answer_greeting(struct puppet *puppet, const struct resp_words *command, char *out, size_t size)
{
    if (resp_word_is(command, 0, "INFO"))
        snprintf(out, size, "$49\r\nrun_id:0123456789abcdef0123456789abcdef01234567\r\n\r\n");
    else if (resp_word_is(command, 0, "TIME"))
        snprintf(out, size, "*2\r\n$1\r\n%d\r\n$6\r\n%06d\r\n", (int)(puppet->time / 1000000000 % 10), 0);
    else if (resp_word_is(command, 0, "SCRIPT"))
        answer_exists(command, out, size);
    else if (resp_word_is(command, 0, "SUBSCRIBE"))
        snprintf(out, size, "*3\r\n$9\r\nsubscribe\r\n$%zu\r\n%.*s\r\n:1\r\n", command->size[1], (int)command->size[1],
                 command->at[1]);
    else if (resp_word_is(command, 0, "PING"))
        snprintf(out, size, "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    else if (resp_word_is(command, 0, "AUTH") || resp_word_is(command, 0, "SELECT") ||
             resp_word_is(command, 1, "SETNAME"))
        snprintf(out, size, "+OK\r\n");
    else
        snprintf(out, size, ":1\r\n"); /* CLIENT ID, CLIENT KILL, PUBLISH, WAIT, return 1 */
}

static void answer_by_the_book(struct puppet *puppet, struct puppet_peer *peer, const struct resp_words *command)
{
    char reply[2048];

    if (runs_script(command))
        answer_script(puppet, command, reply, sizeof reply);
    else
        answer_greeting(puppet, command, reply, sizeof reply);
    bytes_add_text(&peer->out, reply);
}

/* ------------------------------------------------------------------ the plan */

static void hang_up(struct puppet_peer *peer)
{
    close(peer->fd);
    peer->fd = -1;
    peer->in.length = peer->out.length = 0;
}

/* Takes the next record off what is left, with the '|' behind it. */
static size_t next_record(struct puppet *puppet, const char **record)
{
    size_t left = (size_t)(puppet->records_end - puppet->records);
    const char *end = memchr(puppet->records, '|', left);
    size_t size = end ? (size_t)(end - puppet->records) : left;

    *record = puppet->records;
    puppet->records += end ? size + 1 : size;
    return size;
}

/* False: the server hung up. */
static bool answer(struct puppet *puppet, struct puppet_peer *peer, const struct resp_words *command)
{
    const char *record = "";
    size_t size = 0;
    bool planned = puppet->greets || !is_of_greeting(command);

    if (planned && puppet->records == puppet->records_end && puppet->falls_silent)
        return true;
    if (planned && puppet->records < puppet->records_end)
        size = next_record(puppet, &record);
    if (size == 0 || *record == '=')
        answer_by_the_book(puppet, peer, command);
    if (size > 0 && *record == '!') {
        hang_up(peer);
        return false;
    }
    if (size > 0 && *record != '~')
        bytes_add(&peer->out, record + (*record == '='), size - (*record == '='));
    return true;
}

/* ------------------------------------------------------------------- serving */

static void take_in(struct puppet *puppet)
{
    for (;;) {
        struct puppet_peer *peer = puppet->peers;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            return;
        while (peer < puppet->peers + PUPPET_PEERS && peer->fd >= 0)
            peer++;
        if (peer == puppet->peers + PUPPET_PEERS) {
            close(fd);
            continue;
        }
        promise(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
        peer->fd = fd;
    }
}

static bool receive(struct puppet_peer *peer)
{
    char bytes[16384];
    ssize_t received;

    while ((received = recv(peer->fd, bytes, sizeof bytes, 0)) > 0)
        bytes_add(&peer->in, bytes, (size_t)received);
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return true;
    hang_up(peer);
    return false;
}

static void send_out(struct puppet_peer *peer, bool drips)
{
    size_t size = drips && peer->out.length > 5 ? 5 : peer->out.length;

    if (size == 0)
        return;
    ssize_t sent = send(peer->fd, peer->out.data, size, MSG_NOSIGNAL);
    if (sent > 0)
        bytes_drop(&peer->out, (size_t)sent);
}

static void serve_peer(struct puppet *puppet, struct puppet_peer *peer)
{
    struct resp_words command;
    size_t size;

    if (!receive(peer))
        return;
    while (peer->in.length > 0 && (size = resp_take_words(&peer->in, &command)) > 0) {
        if (!answer(puppet, peer, &command))
            return;
        bytes_drop(&peer->in, size);
    }
    send_out(peer, puppet->drips);
}

static void serve(struct puppet *puppet)
{
    take_in(puppet);
    for (size_t i = 0; i < PUPPET_PEERS; i++)
        if (puppet->peers[i].fd >= 0)
            serve_peer(puppet, &puppet->peers[i]);
}

/* ------------------------------------------------------------------ the clock */

static struct puppet *puppet_of(const struct dibs__clock *clock)
{
    return (struct puppet *)(uintptr_t)clock;
}

/* Runs the server and the scheduler. Returns until when the scheduler has nothing to do. */
static int64_t others_go_on(struct puppet *puppet)
{
    serve(puppet);
    int64_t until = puppet->round(puppet->arg);
    serve(puppet);
    return until;
}

static void move_on(struct puppet *puppet, int64_t until, int64_t deadline)
{
    int64_t least = dibs__after_ms(puppet->time, 1);
    int64_t next = until < deadline ? until : deadline;

    puppet->time = next > least ? next : least;
}

static int64_t puppet_now(const struct dibs__clock *clock)
{
    return puppet_of(clock)->time;
}

static int puppet_poll(const struct dibs__clock *clock, struct pollfd *fds, nfds_t count, int64_t deadline)
{
    struct puppet *puppet = puppet_of(clock);
    int64_t until = others_go_on(puppet);
    int ready = poll(fds, count, 0);

    if (ready <= 0)
        move_on(puppet, until, deadline);
    else
        puppet->time += 1000;
    return ready > 0 ? ready : 0;
}

static void puppet_wait(const struct dibs__clock *clock, pthread_cond_t *cond, struct dibs__mutex *mutex,
                        int64_t deadline)
{
    struct puppet *puppet = puppet_of(clock);

    (void)cond;
    dibs__mutex_unlock(mutex);
    move_on(puppet, others_go_on(puppet), deadline);
    dibs__mutex_lock(mutex);
}

/* ------------------------------------------------------------------ lifecycle */

void puppet_begin(struct puppet *puppet)
{
    puppet->clock = (struct dibs__clock){.now = puppet_now, .wait = puppet_wait, .poll = puppet_poll};
    puppet->time = 1000 * 1000 * DIBS__NS_PER_MS;
    for (size_t i = 0; i < PUPPET_PEERS; i++)
        puppet->peers[i].fd = -1;
}

void puppet_end(struct puppet *puppet)
{
    puppet->falls_silent = true;
    puppet->records = puppet->records_end;
    serve(puppet);
    for (size_t i = 0; i < PUPPET_PEERS; i++) {
        promise(puppet->peers[i].fd < 0);
        free(puppet->peers[i].in.data);
        free(puppet->peers[i].out.data);
    }
}

void puppet_idle(struct puppet *puppet, int64_t ms)
{
    int64_t deadline = dibs__after_ms(puppet->time, ms);

    while (puppet->time < deadline)
        move_on(puppet, others_go_on(puppet), deadline);
}
