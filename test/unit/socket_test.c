/* Servers with several addresses: each has its share of the time, and the next is tried. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include "redis/socket.h"
#include "unit/link_setup.h"

/* The place of the address that a link tries, or is connected to. */
static size_t address_of(const struct dibs__link *link)
{
    return ((const struct dibs__socket *)(const void *)link->transport)->address;
}

static struct dibs__address loopback(unsigned short port)
{
    struct dibs__address address = {.length = sizeof(struct sockaddr_in)};
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    name.sin_port = htons(port);
    memcpy(&address.name, &name, sizeof name);
    return address;
}

/* A port of 127.0.0.1 that refuses connections as long as the socket, which only keeps it from others, is open. */
static unsigned short closed_port(int *keeper)
{
    struct dibs__address address = loopback(0);
    struct sockaddr_in name;
    socklen_t length = sizeof name;

    *keeper = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(*keeper >= 0);
    assert_int_equal(bind(*keeper, (struct sockaddr *)&address.name, address.length), 0);
    assert_int_equal(getsockname(*keeper, (struct sockaddr *)&name, &length), 0);
    return ntohs(name.sin_port);
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

TEST_ON(the_next_address_is_tried_after_a_failure, struct rig *r)
{
    int keeper;
    unsigned short closed = closed_port(&keeper);
    unsigned descriptors = open_descriptors();

    r->endpoint.addresses[0] = loopback(closed);
    r->endpoint.addresses[1] = loopback(closed);
    r->endpoint.addresses[2] = loopback(fake_redis_port(r->fake));
    r->endpoint.address_count = 3;
    struct dibs__link *link = connected(r, NULL);
    assert_int_equal(address_of(link), 2);
    assert_int_equal(r->endpoint.failures, 0);
    dibs__link_free(link);
    /* The fake server, in this process, closes its ends a little later. */
    await_or_say(open_descriptors() == descriptors, "%u, not %u", open_descriptors(), descriptors);
    close(keeper);
}

/* An address that does not answer: it listens, but has no room for another connection. */
struct silent {
    int listener, fillers[16];
    size_t count;
    struct dibs__address address;
};

static bool connects(const struct dibs__address *address, int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};

    if (connect(fd, (const struct sockaddr *)&address->name, address->length) != 0)
        assert_int_equal(errno, EINPROGRESS);
    return poll(&wait, 1, 200) == 1;
}

/* Fills the backlog with connections, until three in a row are not accepted. */
static void make_silent(struct silent *silent)
{
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    int unanswered = 0;

    *silent = (struct silent){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .address = loopback(0)};
    assert_true(silent->listener >= 0);
    assert_int_equal(bind(silent->listener, (struct sockaddr *)&silent->address.name, silent->address.length), 0);
    assert_int_equal(listen(silent->listener, 0), 0);
    assert_int_equal(getsockname(silent->listener, (struct sockaddr *)&name, &length), 0);
    silent->address = loopback(ntohs(name.sin_port));
    while (unanswered < 3) {
        assert_true(silent->count < sizeof silent->fillers / sizeof silent->fillers[0]);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        silent->fillers[silent->count++] = fd;
        assert_true(fd >= 0);
        unanswered = connects(&silent->address, fd) ? 0 : unanswered + 1;
    }
}

static void end_silent(struct silent *silent)
{
    for (size_t i = 0; i < silent->count; i++)
        close(silent->fillers[i]);
    close(silent->listener);
}

/* Each address has its share of the time left until the caller's deadline. */
TEST_ON(a_silent_address_has_its_share_of_the_time, struct rig *r)
{
    static const struct {
        int64_t now_ms;
        size_t address;
    } steps[] = {{0, 0}, {2999, 0}, {3000, 1}, {3000, 1}, {5999, 1}, {6000, 2}};
    struct silent silent[2];
    int64_t start = dibs__now(&dibs__system_clock), until = dibs__after_ms(start, 9000), deadline;

    for (size_t i = 0; i < 2; i++) {
        make_silent(&silent[i]);
        r->endpoint.addresses[i] = silent[i].address;
    }
    r->endpoint.addresses[2] = loopback(fake_redis_port(r->fake));
    r->endpoint.address_count = 3;
    struct dibs__link *link = dibs__link_start(&r->endpoint, DIBS__LINK_COMMANDS, NULL, &r->error);
    assert_non_null(link);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        int64_t now = dibs__after_ms(start, steps[i].now_ms);
        assert_status(DIBS_OK, dibs__link_step(link, now, until, &r->error));
        assert_int_equal(link->state, DIBS__LINK_CONNECTING);
        assert_int_equal(address_of(link), steps[i].address);
        deadline = DIBS__NEVER;
        dibs__link_interest(link, &deadline); /* the link is looked at again in time for the next address */
        assert_true(deadline <= dibs__after_ms(start, steps[i].address == 0 ? 3000 : 6000) || steps[i].address == 2);
    }
    until = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);
    assert_status(DIBS_OK, dibs__link_finish(link, until, until, &r->error));
    assert_int_equal(r->endpoint.failures, 0);
    dibs__link_free(link);
    end_silent(&silent[0]);
    end_silent(&silent[1]);
}

TEST_ON(connect_fails_when_all_addresses_fail, struct rig *r)
{
    int keeper;
    unsigned short closed = closed_port(&keeper);

    r->endpoint.addresses[0] = r->endpoint.addresses[1] = loopback(closed);
    r->endpoint.address_count = 2;
    assert_null(try_connect(r, NULL));
    assert_int_equal(r->error.status, DIBS_UNAVAILABLE);
    assert_that(strncmp(r->error.detail, "can't connect to 127.0.0.1:", 27) == 0, "%s", r->error.detail);
    assert_int_equal(r->endpoint.failures, 1);
    assert_int_equal(r->endpoint.address_count, 0); /* the name must be resolved again */
    close(keeper);
}

TESTS(setup, teardown)
