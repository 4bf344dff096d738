/*
 * Children that a test forks, with a runtime of their parent's. In a child no assertion of cmocka may be used: it would
 * run the rest of the tests there.
 */
#ifndef DIBS_TEST_CHILD_H
#define DIBS_TEST_CHILD_H

#include <dibs.h>
#include <sys/types.h>

/* Ends the child with 1 and says why, where the call returns another status. */
#define CHILD_WANTS(expected, call) child_wants((expected), (call), #call, __FILE__, __LINE__)
void child_wants(dibs_status expected, dibs_status actual, const char *call, const char *file, int line);

typedef void child_function(dibs_runtime *rt);

/* As fork(2), in a program with threads. */
pid_t fork_child(void);

/* Runs function in a child and expects that it comes to its end. */
void run_child(child_function *function, dibs_runtime *rt);

#endif
