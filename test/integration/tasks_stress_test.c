/*
 * All calls of tasks and queues at once: 8 threads, 64 tasks, 4 queues, with cancels, frees, closes and forks, while
 * connections are cut and the server is stopped. No two are ever inside at once; each begun call has one completion, or
 * one at most if its queue was freed; and nothing is left. DIBS_STRESS_SECONDS=10; DIBS_STRESS_SEED=1.
 *
 * Locks, in this order: `running` (read by each thread that makes a call, written by the thread that is about to
 * close), a queue's `life`, a slot's `mutex`, a slot's `life` (read by each user of the task, written to make or free
 * it).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/child.h"
#include "support/fixture.h"
#include "support/process.h"

enum { THREADS = 8, TASKS = 64, QUEUES = 4, NAMES = 12, CALLS = 4000000, BATCH = 16 };

struct run { /* a runtime, whose handle stays as long as the test runs */
    dibs_runtime *rt;
    struct run *before; /* read-only */
    bool closing;       /* guarded by running */
};

struct call { /* a begun call */
    struct slot *slot;
    unsigned generation; /* of the slot's task */
    int name;            /* -1: an unlock */
    atomic_uint completions, losses;
    struct life *queue;
};

struct life { /* a queue that is replaced now and then */
    pthread_rwlock_t life;
    dibs_queue *queue;
    atomic_uint generation;
};

struct slot {
    pthread_mutex_t mutex;
    pthread_rwlock_t life;
    dibs_task *task;     /* guarded by life */
    struct run *run;     /* guarded by mutex, as all below */
    unsigned generation; /* which task this is */
    unsigned queue_generation;
    struct call *call; /* that is under way; NULL: none is known of */
    int holds;         /* the name; -1: none is known of */
    bool cancelled;
};

static struct call *calls;
static atomic_uint call_count;
static unsigned *call_queue_generation;
static struct slot slots[TASKS];
static struct life queues[QUEUES];
static pthread_rwlock_t running;
static _Atomic(struct run *) current;
static atomic_int inside[NAMES];
static atomic_bool stop;
static atomic_uint wrong, counts[16];
static const char *url;
static int seconds;
static unsigned first_seed;

enum { BEGUN, TAKEN, GRANTED, CANCELLED, LOST, FREED, CLOSED, FORKED, BLOCKED, QUEUES_FREED, UNKNOWN };

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            atomic_fetch_add(&wrong, 1);                                                                               \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                    \
        }                                                                                                              \
    } while (0)

static unsigned draw(unsigned *seed, unsigned below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static const char *text_of(int name)
{
    static const char *const names[NAMES] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "sA", "sB"};

    return names[name];
}

static void go_in(int name)
{
    EXPECT(atomic_fetch_add(&inside[name], 1) == 0);
}

static void go_out(int name)
{
    EXPECT(atomic_fetch_sub(&inside[name], 1) == 1);
}

