/* A process is stopped for longer than a command may take, and goes on: what the server answered meanwhile counts. */
#include "support/fixture.h"
#include "support/process.h"
#include "support/queue.h"
#include "support/script_server.h"

enum {
    THREADS = 16,
    ROUNDS = 4,
    CONNECTIONS = 4, /* three that are shared, and the scheduler's */
};

/* Before the process is stopped, no command may be so late, even on a slow machine. */
#define COMMAND_TIMEOUT_MS 3000

/* Longer than that, from when the commands were sent. At least: the replies must be there. */
#define STOP_MS (COMMAND_TIMEOUT_MS + 600)

static void expect_ok_from_all(process *team)
{
    for (int i = 0; i < THREADS; i++)
        assert_that(strstr(process_read(team), " DIBS_OK"), "%s", team->line);
}

static void tell_all(process *team, const char *command)
{
    for (int i = 0; i < THREADS; i++)
        process_write(team, "%s %d stopped-%d 0 0", command, i, i);
}

/*
 * When all threads have sent their commands and none has its reply, the process is stopped, and the replies arrive
 * meanwhile.
 */
static void stop_in_between(fixture *f, process *team, script_server *net, const char *command)
{
    long long asks = server_asks(f->server) + THREADS;

    script_server_add(net, (script_rule){.match = "stopped-", .action = SCRIPT_STALL_REPLY});
    tell_all(team, command);
    await_that(server_asks(f->server) >= asks);
    process_pause(team);
    script_server_clear(net);
    for (int64_t end = now_ms() + STOP_MS; now_ms() < end || !script_server_has_answered(net); pause_ms(10)) {
        assert_true(now_ms() < end + LIMIT_MS);
        script_server_release(net); /* each time one of those that a connection holds back */
    }
    process_resume(team);
    expect_ok_from_all(team);
}

static void all_lock_and_unlock(process *team)
{
    tell_all(team, "lock");
    expect_ok_from_all(team);
    tell_all(team, "unlock");
    expect_ok_from_all(team);
}

/*
 * A connection is made when it is missing: a shared one when the open ones are busy, the subscription when a thread
 * waits for a grant, or holds a lock for long, as on a busy machine.
 */
static void await_all_connections(fixture *f, process *team)
{
    for (int64_t limit = now_ms() + LIMIT_MS; server_clients(f->server) < CONNECTIONS; all_lock_and_unlock(team))
        assert_true(now_ms() < limit);
    fixture_open_holding(f, LONG_LEASE_MS, "waited-for");
    process_write(team, "lock 0 waited-for -1 0");
    queue_await(f->server, "waited-for", 1);
    queue_entry entry = queue_at(f->server, "waited-for", 0);
    queue_await_listening(f->server, entry.channel);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "waited-for"));
    assert_string_equal(process_read(team), "0 DIBS_OK ");
    assert_string_equal(process_ask(team, "unlock 0 waited-for"), "0 DIBS_OK ");
    close_runtime(&f->rt);
}

/* Many threads share few connections: besides the thread that reads, others wake up after their deadline. */
TEST_ON(a_stopped_process_loses_no_call_and_no_connection, fixture *f)
{
    script_server *net = fixture_between(f);
    process *team = process_start((const char *const[]){program_path("team"), NULL});

    assert_string_equal(process_ask(team, "open %s %d %d", script_server_url(net), SCRIPT_LEASE_MS, COMMAND_TIMEOUT_MS),
                        "DIBS_OK ");
    await_all_connections(f, team);
    unsigned accepted = script_server_accepted(net);
    for (int i = 0; i < ROUNDS; i++) {
        stop_in_between(f, team, net, "lock");
        stop_in_between(f, team, net, "unlock");
    }
    assert_int_equal(script_server_accepted(net), accepted);
    assert_string_equal(process_ask(team, "close"), "DIBS_OK ");
    process_free(team);
}

TESTS(fixture_setup, fixture_teardown)
