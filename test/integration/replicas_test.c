/* min_replicas: a first acquire is acknowledged by so many replicas, or it is taken back. */
#include <string.h>

#include "support/fixture.h"
#include "support/test.h"
#include "support/wait.h"

static bool replica_is_online(void *arg)
{
    redisReply *reply = server_command(arg, "INFO replication");
    bool online = strstr(reply->str, "state=online") != NULL;

    freeReplyObject(reply);
    return online;
}

static void a_first_acquire_waits_for_its_replicas(void **state)
{
    server *master = server_start(&(server_options){.tcp = true, .config = "repl-diskless-sync-delay 0"});
    server *replica = server_start(NULL);
    dibs_config config = {.lease_ms = LONG_LEASE_MS,
                          .min_replicas = 1,
                          .replica_timeout_ms = LIMIT_MS / 4,
                          .command_timeout_ms = LIMIT_MS / 4};
    dibs_runtime *patient;
    dibs_runtime *hasty;

    (void)state;
    server_do(replica, "REPLICAOF 127.0.0.1 %d", master->port);
    assert_true(wait_until(replica_is_online, master, LIMIT_MS));
    patient = open_url(master->url, &config);
    config.replica_timeout_ms = 200;
    hasty = open_url(master->url, &config);
    for (int i = 0; i < 5; i++) {
        assert_status(DIBS_OK, dibs_trylock(patient, "x"));
        assert_true(server_has(replica, "lock:x")); /* that is what OK says */
        assert_status(DIBS_OK, dibs_lock(patient, "x"));
        assert_status(DIBS_OK, dibs_unlock(patient, "x"));
        assert_status(DIBS_OK, dibs_unlock(patient, "x"));
    }
    server_pause(replica);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(hasty, "x"));
    assert_that(strcasestr(dibs_last_error(), "replica"), "%s", dibs_last_error());
    assert_status(DIBS_NOT_HELD, dibs_check(hasty, "x"));
    assert_true(server_wait_gone(master, "lock:x", LIMIT_MS));
    server_resume(replica);
    assert_status(DIBS_OK, dibs_timedlock(patient, "x", LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock(patient, "x"));
    dibs_close(patient);
    dibs_close(hasty);
    server_assert_no_locks(master);
    server_stop(replica);
    server_stop(master);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_acquire_waits_for_its_replicas),
    };

    return cmocka_run_group_tests_name("replicas", tests, NULL, NULL);
}
