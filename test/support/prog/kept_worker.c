/*
 * One of several processes that keep leases and lock all the time, mostly names of their own:
 *
 *     kept_worker URL JUDGE PROCESS LEASE_MS KEEP_MS SEED
 *
 * JUDGE is a file for struct kept_judge. Ends when its standard input does; with 0 if it could work.
 */
#include <dibs.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#include "support/common/timing.h"
#include "support/kept_judge.h"

#define FOREIGN_OF 10000 /* one of so many holds is of a name that any process may use: what is recalled rests */
#define STOPPED_OF 100   /* one of so many holds is of a name of a process that is stopped */
#define SLOW_OF 5000     /* one of so many takes its time */
#define LONG_OF 200      /* one of so many of these outlasts its lease */
#define FEW 8            /* so many names of its own a process uses at a time; the others rest, */
#define FEW_MS 20        /* for so long at a time */

struct thread {
    pthread_t id;
    uint64_t seed;   /* never 0 */
    uint64_t number; /* of all threads of all processes; never 0 */
};

static dibs_runtime *rt;
static kept_judge *judge;
static unsigned process;
static uint64_t lease_ms;
static atomic_bool stop;
static char names[KEPT_NAMES][16];
static _Atomic uint64_t leases[KEPT_NAMES]; /* the number of the lease under which each name was held here last */

static uint64_t draw(struct thread *t)
{
    t->seed ^= t->seed << 13;
    t->seed ^= t->seed >> 7;
    t->seed ^= t->seed << 17;
    return t->seed;
}

static void complain(_Atomic uint64_t *count, const char *name, const char *what)
{
    if (atomic_fetch_add(count, 1) < 10)
        fprintf(stderr, "process %u: %s: %s: %s\n", process, name, what, dibs_last_error());
}

static uint64_t raise_to(_Atomic uint64_t *most, uint64_t value)
{
    uint64_t before = atomic_load(most);

    while (before < value && !atomic_compare_exchange_weak(most, &before, value))
        ;
    return before;
}

static void take_time(struct thread *t)
{
    if (draw(t) % LONG_OF == 0)
        pause_us(lease_ms * 1500);
    else
        pause_us(draw(t) % 2000);
}

/* The number that no other lease of this process has. */
static uint64_t number_of_lease(unsigned name)
{
    char token[192] = ":0";

    if (dibs_token_of(rt, names[name], token) == DIBS_NOT_HELD)
        complain(&judge->odd, names[name], "dibs_token_of");
    return strtoull(strrchr(token, ':') + 1, NULL, 10);
}

/* A lease that the process uses again has fences from before another was granted the lock. */
static void judge_fence(unsigned name, uint64_t fence)
{
    uint64_t most = raise_to(&judge->places[name].fence, fence), lease = number_of_lease(name);
    bool again = atomic_exchange(&leases[name], lease) == lease;

    if (fence > most || dibs_check(rt, names[name]) != DIBS_OK)
        return;
    if (again)
        complain(&judge->overtaken, names[name], "the lease was overtaken");
    else
        complain(&judge->fallen, names[name], "the fence does not rise");
}

/*
 * Whether the lease is good is asked after what looks wrong was seen: a holder that was stopped for longer than its
 * lease has lost it. If it was stopped before it came in, it is the one that comes in where another is: so it says that
 * its lease is good after it has come in.
 */
static void be_inside(struct thread *t, unsigned name, bool takes_time)
{
    kept_place *place = &judge->places[name];
    uint64_t me = t->number, last;
    dibs_hold hold;

    atomic_store(&place->inside, me);
    if (dibs_check(rt, names[name]) == DIBS_OK)
        atomic_compare_exchange_strong(&place->inside, &(uint64_t){me}, me | KEPT_GOOD);
    if (dibs_hold_of(rt, names[name], &hold) == DIBS_NOT_HELD)
        complain(&judge->odd, names[name], "dibs_hold_of");
    judge_fence(name, hold.fence);
    if (takes_time || draw(t) % SLOW_OF == 0)
        take_time(t);
    last = atomic_load(&place->inside);
    if ((last & KEPT_GOOD) && last != (me | KEPT_GOOD) && dibs_check(rt, names[name]) == DIBS_OK)
        complain(&judge->together, names[name], "somebody else came in");
}

