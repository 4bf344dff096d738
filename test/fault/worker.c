/*
 * A worker of the fault rig: threads that lock, check, write to the judge and unlock, until the rig says that they are
 * to end or kills the process. Uses the public header only.
 *
 *   worker JUDGE URL PROCESS SEED LEASE_MS TIMEOUT_MS [HOLDS HOW]
 *
 * With HOLDS it makes a burst beside its work: that many locks of its own are taken, and then all let go of at once.
 * HOW: threads: by the end of the threads that hold them; close: by the close of a runtime of their own.
 *
 * Exit status: 0; 3: a thread or a descriptor is left after dibs_close; 4: dibs_open fails in a way that no fault
 * explains; 5: the judge's file is not as expected.
 */
#include <dibs.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "judge.h"

#define DEPTH_MAX 3
#define LONG_LEASE_MS 1000
#define BURST_THREADS 4
#define BURST_LEASE_MS 120000 /* so long that none is renewed, and that only a release can be what ends them */

/* Of extensions; no other lease is one of these. plan.py names them too: the proxy knows an extension by them. */
static const uint32_t short_leases[] = {211, 307, 401}, long_leases[] = {2411, 2707, 2903};

typedef struct worker {
    judge_head *judge;
    const char *url;
    unsigned process;
    uint64_t seed;
    uint32_t lease_ms, timeout_ms;
    dibs_runtime *rt;
    _Atomic(dibs_runtime *) opened; /* the same for on_event, which may be called before dibs_open returns */
    _Atomic uint64_t events;        /* heard by on_event */
    uint64_t holds;                 /* of the burst; 0: there is none */
    bool closes;                    /* the burst has a runtime of its own, which is closed */
} worker;

typedef struct worker_thread {
    pthread_t id;
    worker *worker;
    judge_slot *slot;
    uint64_t random; /* never 0 */
} worker_thread;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_us(uint64_t us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

    nanosleep(&t, NULL);
}

/* xorshift64* */
static uint64_t draw(worker_thread *t)
{
    t->random ^= t->random >> 12;
    t->random ^= t->random << 25;
    t->random ^= t->random >> 27;
    return t->random * UINT64_C(2685821657736338717) >> 11;
}

static uint64_t between(worker_thread *t, uint64_t low, uint64_t high)
{
    return low + draw(t) % (high - low + 1);
}

static bool chance(worker_thread *t, unsigned percent)
{
    return draw(t) % 100 < percent;
}

/* --------------------------------------------------------------- the judge */

static size_t slot_words(const judge_head *judge)
{
    return (sizeof(judge_slot) + judge->capacity * sizeof(hold_record)) / sizeof(uint64_t);
}

static size_t judge_words(const judge_head *judge)
{
    return JUDGE_HEAD_WORDS + judge->phases * judge->names + judge->processes * judge->threads * slot_words(judge);
}

static judge_slot *slot_of(judge_head *judge, unsigned process, unsigned thread)
{
    uint64_t *words = (uint64_t *)judge + JUDGE_HEAD_WORDS + judge->phases * judge->names;

    return (judge_slot *)(words + (process * judge->threads + thread) * slot_words(judge));
}

static judge_head *judge_open(const char *path)
{
    struct stat s;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &s) < 0)
        return NULL;
    judge_head *judge = mmap(NULL, (size_t)s.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (judge == MAP_FAILED || judge->magic != JUDGE_MAGIC || judge_words(judge) * sizeof(uint64_t) > (size_t)s.st_size)
        return NULL;
    return judge;
}

/* The resource that the locks protect: it takes a write unless it has seen a larger fence. */
static bool judge_accepts(judge_head *judge, const hold_record *r)
{
    _Atomic uint64_t *seen =
        (_Atomic uint64_t *)((uint64_t *)judge + JUDGE_HEAD_WORDS + r->phase * judge->names + r->name);
    uint64_t largest = atomic_load(seen);

    while (largest <= r->fence)
        if (atomic_compare_exchange_weak(seen, &largest, r->fence))
            return true;
    return false;
}

