/* redis-sentinel://: the master is found, and followed when it changes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/fixture.h"
#include "support/sentinels.h"
#include "support/test.h"
#include "support/wait.h"

static void a_master_is_found(void **state)
{
    sentinels *s = sentinels_start(NULL);
    dibs_runtime *rt = open_url(s->url, NULL);

    (void)state;
    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    assert_true(server_has(s->data[0], "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    dibs_close(rt);
    server_assert_no_locks(s->data[0]);
    sentinels_stop(s);
}

static void a_failover_is_followed(void **state)
{
    sentinels *s = sentinels_start(NULL);
    dibs_runtime *rt = open_url(s->url, &(dibs_config){.lease_ms = LONG_LEASE_MS});

    (void)state;
    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    uint64_t fence = fence_of(rt, "x");
    server *new_one = sentinels_failover(s);
    assert_status(DIBS_OK, dibs_lock(rt, "y"));
    assert_true(server_has(new_one, "lock:y"));
    assert_status(DIBS_OK, dibs_unlock(rt, "y"));
    assert_status(DIBS_OK, dibs_check(rt, "x"));
    assert_true(server_has(new_one, "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    assert_true(fence_of(rt, "x") > fence);
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    dibs_close(rt);
    server_assert_no_locks(new_one);
    sentinels_stop(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_master_is_found),
        cmocka_unit_test(a_failover_is_followed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
