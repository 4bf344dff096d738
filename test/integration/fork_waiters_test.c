/*
 * Fork while threads wait: in the store's queue, with the grant on its way, in the process, in order, or for an answer;
 * while the scheduler writes; and while threads hand a lease on. The child has none of its parent's sockets and takes
 * nothing from it; the parent's threads get what they waited for.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/agent.h"
#include "support/child.h"
#include "support/fixture.h"
#include "support/process.h"
#include "support/queue.h"
#include "support/script_server.h"

#define FOREVER DIBS_WAIT_FOREVER

static const dibs_lock_options fair = {.flags = DIBS_FAIR};

/* "x" is held by another process or by a thread of the parent, or is about to be. */
static void child_holds_nothing(dibs_runtime *rt)
{
    CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "x"));
    CHILD_WANTS(DIBS_NOT_HELD, dibs_unlock(rt, "x"));
    CHILD_WANTS(DIBS_OK, dibs_timedlock(rt, "own", LIMIT_MS));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "own"));
}

static void child_closes(dibs_runtime *rt)
{
    CHILD_WANTS(DIBS_OK, dibs_lock(rt, "own"));
    dibs_close(rt);
}

static void child_does_nothing(dibs_runtime *rt)
{
}

static child_function *const children[] = {child_holds_nothing, child_closes, child_does_nothing};

enum { CHILD_KINDS = sizeof children / sizeof *children };

/* --------------------------------------------------------------- its sockets */

enum { SOCKETS_MAX = 64 };

struct sockets {
    size_t count;
    ino_t list[SOCKETS_MAX];
};

/* All that this process has open. */
static struct sockets open_sockets(void)
{
    struct sockets all = {.count = 0};

    for (int fd = 0; fd < 1024 && all.count < SOCKETS_MAX; fd++) {
        struct stat status;
        char path[32];

        snprintf(path, sizeof path, "/dev/fd/%d", fd); /* by name: another thread may be opening one */
        if (stat(path, &status) == 0 && S_ISSOCK(status.st_mode))
            all.list[all.count++] = status.st_ino;
    }
    return all;
}

static bool is_among(const struct sockets *all, ino_t socket)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->list[i] == socket)
            return true;
    return false;
}

static struct sockets librarys; /* the sockets of the runtime */

/* Notes the sockets that are open now and were not before. */
static void note_librarys_sockets(const struct sockets *before)
{
    struct sockets after = open_sockets();

    librarys.count = 0;
    for (size_t i = 0; i < after.count; i++)
        if (!is_among(before, after.list[i]))
            librarys.list[librarys.count++] = after.list[i];
}

static void child_has_no_socket_of_its_parent(void)
{
    struct sockets mine = open_sockets();

    for (size_t i = 0; i < mine.count; i++) {
        if (is_among(&librarys, mine.list[i])) {
            fprintf(stderr, "the child has a socket of its parent's\n");
            _exit(1);
        }
    }
}

static void child_looks_at_its_sockets(dibs_runtime *rt)
{
    child_has_no_socket_of_its_parent();
    child_holds_nothing(rt);
    child_has_no_socket_of_its_parent();
}

TEST_ON(a_child_has_none_of_its_parents_sockets, fixture *f)
{
    server_do(f->server, "PING");
    dibs_runtime *holder = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock(holder, "x"));
    struct sockets before = open_sockets();
    f->config.renew_ms = 20;
    fixture_open_patient(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "y"));
    actor *waiter = actor_locking(f->rt, "x", FOREVER);
    queue_await(f->server, "x", 1);
    queue_await_listening(f->server, queue_at(f->server, "x", 0).channel);
    note_librarys_sockets(&before);
    assert_true(librarys.count >= 3); /* the calls', the scheduler's, the subscription */
    run_child(child_looks_at_its_sockets, f->rt);
    assert_status(DIBS_OK, dibs_unlock(holder, "x"));
    actor_gets(waiter, f->rt, "x");
    assert_status(DIBS_OK, dibs_unlock(f->rt, "y"));
    assert_int_equal(stats_of(f->rt).reconnects, 0);
}

/* ------------------------------------------------------------------- waiting */

/*
 * The thread waits for x, which f->rt then releases, until it has been granted by a push: when its runtime begins to
 * listen, it asks once more, and may get the lock so. On return the scheduler has done what it does at that beginning,
 * even if it was late.
 */
static void have_a_push(fixture *f, dibs_runtime *rt, actor *waiter)
{
    for (int64_t limit = now_ms() + LIMIT_MS; stats_of(rt).granted == 0;) {
        assert_that(now_ms() < limit, "the lock is never granted by a push");
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        actor_begin_lock(waiter, rt, "x", FOREVER);
        queue_await(f->server, "x", 1);
        queue_await_listening(f->server, queue_at(f->server, "x", 0).channel);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        actor_gets(waiter, rt, "x");
    }
    await_scheduler(rt);
}