static bool is_quitting(const worker_thread *t)
{
    return atomic_load(&t->worker->judge->quit[t->worker->process]) != 0;
}

/* The next record of the thread, cleared. Waits while the rig has not taken the oldest. */
static hold_record *begin_record(worker_thread *t)
{
    uint64_t capacity = t->worker->judge->capacity;
    uint64_t head = atomic_load(&t->slot->head);

    while (head - atomic_load(&t->slot->tail) >= capacity)
        sleep_us(1000);
    hold_record *r = (hold_record *)(t->slot + 1) + head % capacity;
    memset((void *)r, 0, sizeof *r);
    return r;
}

static void publish_record(worker_thread *t, hold_record *r)
{
    atomic_store(&r->state, HOLD_ASKING);
    atomic_fetch_add(&t->slot->head, 1);
}

/* ----------------------------------------------------------------- a hold */

static void note_lost(hold_record *r)
{
    if (r->told_lost == 0)
        r->told_lost = now_ns();
}

static void note_status(hold_record *r, dibs_status status)
{
    if (status == DIBS_LOST)
        note_lost(r);
    else if (status == DIBS_NOT_HELD)
        r->odd |= ODD_NOT_HELD;
}

/* Reads until when the lease is sure to last. */
static void read_end(worker_thread *t, const char *name, hold_record *r)
{
    uint64_t begin = now_ns();
    dibs_hold hold;

    if (dibs_hold_of(t->worker->rt, name, &hold) == DIBS_OK)
        r->sure_until = begin + (uint64_t)hold.remaining_ms * 1000000;
}

/* The time is taken before the call: what it says was true at some moment after. */
static bool check(worker_thread *t, const char *name, hold_record *r, uint64_t rejected_at)
{
    uint64_t begin = now_ns();
    dibs_status status = dibs_check(t->worker->rt, name);

    note_status(r, status);
    if (status != DIBS_OK)
        return false;
    if (r->told_lost != 0)
        r->odd |= ODD_LOSS_UNDONE;
    if (r->first_ok_end == 0)
        r->first_ok_end = now_ns();
    r->last_ok = begin;
    if (rejected_at != 0)
        r->ok_after_rejected = begin;
    read_end(t, name, r);
    return true;
}

static void write_to_judge(worker_thread *t, hold_record *r, uint64_t *rejected_at)
{
    uint64_t begin = now_ns();

    if (judge_accepts(t->worker->judge, r)) {
        r->last_accept = begin;
        if (r->accepted++ == 0)
            r->first_accept_end = now_ns();
        return;
    }
    *rejected_at = now_ns();
    r->rejected++;
}

static void read_fence(worker_thread *t, const char *name, hold_record *r)
{
    dibs_hold hold;

    note_status(r, dibs_hold_of(t->worker->rt, name, &hold));
    if (hold.fence == 0)
        r->odd |= ODD_NO_FENCE;
    else if (r->fence != 0 && r->fence != hold.fence)
        r->odd |= ODD_FENCE_CHANGED;
    r->fence = hold.fence;
}

/*
 * Most holds are short; some outlast a short lease many times, or last for one to two long ones; those with a fixed one
 * come near its end.
 */
static uint64_t draw_work_us(worker_thread *t, const hold_record *r)
{
    uint64_t kind = draw(t) % 1000;
    if (t->worker->holds) /* there is to be a lease to renew all the time */
        return between(t, 300000, 1500000);
    bool is_long = r->lease_ms >= LONG_LEASE_MS;

    if ((r->flags & DIBS_FIXED_LEASE) && kind < (is_long ? 20 : 100))
        return between(t, r->lease_ms * 500, r->lease_ms * 1200);
    if (is_long && kind >= 980)
        return between(t, r->lease_ms * 1000, r->lease_ms * 2000);
    if (kind < 800)
        return between(t, 50, 3000);
    if (kind < 950)
        return between(t, 3000, 15000);
    if (kind < 990)
        return between(t, 15000, 120000);
    return between(t, 300000, 2500000);
}

