# Data that a lock of dibs guards is no data race to ThreadSanitizer, though the library is compiled without it.
# Needs: gcc sanitizers
# Builds: lib
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/server.sh"

# Eight threads raise a counter by turns, with two runtimes. With an argument half of them hold another lock, which is a race,
# and a thread does so only when another is inside as well: what one did before the other came in the library may have ordered.
cat >"$tmp/counter.c" <<'END_OF_C'
#include <dibs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { THREADS = 8, ROUNDS = 300 };

static struct part {
    pthread_t thread;
    dibs_runtime *rt;
    const char *name;
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

static void *raise(void *arg)
{
    const struct part *part = arg;

    for (int i = 0; i < ROUNDS; i++) {
        bool good = dibs_lock(part->rt, part->name) == DIBS_OK;
        enter();
        count++;
        atomic_fetch_sub_explicit(&inside, 1, memory_order_relaxed);
        good = good && dibs_unlock(part->rt, part->name) == DIBS_OK;
        if (!good) {
            atomic_store_explicit(&failed, true, memory_order_relaxed);
            break;
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    dibs_runtime *rt[2];

    (void)argv;
    if (dibs_open(&rt[0], NULL) != DIBS_OK || dibs_open(&rt[1], NULL) != DIBS_OK)
        return 2;
    meets = argc > 1;
    for (int i = 0; i < THREADS; i++) {
        parts[i].rt = rt[i % 2];
        parts[i].name = argc > 1 && i % 4 < 2 ? "another" : "counter";
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&parts[i].thread, NULL, raise, &parts[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(parts[i].thread, NULL);
    dibs_close(rt[0]);
    dibs_close(rt[1]);
    return failed || (argc == 1 && count != THREADS * ROUNDS);
}
END_OF_C

# compiles LIBRARY...
compiles() {
    gcc -std=c11 -g -fsanitize=thread -pthread "-I$DIBS_TOP/include" -o "$tmp/counter" "$tmp/counter.c" "$@"
}

# runs URL [ARGUMENT]: with fixed addresses where the system lets it. Sets `status`: that of ThreadSanitizer is 66.
runs() {
    url=$1
    shift
    launch=
    ! setarch "$(uname -m)" -R true 2>/dev/null || launch="setarch $(uname -m) -R"
    status=0
    # shellcheck disable=SC2086
    DIBS_URL=$url LD_LIBRARY_PATH=$DIBS_TOP/lib TSAN_OPTIONS='ignore_noninstrumented_modules=1 halt_on_error=1 exitcode=66' $launch "$tmp/counter" "$@" || status=$?
}

no_race() {
    for url in "$server_url" mem:shared; do
        runs "$url"
        [ "$status" = 0 ]
    done
}

# What no lock guards is a race still.
race() {
    runs mem:shared apart
    [ "$status" = 66 ]
}

tap_plan 3
server_start || exit 1
tap 'a program with the shared library compiles' compiles "-L$DIBS_TOP/lib" -ldibs
tap 'data that one lock guards is no race' no_race
tap 'data that two locks guard is a race' race
tap_end
