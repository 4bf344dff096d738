/* Descriptors, the pipe that wakes the scheduler, threads, random bits and hashes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/process.h"
#include "base/random.h"
#include "base/thread.h"
#include "base/wake.h"
#include "support/process.h"
#include "support/test.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void assert_flags(int fd)
{
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

/* The results of opening a pipe and a socket while no fork handlers could be registered. */
static struct {
    int pipe, pipe_errno, socket, socket_errno;
} refused;

#if defined(__GLIBC__) && !defined(TEST_UNDER_ASAN) && !defined(TEST_UNDER_TSAN)
#define CAN_REFUSE 1
static bool refuses;

/* The C library links this one into each program. */
extern int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void), void *object);

int pthread_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
    return refuses ? ENOMEM : __register_atfork(before, in_parent, in_child, NULL);
}
#else
#define CAN_REFUSE 0
static bool refuses;
#endif

/* Fork handlers are registered once, with the first descriptor: so the refusal is tried before all tests. */
static int ask_while_handlers_are_refused(void **state)
{
    int ends[2];

    if (!CAN_REFUSE)
        return 0;
    refuses = true;
    errno = 0;
    refused.pipe = dibs__fd_pipe(ends);
    refused.pipe_errno = errno;
    errno = 0;
    refused.socket = dibs__fd_socket(AF_UNIX);
    refused.socket_errno = errno;
    refuses = false;
    return 0;
}

TEST(no_descriptor_is_opened_without_fork_handlers)
{
    if (!CAN_REFUSE)
        return;
    assert_int_equal(refused.pipe, -1);
    assert_int_equal(refused.pipe_errno, ENOMEM);
    assert_int_equal(refused.socket, -1);
    assert_int_equal(refused.socket_errno, ENOMEM);
}

TEST(descriptors_do_not_block_and_close_on_exec)
{
    int ends[2], sock = dibs__fd_socket(AF_UNIX);

    assert_int_equal(dibs__fd_pipe(ends), 0);
    assert_flags(sock);
    assert_flags(ends[0]);
    assert_flags(ends[1]);
    dibs__fd_close(sock);
    dibs__fd_close(ends[0]);
    dibs__fd_close(ends[1]);
    assert_false(is_open(sock) || is_open(ends[0]) || is_open(ends[1]));
}

static bool opens_no_standard_descriptor(void)
{
    int ends[2] = {-1, -1}, sock = dibs__fd_socket(AF_UNIX), flags = fcntl(sock, F_GETFL);
    char byte = 0;

    return sock > STDERR_FILENO && flags >= 0 && (flags & O_NONBLOCK) && fcntl(sock, F_GETFD) == FD_CLOEXEC &&
           dibs__fd_pipe(ends) == 0 && ends[0] > STDERR_FILENO && ends[1] > STDERR_FILENO &&
           write(ends[1], "x", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'x';
}

/* In a process that has closed them, as some daemons do: what it prints nevertheless is sent to no server. */
TEST(the_standard_descriptors_are_left_alone)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (int fd = 0; fd <= STDERR_FILENO; fd++)
            close(fd);
        bool left_alone = opens_no_standard_descriptor();
        for (int fd = 0; fd <= STDERR_FILENO; fd++)
            left_alone = left_alone && !is_open(fd);
        _exit(!left_alone);
    }
    assert_int_equal(child_wait(pid), 0);
}

TEST(only_descriptors_of_the_library_are_closed)
{
    int foreign = open("/dev/null", O_RDONLY), sock = dibs__fd_socket(AF_UNIX);

    assert_true(foreign >= 0 && sock >= 0);
    dibs__fd_close(foreign);
    dibs__fd_close(-1);
    assert_true(is_open(foreign));
    dibs__fd_close(sock);
    int again = dup(foreign); /* the number may belong to another descriptor now */
    dibs__fd_close(again);
    assert_true(is_open(again));
    close(again);
    close(foreign);
}

TEST(an_impossible_socket_is_an_error)
{
    errno = 0;
    assert_int_equal(dibs__fd_socket(-1), -1);
    assert_int_not_equal(errno, 0);
}

TEST(a_child_has_none_of_its_parents_descriptors)
{
    enum { MANY = 100 };
    int fds[MANY];
    unsigned generation = dibs__fork_generation();

    for (int i = 0; i < MANY; i++)
        assert_true((fds[i] = dibs__fd_socket(AF_UNIX)) >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        int open = dibs__fork_generation() != generation + 1;
        for (int i = 0; i < MANY; i++)
            open += is_open(fds[i]);
        int own = dibs__fd_socket(AF_UNIX);
        dibs__fd_close(fds[MANY - 1] == own ? -1 : fds[MANY - 1]);
        _exit(open || !is_open(own));
    }
    assert_int_equal(child_wait(pid), 0);
    assert_int_equal(dibs__fork_generation(), generation);
    for (int i = 0; i < MANY; i++) {
        assert_true(is_open(fds[i]));
        dibs__fd_close(fds[i]);
    }
}

/* How many of these numbers are closed in a child that this process forks; -1: the fork failed. */
static int closed_in_a_child(const int *fds, int count)
{
    pid_t pid = fork();

    if (pid == 0) {
        int closed = 0;
        for (int i = 0; i < count; i++)
            closed += !is_open(fds[i]);
        _exit(closed);
    }
    return child_wait_for(pid, LIMIT_MS);
}