static void lock_again(worker_thread *t, const char *name, hold_record *r, unsigned *depth)
{
    dibs_status status = dibs_lock(t->worker->rt, name);

    note_status(r, status);
    if (status == DIBS_OK)
        ++*depth;
}

/* What was sure before is not, should it become shorter. */
static void extend(worker_thread *t, const char *name, hold_record *r, uint32_t lease_ms)
{
    if (lease_ms > r->extended_ms)
        r->extended_ms = lease_ms;
    r->sure_until = 0;
    note_status(r, dibs_extend(t->worker->rt, name, lease_ms));
}

/* To a length that is soon over, and then to a longer one: what is left of the first may come after the second. */
static void extend_twice(worker_thread *t, const char *name, hold_record *r)
{
    extend(t, name, r, short_leases[draw(t) % 3]);
    extend(t, name, r, long_leases[draw(t) % 3]);
}

static void hold_other(worker_thread *t, uint64_t phase, uint64_t outer);

/* Works until the time or the phase is over, or a while after it was told that the lease is lost. */
static void work(worker_thread *t, const char *name, hold_record *r, unsigned *depth, bool alone)
{
    uint64_t end = now_ns() + draw_work_us(t, r) * 1000;
    uint64_t rejected_at = 0;
    int after_loss = 3;
    bool stretched = alone && chance(t, (unsigned)atomic_load(&t->worker->judge->stretches));

    read_fence(t, name, r);
    if (stretched) {
        extend_twice(t, name, r);
        end = now_ns() + between(t, 800000, 1400000) * 1000;
    }
    while (after_loss > 0) {
        if (check(t, name, r, rejected_at))
            write_to_judge(t, r, &rejected_at);
        else
            after_loss--;
        if (now_ns() >= end || atomic_load(&t->worker->judge->phase) != r->phase)
            break;
        if (*depth < DEPTH_MAX && chance(t, 15))
            lock_again(t, name, r, depth);
        if (alone && chance(t, 3))
            hold_other(t, r->phase, r->name);
        if (!stretched && chance(t, 1)) /* nothing mends what may come of the two */
            extend(t, name, r, (uint32_t)r->lease_ms);
        sleep_us(between(t, 50, 3000));
    }
    read_fence(t, name, r);
}

static void leave(worker_thread *t, const char *name, hold_record *r, unsigned depth)
{
    while (depth > 1) {
        note_status(r, dibs_unlock(t->worker->rt, name));
        depth--;
    }
    r->left = now_ns();
    atomic_store(&r->state, HOLD_LEAVING);
    r->unlock_status = dibs_unlock(t->worker->rt, name);
    r->left_end = now_ns();
    note_status(r, (dibs_status)r->unlock_status);
}

/* A lock from the ask to the end of the last unlock. alone: no other is held. */
static void hold(worker_thread *t, hold_record *r, bool alone)
{
    char name[64];
    unsigned depth = 1;
    dibs_lock_options options = {.lease_ms = (uint32_t)r->lease_ms, .flags = (uint32_t)r->flags};

    snprintf(name, sizeof name, "p%u:n%u", (unsigned)r->phase, (unsigned)r->name);
    r->asked = now_ns();
    publish_record(t, r);
    r->status = dibs_lock_with(t->worker->rt, name, r->wait_ms, &options);
    r->returned = now_ns();
    if (r->status == DIBS_OK) {
        atomic_store(&r->state, HOLD_HELD);
        work(t, name, r, &depth, alone);
        leave(t, name, r, depth);
    }
    atomic_store(&r->state, HOLD_DONE);
}

static void draw_lease(worker_thread *t, hold_record *r)
{
    uint64_t lease = atomic_load(&t->worker->judge->lease_ms);
    uint64_t kind = draw(t) % 100;

    r->lease_ms = kind < 70 ? lease : kind < 85 ? lease / 2 : lease + lease / 2;
    r->flags = chance(t, 25) ? DIBS_FAIR : 0;
    if (chance(t, 15))
        r->flags |= DIBS_FIXED_LEASE;
}

