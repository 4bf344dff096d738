/*
 * Wait for a limited time: a user waits for the answer, so the lock must be ours soon or not at all.
 *
 *     cc limited_wait.c -o limited_wait $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./limited_wait 500
 */
#include <dibs.h>
#include <stdio.h>
#include <stdlib.h>

enum { DONE = 0, FAILED = 1, COME_AGAIN = 75 };

/* Handles one request, which may take wait_ms before its work begins. */
static int write_report(dibs_runtime *rt, int64_t wait_ms)
{
    dibs_status status = dibs_timedlock(rt, "report", wait_ms);

    if (status == DIBS_TIMEOUT || status == DIBS_BUSY) { /* DIBS_BUSY where wait_ms is 0: that is one try */
        printf("not now: %s\n", dibs_last_error());
        return COME_AGAIN;
    }
    if (status != DIBS_OK) {
        fprintf(stderr, "no lock: %s\n", dibs_last_error());
        return FAILED;
    }
    puts("the report is written");
    return dibs_unlock(rt, "report") == DIBS_LOST ? FAILED : DONE;
}

int main(int argc, char **argv)
{
    dibs_runtime *rt;

    if (dibs_open(&rt, NULL) != DIBS_OK) {
        fprintf(stderr, "no store: %s\n", dibs_last_error());
        return FAILED;
    }
    int result = write_report(rt, argc > 1 ? strtol(argv[1], NULL, 10) : 2000);
    dibs_close(rt);
    return result;
}