/* The network keeps the grant back, so that it is on its way when the process forks. */
TEST_ON(a_grant_on_its_way_at_a_fork_is_the_parents, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt =
        open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS, .command_timeout_ms = LIMIT_MS});
    actor *waiter = actor_start();
    uint64_t granted;

    fixture_open_patient(f, LONG_LEASE_MS);
    have_a_push(f, rt, waiter);
    for (int i = 0; i < 2 * CHILD_KINDS; i++) {
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        granted = stats_of(rt).granted;
        actor_begin_lock(waiter, rt, "x", FOREVER);
        queue_await(f->server, "x", 1);
        queue_await_listening(f->server, queue_at(f->server, "x", 0).channel);
        script_server_hold_pushes(net, true);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        run_child(children[i % CHILD_KINDS], rt);
        assert_true(actor_busy(waiter));
        script_server_hold_pushes(net, false);
        assert_status(DIBS_OK, actor_result(waiter));
        assert_int_equal(stats_of(rt).granted, granted + 1);
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_OK, actor_unlock(waiter, rt, "x"));
    }
    assert_int_equal(stats_of(rt).reconnects, 0);
    dibs_close(rt);
    queue_assert_gone(f->server, "x");
}

/*
 * The release, and with it the push, comes at the moment of the fork: the message lies in a socket that both processes
 * have.
 */
TEST_ON(a_grant_at_the_moment_of_a_fork_is_the_parents, fixture *f)
{
    enum { TIMES = 30 };
    process *holder = agent_start(f->server->url, LONG_LEASE_MS);
    actor *waiter = actor_start();

    fixture_open_patient(f, LONG_LEASE_MS);
    for (int i = 0; i < TIMES; i++) {
        assert_status(DIBS_OK, agent_lock(holder, "x", LIMIT_MS));
        actor_begin_lock(waiter, f->rt, "x", FOREVER);
        queue_await(f->server, "x", 1);
        process_write(holder, "unlock x");
        run_child(children[i % CHILD_KINDS], f->rt);
        assert_status(DIBS_OK, agent_result(holder));
        actor_gets(waiter, f->rt, "x");
    }
    assert_int_equal(stats_of(f->rt).reconnects, 0);
    agent_stop(holder);
    queue_assert_gone(f->server, "x");
}

static void child_waits_in_order(dibs_runtime *rt)
{
    child_holds_nothing(rt);
    CHILD_WANTS(DIBS_TIMEOUT, dibs_lock_with(rt, "x", 50, &fair));
    CHILD_WANTS(DIBS_TIMEOUT, dibs_timedlock(rt, "x", 50));
    child_holds_nothing(rt);
    dibs_close(rt); /* its entries are taken out of the queue in the background */
}

/* One thread waits fairly, one behind a thread of its process: their places are not the child's. */
TEST_ON(waiters_of_each_kind_survive_a_fork, fixture *f)
{
    actor *ordered = actor_start();

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    actor_begin_lock_with(ordered, f->rt, "x", FOREVER, &fair);
    queue_await(f->server, "x", 1);
    actor *local = actor_locking(f->rt, "x", FOREVER);
    actor_await_asleep(local);
    for (int i = 0; i < 3; i++) {
        run_child(child_waits_in_order, f->rt);
        queue_await(f->server, "x", 1);
        assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    }
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    actor_gets(ordered, f->rt, "x");
    actor_gets(local, f->rt, "x");
    assert_int_equal(stats_of(f->rt).reconnects, 0);
    queue_assert_gone(f->server, "x");
}

/* The command is sent and not answered yet: the answer is the parent's. */
TEST_ON(an_ask_in_flight_at_a_fork_is_the_parents, fixture *f)
{
    actor *asker = actor_start();

    fixture_open_patient(f, LONG_LEASE_MS);
    for (int i = 0; i < 5; i++) {
        pid_t child;

        server_pause(f->server);
        actor_begin_lock(asker, f->rt, "x", 0);
        actor_await_asleep(asker);
        child = fork_child();
        if (child == 0) {
            child_holds_nothing(f->rt);
            _exit(0);
        }
        assert_true(child > 0);
        server_resume(f->server);
        assert_status(DIBS_OK, actor_result(asker));
        assert_int_equal(child_wait_for(child, LIMIT_MS), 0);
        assert_true(server_has(f->server, "lock:x"));
        assert_status(DIBS_OK, actor_unlock(asker, f->rt, "x"));
    }
    assert_int_equal(stats_of(f->rt).reconnects, 0);
}

/* ------------------------------------------------------- the scheduler writes */

