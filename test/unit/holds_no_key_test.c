/*
 * A program that uses all keys for thread-specific data itself: dibs_open says DIBS_NO_MEMORY, touches none of the
 * keys, and succeeds when there is one again. For a key with such a high number the C library allocates memory in each
 * thread: where there is none, no thread enters a task whose end would not be noticed. The library takes its key at the
 * first success, so this program has one test.
 */
#include <pthread.h>

#include "support/failing_malloc.h"
#include "support/fixture.h"
#include "support/tasks.h"

struct entering {
    dibs_task *task;
    dibs_status without_memory, later;
};

static void enter_twice(void *arg)
{
    struct entering *entering = arg;

    fail_here(1);
    entering->without_memory = dibs_task_enter(entering->task);
    fail_no_more();
    entering->later = entering->without_memory == DIBS_OK ? DIBS_BUSY : dibs_task_enter(entering->task);
}

/* The thread ends in the task, which it leaves with that. */
static void a_task_is_not_entered_without_memory(dibs_runtime *rt)
{
    struct entering entering = {.task = task_of_runtime(rt)};

    call_in_a_thread(enter_twice, &entering);
    assert_status(DIBS_NO_MEMORY, entering.without_memory);
    assert_status(DIBS_OK, entering.later);
    assert_status(DIBS_OK, dibs_task_enter(entering.task));
    assert_status(DIBS_OK, dibs_task_leave(entering.task));
    dibs_task_free(entering.task);
}

TEST(holds_report_that_no_thread_key_is_left)
{
    enum { MOST = 4096 };
    static pthread_key_t keys[MOST];
    size_t count = 0;
    dibs_runtime *rt;

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
    if (CAN_FAIL)
        a_task_is_not_entered_without_memory(rt);
    dibs_close(rt);
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(pthread_getspecific(keys[i]), &keys[i]);
        pthread_key_delete(keys[i]);
    }
}

TESTS(NULL, NULL)
