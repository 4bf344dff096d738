/*
 * Threads of a process of their own, by remote control: reads a command a
 * line. `open` and `close` are answered by a status; what a thread
 * does is answered, when it has done it, by its number and a status.
 *
 *     open URL LEASE_MS [TIMEOUT_MS, of a command]
 *     close                      lock THREAD NAME WAIT_MS FLAGS
 *                                unlock THREAD NAME
 *     fork                       (a child that does nothing, and outlives this; DIBS_OK when there is one)
 *     exec PROGRAM               (in the place of this)
 *
 * Thread numbers are 0 to 31. Names hold no blanks. Ends with its input,
 * without dibs_close.
 */
#include <dibs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 32 };

struct member {
    pthread_t thread;
    bool started;
    int number;
    pthread_mutex_t mutex; /* guards busy, leaving, command, name, wait_ms and flags */
    pthread_cond_t told;
    bool busy, leaving;
    char command[8], name[DIBS_NAME_MAX + 1];
    long long wait_ms;
    unsigned flags;
};

static dibs_runtime *rt;
static struct member members[THREADS];

static void say(const char *who, dibs_status status)
{
    printf("%s%s %s\n", who, dibs_status_name(status), status == DIBS_OK ? "" : dibs_last_error());
    fflush(stdout);
}

static void obey(const struct member *m)
{
    dibs_lock_options options = {.flags = m->flags};
    char who[16];

    snprintf(who, sizeof who, "%d ", m->number);
    if (strcmp(m->command, "lock") == 0)
        say(who, dibs_lock_with(rt, m->name, m->wait_ms, &options));
    else
        say(who, dibs_unlock(rt, m->name));
}

static void *run(void *arg)
{
    struct member *m = arg;

    pthread_mutex_lock(&m->mutex);
    for (;;) {
        while (!m->busy && !m->leaving)
            pthread_cond_wait(&m->told, &m->mutex);
        if (!m->busy)
            break;
        pthread_mutex_unlock(&m->mutex);
        obey(m);
        pthread_mutex_lock(&m->mutex);
        m->busy = false;
        pthread_cond_broadcast(&m->told);
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

static void start(struct member *m, int number)
{
    m->number = number;
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->told, NULL);
    m->started = pthread_create(&m->thread, NULL, run, m) == 0;
}

/* A thread may have answered its last command without being ready for the next: this waits until it is. */
static void tell(int number, const char *line)
{
    struct member *m = &members[number % THREADS];

    if (!m->started)
        start(m, number);
    pthread_mutex_lock(&m->mutex);
    while (m->busy)
        pthread_cond_wait(&m->told, &m->mutex);
    m->wait_ms = 0;
    m->flags = 0;
    sscanf(line, "%7s %*d %512s %lld %u", m->command, m->name, &m->wait_ms, &m->flags);
    m->busy = true;
    pthread_cond_broadcast(&m->told);
    pthread_mutex_unlock(&m->mutex);
}

static void open_store(const char *line)
{
    char url[1024] = "";
    unsigned lease_ms = 0, timeout_ms = 0;
    const char *const urls[] = {url};

    sscanf(line, "%*s %1023s %u %u", url, &lease_ms, &timeout_ms);
    dibs_config config = {.urls = urls, .url_count = 1, .lease_ms = lease_ms, .command_timeout_ms = timeout_ms};
    say("", dibs_open(&rt, &config));
}

/* The child ends with the input, as this process does. */
static void leave_child(void)
{
    char c;
    pid_t pid = fork();

    if (pid == 0) {
        while (read(0, &c, 1) > 0)
            continue;
        _exit(0);
    }
    say("", pid > 0 ? DIBS_OK : DIBS_NO_MEMORY);
}

/* Replaces the program while its threads are in the midst of whatever they do. */
static void become(char *line)
{
    char *program = line + strlen("exec ");

    program[strcspn(program, "\n")] = '\0';
    execl(program, program, (char *)NULL);
    say("", DIBS_INVALID);
}

static void end_all(void)
{
    for (int i = 0; i < THREADS; i++) {
        if (!members[i].started)
            continue;
        pthread_mutex_lock(&members[i].mutex);
        members[i].leaving = true;
        pthread_cond_broadcast(&members[i].told);
        pthread_mutex_unlock(&members[i].mutex);
        pthread_join(members[i].thread, NULL);
        pthread_cond_destroy(&members[i].told);
        pthread_mutex_destroy(&members[i].mutex);
    }
    dibs_close(rt);
    say("", DIBS_OK);
}

int main(void)
{
    char line[2048];
    int number;

    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "open ", 5) == 0) {
            open_store(line);
        } else if (strncmp(line, "fork", 4) == 0) {
            leave_child();
        } else if (strncmp(line, "exec ", 5) == 0) {
            become(line);
        } else if (strncmp(line, "close", 5) == 0) {
            end_all();
            return 0;
        } else if (sscanf(line, "%*s %d", &number) == 1) {
            tell(number, line);
        }
    }
    _Exit(0);
}
