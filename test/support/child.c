/* Children that a test forks. */
#include "support/child.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/process.h"
#include "support/test.h"

void child_wants(dibs_status expected, dibs_status actual, const char *call, const char *file, int line)
{
    if (actual == expected)
        return;
    fprintf(stderr, "%s:%d: in the child: %s: %s, should be %s; detail: %s\n", file, line, call,
            dibs_status_name(actual), dibs_status_name(expected), dibs_last_error());
    _exit(1);
}

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

static pid_t fork_plainly(void)
{
    pid_t child = fork();

    if (child == 0) {
        atomic_store(&is_child, true);
        prepare_child();
    }
    return child;
}

/*
 * The sanitizers' allocators are not made for a fork beside other threads: each size has a lock of its own, and one
 * that another thread of the parent held is locked in the child for ever. A child shows that none is by allocating more
 * of each size than a thread keeps for itself; one that cannot is killed, and another forked.
 */
#if defined(TEST_UNDER_ASAN) || defined(TEST_UNDER_TSAN)
enum { CHILDREN = 30, PROBE_LIMIT_MS = 2000, LARGEST = 1 << 19, KEPT_OF_A_SIZE = 1 << 17 };

static void allocate_each_size(void)
{
    struct block {
        struct block *next;
    } *first = NULL;

    for (size_t size = 16; size <= LARGEST; size += size < 256 ? 16 : size / 8)
        for (size_t i = 0; i <= KEPT_OF_A_SIZE / size && i <= 512; i++) {
            struct block *block = malloc(size);
            block->next = first;
            first = block;
        }
    while (first != NULL) {
        struct block *next = first->next;
        free(first);
        first = next;
    }
}

static void show_that_it_can_allocate(int pipe_end)
{
    allocate_each_size();
    if (write(pipe_end, "", 1) != 1)
        _exit(99);
    close(pipe_end);
}

static bool has_shown_it(int pipe_end)
{
    struct pollfd end = {.fd = pipe_end, .events = POLLIN};
    char byte;

    return poll(&end, 1, PROBE_LIMIT_MS) == 1 && read(pipe_end, &byte, 1) == 1;
}

pid_t fork_child(void)
{
    for (int i = 0; i < CHILDREN; i++) {
        int ends[2];

        assert_int_equal(pipe(ends), 0);
        pid_t child = fork_plainly();
        if (child == 0) {
            close(ends[0]);
            show_that_it_can_allocate(ends[1]);
            return 0;
        }
        close(ends[1]);
        bool good = child > 0 && has_shown_it(ends[0]);
        close(ends[0]);
        if (good)
            return child;
        assert_true(child > 0);
        child_wait_for(child, 0);
    }
    fail_msg("no child of %d could allocate memory", CHILDREN);
    return -1;
}
#else
pid_t fork_child(void)
{
    return fork_plainly();
}
#endif

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
    pid_t child = fork_child();

    assert_true(child >= 0);
    if (child == 0) {
        function(rt);
        _exit(0);
    }
    assert_int_equal(child_wait_for(child, LIMIT_MS), 0);
}

pid_t child_that_stays(bool (*function)(const void *arg), const void *arg)
{
    bool good = false;
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork_child();
    if (child == 0) {
        good = function(arg);
        if (write(ends[1], &good, sizeof good) == sizeof good)
            for (;;)
                pause();
        _exit(1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &good, sizeof good), sizeof good);
    close(ends[0]);
    assert_true(good);
    return child;
}

void child_kill(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

void child_aborts(void (*misuse)(void))
{
    int status;
    pid_t child = fork_child();

    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        misuse();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
