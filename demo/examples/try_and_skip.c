/*
 * Try and skip: a job that every host starts, and one host does. The others skip it while it runs.
 *
 *     cc try_and_skip.c -o try_and_skip $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./try_and_skip
 */
#include <dibs.h>
#include <stdio.h>
#include <unistd.h>

static void clean_up(void)
{
    puts("cleaning up");
    fflush(stdout);
    sleep(3);
}

int main(void)
{
    dibs_runtime *rt;
    int result = 0;

    if (dibs_open(&rt, NULL) != DIBS_OK) {
        fprintf(stderr, "no store: %s\n", dibs_last_error());
        return 1;
    }
    switch (dibs_trylock(rt, "clean-up")) { /* one try, which never waits for the holder */
    case DIBS_OK:
        clean_up();
        dibs_unlock(rt, "clean-up");
        break;
    case DIBS_BUSY:
        puts("another process is cleaning up: nothing to do");
        break;
    default: /* the store could not be reached, or refused: that is not "taken" */
        fprintf(stderr, "not known whether anybody is cleaning up: %s\n", dibs_last_error());
        result = 1;
    }
    dibs_close(rt);
    return result;
}
