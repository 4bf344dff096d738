/*
 * A program that uses all keys for thread-specific data itself: dibs_open says DIBS_NO_MEMORY, touches none of the
 * keys, and succeeds when there is one again. The library takes its key at the first success, so this program has one
 * test.
 */
#include <pthread.h>
#include <string.h>

#include "support/fixture.h"
#include "support/test.h"

static void holds_report_that_no_thread_key_is_left(void **state)
{
    enum { MOST = 4096 };
    static pthread_key_t keys[MOST];
    size_t count = 0;
    dibs_runtime *rt;

    (void)state;
    while (count < MOST && pthread_key_create(&keys[count], NULL) == 0) {
        assert_int_equal(pthread_setspecific(keys[count], &keys[count]), 0);
        count++;
    }
    assert_in_range(count, 1, MOST - 1);
    for (int i = 0; i < 2; i++) {
        assert_status(DIBS_NO_MEMORY, open_status("mem:", NULL, &rt));
        assert_null(rt);
        assert_non_null(strstr(dibs_last_error(), "key"));
    }
    pthread_key_delete(keys[--count]);
    assert_status(DIBS_OK, open_status("mem:", NULL, &rt));
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    for (size_t i = 0; i < count; i++)
        assert_ptr_equal(pthread_getspecific(keys[i]), &keys[i]);
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
    dibs_close(rt);
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(pthread_getspecific(keys[i]), &keys[i]);
        pthread_key_delete(keys[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_report_that_no_thread_key_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
