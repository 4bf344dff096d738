/* Resolving a host name: once, again after each failure, and then beginning with another address. */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "redis/endpoint.h"
#include "support/test.h"

/* Replaces the system's resolver: the same answer to every name. */
static const char
    *answer; /* the last numbers of addresses in 127.0.0.0/24, one digit each; NULL: the name is unknown */
static unsigned asked;

int getaddrinfo(const char *restrict name, const char *restrict port, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found)
{
    struct addrinfo **end = found;

    asked++;
    *found = NULL;
    if (!answer)
        return EAI_NONAME;
    for (const char *digit = answer; *digit; digit++) {
        struct sockaddr_in *address = calloc(1, sizeof *address);
        struct addrinfo *item = calloc(1, sizeof *item);

        assert_true(address && item);
        address->sin_family = AF_INET;
        address->sin_port = htons((uint16_t)atoi(port));
        address->sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + (uint32_t)(*digit - '0'));
        item->ai_family = AF_INET;
        item->ai_addr = (struct sockaddr *)address;
        item->ai_addrlen = sizeof *address;
        *end = item;
        end = &item->ai_next;
    }
    return 0;
}

/* POSIX does not say what freeing an empty list does, and systems differ. */
void freeaddrinfo(struct addrinfo *list)
{
    assert_non_null(list);
    while (list) {
        struct addrinfo *next = list->ai_next;

        free(list->ai_addr);
        free(list);
        list = next;
    }
}

static int setup(void **state)
{
    static struct dibs__endpoint endpoint;
    struct dibs__error error;
    struct dibs__url url;

    answer = "123";
    asked = 0;
    assert_status(DIBS_OK, dibs__url_parse(&url, "redis://name.example:7", &error));
    dibs__endpoint_init(&endpoint, &url);
    *state = &endpoint;
    return 0;
}

static int teardown(void **state)
{
    dibs__endpoint_free(*state);
    return 0;
}

/* Expects that the endpoint gives these addresses, in that order, and has asked the resolver so often by then. */
static void expect(struct dibs__endpoint *endpoint, const char *digits, unsigned times)
{
    struct dibs__address addresses[DIBS__ADDRESSES_MAX];
    char got[DIBS__ADDRESSES_MAX + 1] = "";
    struct dibs__error error;
    size_t count;

    assert_status(DIBS_OK, dibs__endpoint_addresses(endpoint, addresses, &count, &error));
    for (size_t i = 0; i < count; i++) {
        struct sockaddr_in address;

        assert_int_equal(addresses[i].length, sizeof address);
        memcpy(&address, &addresses[i].name, sizeof address);
        assert_int_equal(ntohs(address.sin_port), 7);
        got[i] = (char)('0' + (ntohl(address.sin_addr.s_addr) & 0xff));
    }
    assert_string_equal(got, digits);
    assert_int_equal(asked, times);
}

TEST(the_resolver_is_asked_once)
{
    expect(*state, "123", 1);
    expect(*state, "123", 1);
}

TEST(a_failure_asks_again_and_rotates)
{
    static const char *const turns[] = {"231", "312", "123", "231"};

    expect(*state, "123", 1);
    for (unsigned i = 0; i < 4; i++) {
        dibs__endpoint_failed(*state);
        expect(*state, turns[i], 2 + i);
        expect(*state, turns[i], 2 + i);
    }
}

TEST(a_name_that_moves_is_followed)
{
    expect(*state, "123", 1);
    answer = "4";
    expect(*state, "123", 1);
    dibs__endpoint_failed(*state);
    expect(*state, "4", 2);
    answer = "56";
    dibs__endpoint_failed(*state);
    expect(*state, "56", 3);
    dibs__endpoint_failed(*state);
    expect(*state, "65", 4);
}

TEST(a_name_that_is_unknown_is_asked_for_again)
{
    struct dibs__address addresses[DIBS__ADDRESSES_MAX];
    struct dibs__error error;
    size_t count;

    answer = NULL;
    for (unsigned i = 1; i <= 3; i++) {
        assert_status(DIBS_UNAVAILABLE, dibs__endpoint_addresses(*state, addresses, &count, &error));
        assert_int_equal(count, 0);
        assert_that(strstr(error.detail, "name.example"), "%s", error.detail);
        assert_int_equal(asked, i);
    }
    answer = "12";
    expect(*state, "12", 4);
}

TEST(addresses_beyond_the_room_are_left_out)
{
    answer = "1234567891";
    expect(*state, "12345678", 1);
    dibs__endpoint_failed(*state);
    expect(*state, "23456781", 2);
}

TESTS(setup, teardown)