static void init_rwlock(pthread_rwlock_t *lock)
{
    pthread_rwlockattr_t attributes;

    pthread_rwlockattr_init(&attributes);
#ifdef __GLIBC__
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    pthread_rwlock_init(lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
}

/* -------------------------------------------------------------------- completions */

static void note(const dibs_completion *c)
{
    struct call *call = c->arg;
    struct slot *slot = call->slot;

    atomic_fetch_add(&counts[TAKEN], 1);
    if (c->kind == DIBS_DONE_LOST) {
        EXPECT(atomic_fetch_add(&call->losses, 1) == 0);
        atomic_fetch_add(&counts[LOST], 1);
        return;
    }
    EXPECT(atomic_fetch_add(&call->completions, 1) == 0);
    EXPECT((c->kind == DIBS_DONE_UNLOCK) == (call->name < 0));
    EXPECT((c->detail[0] == '\0') == (c->status == DIBS_OK));
    pthread_rwlock_rdlock(&running);
    pthread_mutex_lock(&slot->mutex);
    if (slot->generation == call->generation) {
        EXPECT(slot->call == call && c->task == slot->task);
        slot->call = NULL;
        if (c->kind == DIBS_DONE_LOCK && c->status == DIBS_OK) {
            atomic_fetch_add(&counts[GRANTED], 1);
            slot->holds = call->name;
            if (!slot->run->closing)
                go_in(call->name);
        }
    }
    pthread_mutex_unlock(&slot->mutex);
    pthread_rwlock_unlock(&running);
    if (c->status == DIBS_CANCELLED)
        atomic_fetch_add(&counts[CANCELLED], 1);
}

static void take(unsigned *seed)
{
    struct life *q = &queues[draw(seed, QUEUES)];
    dibs_completion c[BATCH];

    pthread_rwlock_rdlock(&q->life);
    int64_t wait_ms = draw(seed, 3) ? 0 : draw(seed, 6);
    size_t count = dibs_queue_take(q->queue, c, 1 + draw(seed, BATCH), wait_ms);
    if (draw(seed, 16) == 0)
        EXPECT(dibs_queue_fd(q->queue) >= 0);
    pthread_rwlock_unlock(&q->life);
    for (size_t i = 0; i < count; i++)
        note(&c[i]);
}

/* ------------------------------------------------------------------ what a slot does */

/* The slot's hold is about to end. */
static void leave_hold(struct slot *slot)
{
    if (slot->holds >= 0 && !slot->run->closing)
        go_out(slot->holds);
    slot->holds = -1;
}

static void make_task(struct slot *slot)
{
    dibs_task *task;
    struct run *run = atomic_load(&current);

    if (dibs_task_new(run->rt, &task) != DIBS_OK)
        return;
    pthread_rwlock_wrlock(&slot->life);
    slot->task = task;
    pthread_rwlock_unlock(&slot->life);
    slot->run = run;
    slot->generation++;
    slot->call = NULL;
    slot->holds = -1;
    slot->cancelled = false;
}

static void free_task(struct slot *slot)
{
    leave_hold(slot);
    slot->generation++;
    slot->call = NULL;
    pthread_rwlock_wrlock(&slot->life);
    dibs_task *task = slot->task;
    slot->task = NULL;
    dibs_task_free(task);
    pthread_rwlock_unlock(&slot->life);
    atomic_fetch_add(&counts[FREED], 1);
}

static void begin(struct slot *slot, unsigned *seed)
{
    struct life *q = &queues[draw(seed, QUEUES)];
    unsigned number = atomic_fetch_add(&call_count, 1);
    static const int64_t waits[] = {0, 20, 200, DIBS_WAIT_FOREVER};
    dibs_lock_options options = {.flags = draw(seed, 5) == 0 ? DIBS_FAIR : 0};

    if (number >= CALLS)
        return;
    struct call *call = &calls[number];
    int holds = slot->holds;
    *call = (struct call){.slot = slot, .generation = slot->generation, .name = -1, .queue = q};
    call_queue_generation[number] = atomic_load(&q->generation);
    if (holds < 0)
        call->name = (int)draw(seed, NAMES);
    slot->call = call;
    slot->queue_generation = atomic_load(&q->generation);
    if (holds >= 0)
        leave_hold(slot);
    dibs_status status =
        holds < 0 ? dibs_lock_begin(slot->task, text_of(call->name), waits[draw(seed, 4)], &options, q->queue, call)
                  : dibs_unlock_begin(slot->task, text_of(holds), q->queue, call);
    if (status == DIBS_OK) {
        atomic_fetch_add(&counts[BEGUN], 1);
        return;
    }
    EXPECT(status == DIBS_CLOSED && holds < 0);
    slot->call = NULL;
    atomic_fetch_add(&call->completions, 1); /* none will come */
}

/* The thread acts for the task. */
static void act(struct slot *slot, unsigned *seed)
{
    dibs_runtime *rt = slot->run->rt;

    EXPECT(dibs_task_enter(slot->task) == DIBS_OK);
    EXPECT(dibs_task_enter(slot->task) == DIBS_BUSY);
    if (slot->holds >= 0) {
        const char *name = text_of(slot->holds);
        dibs_status status = dibs_check(rt, name);
        EXPECT(status == DIBS_OK || slot->run->closing);
        if (draw(seed, 8) == 0)
            (void)!dibs_extend(rt, name, LONG_LEASE_MS);
        (void)!dibs_trylock(rt, name);
        leave_hold(slot);
        dibs_unlock_all(rt);
    } else {
        int name = (int)draw(seed, NAMES);
        if (dibs_timedlock(rt, text_of(name), draw(seed, 60)) == DIBS_OK) {
            slot->holds = name;
            if (!slot->run->closing)
                go_in(name);
        }
    }
    EXPECT(dibs_task_leave(slot->task) == DIBS_OK);
    atomic_fetch_add(&counts[BLOCKED], 1);
}

static void use_slot(unsigned *seed)
{
    struct slot *slot = &slots[draw(seed, TASKS)];

    pthread_rwlock_rdlock(&running);
    if (pthread_mutex_trylock(&slot->mutex) != 0) {
        pthread_rwlock_unlock(&running);
        return;
    }
    unsigned what = draw(seed, 64);
    bool unknown = slot->call && atomic_load(&slot->call->queue->generation) != slot->queue_generation;
    if (unknown)
        atomic_fetch_add(&counts[UNKNOWN], 1);
    if (!slot->task) {
        make_task(slot);
    } else if (unknown || what == 0 || (slot->cancelled && what < 16) || (slot->run->closing && what < 16)) {
        free_task(slot);
    } else if (!slot->call) {
        if (what < 12)
            act(slot, seed);
        else {
            /* all queues' lives are held, so that none is freed in the midst of the begin */
            for (int i = 0; i < QUEUES; i++)
                pthread_rwlock_rdlock(&queues[i].life);
            begin(slot, seed);
            for (int i = 0; i < QUEUES; i++)
                pthread_rwlock_unlock(&queues[i].life);
        }
    }
    pthread_mutex_unlock(&slot->mutex);
    pthread_rwlock_unlock(&running);
}

static void cancel(unsigned *seed)
{
    struct slot *slot = &slots[draw(seed, TASKS)];

    pthread_rwlock_rdlock(&slot->life);
    dibs_task_cancel(slot->task);
    pthread_rwlock_unlock(&slot->life);
    if (pthread_mutex_trylock(&slot->mutex) == 0) {
        slot->cancelled = true; /* or the slot has another task by now; then that one is freed a little sooner */
        pthread_mutex_unlock(&slot->mutex);
    }
}

static void lock_as_a_thread(unsigned *seed)
{
    int name = (int)draw(seed, NAMES);

    pthread_rwlock_rdlock(&running);
    dibs_runtime *rt = atomic_load(&current)->rt;
    if (dibs_timedlock(rt, text_of(name), draw(seed, 30)) == DIBS_OK) {
        go_in(name);
        go_out(name);
        dibs_unlock(rt, text_of(name));
    }
    pthread_rwlock_unlock(&running);
}

/* ----------------------------------------------------------------- the rarer things */

static struct run *open_run(void)
{
    struct run *run = calloc(1, sizeof *run);
    dibs_config config = {.urls = &url, .url_count = 1, .lease_ms = LONG_LEASE_MS, .connect_timeout_ms = 10000};

    while (dibs_open(&run->rt, &config) != DIBS_OK)
        continue;
    return run;
}

static void close_and_open(void)
{
    struct run *next = open_run();

    next->before = atomic_load(&current);
    pthread_rwlock_wrlock(&running);
    struct run *run = atomic_exchange(&current, next);
    for (int i = 0; i < TASKS; i++) {
        pthread_mutex_lock(&slots[i].mutex);
        if (slots[i].task && slots[i].run == run && slots[i].holds >= 0)
            go_out(slots[i].holds);
        pthread_mutex_unlock(&slots[i].mutex);
    }
    run->closing = true;
    pthread_rwlock_unlock(&running);
    dibs_close(run->rt); /* while others begin, wait and take */
    atomic_fetch_add(&counts[CLOSED], 1);
}

static void free_queue(unsigned *seed)
{
    struct life *q = &queues[draw(seed, QUEUES)];

    pthread_rwlock_wrlock(&q->life);
    dibs_queue_free(q->queue);
    if (dibs_queue_new(&q->queue) != DIBS_OK)
        abort();
    atomic_fetch_add(&q->generation, 1);
    pthread_rwlock_unlock(&q->life);
    atomic_fetch_add(&counts[QUEUES_FREED], 1);
}

/* The child of a thread, while others are anywhere. */
static void live_as_child(dibs_runtime *rt, dibs_task *task, dibs_queue *queue, unsigned seed)
{
    dibs_completion c;
    dibs_task *own;

    alarm(30);
    if (dibs_queue_take(queue, &c, 1, 0) != 0 || dibs_queue_fd(queue) < 0)
        _exit(2);
    if (task && draw(&seed, 3) == 0)
        dibs_task_cancel(task);
    else if (task && draw(&seed, 2) == 0)
        dibs_task_free(task);
    else if (task && (dibs_task_enter(task) != DIBS_OK || dibs_check(rt, "s0") != DIBS_NOT_HELD))
        _exit(3);
    if (dibs_task_new(rt, &own) != DIBS_OK || dibs_lock_begin(own, "child", 0, NULL, queue, NULL) != DIBS_OK)
        _exit(4);
    if (dibs_queue_take(queue, &c, 1, 25000) != 1)
        _exit(6);
    if (c.task != own || dibs_queue_take(queue, &c, 1, 0) != 0)
        _exit(5);
    dibs_task_free(own);
    dibs_close(rt);
    _exit(0);
}

static void fork_one(unsigned *seed)
{
    struct slot *slot = &slots[draw(seed, TASKS)];
    struct life *q = &queues[draw(seed, QUEUES)];

    pthread_rwlock_rdlock(&running); /* a runtime that is closed could not be used by the child */
    pthread_rwlock_rdlock(&q->life);
    pthread_rwlock_rdlock(&slot->life);
    dibs_runtime *rt = atomic_load(&current)->rt;
    pid_t child = fork_child();
    if (child == 0)
        live_as_child(rt, slot->task, q->queue, *seed);
    pthread_rwlock_unlock(&slot->life);
    pthread_rwlock_unlock(&q->life);
    pthread_rwlock_unlock(&running);
    int status = child_wait_for(child, 40000);
    if (status != 0)
        fprintf(stderr, "child: %d\n", status);
    EXPECT(status == 0);
    atomic_fetch_add(&counts[FORKED], 1);
}

/* ------------------------------------------------------------------------ all of it */

static void *run_thread(void *arg)
{
    unsigned number = (unsigned)(uintptr_t)arg, seed = first_seed * 7919u + number;

    while (!atomic_load(&stop)) {
        unsigned what = draw(&seed, 2000);
        if (what < 900)
            take(&seed);
        else if (what < 1800)
            use_slot(&seed);
        else if (what < 1900)
            lock_as_a_thread(&seed);
        else if (what < 1980)
            cancel(&seed);
        else if (what < 1990)
            free_queue(&seed);
        else if (what == 1990 && number == 0)
            close_and_open();
        else if (what > 1990 && number == 1)
            fork_one(&seed);
    }
    return NULL;
}

/* On a busy machine the threads draw fewer actions in the same time, and may not have drawn a rare one. */
static bool had_all(void)
{
    return counts[GRANTED] > 100 && counts[CANCELLED] > 10 && counts[CLOSED] > 0 && counts[FORKED] > 0;
}

/* From the test's own thread: what happens to the server. */
static void disturb(server *s)
{
    unsigned seed = first_seed;
    int64_t until = now_ms() + (int64_t)seconds * 1000, limit = until + LIMIT_MS;

    for (int i = 0; now_ms() < until || (!had_all() && now_ms() < limit); i++) {
        pause_ms(50 + draw(&seed, 200));
        if (i % 3 == 0)
            freeReplyObject(server_try(s, "CLIENT KILL TYPE %s SKIPME yes", i % 2 ? "normal" : "pubsub"));
        if (i % 7 == 0) {
            server_pause(s);
            pause_ms(draw(&seed, 600));
            server_resume(s);
        }
    }
}

static void drain(void)
{
    dibs_completion c[BATCH];

    for (int i = 0; i < QUEUES; i++)
        for (size_t count; (count = dibs_queue_take(queues[i].queue, c, BATCH, 0)) > 0;)
            for (size_t k = 0; k < count; k++)
                note(&c[k]);
}

static void expect_one_completion_each(void)
{
    unsigned count = atomic_load(&call_count), missing = 0;

    for (unsigned i = 0; i < count && i < CALLS; i++) {
        unsigned came = atomic_load(&calls[i].completions);
        bool is_dropped = call_queue_generation[i] != atomic_load(&calls[i].queue->generation);
        missing += came != 1 && !(is_dropped && came == 0);
    }
    assert_int_equal(missing, 0);
}

static long number_of(const char *variable, long otherwise)
{
    const char *text = getenv(variable);

    return text ? strtol(text, NULL, 10) : otherwise;
}

TEST_ON(tasks_and_queues_survive_everything_at_once, fixture *f)
{
    pthread_t threads[THREADS];

    seconds = (int)number_of("DIBS_STRESS_SECONDS", 10);
    first_seed = (unsigned)number_of("DIBS_STRESS_SEED", 1);
    url = f->server->url;
    calls = calloc(CALLS, sizeof *calls);
    call_queue_generation = calloc(CALLS, sizeof *call_queue_generation);
    assert_true(calls && call_queue_generation);
    init_rwlock(&running);
    for (int i = 0; i < QUEUES; i++) {
        init_rwlock(&queues[i].life);
        assert_status(DIBS_OK, dibs_queue_new(&queues[i].queue));
    }
    for (int i = 0; i < TASKS; i++) {
        pthread_mutex_init(&slots[i].mutex, NULL);
        init_rwlock(&slots[i].life);
        slots[i].holds = -1;
    }
    atomic_store(&current, open_run());
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_thread, (void *)i), 0);
    disturb(f->server);
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < TASKS; i += 2) /* half of the tasks end before the runtime, the others after it */
        if (slots[i].task)
            free_task(&slots[i]);
    struct run *last = atomic_load(&current);
    dibs_close(last->rt);
    last->closing = true;
    drain();
    expect_one_completion_each();
    for (int i = 1; i < TASKS; i += 2)
        dibs_task_free(slots[i].task);
    drain();
    for (int i = 0; i < QUEUES; i++)
        dibs_queue_free(queues[i].queue);
    print_message("# begun %u, taken %u, granted %u, cancelled %u, lost %u, freed %u, closed %u, forked %u, acted %u, "
                  "queues freed %u, unknown %u\n",
                  counts[BEGUN], counts[TAKEN], counts[GRANTED], counts[CANCELLED], counts[LOST], counts[FREED],
                  counts[CLOSED], counts[FORKED], counts[BLOCKED], counts[QUEUES_FREED], counts[UNKNOWN]);
    assert_int_equal(atomic_load(&wrong), 0);
    assert_true(had_all());
    for (struct run *run = last, *before; run; run = before) {
        before = run->before;
        free(run);
    }
    free(calls);
    free(call_queue_generation);
}

TESTS(fixture_setup, fixture_teardown)
