/*
 * A worker of the fault rig: threads that lock, check, write to the judge and unlock, until the rig says that they are
 * to end or kills the process. Uses the public header only.
 *
 *   worker JUDGE URLS PROCESS SEED LEASE_MS TIMEOUT_MS [HOLDS HOW]
 *
 * URLS has a space between any two.
 *
 * With HOLDS it makes a burst beside its work: that many locks of its own are taken, and then all let go of at once.
 * HOW: threads: by the end of the threads that hold them; close: by the close of a runtime of their own.
 *
 * Exit status: 0; 3: a thread or a descriptor is left after dibs_close; 4: dibs_open fails in a way that no fault
 * explains; 5: the judge's file is not as expected.
 */
#include <dibs.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "fault/worker/worker.h"
#include "support/common/timing.h"

/* ------------------------------------------------------------ the process */

static unsigned count_entries(const char *folder)
{
    unsigned count = 0;
    DIR *d = opendir(folder);

    if (!d)
        return 0;
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

/* A thread that was joined may be listed for a moment longer. */
static bool is_down_to(const char *folder, unsigned count)
{
    for (int tries = 0; tries < 500; tries++) {
        if (count_entries(folder) <= count)
            return true;
        pause_us(10000);
    }
    fprintf(stderr, "worker: %u entries are left in %s, there were %u before dibs_open\n", count_entries(folder),
            folder, count);
    return false;
}

static void *do_nothing(void *arg)
{
    return arg;
}

/* A sanitizer has a thread of its own from the first thread on: it is not to be taken for one of the library's. */
static void start_sanitizer(void)
{
    pthread_t id;

    if (pthread_create(&id, NULL, do_nothing, NULL) == 0)
        pthread_join(id, NULL);
}

/* Names of the phases begin with p, those of a burst with b. */
static void hear(const dibs_event *event, void *arg)
{
    worker *w = arg;
    dibs_stats stats;

    dibs_stats_get(atomic_load(&w->opened), &stats);
    if (event->detail)
        atomic_fetch_add(&w->events, 1);
    if (w->holds && event->kind == DIBS_EVENT_AT_RISK && event->name[0] == 'p' &&
        atomic_load(&w->judge->burst.state) >= BURST_ENDING)
        atomic_fetch_add(&w->judge->burst.at_risk, 1);
}

dibs_status open_runtime(worker *w, dibs_runtime **out)
{
    dibs_config config = {.urls = w->urls,
                          .url_count = w->url_count,
                          .label = "fault",
                          .lease_ms = w->lease_ms,
                          .connect_timeout_ms = w->timeout_ms,
                          .command_timeout_ms = w->timeout_ms,
                          .outage_ms = 3000,
                          .keep_ms = (uint32_t)w->judge->keep_ms,
                          .handoff_ms = w->process % 4 == 3 && w->judge->keep_ms == 0 ? DIBS_NO_HANDOFF : 0,
                          .on_event = w->process % 2 || w->holds ? hear : NULL,
                          .on_event_arg = w};

    for (;;) {
        dibs_status status = dibs_open(out, &config);

        if (status != DIBS_UNAVAILABLE && status != DIBS_STORE_ERROR)
            return status;
        if (atomic_load(&w->judge->quit[w->process]))
            return DIBS_CLOSED;
        pause_us(20000);
    }
}

/* ------------------------------------------------------------- its threads */

static bool is_quitting(const worker_thread *t)
{
    return atomic_load(&t->worker->judge->quit[t->worker->process]) != 0;
}

static void *run_thread(void *arg)
{
    worker_thread *t = arg;
    judge_head *judge = t->worker->judge;

    if (dibs_queue_new(&t->queue) != DIBS_OK)
        abort();
    while (!is_quitting(t)) {
        atomic_store(&t->slot->phase, atomic_load(&judge->phase));
        /*
         * Read again: the rig waits for slots that show the old phase, and may have changed the phase before it could
         * see this slot.
         */
        uint64_t phase = atomic_load(&judge->phase);
        if (phase != 0 && phase == atomic_load(&t->slot->phase))
            work_round(t, phase);
        atomic_store(&t->slot->phase, 0);
        atomic_fetch_add(&t->slot->beats, 1);
        pause_us(chance(t, 95) ? between(t, 100, 3000) : between(t, 3000, 60000));
    }
    /* Some threads end with a lock held: it is an orphan, which the library releases. */
    if (atomic_load(&judge->phase) != 0 && chance(t, 30)) {
        char name[64];
        snprintf(name, sizeof name, "p%u:n%u", (unsigned)atomic_load(&judge->phase),
                 (unsigned)(draw(t) % judge->names));
        (void)(dibs_trylock(t->worker->rt, name) == DIBS_OK); /* or no lock is held */
    }
    dibs_queue_free(t->queue);
    return NULL;
}

static void start_threads(worker *w, worker_thread *threads)
{
    for (unsigned i = 0; i < w->judge->threads; i++) {
        threads[i].worker = w;
        threads[i].slot = slot_of(w->judge, w->process, i);
        threads[i].random = (w->seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) != 0)
            abort();
    }
}

/* Tells the judge how many holds began with a kept lease since it was told before. */
static void tell_retaken(worker *w, uint64_t *told)
{
    dibs_stats stats;

    dibs_stats_get(w->rt, &stats);
    atomic_fetch_add(&w->judge->retaken, stats.retaken - *told);
    *told = stats.retaken;
}

static void run(worker *w)
{
    worker_thread *threads = calloc(w->judge->threads, sizeof *threads);
    uint64_t told = 0;

    if (!threads)
        abort();
    atomic_store(&w->opened, w->rt);
    start_threads(w, threads);
    if (w->holds)
        make_burst(w);
    while (!atomic_load(&w->judge->quit[w->process])) {
        pause_us(5000);
        tell_retaken(w, &told);
    }
    /* Calls that wait end now; holders finish what they do. */
    dibs_shutdown(w->rt);
    for (unsigned i = 0; i < w->judge->threads; i++)
        pthread_join(threads[i].id, NULL);
    dibs_close(w->rt);
    free(threads);
}

static void split_urls(worker *w, char *text)
{
    char *rest = NULL;

    for (char *url = strtok_r(text, " ", &rest); url && w->url_count < URLS_MAX; url = strtok_r(NULL, " ", &rest))
        w->urls[w->url_count++] = url;
}

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 7 && argc != 9)
        return 5;
    worker w = {.judge = judge_open(argv[1])};
    split_urls(&w, argv[2]);
    w.process = (unsigned)strtoul(argv[3], NULL, 10);
    w.seed = strtoull(argv[4], NULL, 10);
    w.lease_ms = (uint32_t)strtoul(argv[5], NULL, 10);
    w.timeout_ms = (uint32_t)strtoul(argv[6], NULL, 10);
    if (argc == 9) {
        w.holds = strtoull(argv[7], NULL, 10);
        w.closes = strcmp(argv[8], "close") == 0;
    }
    if (!w.judge || w.process >= w.judge->processes)
        return 5;
    start_sanitizer();
    unsigned tasks = count_entries("/proc/self/task");
    unsigned files = count_entries("/proc/self/fd");
    dibs_status status = open_runtime(&w, &w.rt);
    if (status == DIBS_OK)
        run(&w);
    else if (status != DIBS_CLOSED) {
        fprintf(stderr, "worker: dibs_open: %s: %s\n", dibs_status_name(status), dibs_last_error());
        return 4;
    }
    return is_down_to("/proc/self/task", tasks) && is_down_to("/proc/self/fd", files) ? 0 : 3;
}
