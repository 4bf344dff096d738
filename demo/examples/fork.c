/*
 * Fork: a child holds nothing of what its parent holds, and uses the same runtime at once.
 *
 *     cc fork.c -o fork $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./fork
 */
#include <dibs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect(dibs_status status, const char *what)
{
    if (status == DIBS_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, dibs_last_error());
    exit(1);
}

static void be_child(dibs_runtime *rt)
{
    printf("child:  dibs_check says %s\n", dibs_status_name(dibs_check(rt, "printer")));
    expect(dibs_lock(rt, "printer"), "dibs_lock"); /* waits for the parent, as any other process would */
    puts("child:  holds the lock");
    expect(dibs_unlock(rt, "printer"), "dibs_unlock");
}

int main(void)
{
    dibs_runtime *rt;

    setvbuf(stdout, NULL, _IOLBF, 0); /* so that nothing is in the buffer when the child gets a copy of it */
    expect(dibs_open(&rt, NULL), "dibs_open");
    expect(dibs_lock(rt, "printer"), "dibs_lock");
    puts("parent: holds the lock");
    pid_t child = fork();
    if (child == 0) {
        be_child(rt);
        dibs_close(rt); /* the child's runtime alone */
        return 0;
    }
    if (child < 0) {
        perror("fork");
        return 1;
    }
    sleep(1);
    puts("parent: unlocks");
    expect(dibs_unlock(rt, "printer"), "dibs_unlock");
    int status;
    waitpid(child, &status, 0);
    dibs_close(rt);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
