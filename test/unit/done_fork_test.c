/* A process forks while the first queue of all is made, as soon as that has registered what is to run at forks. */
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

/* With a sanitizer, this program can't put its own function in place of the C library's. */
#if defined(__GLIBC__) && !defined(TEST_UNDER_ASAN) && !defined(TEST_UNDER_TSAN)
#define CAN_FORK 1
#else
#define CAN_FORK 0
#endif

enum { PATIENCE_S = 60 };

static pid_t child; /* forked behind the last registration */
static int registered;

/* Ends the child: its first queue is made here, and after that it must be able to fork. */
static void live_as_child(void)
{
    dibs_queue *queue;

    alarm(PATIENCE_S);
    if (dibs_queue_new(&queue) != DIBS_OK)
        _exit(1);
    pid_t grandchild = fork();
    if (grandchild == 0)
        _exit(0);
    dibs_queue_free(queue);
    _exit(grandchild < 0 || waitpid(grandchild, NULL, 0) != grandchild);
}

#if CAN_FORK
/* The C library links this one into each program. */
extern int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void), void *object);

int pthread_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
    int status = __register_atfork(before, in_parent, in_child, NULL);

    if (++registered == 1) {
        child = fork();
        if (child == 0)
            live_as_child();
    }
    return status;
}
#endif

TEST(a_child_of_who_makes_the_first_queue_can_fork)
{
    dibs_queue *queue;
    int status = -1;

    assert_status(DIBS_OK, dibs_queue_new(&queue));
    dibs_queue_free(queue);
    if (!CAN_FORK)
        return;
    assert_int_equal(registered, 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

TESTS(NULL, NULL)
