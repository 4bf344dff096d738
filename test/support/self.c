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

void self_assert_as(struct self before)
{
    /* A thread that was joined is listed a moment longer, so there may have been fewer before than were counted. */
    await_or_say(self_now().threads <= before.threads, "%d threads, more than %d", self_now().threads, before.threads);
    assert_int_equal(self_now().descriptors, before.descriptors);
}
