#include "sched.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "proc.h"

#define STACK (128 * 1024)
#define BUDGET_MOST 50000

int64_t sim_now;
struct sim_thread *sim_current;
long sim_budget;
struct sim_schedule sim_schedule = {.point_mean = 1000};
uint64_t sim_hash, sim_switches;
long sim_clock_reads;
int sim_telling;

static void *main_context;
static int ready; /* threads that are, also of processes that are stopped */
static int thread_count;
static uint32_t lowest;  /* priorities that were lowered lie below all others, in the order of their lowering */
static long kept_budget; /* what was left of the budget when a wake cut it short */

/* ------------------------------------------------------------------- chance */

static uint64_t streams[SIM_STREAMS];

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void sim_seed(uint64_t seed)
{
    for (int i = 0; i < SIM_STREAMS; i++)
        streams[i] = next(&seed);
    lowest = 1u << 31;
    sim_hash = seed;
}

uint64_t sim_draw(enum sim_stream stream)
{
    return next(&streams[stream]);
}

int64_t sim_between(enum sim_stream stream, int64_t low, int64_t high)
{
    return low + (int64_t)(sim_draw(stream) % ((uint64_t)(high - low) + 1));
}

static double fraction(enum sim_stream stream)
{
    return (double)(sim_draw(stream) >> 11) / 9007199254740992.0;
}

int64_t sim_between_log(enum sim_stream stream, int64_t low, int64_t high)
{
    return (int64_t)((double)low * pow((double)high / (double)low, fraction(stream)));
}

bool sim_chance(enum sim_stream stream, double probability)
{
    return fraction(stream) < probability;
}

/* --------------------------------------------------------------------- events */

struct event {
    int64_t time;
    uint64_t order; /* of two events at the same time, the one created first comes first */
    sim_event_fn *fn;
    void *arg;
    uint64_t number;
};

static struct event *events;
static size_t event_count, event_cap;
static uint64_t event_order;

static bool before(const struct event *a, const struct event *b)
{
    return (a->time < b->time) |
           ((a->time == b->time) & (a->order < b->order)); /* no branch, as it can't be foreseen */
}

void sim_at(int64_t time, sim_event_fn *fn, void *arg, uint64_t number)
{
    if (event_count == event_cap)
        events = realloc(events, (event_cap = event_cap ? event_cap * 2 : 1024) * sizeof *events);
    struct event event = {time < sim_now ? sim_now : time, event_order++, fn, arg, number};
    size_t at = event_count++;
    for (; at > 0 && before(&event, &events[(at - 1) / 2]); at = (at - 1) / 2)
        events[at] = events[(at - 1) / 2];
    events[at] = event;
}

static struct event take_event(void)
{
    struct event first = events[0], last = events[--event_count];
    size_t at = 0;

    for (size_t child; (child = 2 * at + 1) < event_count; at = child) {
        child += child + 1 < event_count && before(&events[child + 1], &events[child]);
        if (!before(&events[child], &last))
            break;
        events[at] = events[child];
    }
    events[at] = last;
    return first;
}

/* ------------------------------------------------------------------ switching */

#ifndef __x86_64__
#error "the simulation switches stacks on x86-64 alone"
#endif

void sim_switch(void **save, void *to);
__asm__(".text\n"
        ".type sim_switch, @function\n"
        "sim_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\n"
        "mov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\n"
        "ret\n"
        ".size sim_switch, .-sim_switch\n");

static void back_to_main(void)
{
    sim_switch(&sim_current->context, main_context);
}

static void run_thread(void)
{
    struct sim_thread *thread = sim_current;

    thread->run(thread->arg);
    sim_proc_thread_ends(thread);
    sim_end_thread(thread);
    sim_wake(thread->proc, thread, true);
    back_to_main();
    abort();
}

struct sim_thread *sim_start(struct sim_proc *proc, const char *name, void *(*run)(void *), void *arg)
{
    struct sim_thread *thread = calloc(1, sizeof *thread);
    char *stack =
        mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

    if (!thread || stack == MAP_FAILED)
        abort();
    void **top = (void **)(void *)(stack + STACK);
    *--top = NULL; /* the stack of a function that was called is off by 8 */
    *(void (**)(void))-- top = run_thread;
    thread->context = top - 6;
    thread->number = ++thread_count;
    thread->proc = proc;
    thread->run = run;
    thread->arg = arg;
    thread->tls = sim_proc_tls();
    thread->priority = (1u << 31) | (uint32_t)sim_draw(SIM_SCHEDULE) >> 1;
    ready++;
    snprintf(thread->name, sizeof thread->name, "%s", name);
    struct sim_thread **last = &proc->threads;
    while (*last)
        last = &(*last)->next;
    *last = thread;
    sim_budget = 0;
    return thread;
}

/* ------------------------------------------------------------ sleep and wake */

static void make_ready(struct sim_thread *thread)
{
    thread->state = SIM_READY;
    ready++;
    thread->address = NULL;
    thread->fds = NULL;
    if (sim_current && thread->priority > sim_current->priority && sim_budget > 0) {
        kept_budget = sim_budget;
        sim_budget = 0;
    }
}

