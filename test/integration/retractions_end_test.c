/* Retractions come to an end where a connection, or a whole master, is missing: memory does not grow for ever. */
#include "support/fixture.h"
#include "support/masters.h"
#include "support/seat.h"
#include "support/tasks.h"

/* --------------------------------------------------------------- no more clients */

/* Ends the client with the largest id of those that are not subscribed: that of the scheduler, which came last. */
static void kill_background(fixture *f)
{
    redisReply *list = server_command(f->server, "CLIENT LIST TYPE normal");
    long long newest = 0, own = server_integer(f->server, "CLIENT ID");

    for (const char *line = list->str; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        long long id = atoll(line + strlen("id="));
        newest = id > newest && id != own ? id : newest;
    }
    freeReplyObject(list);
    assert_true(newest > 0);
    server_do(f->server, "CLIENT KILL ID %lld", newest);
}

/* A waiter that gives up leaves the queue, though the connection by which it usually does can't be had. */
TEST_ON(waiters_leave_the_queue_over_the_remaining_connection, fixture *f)
{
    enum { TRIES = 20 };
    dibs_queue *q = queue_new();

    fixture_open_connected(f, LONG_LEASE_MS);
    dibs_task *task = task_of_runtime(f->rt);
    server_do(f->server, "SET lock:a dibs:another PX 600000");
    server_do(f->server, "CONFIG SET maxclients 1");
    kill_background(f);
    for (int i = 0; i < TRIES; i++) {
        assert_status(DIBS_TIMEOUT, task_lock(task, "a", 5, q)); /* a blocking call would wait for its release */
        assert_true(server_wait_gone(f->server, "dibs:queue:{lock:a}", LIMIT_MS));
    }
    dibs_task_free(task);
    dibs_queue_free(q);
    server_do(f->server, "CONFIG SET maxclients 1000");
    server_do(f->server, "DEL lock:a");
}

/* ------------------------------------------------------------- a member is down */

/* A master that was slow to answer the release before may still have the lock. */
static dibs_status ask_until_granted(struct dibs__store *store, struct dibs__attempt *attempt,
                                     struct dibs__answer *answer)
{
    struct dibs__error error;
    dibs_status status = store_ask(store, attempt, seat_deadline(), answer, &error);

    for (int64_t end = now_ms() + LIMIT_MS; status == DIBS_BUSY && now_ms() < end; pause_ms(1))
        status = store_ask(store, attempt, seat_deadline(), answer, &error);
    return status;
}

/* A hold that was renewed while a master was away left nothing there: there is nothing to retract once it ends. */
TEST_ON_THREE_AND_FIVE(an_absent_master_needs_no_retraction_of_a_renewed_hold, masters *m)
{
    enum { HOLDS = 20 };
    static struct seat seat;
    struct dibs__answer answer;

    server_kill(m->servers[m->count - 1]);
    seat_open(&seat, &(struct dibs__store_config){.url = m->urls[0],
                                                  .urls = m->urls,
                                                  .url_count = m->count,
                                                  .lease_ms = LONG_LEASE_MS,
                                                  .command_timeout_ms = LIMIT_MS / 4});
    for (unsigned i = 0; i < HOLDS; i++) {
        const char *token = formatted("dibs:test:%u", i);
        struct dibs__attempt attempt = {.name = "a", .token = token, .lease_ms = LONG_LEASE_MS};
        assert_status(DIBS_OK, ask_until_granted(seat.store, &attempt, &answer));
        seat.store->ops->conclude(seat.store, &attempt, true);
        struct dibs__renewal renewal = {.name = "a", .token = token, .lease_ms = LONG_LEASE_MS, .fence = answer.fence};
        assert_int_equal(seat_renew(&seat, &renewal), DIBS__RENEWED);
        struct dibs__op release = store_release_op("a", token, LONG_LEASE_MS, seat_deadline());
        assert_status(DIBS_OK, store_do(seat.store, &release));
    }
    seat_await_confirmed(&seat);
    seat_close(&seat);
    server_restart(m->servers[m->count - 1]);
}

TESTS(fixture_setup, fixture_teardown)
