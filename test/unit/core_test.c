/* The names of a core: the host in its tokens, which administrators read. */
#include <errno.h>
#include <unistd.h>

#include "support/fixture.h"

#define HOST_MOST 45 /* a longer name is cut */

/* Replaces the system's name of this host. NULL: there is none. */
static const char *host;

/* A name that does not fit is an error, as Linux has it; otherwise it is cut, and without its NUL, as POSIX allows. */
static bool cut_is_an_error;

int gethostname(char *name, size_t size)
{
    if (!host || (cut_is_an_error && strlen(host) >= size)) {
        errno = host ? ENAMETOOLONG : EPERM;
        return -1;
    }
    memcpy(name, host, strlen(host) < size ? strlen(host) + 1 : size);
    return 0;
}

/* Expects that the tokens of a new runtime name the host so: dibs:LABEL:HOST:... */
static void expect_host(const char *expected)
{
    dibs_runtime *rt = open_url("mem:", &(dibs_config){.label = "core"});
    char beginning[128];

    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    dibs_owner owner = owner_of(rt, "a");
    snprintf(beginning, sizeof beginning, "dibs:core:%s:%ld:", expected, (long)getpid());
    assert_that(strncmp(owner.token, beginning, strlen(beginning)) == 0, "%s is not of %s", owner.token, beginning);
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
    dibs_close(rt);
}

TEST(tokens_name_the_host)
{
    host = "box.example";
    expect_host("box.example");
    host = NULL;
    expect_host("localhost");
}

TEST(odd_characters_of_a_host_name_are_replaced)
{
    host = "a b:c\x7f"
           "d!~";
    expect_host("a-b-c-d!~");
}

TEST(a_long_host_name_is_cut)
{
    static char name[HOST_MOST + 20];

    host = name;
    for (size_t size = HOST_MOST - 1; size < sizeof name; size++) {
        char expected[HOST_MOST + 1] = "";
        memset(name, 'h', size);
        memset(expected, 'h', size < HOST_MOST ? size : HOST_MOST);
        cut_is_an_error = false;
        expect_host(expected);
        cut_is_an_error = true;
        expect_host(expected);
    }
}

TESTS(NULL, NULL)