static void draw_wait(worker_thread *t, hold_record *r)
{
    uint64_t kind = draw(t) % 100;

    r->wait_ms = kind < 45 ? DIBS_WAIT_FOREVER : kind < 80 ? (int64_t)between(t, 1, 2000) : 0;
}

/* A second lock while one is held: never waits for ever, as two threads might do so for each other. */
static void hold_other(worker_thread *t, uint64_t phase, uint64_t outer)
{
    uint64_t names = t->worker->judge->names;

    if (names < 2)
        return;
    hold_record *r = begin_record(t);
    r->phase = phase;
    r->name = (outer + between(t, 1, names - 1)) % names;
    draw_lease(t, r);
    r->wait_ms = (int64_t)between(t, 0, 20);
    hold(t, r, false);
}

static void work_round(worker_thread *t, uint64_t phase)
{
    hold_record *r = begin_record(t);

    r->phase = phase;
    r->name = draw(t) % t->worker->judge->names;
    draw_lease(t, r);
    draw_wait(t, r);
    hold(t, r, true);
    if (r->status > DIBS_TIMEOUT)
        sleep_us(between(t, 3000, 20000)); /* refused at once: not to do nothing but that */
}

static void *run_thread(void *arg)
{
    worker_thread *t = arg;
    judge_head *judge = t->worker->judge;

    while (!is_quitting(t)) {
        atomic_store(&t->slot->phase, atomic_load(&judge->phase));
        /* Read again: the rig waits for slots that still show the old one, and must not have missed this one. */
        uint64_t phase = atomic_load(&judge->phase);
        if (phase != 0 && phase == atomic_load(&t->slot->phase))
            work_round(t, phase);
        atomic_store(&t->slot->phase, 0);
        atomic_fetch_add(&t->slot->beats, 1);
        sleep_us(chance(t, 95) ? between(t, 100, 3000) : between(t, 3000, 60000));
    }
    /* Some threads end with a lock held: it is an orphan, which the library releases. */
    if (atomic_load(&judge->phase) != 0 && chance(t, 30)) {
        char name[64];
        snprintf(name, sizeof name, "p%u:n%u", (unsigned)atomic_load(&judge->phase),
                 (unsigned)(draw(t) % judge->names));
        (void)dibs_trylock(t->worker->rt, name);
    }
    return NULL;
}

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
        sleep_us(10000);
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

/* A worker may be started while the store is away: it tries until it is back. */
static dibs_status open_runtime(worker *w, dibs_runtime **out)
{
    dibs_config config = {.urls = &w->url,
                          .url_count = 1,
                          .label = "fault",
                          .lease_ms = w->lease_ms,
                          .connect_timeout_ms = w->timeout_ms,
                          .command_timeout_ms = w->timeout_ms,
                          .outage_ms = 3000,
                          .handoff_ms = w->process % 4 == 3 ? DIBS_NO_HANDOFF : 0,
                          .on_event = w->process % 2 || w->holds ? hear : NULL,
                          .on_event_arg = w};

    for (;;) {
        dibs_status status = dibs_open(out, &config);

        if (status != DIBS_UNAVAILABLE && status != DIBS_STORE_ERROR)
            return status;
        if (atomic_load(&w->judge->quit[w->process]))
            return DIBS_CLOSED;
        sleep_us(20000);
    }
}

/* ---------------------------------------------------------------- a burst */

typedef struct burst_taker {
    pthread_t id;
    worker *worker;
    dibs_runtime *rt;
    unsigned index;
    pthread_barrier_t *taken, *closed;
} burst_taker;

static void take_share(const burst_taker *t)
{
    const dibs_lock_options options = {.lease_ms = BURST_LEASE_MS};
    worker *w = t->worker;
    char name[64];

    for (uint64_t i = t->index; i < w->holds; i += BURST_THREADS) {
        snprintf(name, sizeof name, "b%u:%u", w->process, (unsigned)i);
        if (dibs_lock_with(t->rt, name, 5000, &options) == DIBS_OK)
            atomic_fetch_add(&w->judge->burst.taken, 1);
    }
}

