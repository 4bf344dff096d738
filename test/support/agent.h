/*
 * Another process with a runtime of its own, which the test controls: the program test/support/prog/agent. Used by the
 * test's own thread only.
 */
#ifndef DIBS_TEST_AGENT_H
#define DIBS_TEST_AGENT_H

#include <dibs.h>

#include "support/process.h"

/*
 * Starts an agent that has opened url, or several with commas between, with this lease (0: the default). Ended by
 * process_free or agent_stop, or with the test as by agent_stop.
 */
process *agent_start(const char *url, uint32_t lease_ms);

/* Makes the agent close its runtime and end, expects exit status 0, and frees it. */
void agent_stop(process *agent);

dibs_status agent_lock(process *agent, const char *name, int64_t wait_ms);
dibs_status agent_unlock(process *agent, const char *name);
dibs_status agent_check(process *agent, const char *name);

/* The fence of the agent's hold; the agent must hold the name. */
uint64_t agent_fence(process *agent, const char *name);

/* For how many ms the agent still counts on its lease; the agent must hold the name. */
int64_t agent_remaining(process *agent, const char *name);

/*
 * These only begin a call, which may wait; agent_result waits for its end and returns its status. agent_begin_check is
 * for an agent that is paused.
 */
void agent_begin_lock(process *agent, const char *name, int64_t wait_ms);
void agent_begin_fair(process *agent, const char *name, int64_t wait_ms);
void agent_begin_check(process *agent, const char *name);
dibs_status agent_result(process *agent);

/* Of several agents that wait for one lock: the first whose call ends; it must end with DIBS_OK. */
process *agent_granted(process *const *agents, size_t count);

#endif
