/* Starts a program, and exchanges lines with it. */
#include "support/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/common/redis_process.h"
#include "support/test.h"
#include "support/text.h"

const char *program_path(const char *name)
{
    const char *build = getenv("DIBS_BUILD");

    return formatted("%s/test/prog/%s", build ? build : "build", name);
}

const char *source_path(const char *file)
{
    const char *top = getenv("DIBS_TOP");

    return formatted("%s/%s", top ? top : ".", file);
}

/* In the child: close-on-exec takes the other descriptors of the test's pipes. */
static void become_program(const char *const *arguments, int in, int out, pid_t parent)
{
    end_with_parent(parent);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0)
        _exit(127);
    execvp(arguments[0], (char *const *)arguments);
    _exit(127);
}

process *process_start(const char *const *arguments)
{
    pid_t parent = getpid();
    process *p = calloc(1, sizeof *p);
    int to[2];
    int from[2];

    assert_true(p != NULL);
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0)
        become_program(arguments, to[0], from[1], parent);
    close(to[0]);
    close(from[1]);
    p->in = to[1];
    p->out = from[0];
    return p;
}

static void write_all(process *p, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(p->in, text, length);

        if (n < 0 && errno == EINTR)
            continue;
        assert_that(n > 0, "the program does not read: %s", strerror(errno));
        text += n;
        length -= (size_t)n;
    }
}

static void write_line(process *p, const char *format, va_list arguments)
{
    char line[4096];
    int length = vsnprintf(line, sizeof line - 1, format, arguments);

    assert_true(length >= 0 && (size_t)length < sizeof line - 1);
    line[length] = '\n';
    write_all(p, line, (size_t)length + 1);
}

void process_write(process *p, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    write_line(p, format, arguments);
    va_end(arguments);
}

static bool take_line(process *p)
{
    char *end = memchr(p->buffer, '\n', p->length);

    if (!end)
        return false;
    size_t length = (size_t)(end - p->buffer);
    memcpy(p->line, p->buffer, length);
    p->line[length] = '\0';
    p->length -= length + 1;
    memmove(p->buffer, end + 1, p->length);
    return true;
}

/* False: nothing came within limit_ms. */
static bool read_more(process *p, int64_t limit_ms)
{
    struct pollfd ready = {.fd = p->out, .events = POLLIN};

    assert_true(p->length < sizeof p->buffer);
    if (poll(&ready, 1, (int)limit_ms) <= 0)
        return false;
    ssize_t n = read(p->out, p->buffer + p->length, sizeof p->buffer - p->length);
    assert_that(n > 0, "the program has ended");
    p->length += (size_t)n;
    return true;
}

const char *process_read(process *p)
{
    int64_t end = now_ms() + LIMIT_MS;

    while (!take_line(p)) {
        int64_t left = end - now_ms();

        assert_that(left > 0, "the program says nothing");
        read_more(p, left);
    }
    return p->line;
}

bool process_try_read(process *p)
{
    while (!take_line(p))
        if (!read_more(p, 0))
            return false;
    return true;
}

const char *process_ask(process *p, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    write_line(p, format, arguments);
    va_end(arguments);
    return process_read(p);
}

void process_pause(process *p)
{
    int status = 0;

    assert_int_equal(kill(p->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(p->pid, &status, WUNTRACED), p->pid);
    assert_true(WIFSTOPPED(status));
    p->paused = true;
}

void process_resume(process *p)
{
    assert_int_equal(kill(p->pid, SIGCONT), 0);
    p->paused = false;
}

static int status_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void process_kill(process *p)
{
    if (p->pid == 0)
        return;
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    p->pid = 0;
}

int process_wait(process *p, int64_t limit_ms)
{
    int status = 0;

    if (p->in >= 0)
        close(p->in);
    p->in = -1;
    if (!within(limit_ms, waitpid(p->pid, &status, WNOHANG) == p->pid)) {
        process_kill(p);
        fail_msg("%s", "the program does not end");
    }
    p->pid = 0;
    return status_code(status);
}

void process_free(process *p)
{
    if (!p)
        return;
    test_ended(p);
    process_kill(p);
    if (p->in >= 0)
        close(p->in);
    close(p->out);
    free(p);
}

int child_wait_for(pid_t pid, int64_t limit_ms)
{
    int status = 0;

    assert_true(pid > 0);
    if (within(limit_ms, waitpid(pid, &status, WNOHANG) == pid))
        return status_code(status);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return -1;
}

int child_wait(pid_t pid)
{
    int status = child_wait_for(pid, LIMIT_MS);

    assert_that(status != -1, "a forked child does not end");
    return status;
}