static ssize_t (*real_send)(int, const void *, size_t, int); /* set before there is a second thread, as the next two */
static pthread_t test_thread;
static pid_t test_process;
static atomic_bool socket_fills;   /* of the next renewal, the socket is to take all but the last byte */
static atomic_bool amid_a_command; /* and has; it takes no more until this is false */

/* More than all that the scheduler sends beside renewals. */
enum { LONG_NAMES = 20, LONG_NAME = 512 };

/*
 * Replaces the function of the C library. While the actors rest, a thread that sends and is not the test's own is the
 * scheduler.
 */
ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    if (getpid() != test_process || pthread_equal(pthread_self(), test_thread))
        return real_send(fd, bytes, size, flags);
    if (atomic_load(&amid_a_command)) {
        pause_ms(1);
        errno = EAGAIN;
        return -1;
    }
    if (size > LONG_NAME && atomic_exchange(&socket_fills, false)) {
        ssize_t sent = real_send(fd, bytes, size - 1, flags);
        atomic_store(&amid_a_command, true);
        return sent;
    }
    return real_send(fd, bytes, size, flags);
}

static const char *long_name(int number)
{
    return formatted("%0*d", LONG_NAME, number);
}

static void await_renewals(dibs_runtime *rt, uint64_t more)
{
    assert_true(comes_to(rt, STAT(renewed), stats_of(rt).renewed + more));
}

/* Makes only calls for which the server need not answer. */
static void child_looks_only(dibs_runtime *rt)
{
    child_has_no_socket_of_its_parent();
    CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, long_name(0)));
}

static void child_closes_at_once(dibs_runtime *rt)
{
    dibs_close(rt);
}

/* Expects that the names which its parent holds are taken. */
static void child_asks(dibs_runtime *rt)
{
    child_has_no_socket_of_its_parent();
    CHILD_WANTS(DIBS_BUSY, dibs_trylock(rt, long_name(0)));
    child_holds_nothing(rt);
    dibs_close(rt);
}

/* The socket took a part of a command when the process forks. All of it arrives, once and in order. */
TEST_ON(a_fork_while_the_scheduler_writes_loses_no_byte, fixture *f)
{
    static child_function *const kinds[] = {child_looks_only, child_closes_at_once, child_does_nothing, child_asks};

    server_do(f->server, "PING");
    struct sockets before = open_sockets();
    f->config.renew_ms = 200;
    f->config.connect_timeout_ms = f->config.command_timeout_ms = LIMIT_MS;
    fixture_open_connected(f, LONG_LEASE_MS); /* a renewal that is due before that fails for want of a connection */
    uint64_t failed = stats_of(f->rt).renew_failed;
    for (int i = 0; i < LONG_NAMES; i++)
        assert_status(DIBS_OK, dibs_lock(f->rt, long_name(i)));
    await_renewals(f->rt, LONG_NAMES);
    note_librarys_sockets(&before);
    assert_true(librarys.count >= 2);
    atomic_store(&socket_fills, true);
    await_that(atomic_load(&amid_a_command));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        run_child(kinds[i], f->rt);
    atomic_store(&amid_a_command, false);
    await_renewals(f->rt, (uint64_t)2 * LONG_NAMES);
    dibs_stats stats = stats_of(f->rt);
    assert_int_equal(stats.lost + stats.renew_failed, failed);
    assert_int_equal(stats.reconnects + stats.store_errors, 0);
    for (int i = 0; i < LONG_NAMES; i++)
        assert_status(DIBS_OK, dibs_check(f->rt, long_name(i)));
    assert_int_equal(stats.leases, LONG_NAMES);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

/* ---------------------------------------------------------- under a full load */

struct load {
    dibs_runtime *rt;
    bool fair;
    atomic_bool *stop;
    atomic_int *inside, *wrong;
    atomic_uint cycles;
};

static void lock_in_a_loop(void *arg)
{
    struct load *l = arg;

    while (!atomic_load(l->stop)) {
        if (dibs_lock_with(l->rt, "busy", FOREVER, l->fair ? &fair : NULL) != DIBS_OK ||
            atomic_fetch_add(l->inside, 1) != 0)
            atomic_fetch_add(l->wrong, 1);
        atomic_fetch_sub(l->inside, 1);
        if (dibs_unlock(l->rt, "busy") != DIBS_OK)
            atomic_fetch_add(l->wrong, 1);
        atomic_fetch_add(&l->cycles, 1);
    }
}

static void child_cycles(dibs_runtime *rt)
{
    CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "busy"));
    CHILD_WANTS(DIBS_OK, dibs_timedlock(rt, "busy", LIMIT_MS));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "busy"));
    CHILD_WANTS(DIBS_OK, dibs_lock_with(rt, "busy", LIMIT_MS, &fair));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "busy"));
}