/* Whose name is locked next. */
static unsigned draw_process(struct thread *t)
{
    uint64_t stopped = atomic_load(&judge->stopped);

    if (stopped > 0 && draw(t) % STOPPED_OF == 0)
        return (unsigned)stopped - 1;
    return draw(t) % FOREIGN_OF > 0 ? process : (unsigned)(draw(t) % KEPT_PROCESSES);
}

static unsigned draw_name(struct thread *t, unsigned owner)
{
    unsigned first = owner == process ? (unsigned)(clock_ns() / (FEW_MS * 1000000) * FEW % KEPT_OWN) : 0;

    return owner * KEPT_OWN + first + (unsigned)(draw(t) % (owner == process ? FEW : KEPT_OWN));
}

static void hold_once(struct thread *t)
{
    unsigned owner = draw_process(t), name = draw_name(t, owner);
    dibs_status status = dibs_lock(rt, names[name]);

    if (status == DIBS_UNAVAILABLE || status == DIBS_STORE_ERROR) { /* the server is away, or loads its data */
        atomic_fetch_add(&judge->unavailable, 1);
        pause_us(1000);
        return;
    }
    if (status != DIBS_OK) {
        complain(&judge->odd, names[name], "dibs_lock");
        return;
    }
    if (owner != process)
        atomic_fetch_add(&judge->foreign, 1);
    be_inside(t, name, owner != process);
    status = dibs_unlock(rt, names[name]);
    if (status == DIBS_LOST)
        atomic_fetch_add(&judge->lost, 1);
    else if (status != DIBS_OK && status != DIBS_UNAVAILABLE)
        complain(&judge->odd, names[name], "dibs_unlock");
    atomic_fetch_add(&judge->holds, 1);
}

static void *run(void *arg)
{
    while (!atomic_load(&stop))
        hold_once(arg);
    return NULL;
}

static kept_judge *map_judge(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *at = mmap(NULL, sizeof(kept_judge), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

/* Tells the judge of holds over kept leases until the standard input ends. */
static void await_end(void)
{
    uint64_t told = 0;
    dibs_stats stats;
    char byte;

    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    while (read(STDIN_FILENO, &byte, 1) != 0) {
        dibs_stats_get(rt, &stats);
        atomic_fetch_add(&judge->retaken, stats.retaken - told);
        told = stats.retaken;
        pause_us(5000);
    }
}

int main(int argc, char **argv)
{
    struct thread threads[KEPT_THREADS];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 7 || !(judge = map_judge(argv[2])))
        return 2;
    process = (unsigned)strtoul(argv[3], NULL, 10);
    lease_ms = strtoull(argv[4], NULL, 10);
    for (unsigned i = 0; i < KEPT_NAMES; i++)
        snprintf(names[i], sizeof names[i], "kept-%u", i);
    dibs_config config = {.urls = (const char *const *)&argv[1],
                          .url_count = 1,
                          .label = "keeper",
                          .lease_ms = (uint32_t)lease_ms,
                          .keep_ms = (uint32_t)strtoul(argv[5], NULL, 10),
                          .outage_ms = 60000};
    while (dibs_open(&rt, &config) != DIBS_OK) /* the server may be away */
        pause_us(20000);
    for (unsigned i = 0; i < KEPT_THREADS; i++) {
        threads[i].number = process * KEPT_THREADS + i + 1;
        threads[i].seed = (strtoull(argv[6], NULL, 10) + threads[i].number) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        if (pthread_create(&threads[i].id, NULL, run, &threads[i]) != 0)
            return 2;
    }
    await_end();
    atomic_store(&stop, true);
    for (unsigned i = 0; i < KEPT_THREADS; i++)
        pthread_join(threads[i].id, NULL);
    dibs_close(rt);
    return 0;
}
