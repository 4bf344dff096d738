# A program loads the library, uses it in a thread, and unloads it before that thread ends, as a server does with a
# plug-in. The thread runs a function of the library at its end.
# Builds: lib
set -u
. "$DIBS_TOP/test/support/tap.sh"

cat >"$tmp/unload.c" <<'END'
#include <dibs.h>
#include <dlfcn.h>
#include <pthread.h>

static void *library;
static dibs_runtime *rt;
static pthread_barrier_t used, gone;

#define CALL(name) (*(__typeof__(&name))dlsym(library, #name))

static void *use(void *how)
{
    dibs_status status = CALL(dibs_trylock)(rt, "a");

    if (status == DIBS_OK && how)
        status = CALL(dibs_unlock)(rt, "a");
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&gone);
    return status == DIBS_OK ? NULL : library;
}

/* With a lock that it holds still, or with none. */
static int run(const char *path, void *how)
{
    static const char *const url = "mem:";
    const dibs_config config = {.urls = &url, .url_count = 1};
    pthread_t thread;
    void *failed;

    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library || CALL(dibs_open)(&rt, &config) != DIBS_OK || pthread_create(&thread, NULL, use, how) != 0)
        return 2;
    pthread_barrier_wait(&used);
    CALL(dibs_close)(rt);
    if (dlclose(library) != 0)
        return 3;
    pthread_barrier_wait(&gone);
    pthread_join(thread, &failed);
    return failed ? 4 : 0;
}

int main(int argc, char **argv)
{
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&gone, NULL, 2);
    for (int i = 0; i < 3; i++)
        if (argc != 2 || run(argv[1], NULL) || run(argv[1], &argc))
            return 1;
    return 0;
}
END

compiles() {
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -pthread "-I$DIBS_TOP/include" -o "$tmp/unload" \
        "$tmp/unload.c" -ldl
}

runs() {
    "$tmp/unload" "$DIBS_TOP/lib/libdibs.so"
}

tap_plan 2
tap 'the program compiles' compiles
tap 'a thread ends well after the library was unloaded' runs
tap_end
