#include "support/self.h"

#include <dirent.h>

#include "support/test.h"

static int entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;

    assert_true(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

struct self self_now(void)
{
    return (struct self){entries("/proc/self/task"), entries("/proc/self/fd")};
}

/* Fewer are fine: a thread that was joined is listed a moment longer, so the count before may have been too high. */
static bool has_no_more_threads(void *arg)
{
    return self_now().threads <= *(int *)arg;
}

void self_assert_as(struct self before)
{
    assert_that(wait_until(has_no_more_threads, &before.threads, LIMIT_MS), "%d threads, more than %d",
                self_now().threads, before.threads);
    assert_int_equal(self_now().descriptors, before.descriptors);
}