/*
 * The child may use the numbers of the parent's descriptors for its own files, and those are open in its own child,
 * too.
 */
TEST(a_grandchild_keeps_the_files_its_parent_opened)
{
    enum { MANY = 20 };
    int fds[MANY];

    for (int i = 0; i < MANY; i++)
        assert_true((fds[i] = dibs__fd_socket(AF_UNIX)) >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        int own[MANY], reused = 0;
        for (int i = 0; i < MANY; i++) {
            own[i] = open("/dev/null", O_RDONLY);
            for (int j = 0; j < MANY; j++)
                reused += own[i] == fds[j];
        }
        _exit(reused == 0 ? MANY + 1 : closed_in_a_child(own, MANY));
    }
    assert_int_equal(child_wait(pid), 0);
    for (int i = 0; i < MANY; i++)
        dibs__fd_close(fds[i]);
}

/* ---------------------------------------------------------------- the pipe */

static bool is_ready(const struct dibs__wake *wake)
{
    struct pollfd fd = {.fd = wake->fds[0], .events = POLLIN};

    return poll(&fd, 1, 0) == 1;
}

TEST(a_bell_wakes_once_and_may_ring_again)
{
    struct dibs__wake wake;

    assert_true(dibs__wake_init(&wake));
    for (int i = 0; i < 3; i++) {
        assert_false(is_ready(&wake));
        for (int j = 0; j < 100000; j++) /* more than a pipe holds: never blocks */
            dibs__wake_ring(&wake);
        assert_true(is_ready(&wake));
        dibs__wake_quiet(&wake);
    }
    assert_false(is_ready(&wake));
    dibs__wake_quiet(&wake);
    dibs__wake_free(&wake);
}

struct counted {
    struct dibs__wake wake;
    atomic_uint given;
};

static void *give(void *arg)
{
    struct counted *counted = arg;

    for (int i = 0; i < 20000; i++) {
        atomic_fetch_add(&counted->given, 1);
        dibs__wake_ring(&counted->wake);
    }
    return NULL;
}

/* In every order of the threads, after the last ring either a wake-up is still to come, or all rings have been seen. */
TEST(no_ring_of_a_bell_is_lost)
{
    struct counted counted = {.given = 0};
    pthread_t givers[2];
    unsigned seen = 0;

    assert_true(dibs__wake_init(&counted.wake));
    for (int i = 0; i < 2; i++)
        pthread_create(&givers[i], NULL, give, &counted);
    while (seen < 40000) {
        struct pollfd fd = {.fd = counted.wake.fds[0], .events = POLLIN};
        assert_int_equal(poll(&fd, 1, 60000), 1);
        dibs__wake_quiet(&counted.wake);
        seen = atomic_load(&counted.given);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(givers[i], NULL);
    dibs__wake_free(&counted.wake);
}

/* --------------------------------------------------------- threads and the rest */

static void *look_at_thread(void *arg)
{
    sigset_t blocked;
    bool *all = arg;

    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    *all = true;
    for (int i = 1; i <= 31; i++)
        *all = *all && (i == SIGKILL || i == SIGSTOP || sigismember(&blocked, i) == 1);
    return (void *)dibs__thread_number();
}

TEST(threads_block_all_signals_and_the_starter_does_not)
{
    sigset_t before, after;
    pthread_t thread;
    bool all = false;
    void *number;

    pthread_sigmask(SIG_BLOCK, NULL, &before);
    assert_true(dibs__thread_start(&thread, look_at_thread, &all));
    pthread_join(thread, &number);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    assert_true(all);
    for (int i = 1; i <= 31; i++)
        assert_int_equal(sigismember(&before, i), sigismember(&after, i));
    assert_true((unsigned long)number != 0 && (unsigned long)number != dibs__thread_number());
    assert_int_equal(dibs__thread_number(), dibs__thread_number());
}

TEST(a_forked_thread_has_a_number_of_its_own)
{
    unsigned long number = dibs__thread_number();

    dibs__fd_close(dibs__fd_socket(AF_UNIX)); /* forks are watched from the first descriptor on */
    pid_t pid = fork();
    if (pid == 0)
        _exit(dibs__thread_number() == number);
    assert_int_equal(child_wait(pid), 0);
}

TEST(jitter_stays_within_its_bounds_and_reaches_them)
{
    static const int64_t bounds[][2] = {{0, 0}, {5, 5}, {0, 1}, {10, 20}, {-3, 3}};

    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        int64_t low = INT64_MAX, high = INT64_MIN;
        for (int n = 0; n < 2000; n++) {
            int64_t value = dibs__jitter(bounds[i][0], bounds[i][1]);
            low = value < low ? value : low;
            high = value > high ? value : high;
        }
        assert_int_equal(low, bounds[i][0]);
        assert_int_equal(high, bounds[i][1]);
    }
}

TEST(random_bytes_differ)
{
    unsigned char one[256], two[256];

    assert_true(dibs__random_bytes(one, sizeof one));
    assert_true(dibs__random_bytes(two, sizeof two));
    assert_memory_not_equal(one, two, sizeof one);
}

TESTS_OF(NULL, NULL, ask_while_handlers_are_refused, NULL)
