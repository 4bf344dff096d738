/* Controls another process that has a runtime of its own. */
#include "support/agent.h"

#include <inttypes.h>

#include "support/test.h"

/* The status whose name begins the line. */
static dibs_status parse_status(const char *line)
{
    for (int i = DIBS_OK; i <= DIBS_CANCELLED; i++) {
        const char *name = dibs_status_name((dibs_status)i);
        size_t length = strlen(name);

        if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == '\0'))
            return (dibs_status)i;
    }
    print_error("the agent says: %s\n", line);
    fail_msg("%s", "that is no status");
    return DIBS_INVALID;
}

static void stop(void *agent)
{
    agent_stop(agent);
}

process *agent_start(const char *url, uint32_t lease_ms)
{
    process *agent = process_start((const char *const[]){program_path("agent"), NULL});
    const char *line = process_ask(agent, "open %s %u", url, lease_ms);

    assert_that(parse_status(line) == DIBS_OK, "%s", line);
    test_ends(TEST_AGENT, agent, stop);
    return agent;
}

void agent_stop(process *agent)
{
    assert_string_equal(process_ask(agent, "close"), "DIBS_OK");
    assert_int_equal(process_wait(agent, LIMIT_MS), 0);
    process_free(agent);
}

dibs_status agent_result(process *agent)
{
    return parse_status(process_read(agent));
}

struct candidates {
    process *const *agents;
    size_t count;
    process *granted;
};

static bool one_answers(struct candidates *c)
{
    for (size_t i = 0; i < c->count && !c->granted; i++)
        if (process_try_read(c->agents[i]))
            c->granted = c->agents[i];
    return c->granted != NULL;
}

process *agent_granted(process *const *agents, size_t count)
{
    struct candidates c = {agents, count, NULL};

    await_or_say(one_answers(&c), "no agent gets the lock");
    assert_that(parse_status(c.granted->line) == DIBS_OK, "%s", c.granted->line);
    return c.granted;
}

void agent_begin_lock(process *agent, const char *name, int64_t wait_ms)
{
    process_write(agent, "lock %s %" PRId64, name, wait_ms);
}

void agent_begin_fair(process *agent, const char *name, int64_t wait_ms)
{
    process_write(agent, "fair %s %" PRId64, name, wait_ms);
}

void agent_begin_check(process *agent, const char *name)
{
    process_write(agent, "check %s", name);
}

dibs_status agent_lock(process *agent, const char *name, int64_t wait_ms)
{
    agent_begin_lock(agent, name, wait_ms);
    return agent_result(agent);
}

dibs_status agent_unlock(process *agent, const char *name)
{
    return parse_status(process_ask(agent, "unlock %s", name));
}

dibs_status agent_check(process *agent, const char *name)
{
    return parse_status(process_ask(agent, "check %s", name));
}

/* Asks, expects DIBS_OK, and returns what follows the status in the answer. */
static const char *ask_for(process *agent, const char *what, const char *name)
{
    const char *line = process_ask(agent, "%s %s", what, name);

    assert_that(parse_status(line) == DIBS_OK, "%s", line);
    return line + strlen("DIBS_OK");
}

uint64_t agent_fence(process *agent, const char *name)
{
    return strtoull(ask_for(agent, "fence", name), NULL, 10);
}

int64_t agent_remaining(process *agent, const char *name)
{
    return strtoll(ask_for(agent, "remaining", name), NULL, 10);
}
