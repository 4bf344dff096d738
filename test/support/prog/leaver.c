/*
 * A process that ends with its threads in the midst of what they do, and without dibs_close:
 *
 *     leaver URL HOW CYCLES
 *
 * Threads lock and unlock "busy", one of them fairly; one waits for "held". When "busy" was had so often, main ends: by
 * a return (HOW 0), by exit (1), by pthread_exit, and another thread calls exit (2), or by a return behind
 * dibs_shutdown (3).
 */
#include <dibs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 5 };

static dibs_runtime *rt;
static atomic_int cycles;

static void *lock_for_ever(void *arg)
{
    dibs_lock_options options = {.flags = arg ? DIBS_FAIR : 0};

    while (dibs_lock_with(rt, "busy", DIBS_WAIT_FOREVER, &options) == DIBS_OK) {
        atomic_fetch_add(&cycles, 1);
        dibs_unlock(rt, "busy");
    }
    return NULL;
}

static void *wait_for_ever(void *arg)
{
    (void)arg;
    (void)(dibs_lock(rt, "held") == DIBS_OK);
    return NULL;
}

static void *leave(void *arg)
{
    int wanted = *(int *)arg;

    while (atomic_load(&cycles) < wanted)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    exit(0);
}

static bool start(void *(*run)(void *), void *arg)
{
    pthread_t thread;

    return pthread_create(&thread, NULL, run, arg) == 0 && pthread_detach(thread) == 0;
}

static void ignore(const dibs_event *event, void *arg)
{
    (void)event;
    (void)arg;
}

int main(int argc, char **argv)
{
    static int wanted;
    int how = argc == 4 ? atoi(argv[2]) : 0;
    dibs_config config = {
        .urls = (const char *const *)&argv[1], .url_count = 1, .lease_ms = 1000, .renew_ms = 20, .on_event = ignore};

    if (argc != 4 || dibs_open(&rt, &config) != DIBS_OK || dibs_lock(rt, "kept") != DIBS_OK)
        return 2;
    wanted = atoi(argv[3]);
    for (int i = 0; i < THREADS; i++)
        if (!start(lock_for_ever, i == 0 ? &wanted : NULL))
            return 2;
    if (!start(wait_for_ever, NULL))
        return 2;
    if (how == 2) {
        if (!start(leave, &wanted))
            return 2;
        pthread_exit(NULL);
    }
    while (atomic_load(&cycles) < wanted)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (how == 3)
        dibs_shutdown(rt);
    if (how == 1)
        exit(0);
    return 0;
}
