#include "calls/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/bench.h"
#include "support/common/cleanup.h"

bool trace_possible(void)
{
    return system("strace -f -c -o /dev/null true >/dev/null 2>&1") == 0; // NOLINT(cert-env33-c): as typed by a user
}

static bool is_one_of(const char *word, const char *const *words)
{
    while (*words && strcmp(word, *words) != 0)
        words++;
    return *words != NULL;
}

static double *kind_of(struct trace *trace, const char *call)
{
    static const char *const writes[] = {"write", "writev", "sendto", "sendmsg", NULL};
    static const char *const reads[] = {"read", "readv", "recvfrom", "recvmsg", NULL};
    static const char *const polls[] = {"poll",       "ppoll",       "select",     "pselect6",
                                        "epoll_wait", "epoll_pwait", "_newselect", NULL};

    if (is_one_of(call, writes))
        return &trace->writes;
    if (is_one_of(call, reads))
        return &trace->reads;
    if (is_one_of(call, polls))
        return &trace->polls;
    return strncmp(call, "futex", 5) == 0 ? &trace->futexes : &trace->others;
}

/* A line of the summary: "% time, seconds, usecs/call, calls, errors if there were any, name". */
static void count_line(struct trace *trace, char *line)
{
    char *rest, *column[6];
    unsigned columns = 0;

    for (char *word = strtok_r(line, " \n", &rest); word && columns < 6; word = strtok_r(NULL, " \n", &rest))
        column[columns++] = word;
    if (columns < 5 || strspn(column[3], "0123456789") != strlen(column[3]) ||
        strcmp(column[columns - 1], "total") == 0)
        return;
    *kind_of(trace, column[columns - 1]) += strtod(column[3], NULL);
}

struct trace trace_run(const char *command)
{
    char path[128], line[8192];
    struct trace trace = {0};

    snprintf(path, sizeof path, "%s/strace", bench_server.folder);
    snprintf(line, sizeof line, "exec strace -f -c -o %s %s", path, command);
    if (system(line) != 0) // NOLINT(cert-env33-c): as typed by a user
        cleanup_fail("strace failed: %s", command);
    FILE *file = fopen(path, "re");
    if (!file)
        cleanup_fail("strace told nothing");
    while (fgets(line, sizeof line, file))
        count_line(&trace, line);
    fclose(file);
    return trace;
}