enum { CROWD = 6, FORKS = 30 };

/* Who gets the lock from whom is the system's matter: the threads go on until each way was taken. */
static bool took_each_way(dibs_runtime *rt, struct load *loads)
{
    dibs_stats stats = stats_of(rt);

    for (int i = 0; i < CROWD; i++)
        if (atomic_load(&loads[i].cycles) == 0)
            return false;
    return stats.handed_off > 0 && stats.granted > 0 && stats.renewed > FORKS;
}

/*
 * Threads that hand a lease on, and one that queues fairly, and those of
 * another runtime, whose grants come by push; leases are renewed all the time.
 */
TEST_ON(a_fork_in_a_crowd_loses_no_grant, fixture *f)
{
    enum { KEPT = 20 };
    atomic_bool stop = false;
    atomic_int inside = 0, wrong = 0;
    struct load loads[CROWD];
    actor *actors[CROWD];

    f->config.renew_ms = 5;
    f->config.command_timeout_ms = LIMIT_MS;  /* no reconnect because the machine stalls */
    fixture_open_connected(f, LONG_LEASE_MS); /* a renewal that is due before that fails for want of a connection */
    uint64_t failed = stats_of(f->rt).renew_failed;
    dibs_runtime *second = open_url(
        f->server->url, &(dibs_config){.lease_ms = LONG_LEASE_MS, .command_timeout_ms = f->config.command_timeout_ms});
    for (int i = 0; i < KEPT; i++)
        assert_status(DIBS_OK, dibs_lock(f->rt, formatted("kept-%d", i)));
    for (int i = 0; i < CROWD; i++) {
        loads[i] = (struct load){
            .rt = i == CROWD - 1 ? second : f->rt, .fair = i == 0, .stop = &stop, .inside = &inside, .wrong = &wrong};
        actors[i] = actor_start();
        actor_begin(actors[i], lock_in_a_loop, &loads[i]);
    }
    for (int i = 0; i < FORKS; i++)
        run_child(i % 3 ? child_cycles : child_closes, f->rt);
    bool each_way = within(LIMIT_MS, took_each_way(f->rt, loads));
    atomic_store(&stop, true);
    for (int i = 0; i < CROWD; i++)
        actor_end(actors[i]);
    assert_int_equal(atomic_load(&wrong), 0);
    dibs_stats stats = stats_of(f->rt);
    assert_that(each_way, "%d were handed over, %d granted, %d renewed", (int)stats.handed_off, (int)stats.granted,
                (int)stats.renewed);
    assert_int_equal(stats.reconnects, 0);
    assert_int_equal(stats.lost + stats.renew_failed, failed);
    assert_int_equal(stats.store_errors, 0);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    dibs_close(second);
    queue_await(f->server, "busy", 0);
}

/* ---------------------------------------------------------------------- exec */

/* What any program gets from here. */
static void usual_descriptors(char *out, size_t size)
{
    process *p = process_start((const char *const[]){program_path("descriptors"), NULL});

    snprintf(out, size, "%s", process_read(p));
    assert_int_equal(process_wait(p, LIMIT_MS), 0);
    process_free(p);
}

/*
 * Another program replaces the process: it has none of its descriptors, and the waiter of the former process is passed
 * over.
 */
TEST_ON(exec_drops_the_descriptors_and_the_waiters_place, fixture *f)
{
    process *team = process_start((const char *const[]){program_path("team"), NULL});
    char usual[32];

    usual_descriptors(usual, sizeof usual);
    fixture_open_holding(f, LONG_LEASE_MS, "y");
    assert_string_equal(process_ask(team, "open %s %d", f->server->url, SAFE_LEASE_MS), "DIBS_OK ");
    assert_string_equal(process_ask(team, "lock 0 x 0 0"), "0 DIBS_OK ");
    process_write(team, "lock 1 y -1 0");
    queue_await(f->server, "y", 1);
    queue_entry entry = queue_at(f->server, "y", 0);
    queue_await_listening(f->server, entry.channel);
    assert_string_equal(process_ask(team, "exec %s", program_path("descriptors")), usual);
    queue_await_no_listener(f->server, entry.channel);
    unlock_for_good(f, "y");
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS)); /* its lease ends */
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_int_equal(process_wait(team, LIMIT_MS), 0);
    process_free(team);
}

/* The scheduler must be able to end after a failure, too. */
static int teardown(void **state)
{
    atomic_store(&amid_a_command, false);
    return fixture_teardown(state);
}

int main(void)
{
    *(void **)&real_send = dlsym(RTLD_NEXT, "send");
    test_thread = pthread_self();
    test_process = getpid();
    return test_run_all(fixture_setup, teardown, NULL, NULL);
}
