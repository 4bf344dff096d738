#include "cli/run_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SIGPIPE is ignored in both processes */
#endif

bool run_wire_open(int wire[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, wire) != 0)
        return false;
    for (int i = 0; i < 2; i++)
        fcntl(wire[i], F_SETFD, FD_CLOEXEC);
    return true;
}

/* A socket of this kind takes a short message whole or not at all. */
void run_wire_send(int wire, enum run_word word, int number, int64_t value, const char *text)
{
    struct run_message message = {.word = (int)word, .number = number, .value = value};

    snprintf(message.text, sizeof message.text, "%s", text ? text : "");
    while (send(wire, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

int run_wire_receive(int wire, struct run_message *out)
{
    ssize_t size;

    do
        size = recv(wire, out, sizeof *out, MSG_DONTWAIT);
    while (size < 0 && errno == EINTR);
    if (size == (ssize_t)sizeof *out)
        return 1;
    return size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
}
