/*
 * A process by remote control: reads a command a line, answers each with a
 * line that begins with a status. Names hold no blanks here.
 *
 *     open URL[,URL...] LEASE_MS lock NAME WAIT_MS      unlock NAME
 *     fair NAME WAIT_MS          check NAME             cycle NAME TIMES
 *     fence NAME                 remaining NAME         close
 *     keep URL KEEP_MS: as open, of a runtime that keeps leases, of two minutes
 *
 * Ends with its input, as a process that crashed would: without dibs_close.
 */
#include <dibs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dibs_runtime *rt;

static void say(dibs_status status)
{
    if (status == DIBS_OK)
        printf("%s\n", dibs_status_name(status));
    else
        printf("%s %s\n", dibs_status_name(status), dibs_last_error());
}

static dibs_status open_store(char *list, const char *lease, const char *keep)
{
    const char *urls[5] = {NULL};
    size_t count = 0;

    for (char *rest, *url = strtok_r(list, ",", &rest); url && count < 5; url = strtok_r(NULL, ",", &rest))
        urls[count++] = url;
    dibs_config config = {
        .urls = urls,
        .url_count = count,
        .lease_ms = (uint32_t)strtoul(lease, NULL, 10),
        .keep_ms = (uint32_t)strtoul(keep, NULL, 10),
        .outage_ms = 60000, /* a slow machine takes its time to restart a server */
    };

    return dibs_open(&rt, &config);
}

static void say_of_hold(const char *name, bool fence)
{
    dibs_hold hold;
    dibs_status status = dibs_hold_of(rt, name, &hold);

    if (status == DIBS_OK && fence)
        printf("%s %" PRIu64 "\n", dibs_status_name(status), hold.fence);
    else if (status == DIBS_OK)
        printf("%s %" PRId64 "\n", dibs_status_name(status), hold.remaining_ms);
    else
        say(status);
}

static dibs_status lock_fairly(const char *name, int64_t wait_ms)
{
    return dibs_lock_with(rt, name, wait_ms, &(dibs_lock_options){.flags = DIBS_FAIR});
}

static dibs_status cycle(const char *name, long times)
{
    dibs_status status = DIBS_OK;

    while (times-- > 0 && status == DIBS_OK) {
        status = dibs_lock(rt, name);
        if (status == DIBS_OK)
            status = dibs_unlock(rt, name);
    }
    return status;
}

/* word[0] is the command. */
static void obey(char *const word[3])
{
    if (strcmp(word[0], "open") == 0)
        say(open_store(word[1], word[2], "0"));
    else if (strcmp(word[0], "keep") == 0)
        say(open_store(word[1], "120000", word[2]));
    else if (strcmp(word[0], "lock") == 0)
        say(dibs_timedlock(rt, word[1], strtoll(word[2], NULL, 10)));
    else if (strcmp(word[0], "unlock") == 0)
        say(dibs_unlock(rt, word[1]));
    else if (strcmp(word[0], "check") == 0)
        say(dibs_check(rt, word[1]));
    else if (strcmp(word[0], "fence") == 0)
        say_of_hold(word[1], true);
    else if (strcmp(word[0], "remaining") == 0)
        say_of_hold(word[1], false);
    else if (strcmp(word[0], "fair") == 0)
        say(lock_fairly(word[1], strtoll(word[2], NULL, 10)));
    else if (strcmp(word[0], "cycle") == 0)
        say(cycle(word[1], strtol(word[2], NULL, 10)));
    else
        printf("what? %s\n", word[0]);
}

int main(void)
{
    char line[2048];

    while (fgets(line, sizeof line, stdin)) {
        char *rest = NULL;
        char *word[3];
        char empty[] = "";

        word[0] = strtok_r(line, " \n", &rest);
        for (int i = 1; i < 3; i++)
            if (!(word[i] = word[i - 1] ? strtok_r(NULL, " \n", &rest) : NULL))
                word[i] = empty;
        if (!word[0])
            continue;
        if (strcmp(word[0], "close") == 0)
            break;
        obey(word);
        fflush(stdout);
    }
    if (feof(stdin))
        _Exit(0);
    dibs_close(rt);
    printf("DIBS_OK\n");
    return 0;
}
