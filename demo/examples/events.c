/*
 * Events: a long job hears at once that it lost its lock, and stops before it does harm.
 *
 *     cc events.c -o events $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./events
 *
 * To see it stop:  redis-cli DEL lock:migration
 */
#include <dibs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct job {
    const char *name;
    atomic_bool stop; /* set by the thread of the events */
};

/* Runs on a thread of its own, so it may block; the job's thread sees the flag. */
static void on_event(const dibs_event *event, void *arg)
{
    struct job *job = arg;

    switch (event->kind) {
    case DIBS_EVENT_LOST:
        if (strcmp(event->name, job->name) == 0)
            atomic_store(&job->stop, true);
        break;
    case DIBS_EVENT_AT_RISK:    /* the lock is ours still, but renewals do not get through */
    case DIBS_EVENT_STORE_DOWN: /* these are for the log */
    case DIBS_EVENT_STORE_UP:
    default: /* later versions may have other kinds */
        break;
    }
    fprintf(stderr, "event: %s: %s\n", event->name ? event->name : "the store", event->detail);
}

int main(void)
{
    struct job job = {.name = "migration"};
    const dibs_config config = {.label = "migration", .on_event = on_event, .on_event_arg = &job};
    dibs_runtime *rt;

    if (dibs_open(&rt, &config) != DIBS_OK || dibs_lock(rt, job.name) != DIBS_OK) {
        fprintf(stderr, "no lock: %s\n", dibs_last_error());
        return 1;
    }
    puts("migrating");
    fflush(stdout);
    int steps = 0;
    while (steps < 600 && !atomic_load(&job.stop)) {
        usleep(100000); /* one step */
        steps++;
    }
    /* What can't be undone is not left to events, which may come late: dibs_check is exact, and costs nothing. */
    int kept = dibs_check(rt, job.name) == DIBS_OK;
    if (kept)
        puts("finished");
    else
        printf("stopped after %d steps: the lock is lost\n", steps);
    dibs_unlock(rt, job.name);
    dibs_close(rt); /* after this no event comes, so job may go */
    return kept ? 0 : 1;
}
