/* A process that ends while its threads lock, wait and renew: it does end, and its locks end with their leases. */
#include <stdio.h>

#include "support/fixture.h"
#include "support/process.h"
#include "support/queue.h"
#include "support/test.h"
#include "support/wait.h"

static void end_in_each_way(void **state)
{
    enum { WAYS = 4, TIMES = 4 };
    fixture *f = *state;

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < WAYS * TIMES; i++) {
        char how[8];
        char cycles[16];
        queue_entry entry;
        process *p;

        snprintf(how, sizeof how, "%d", i % WAYS);
        snprintf(cycles, sizeof cycles, "%d", 1 + i * i);
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "held", LIMIT_MS));
        p = process_start((const char *const[]){program_path("leaver"), f->server->url, how, cycles, NULL});
        assert_int_equal(process_wait(p, LIMIT_MS), 0);
        process_free(p);
        /* As soon as the server has noticed, nobody listens any more: the waiter is passed over. */
        if (queue_find(f->server, "held", 0, &entry))
            queue_await_deaf(f->server, entry.channel);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "held"));
        assert_false(server_has(f->server, "lock:held"));
        queue_assert_gone(f->server, "held");
    }
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "kept", LIMIT_MS));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "busy", LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(end_in_each_way, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests_name("exit", tests, NULL, NULL);
}