/* Ends with all that it holds, or once that was closed under it. */
static void *take_burst(void *arg)
{
    burst_taker *t = arg;

    take_share(t);
    pthread_barrier_wait(t->taken);
    if (t->worker->closes)
        pthread_barrier_wait(t->closed);
    return NULL;
}

/* Whether the thread of that number holds a lease that is renewed. */
static bool holds_renewed(worker *w, unsigned thread)
{
    judge_slot *slot = slot_of(w->judge, w->process, thread);
    uint64_t head = atomic_load(&slot->head);

    if (head == 0)
        return false;
    hold_record *r = (hold_record *)(slot + 1) + (head - 1) % w->judge->capacity;
    return atomic_load(&r->state) == HOLD_HELD && !(r->flags & DIBS_FIXED_LEASE);
}

static bool some_hold_renewed(worker *w)
{
    bool holds = false;

    for (unsigned i = 0; i < w->judge->threads && !holds; i++)
        holds = holds_renewed(w, i);
    return holds;
}

#define BESIDE_MS 5000 /* so long the burst waits for a lease that it might cost */

/* The time, when a lease of the process is held before and after it; after some seconds, any. */
static uint64_t time_beside_a_lease(worker *w)
{
    uint64_t limit = now_ns() + BESIDE_MS * UINT64_C(1000000), time;

    do {
        while (!some_hold_renewed(w) && now_ns() < limit)
            sleep_us(200);
        time = now_ns();
    } while (!some_hold_renewed(w) && time < limit);
    return time;
}

/* Requires that the takers have taken what they can. */
static void end_burst(worker *w, burst_taker *takers, pthread_barrier_t *closed)
{
    judge_burst *burst = &w->judge->burst;

    burst->ending = time_beside_a_lease(w);
    atomic_store(&burst->state, BURST_ENDING);
    if (w->closes)
        dibs_close(takers[0].rt);
    burst->ended = now_ns();
    if (w->closes)
        pthread_barrier_wait(closed);
    for (unsigned i = 0; i < BURST_THREADS; i++)
        pthread_join(takers[i].id, NULL);
    if (!w->closes)
        burst->ended = now_ns();
    atomic_store(&burst->state, BURST_ENDED);
}

static void make_burst(worker *w)
{
    burst_taker takers[BURST_THREADS];
    pthread_barrier_t taken, closed;
    dibs_runtime *rt = w->rt;

    if (w->closes && open_runtime(w, &rt) != DIBS_OK)
        return;
    pthread_barrier_init(&taken, NULL, BURST_THREADS + 1);
    pthread_barrier_init(&closed, NULL, BURST_THREADS + 1);
    atomic_store(&w->judge->burst.state, BURST_TAKING);
    for (unsigned i = 0; i < BURST_THREADS; i++) {
        takers[i] = (burst_taker){.worker = w, .rt = rt, .index = i, .taken = &taken, .closed = &closed};
        if (pthread_create(&takers[i].id, NULL, take_burst, &takers[i]) != 0)
            abort();
    }
    pthread_barrier_wait(&taken);
    end_burst(w, takers, &closed);
    pthread_barrier_destroy(&taken);
    pthread_barrier_destroy(&closed);
}

/* ------------------------------------------------------------- its threads */

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

static void run(worker *w)
{
    worker_thread *threads = calloc(w->judge->threads, sizeof *threads);

    if (!threads)
        abort();
    atomic_store(&w->opened, w->rt);
    start_threads(w, threads);
    if (w->holds)
        make_burst(w);
    while (!atomic_load(&w->judge->quit[w->process]))
        sleep_us(5000);
    /* Calls that wait end now; holders finish what they do. */
    dibs_shutdown(w->rt);
    for (unsigned i = 0; i < w->judge->threads; i++)
        pthread_join(threads[i].id, NULL);
    dibs_close(w->rt);
    free(threads);
}

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 7 && argc != 9)
        return 5;
    worker w = {.judge = judge_open(argv[1]), .url = argv[2]};
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
