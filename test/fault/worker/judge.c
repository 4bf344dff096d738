/* The judge's file, as a worker uses it. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault/worker/worker.h"
#include "support/common/timing.h"

static size_t slot_words(const judge_head *judge)
{
    return (sizeof(judge_slot) + judge->capacity * sizeof(hold_record)) / sizeof(uint64_t);
}

static size_t judge_words(const judge_head *judge)
{
    return JUDGE_HEAD_WORDS + judge->phases * judge->names + judge->processes * judge->threads * slot_words(judge);
}

judge_slot *slot_of(judge_head *judge, unsigned process, unsigned thread)
{
    uint64_t *words = (uint64_t *)judge + JUDGE_HEAD_WORDS + judge->phases * judge->names;

    return (judge_slot *)(words + (process * judge->threads + thread) * slot_words(judge));
}

judge_head *judge_open(const char *path)
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

bool judge_accepts(judge_head *judge, const hold_record *r)
{
    _Atomic uint64_t *seen =
        (_Atomic uint64_t *)((uint64_t *)judge + JUDGE_HEAD_WORDS + r->phase * judge->names + r->name);
    uint64_t largest = atomic_load(seen);

    if (r->flags & DIBS_SHARED)
        return largest <= r->fence;
    while (largest <= r->fence)
        if (atomic_compare_exchange_weak(seen, &largest, r->fence))
            return true;
    return false;
}

hold_record *begin_record(worker_thread *t)
{
    uint64_t capacity = t->worker->judge->capacity;
    uint64_t head = atomic_load(&t->slot->head);

    while (head - atomic_load(&t->slot->tail) >= capacity)
        pause_us(1000);
    hold_record *r = (hold_record *)(t->slot + 1) + head % capacity;
    memset((void *)r, 0, sizeof *r);
    return r;
}

void publish_record(worker_thread *t, hold_record *r)
{
    atomic_store(&r->state, HOLD_ASKING);
    atomic_fetch_add(&t->slot->head, 1);
}