static void on_deadline(void *arg, uint64_t number)
{
    struct sim_thread *thread = arg;

    if (thread->state != SIM_ASLEEP || thread->sleeps != number)
        return;
    thread->timed_out = true;
    make_ready(thread);
}

bool sim_sleep(const void *address, const struct pollfd *fds, size_t fd_count, int64_t deadline)
{
    struct sim_thread *thread = sim_current;

    thread->state = SIM_ASLEEP;
    ready--;
    thread->address = address;
    thread->fds = fds;
    thread->fd_count = fd_count;
    thread->timed_out = false;
    thread->sleeps++;
    if (deadline != SIM_NEVER)
        sim_at(deadline, on_deadline, thread, thread->sleeps);
    back_to_main();
    return !thread->timed_out;
}

int64_t sim_early(void)
{
    if (sim_schedule.spurious == 0 || !sim_chance(SIM_SCHEDULE, sim_schedule.spurious))
        return SIM_NEVER;
    return sim_now + sim_between_log(SIM_SCHEDULE, 1000, 5 * SIM_MS);
}

/* Chooses one of several: the one with the largest priority, which is as good as any. */
void sim_wake(struct sim_proc *proc, const void *address, bool all)
{
    struct sim_thread *best = NULL;

    for (struct sim_thread *thread = proc->threads; thread; thread = thread->next) {
        if (thread->state != SIM_ASLEEP || thread->address != address)
            continue;
        if (all)
            make_ready(thread);
        else if (!best || thread->priority > best->priority)
            best = thread;
    }
    if (best)
        make_ready(best);
}

void sim_wake_fd(struct sim_proc *proc, int fd)
{
    for (struct sim_thread *thread = proc->threads; thread; thread = thread->next)
        for (size_t i = 0; thread->state == SIM_ASLEEP && thread->fds && i < thread->fd_count; i++)
            if (thread->fds[i].fd == fd)
                make_ready(thread);
}

void sim_pass(int64_t ns)
{
    sim_sleep(&sim_now, NULL, 0, sim_now + ns);
}

/* The thread never runs again. */
void sim_end_thread(struct sim_thread *thread)
{
    ready -= thread->state == SIM_READY;
    thread->state = SIM_ENDED;
}

/* -------------------------------------------------------------- the next one */

static void draw_budget(void)
{
    double u = fraction(SIM_SCHEDULE);

    sim_budget = 1 + (long)(-log(1 - u) * sim_schedule.point_mean);
    if (sim_budget > BUDGET_MOST)
        sim_budget = BUDGET_MOST;
}

void sim_slow_point(void)
{
    struct sim_thread *thread = sim_current;

    if (kept_budget > 0) {
        sim_budget = kept_budget;
        kept_budget = 0;
        back_to_main();
        return;
    }
    draw_budget();
    if (sim_chance(SIM_SCHEDULE, sim_schedule.stall_chance)) {
        int64_t ns = sim_between_log(SIM_SCHEDULE, 1000, sim_schedule.stall_most);
        thread->stalled = sim_now + ns;
        if (ns > SIM_MS)
            sim_tell("is not run for %.1f ms", (double)ns / SIM_MS);
        sim_at(thread->stalled, NULL, NULL, 0);
    } else {
        thread->priority = lowest--;
    }
    back_to_main();
}

static struct sim_thread *choose(void)
{
    struct sim_thread *best = NULL;

    for (struct sim_proc *proc = ready > 0 ? sim_procs : NULL; proc; proc = proc->next) {
        if (proc->stopped_until > sim_now)
            continue;
        for (struct sim_thread *thread = proc->threads; thread; thread = thread->next)
            if (thread->state == SIM_READY && thread->stalled <= sim_now &&
                (!best || thread->priority > best->priority))
                best = thread;
    }
    return best;
}

static void fire(void)
{
    struct event event = take_event();

    if (event.time > sim_now)
        sim_now = event.time;
    if (event.fn)
        event.fn(event.arg, event.number);
}

bool sim_run(bool (*is_over)(void), int64_t until)
{
    for (;;) {
        while (event_count > 0 && events[0].time <= sim_now)
            fire();
        if (is_over() || sim_now >= until)
            return true;
        struct sim_thread *thread = choose();
        if (!thread && event_count == 0)
            return false;
        if (!thread && events[0].time > until) {
            sim_now = until;
            return true;
        }
        if (!thread) {
            fire();
            continue;
        }
        if (sim_budget <= 0 && kept_budget == 0)
            draw_budget();
        sim_switches++;
        sim_mix((uint64_t)thread->number << 40 ^ (uint64_t)sim_now);
        sim_become(thread);
        sim_switch(&main_context, thread->context);
        sim_current = NULL;
    }
}

/* ------------------------------------------------------------------ the trace */

void sim_note(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t word;

    for (; size >= 8; size -= 8, at += 8) {
        memcpy(&word, at, 8);
        sim_mix(word);
    }
    for (word = size; size > 0; size--)
        word = word << 8 | *at++;
    sim_mix(word);
}

void sim_tell(const char *format, ...)
{
    char line[400];
    va_list args;

    if (!sim_telling)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    printf("%12.6f ", (double)sim_now / SIM_S);
    if (sim_current)
        printf("process %d, %s (%d): ", sim_current->proc->number, sim_current->name, sim_current->number);
    printf("%s\n", line);
}
