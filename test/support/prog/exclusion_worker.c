/*
 * One of several processes that count under locks, and look for an intruder
 * while they are inside:
 *
 *     exclusion_worker URL FOLDER THREADS ACQUIRES LEASE_MS
 *
 * FOLDER holds the file "shared" (zeros; one page, mapped by all) and per name
 * a file "count-N" with a decimal number. Each thread makes ACQUIRES acquires
 * over all names; inside it reads the number, adds one and writes it back,
 * guarded by nothing but the lock. FOLDER/victims lists processes that are
 * killed: one of them may be marked as inside for ever.
 *
 * Ends with 0 only if every call did what it should and nobody else was inside.
 */
#include <dibs.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NAMES = 5, THREADS_MAX = 64 };

/* What all processes share of one name. */
struct place {
    _Atomic int64_t inside; /* the pid and the thread number of the holder; 0: there is none */
    _Atomic uint64_t fence; /* of the last holder */
};

struct worker {
    pthread_t thread;
    int number;
};

static dibs_runtime *rt;
static const char *folder;
static long acquires;
static struct place *places;
static atomic_int complaints;

static void complain(const char *what, const char *name)
{
    atomic_fetch_add(&complaints, 1);
    fprintf(stderr, "process %d: %s: %s: %s\n", (int)getpid(), name, what, dibs_last_error());
}

static bool is_victim(int64_t who)
{
    char path[512];
    long long pid;
    bool found = false;
    FILE *file;

    snprintf(path, sizeof path, "%s/victims", folder);
    file = fopen(path, "re");
    while (file && !found && fscanf(file, "%lld", &pid) == 1)
        found = pid == who / 1000;
    if (file)
        fclose(file);
    return found;
}

/* Reads, adds, writes: another thread that does it at the same time spoils the sum. */
static void count_up(const char *name, size_t place)
{
    char path[512];
    char text[32] = "";
    long long count;

    snprintf(path, sizeof path, "%s/count-%zu", folder, place);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || pread(fd, text, sizeof text - 1, 0) < 0) {
        complain("the count can't be read", name);
        return;
    }
    count = strtoll(text, NULL, 10) + 1;
    snprintf(text, sizeof text, "%020lld", count);
    if (pwrite(fd, text, strlen(text), 0) != (ssize_t)strlen(text))
        complain("the count can't be written", name);
    close(fd);
}

static void be_inside(const char *name, size_t place, int64_t me)
{
    struct place *p = &places[place];
    int64_t other = 0;
    dibs_hold hold;

    if (!atomic_compare_exchange_strong(&p->inside, &other, me)) {
        if (!is_victim(other))
            complain("somebody else is inside", name);
        atomic_store(&p->inside, me);
    }
    if (dibs_hold_of(rt, name, &hold) != DIBS_OK || hold.fence == 0 || hold.fence >> 63)
        complain("no sound hold", name);
    if (hold.fence <= atomic_exchange(&p->fence, hold.fence))
        complain("the fence does not rise", name);
    count_up(name, place);
    if (dibs_check(rt, name) != DIBS_OK)
        complain("lost while inside", name);
    other = me;
    if (!atomic_compare_exchange_strong(&p->inside, &other, 0))
        complain("somebody else came inside", name);
}

/*
 * Acquires by each of the ways in turn; tries and short waits are repeated until one succeeds. A wait that is shorter
 * than the store takes to answer may end with DIBS_UNAVAILABLE.
 */
static dibs_status acquire(const char *name, long turn)
{
    dibs_status status;

    switch (turn % 7) {
    case 3:
        while ((status = dibs_trylock(rt, name)) == DIBS_BUSY)
            usleep(1000);
        return status;
    case 5:
        do
            status = dibs_timedlock(rt, name, 3);
        while (status == DIBS_TIMEOUT || status == DIBS_UNAVAILABLE);
        return status;
    default:
        return dibs_lock(rt, name);
    }
}

static void cycle(const char *name, size_t place, long turn, int64_t me)
{
    bool nested = turn % 10 == 0;

    if (acquire(name, turn) != DIBS_OK) {
        complain("no lock", name);
        return;
    }
    if (nested && dibs_lock(rt, name) != DIBS_OK)
        complain("no nested lock", name);
    be_inside(name, place, me);
    if (nested && dibs_unlock(rt, name) != DIBS_OK)
        complain("no nested unlock", name);
    if (dibs_unlock(rt, name) != DIBS_OK)
        complain("no unlock", name);
}

static void *run(void *arg)
{
    const struct worker *w = arg;

    for (long turn = 0; turn < acquires; turn++) {
        size_t place = (size_t)(turn + w->number) % NAMES;
        char name[32];

        snprintf(name, sizeof name, "count-%zu", place);
        cycle(name, place, turn, (int64_t)getpid() * 1000 + w->number + 1);
    }
    return NULL;
}

static struct place *map_shared(void)
{
    char path[512];

    snprintf(path, sizeof path, "%s/shared", folder);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

int main(int argc, char **argv)
{
    struct worker workers[THREADS_MAX];
    int threads = argc == 6 ? atoi(argv[3]) : 0;
    /* The timeouts are long, so that a slow machine fails no call. */
    dibs_config config = {.urls = (const char *const *)&argv[1],
                          .url_count = 1,
                          .label = "exclusion",
                          .connect_timeout_ms = 30000,
                          .command_timeout_ms = 30000,
                          .outage_ms = 60000};

    if (threads < 1 || threads > THREADS_MAX)
        return 2;
    folder = argv[2];
    acquires = strtol(argv[4], NULL, 10);
    config.lease_ms = (uint32_t)strtoul(argv[5], NULL, 10);
    places = map_shared();
    if (!places || dibs_open(&rt, &config) != DIBS_OK) {
        complain("no runtime", "");
        return 2;
    }
    for (int i = 0; i < threads; i++) {
        workers[i].number = i;
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0)
            return 2;
    }
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    dibs_close(rt);
    return atomic_load(&complaints) ? 1 : 0;
}
