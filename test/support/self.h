/* What the test's own process has, of what a library might leave behind. */
#ifndef DIBS_TEST_SELF_H
#define DIBS_TEST_SELF_H

struct self {
    int threads, descriptors;
};

struct self self_now(void);

/* It is as it was. A thread that was joined may be listed for a moment still, so that is waited for. */
void self_assert_as(struct self before);

#endif
