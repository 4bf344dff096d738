/*
 * Children that a test forks, which inherit a runtime of their parent. A child must not use the assertions of cmocka:
 * after a failed one, the child would go on with the rest of the tests.
 */
#ifndef DIBS_TEST_CHILD_H
#define DIBS_TEST_CHILD_H

#include <dibs.h>
#include <stdbool.h>
#include <sys/types.h>

/* Where the call returns another status, says so and ends the child with exit status 1. */
#define CHILD_WANTS(expected, call) child_wants((expected), (call), #call, __FILE__, __LINE__)
void child_wants(dibs_status expected, dibs_status actual, const char *call, const char *file, int line);

typedef void child_function(dibs_runtime *rt);

/* As fork(2), for a program that has threads under ThreadSanitizer. */
pid_t fork_child(void);

/* Runs the function in a child, and fails the test unless the child returns from it. */
void run_child(child_function *function, dibs_runtime *rt);

/* Runs the function in a child, which must return true, and stays as it is then until child_kill. */
pid_t child_that_stays(bool (*function)(const void *arg), const void *arg);
void child_kill(pid_t child);

/* Runs the function in a child, whose messages are thrown away, and fails the test unless it aborts. */
void child_aborts(void (*misuse)(void));

#endif
