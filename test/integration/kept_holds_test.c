/*
 * Holds over kept leases, as many as the processor makes, while processes are killed and stopped, recalls come, and the
 * server is killed and started again, or another takes its place. DIBS_STRESS_SECONDS: for how long; DIBS_STRESS_SEED.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/fixture.h"
#include "support/kept_judge.h"
#include "support/process.h"
#include "support/sentinels.h"

enum { KEEP_MS = 100, LEAST_FOREIGN = 5, LEAST_FAULTS = 6 };

struct scene {
    const char *url, *path; /* of the server, and of the judge's file */
    kept_judge *judge;
    process *workers[KEPT_PROCESSES];
    unsigned seed, started;
};

static unsigned draw(struct scene *scene, unsigned below)
{
    scene->seed = scene->seed * 1103515245 + 12345;
    return (scene->seed >> 16) % below;
}

static long number_of(const char *variable, long otherwise)
{
    const char *text = getenv(variable);

    return text ? strtol(text, NULL, 10) : otherwise;
}

static kept_judge *map_judge(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0 && ftruncate(fd, sizeof(kept_judge)) == 0);
    void *at = mmap(NULL, sizeof(kept_judge), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(at != MAP_FAILED);
    return at;
}

static void start_worker(struct scene *scene, unsigned number)
{
    scene->workers[number] = process_start((const char *const[]){
        program_path("kept_worker"), scene->url, scene->path, formatted("%u", number), formatted("%d", SAFE_LEASE_MS),
        formatted("%d", KEEP_MS), formatted("%u", scene->seed + scene->started++), NULL});
}

static void kill_worker(struct scene *scene, unsigned number)
{
    process_kill(scene->workers[number]);
    process_free(scene->workers[number]);
    start_worker(scene, number);
}

/* Sometimes for longer than its lease. Others have its names then, and are inside when it goes on. */
static void stop_worker(struct scene *scene, unsigned number)
{
    process_pause(scene->workers[number]);
    atomic_store(&scene->judge->stopped, number + 1);
    pause_ms(draw(scene, 2) ? draw(scene, 50) : draw(scene, 2 * SAFE_LEASE_MS));
    process_resume(scene->workers[number]);
    pause_ms(draw(scene, 50));
    atomic_store(&scene->judge->stopped, 0);
}

static bool is_enough(const struct scene *scene)
{
    return atomic_load(&scene->judge->foreign) >= LEAST_FOREIGN && atomic_load(&scene->judge->retaken) > 1000;
}

typedef void fault_function(void *arg);

static void open_scene(struct scene *scene, const char *url, const char *folder)
{
    const char *path = formatted("%s/judge", folder);

    *scene = (struct scene){.url = url, .path = path, .judge = map_judge(path)};
    scene->seed = (unsigned)number_of("DIBS_STRESS_SEED", 1);
    for (unsigned i = 0; i < KEPT_PROCESSES; i++)
        start_worker(scene, i);
}

/* Harms workers, and now and then the server. */
static void disturb(struct scene *scene, fault_function *harm_server, void *arg)
{
    int64_t until = now_ms() + number_of("DIBS_STRESS_SECONDS", 6) * 1000, limit = until + LIMIT_MS;

    for (unsigned i = 0; (now_ms() < until || !is_enough(scene) || i < LEAST_FAULTS) && now_ms() < limit; i++) {
        pause_ms(100 + draw(scene, 400));
        if (i % 3 == 0)
            kill_worker(scene, draw(scene, KEPT_PROCESSES));
        else if (i % 3 == 1)
            stop_worker(scene, draw(scene, KEPT_PROCESSES));
        else
            harm_server(arg);
    }
}

static void close_scene(struct scene *scene)
{
    kept_judge *judge = scene->judge;

    for (unsigned i = 0; i < KEPT_PROCESSES; i++) {
        assert_int_equal(process_wait(scene->workers[i], LIMIT_MS), 0);
        process_free(scene->workers[i]);
    }
    print_message("# %" PRIu64 " holds, %" PRIu64 " over kept leases, %" PRIu64 " of others' names, %" PRIu64
                  " lost, %" PRIu64 " acquires failed, %" PRIu64 " together, %" PRIu64 " overtaken, %" PRIu64
                  " fences fell\n",
                  judge->holds, judge->retaken, judge->foreign, judge->lost, judge->unavailable, judge->together,
                  judge->overtaken, judge->fallen);
    assert_true(is_enough(scene));
    assert_int_equal(judge->odd, 0);
    assert_int_equal(judge->fallen, 0);
}

/* ------------------------------------------------------------------------------- one server */

static void restart_server(void *arg)
{
    server_kill(arg);
    server_restart(arg);
}

TEST(kept_leases_exclude_each_other_while_processes_and_the_server_are_killed)
{
    server *s = test_server(server_start(&(server_options){.config = "appendonly yes\nappendfsync always"}));
    struct scene scene;

    open_scene(&scene, s->url, s->folder);
    disturb(&scene, restart_server, s);
    close_scene(&scene);
    assert_int_equal(scene.judge->together, 0);
    assert_int_equal(scene.judge->overtaken, 0);
    munmap(scene.judge, sizeof *scene.judge);
}

/* --------------------------------------------------------------------------------- failovers */

static void fail_over(void *arg)
{
    sentinels_failover(arg);
}

/* A failover may forget a lease, so that two hold a lock for a while: the old lease, which its process may use again
 * until it is told, has the smaller fences. */
TEST(fences_of_kept_leases_rise_through_failovers)
{
    sentinels *s = sentinels_start(NULL);
    struct scene scene;

    open_scene(&scene, s->url, s->data[0]->folder);
    disturb(&scene, fail_over, s);
    close_scene(&scene);
    munmap(scene.judge, sizeof *scene.judge);
    sentinels_stop(s);
}

TESTS(NULL, NULL)
