/*
 * A process that ends while two of its threads hold locks:
 *
 *     quitter URL HOW
 *
 * Main holds "main" and twenty others ("main-0" and so on), another thread holds "other". Prints a line, and ends when
 * it has read one, with exit status 0 where all was as it must be:
 *
 *     return      main returns; a handler of atexit finds that main still holds its locks
 *     exit        the same by exit
 *     elsewhere   the other thread calls exit
 *     callback    on_event calls exit, when the thread of the callback holds "told"
 *     at once     _exit
 *     child       a forked child calls exit, then main calls _exit
 *     signal      a handler of a signal calls exit while main waits for "held"
 *     late        a destructor that comes behind dibs' own asks for locks and closes the runtime
 *
 * With one of these HOW nothing is held, and the process keeps the lease of "kept":
 *
 *     kept        main returns
 *     kept child  a forked child calls exit, then main calls _exit
 *
 * With this one nothing is held before the line is read:
 *
 *     ended       another thread locks "other" and ends with it, then main returns
 *
 * With this one main holds "main" of one runtime and "other" of another, whose dibs_open began before and ended after
 * that of the first, which begins when a line is read; then another line is printed:
 *
 *     crossed     main returns
 */
#include <dibs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MORE = 20 };

static dibs_runtime *rt;
static const char *how;
static const char *other_url;                             /* read-only once the other thread runs */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards both */
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static bool other_holds, other_ends;

static bool ends(const char *way)
{
    return strcmp(how, way) == 0;
}

static void *hold_other(void *arg)
{
    sigset_t alarm;

    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL); /* it is for main, wherever that waits */
    if (dibs_lock(rt, "other") != DIBS_OK)
        _exit(2);
    pthread_mutex_lock(&mutex);
    other_holds = true;
    pthread_cond_broadcast(&told);
    while (!other_ends)
        pthread_cond_wait(&told, &mutex);
    pthread_mutex_unlock(&mutex);
    if (ends("elsewhere"))
        exit(0);
    return arg; /* with its lock, which is told */
}

static void tell_other_to_end(void)
{
    pthread_mutex_lock(&mutex);
    other_ends = true;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&mutex);
    for (;;)
        pause();
}

static void on_event(const dibs_event *event, void *arg)
{
    (void)arg;
    if (event->kind != DIBS_EVENT_ORPHANED)
        return;
    if (dibs_lock(rt, "told") != DIBS_OK)
        _exit(2);
    exit(0);
}

static void on_exit_of_program(void)
{
    if ((ends("return") || ends("exit")) && (dibs_check(rt, "main") != DIBS_OK || dibs_check(rt, "main-0") != DIBS_OK))
        _exit(3);
}

static void on_signal(int number)
{
    (void)number;
    exit(0);
}

/* With a priority, it comes behind the destructors that have none. */
__attribute__((destructor(101))) static void behind_dibs(void)
{
    if (!how || !ends("late"))
        return;
    if (dibs_check(rt, "main") != DIBS_NOT_HELD || dibs_lock(rt, "main") != DIBS_CLOSED)
        _exit(4);
    dibs_close(rt);
}

static bool hold_all(const char *url)
{
    const dibs_config config = {.urls = &url, .url_count = 1, .lease_ms = 600000, .on_event = on_event};
    pthread_t thread;
    char name[16];

    if (dibs_open(&rt, &config) != DIBS_OK || dibs_lock(rt, "main") != DIBS_OK || dibs_lock(rt, "main") != DIBS_OK)
        return false;
    for (int i = 0; i < MORE; i++) {
        snprintf(name, sizeof name, "main-%d", i);
        if (dibs_lock(rt, name) != DIBS_OK)
            return false;
    }
    if (pthread_create(&thread, NULL, hold_other, NULL) != 0 || pthread_detach(thread) != 0)
        return false;
    pthread_mutex_lock(&mutex);
    while (!other_holds)
        pthread_cond_wait(&told, &mutex);
    pthread_mutex_unlock(&mutex);
    return true;
}

/* Until the server tells of changes, nothing is kept. */
static bool keep_one(const char *url)
{
    const dibs_config config = {.urls = &url, .url_count = 1, .lease_ms = 600000, .keep_ms = 60000};
    dibs_stats stats = {0};

    if (dibs_open(&rt, &config) != DIBS_OK)
        return false;
    for (int i = 0; i < 10000 && stats.kept == 0; i++) {
        if (dibs_lock(rt, "kept") != DIBS_OK || dibs_unlock(rt, "kept") != DIBS_OK)
            return false;
        usleep(1000);
        dibs_stats_get(rt, &stats);
    }
    return stats.kept == 1;
}

static bool open_only(const char *url)
{
    const dibs_config config = {.urls = &url, .url_count = 1, .lease_ms = 600000};

    return dibs_open(&rt, &config) == DIBS_OK;
}

static void *open_other(void *out)
{
    const dibs_config config = {.urls = &other_url,
                                .url_count = 1,
                                .lease_ms = 600000,
                                .connect_timeout_ms = 60000,
                                .command_timeout_ms = 60000};

    return dibs_open(out, &config) == DIBS_OK ? out : NULL;
}

static bool open_crossed(const char *url)
{
    dibs_runtime *other;
    pthread_t thread;
    void *opened;
    char line[16];

    other_url = url;
    if (pthread_create(&thread, NULL, open_other, &other) != 0 || !fgets(line, sizeof line, stdin) || !open_only(url))
        return false;
    printf("opened\n");
    fflush(stdout);
    return pthread_join(thread, &opened) == 0 && opened && dibs_lock(rt, "main") == DIBS_OK &&
           dibs_lock(other, "other") == DIBS_OK;
}

static void *lock_and_end(void *arg)
{
    return dibs_lock(rt, "other") == DIBS_OK ? arg : NULL;
}

static int outlive_other(void)
{
    pthread_t thread;
    void *locked;

    return pthread_create(&thread, NULL, lock_and_end, &rt) == 0 && pthread_join(thread, &locked) == 0 && locked ? 0
                                                                                                                 : 7;
}

/* AddressSanitizer asks: its search for leaks would wait for locks of threads that a forked child does not have. */
int __lsan_is_turned_off(void);
static bool is_child;

int __lsan_is_turned_off(void)
{
    return is_child;
}

static void leave_child(void)
{
    int status = 0;
    pid_t child = fork();

    is_child = child == 0;
    if (is_child)
        exit(0);
    _exit(child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 0 : 5);
}

static void wait_until_signalled(void)
{
    signal(SIGALRM, on_signal);
    alarm(1);
    (void)(dibs_lock(rt, "held") == DIBS_OK);
    _exit(6);
}

int main(int argc, char **argv)
{
    char line[16];

    how = argc == 3 ? argv[2] : "";
    bool (*begin)(const char *url) = strncmp(how, "kept", strlen("kept")) == 0 ? keep_one
                                     : ends("ended")                           ? open_only
                                     : ends("crossed")                         ? open_crossed
                                                                               : hold_all;
    if (argc != 3 || atexit(on_exit_of_program) != 0 || !begin(argv[1]))
        return 2;
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        _exit(2);
    if (ends("exit"))
        exit(0);
    if (ends("at once"))
        _exit(0);
    if (ends("elsewhere") || ends("callback"))
        tell_other_to_end();
    if (ends("child") || ends("kept child"))
        leave_child();
    if (ends("signal"))
        wait_until_signalled();
    return ends("ended") ? outlive_other() : 0;
}
