# Data that a lock of dibs guards is no data race to ThreadSanitizer, though the library is compiled without it.
# Needs: gcc sanitizers
# Builds: lib
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/server.sh"

# Eight threads raise a counter by turns, with two runtimes. With "apart" half of them hold another lock, which is a race,
# and a thread does so only when another is inside as well: what one did before the other came in the library may have ordered.
# With "names" they hold several locks, and with "task" each of them acts for a task, too.
cat >"$tmp/counter.c" <<'END_OF_C'
#include <dibs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 300 };

static struct part {
    pthread_t thread;
    dibs_runtime *rt;
    const char *name;
    dibs_task *task; /* NULL: none */
    bool several;
} parts[THREADS];

static int count;
static bool meets; /* written before the threads start */

/* Both relaxed: they must not order what the locks leave unordered. */
static atomic_bool failed;
static atomic_int inside;

static void enter(void)
{
    atomic_fetch_add_explicit(&inside, 1, memory_order_relaxed);
    for (int i = 0; meets && i < 100000 && atomic_load_explicit(&inside, memory_order_relaxed) < 2; i++)
        sched_yield();
}

static const char *const names[] = {"counter", "second"};

static dibs_status lock(const struct part *part)
{
    return part->several ? dibs_lock_names(part->rt, names, 2, DIBS_WAIT_FOREVER, NULL) : dibs_lock(part->rt, part->name);
}

static dibs_status unlock(const struct part *part)
{
    return part->several ? dibs_unlock_names(part->rt, names, 2) : dibs_unlock(part->rt, part->name);
}

static void *raise(void *arg)
{
    const struct part *part = arg;

    if (part->task && dibs_task_enter(part->task) != DIBS_OK)
        atomic_store_explicit(&failed, true, memory_order_relaxed);
    for (int i = 0; i < ROUNDS; i++) {
        bool good = lock(part) == DIBS_OK;
        enter();
        count++;
        atomic_fetch_sub_explicit(&inside, 1, memory_order_relaxed);
        good = good && unlock(part) == DIBS_OK;
        if (!good) {
            atomic_store_explicit(&failed, true, memory_order_relaxed);
            break;
        }
    }
    if (part->task)
        dibs_task_leave(part->task);
    return NULL;
}

static bool has(int argc, char **argv, const char *word)
{
    bool found = false;

    for (int i = 1; i < argc; i++)
        found = found || strcmp(argv[i], word) == 0;
    return found;
}

int main(int argc, char **argv)
{
    dibs_runtime *rt[2];

    if (dibs_open(&rt[0], NULL) != DIBS_OK || dibs_open(&rt[1], NULL) != DIBS_OK)
        return 2;
    meets = has(argc, argv, "apart");
    for (int i = 0; i < THREADS; i++) {
        parts[i].rt = rt[i % 2];
        parts[i].name = meets && i % 4 < 2 ? "another" : "counter";
        parts[i].several = has(argc, argv, "names");
        if (has(argc, argv, "task") && dibs_task_new(parts[i].rt, &parts[i].task) != DIBS_OK)
            return 2;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&parts[i].thread, NULL, raise, &parts[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(parts[i].thread, NULL);
        dibs_task_free(parts[i].task);
    }
    dibs_close(rt[0]);
    dibs_close(rt[1]);
    return failed || (!meets && count != THREADS * ROUNDS);
}
END_OF_C

# compiles LIBRARY...
compiles() {
    gcc -std=c11 -g -fsanitize=thread -pthread "-I$DIBS_TOP/include" -o "$tmp/counter" "$tmp/counter.c" "$@"
}

# runs URL [WORD...]: with fixed addresses where the system lets it. Sets `status`: that of ThreadSanitizer is 66.
runs() {
    url=$1
    shift
    launch=
    ! setarch "$(uname -m)" -R true 2>/dev/null || launch="setarch $(uname -m) -R"
    status=0
    # shellcheck disable=SC2086
    DIBS_URL=$url LD_LIBRARY_PATH=$DIBS_TOP/lib TSAN_OPTIONS='ignore_noninstrumented_modules=1 halt_on_error=1 exitcode=66' $launch "$tmp/counter" "$@" || status=$?
}

# no_race [WORD...]
no_race() {
    for at in "$server_url" mem:shared; do
        runs "$at" "$@"
        [ "$status" = 0 ]
    done
}

# What no lock guards is a race still.
race() {
    runs mem:shared apart
    [ "$status" = 66 ]
}

tap_plan 6
server_start || exit 1
tap 'a program with the shared library compiles' compiles "-L$DIBS_TOP/lib" -ldibs
tap 'data that one lock guards is no race' no_race
tap 'nor is data that several locks guard together' no_race names
tap 'nor is data that the lock of a task guards' no_race task
tap 'nor is data that several locks of a task guard together' no_race task names
tap 'data that two locks guard is a race' race
tap_end
