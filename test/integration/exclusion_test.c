/* Mutual exclusion: never are two threads inside at once, whatever their process and however each got the lock. */
#include <unistd.h>

#include "support/fixture.h"
#include "support/process.h"

enum {
    PROCESSES = 8,
    THREADS = 8,
    ACQUIRES = 250, /* by each thread: 2,000 by each process, 16,000 in all */
    NAMES = 5,
    KILLS = 12,
    PROCESS_LIMIT_MS = 240000
};

/* The shared folder lies in the server's: it goes with it. */
static void prepare(const server *s)
{
    char path[128];

    for (int i = -1; i < NAMES; i++) {
        FILE *file;

        if (i < 0)
            snprintf(path, sizeof path, "%s/shared", s->folder);
        else
            snprintf(path, sizeof path, "%s/count-%d", s->folder, i);
        file = fopen(path, "we");
        assert_true(file != NULL);
        if (i >= 0)
            fputs("0", file);
        fclose(file);
        if (i < 0)
            assert_int_equal(truncate(path, 4096), 0);
    }
}

static process *start_worker(const server *s, int threads, int acquires, uint32_t lease_ms)
{
    return process_start((const char *const[]){program_path("exclusion_worker"), s->url, s->folder,
                                               formatted("%d", threads), formatted("%d", acquires),
                                               formatted("%u", lease_ms), NULL});
}

static long long sum_of_counts(const server *s)
{
    long long sum = 0;

    for (int i = 0; i < NAMES; i++) {
        char text[32] = "";
        FILE *file = fopen(formatted("%s/count-%d", s->folder, i), "re");
        assert_true(file && fgets(text, sizeof text, file));
        fclose(file);
        sum += atoll(text);
    }
    return sum;
}

TEST_ON(processes_and_threads_exclude_each_other, fixture *f)
{
    process *workers[PROCESSES];

    prepare(f->server);
    for (int i = 0; i < PROCESSES; i++)
        workers[i] = start_worker(f->server, THREADS, ACQUIRES, 0);
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(process_wait(workers[i], PROCESS_LIMIT_MS), 0);
        process_free(workers[i]);
    }
    assert_int_equal(sum_of_counts(f->server), PROCESSES * THREADS * ACQUIRES);
}

static void note_victim(const server *s, pid_t pid)
{
    FILE *file = fopen(formatted("%s/victims", s->folder), "ae");

    assert_true(file != NULL);
    fprintf(file, "%d\n", (int)pid);
    fclose(file);
}

/*
 * One process after another is killed, wherever it is at that moment. The remaining processes must still exclude each
 * other, and must make progress: a lock whose holder died is free after its lease, and a dead waiter is granted
 * nothing.
 */
TEST_WITH(killed_processes_neither_break_exclusion_nor_block_the_lock, fixture_setup, fixture_teardown_expiring,
          fixture *f)
{
    process *workers[3];
    long long before = 0;

    prepare(f->server);
    for (int i = 0; i < 3; i++)
        workers[i] = start_worker(f->server, 4, 1000000, SAFE_LEASE_MS);
    for (int i = 0; i < KILLS; i++) {
        process **victim = &workers[i % 3];

        await_or_say(sum_of_counts(f->server) > before, "nobody gets on");
        note_victim(f->server, (*victim)->pid);
        process_kill(*victim);
        process_free(*victim);
        before = sum_of_counts(f->server) + 50;
        *victim = start_worker(f->server, 4, i < KILLS - 3 ? 1000000 : 200, SAFE_LEASE_MS);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(process_wait(workers[i], PROCESS_LIMIT_MS), 0);
        process_free(workers[i]);
    }
}

TESTS(fixture_setup, fixture_teardown)
