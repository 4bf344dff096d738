/* A call for several names, and a server that falls silent while names are given back, or is far away. */
#include "support/fixture.h"
#include "support/script_server.h"
#include "support/test.h"
#include "support/wait.h"

#define TIMEOUT_MS 8000

static const char *const names[] = {"a", "b"};

/* f->rt reaches its server through `net`, another runtime without it. */
static script_server *open_through(fixture *f, uint32_t command_timeout_ms, const char **url)
{
    script_server *net = script_server_start(&(script_options){.backend = f->server->socket_path});

    *url = script_server_url(net);
    f->config.urls = url;
    f->config.command_timeout_ms = command_timeout_ms;
    fixture_open_connected(f, LONG_LEASE_MS);
    return net;
}

/* The server is silent from the release of b on: a is taken. */
static void a_call_keeps_its_time_when_the_server_falls_silent(void **state)
{
    enum { WAIT_MS = 200 };
    fixture *f = *state;
    dibs_runtime *other = open_runtime(f->server, LONG_LEASE_MS);
    const char *url;
    script_server *net = open_through(f, TIMEOUT_MS, &url);

    assert_status(DIBS_OK, dibs_lock(other, "a"));
    script_server_add(net, (script_rule){.match = "lock:b", .nth = 2, .action = SCRIPT_STALL_REQUEST});
    int64_t since = now_ms();
    assert_status(DIBS_TIMEOUT, dibs_lock_names(f->rt, names, 2, WAIT_MS, NULL));
    int64_t took = now_ms() - since;
    assert_that(took < TIMEOUT_MS / 2, "%d ms", (int)took);
    assert_true(server_wait_gone(f->server, "lock:b", LIMIT_MS)); /* over another connection */
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    dibs_close(other);
    dibs_close(f->rt);
    f->rt = NULL;
    script_server_stop(net);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_call_keeps_its_time_when_the_server_falls_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
