/* Children that a test forks. */
#include "support/child.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/process.h"
#include "support/test.h"
#include "support/wait.h"

void child_wants(dibs_status expected, dibs_status actual, const char *call, const char *file, int line)
{
    if (actual == expected)
        return;
    fprintf(stderr, "%s:%d: in the child: %s: %s, should be %s; detail: %s\n", file, line, call,
            dibs_status_name(actual), dibs_status_name(expected), dibs_last_error());
    _exit(1);
}

/*
 * The sanitizers' allocators are not made for a fork beside other threads: in the child, one of their locks may be held
 * for ever. So under the sanitizers, and only there, another child is tried when one does not end.
 */
#if defined(TEST_UNDER_ASAN) || defined(TEST_UNDER_TSAN)
enum { CHILDREN = 6, CHILD_LIMIT_MS = 20000 };
#else
enum { CHILDREN = 1, CHILD_LIMIT_MS = LIMIT_MS };
#endif

/*
 * ThreadSanitizer knows a thread by its place in memory, and takes the parent's threads for alive in the child. With
 * another size of stack, a new thread gets none of their places.
 */
static void prepare_child(void)
{
#if defined(TEST_UNDER_TSAN)
    pthread_attr_t attributes;
    size_t size;

    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &size);
    pthread_attr_setstacksize(&attributes, size + ((size_t)8 << 20));
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
#endif
}

/*
 * LeakSanitizer asks at an exit(3). In a child it waits for threads that are the parent's alone, and then takes what
 * only threads of the child know of for lost; so does OpenSSL lose what threads have that live when it ends.
 */
static atomic_bool is_child;

int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return atomic_load(&is_child);
}

pid_t fork_child(void)
{
    pid_t child = fork();

    if (child == 0) {
        atomic_store(&is_child, true);
        prepare_child();
    }
    return child;
}

/* In place of the system's: the lines that a child ran count too. */
#if defined(TEST_COUNTS_LINES)
extern void __gcov_dump(void);

void _exit(int code)
{
    __gcov_dump();
    _Exit(code);
}
#endif

void run_child(child_function *function, dibs_runtime *rt)
{
    int status = -1;

    for (int i = 0; i < CHILDREN && status == -1; i++) {
        pid_t child = fork_child();

        assert_true(child >= 0);
        if (child == 0) {
            function(rt);
            _exit(0);
        }
        status = child_wait_for(child, CHILD_LIMIT_MS);
    }
    assert_int_equal(status, 0);
}
