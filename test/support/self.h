/* Counts the threads and descriptors of the test's own process, some of which a library might leave behind. */
#ifndef DIBS_TEST_SELF_H
#define DIBS_TEST_SELF_H

struct self {
    int threads, descriptors;
};

struct self self_now(void);

/* Expects as many as before. A thread that was joined may still be listed for a moment: that is waited for. */
void self_assert_as(struct self before);

#endif
