# Data that a lock of dibs guards is no data race to ThreadSanitizer, though the library is compiled without it.
# Needs: gcc sanitizers
# Builds: lib
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/server.sh"

# Eight threads raise a counter by turns, with two runtimes. With an argument half of them hold another lock, which is a race.
cat >"$tmp/counter.c" <<'END_OF_C'
#include <dibs.h>
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, ROUNDS = 300 };

static struct part {
    pthread_t thread;
    dibs_runtime *rt;
    const char *name;
} parts[THREADS];

static int count;
static atomic_bool failed;

static void *raise(void *arg)
{
    const struct part *part = arg;

    for (int i = 0; i < ROUNDS && !failed; i++) {
        failed = failed || dibs_lock(part->rt, part->name) != DIBS_OK;
        count++;
        failed = failed || dibs_unlock(part->rt, part->name) != DIBS_OK;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    dibs_runtime *rt[2];

    (void)argv;
    if (dibs_open(&rt[0], NULL) != DIBS_OK || dibs_open(&rt[1], NULL) != DIBS_OK)
        return 2;
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
