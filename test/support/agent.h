/*
 * Another process with a runtime of its own, by remote control: the program
 * test/support/prog/agent. From the test's own thread.
 */
#ifndef DIBS_TEST_AGENT_H
#define DIBS_TEST_AGENT_H

#include <dibs.h>

#include "support/process.h"

/* Starts one that has opened url, with this lease (0: the default). Ended by process_free, or agent_stop. */
process *agent_start(const char *url, uint32_t lease_ms);

/* Has it close its runtime and end, and expects exit status 0. Frees it. */
void agent_stop(process *agent);

dibs_status agent_lock(process *agent, const char *name, int64_t wait_ms);
dibs_status agent_unlock(process *agent, const char *name);
dibs_status agent_check(process *agent, const char *name);

/* The fence of its hold; it must hold the name. */
uint64_t agent_fence(process *agent, const char *name);

/* How long it believes in its lease; it must hold the name. */
int64_t agent_remaining(process *agent, const char *name);

/* A call that may wait: begun here; agent_result takes its status. agent_begin_check is for an agent that is paused. */
void agent_begin_lock(process *agent, const char *name, int64_t wait_ms);
void agent_begin_fair(process *agent, const char *name, int64_t wait_ms);
void agent_begin_check(process *agent, const char *name);
dibs_status agent_result(process *agent);

/* Of several whose call waits for a lock: the one that gets it first; it must be DIBS_OK. */
process *agent_granted(process *const *agents, size_t count);

#endif
