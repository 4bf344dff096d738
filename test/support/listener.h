/*
 * The base of the fake servers: a listening socket, one thread with a poll loop, and a mutex that guards the state of
 * the server. Each server's struct listener_ops says what it does with its connections.
 */
#ifndef DIBS_TEST_LISTENER_H
#define DIBS_TEST_LISTENER_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { LISTENER_FDS_MOST = 256 };

/* Called by the loop's thread with the mutex held, and with the server that listener_start was given. */
struct listener_ops {
    /* Writes what the loop is to wait for, at most LISTENER_FDS_MOST. Returns how many. */
    size_t (*watch)(void *server, struct pollfd *fds);

    /* After each time that the loop has woken: the events of what watch wrote. */
    void (*serve)(void *server, const struct pollfd *fds, size_t count);

    /* A new connection, which the server owns from now on. */
    void (*accepted)(void *server, int fd);
};

struct listener {
    char folder[64], path[96];      /* read-only after the start; empty unless it is a Unix socket */
    char url[160];                  /* read-only after the start */
    unsigned short port;            /* read-only after the start; 0 on a Unix socket */
    int fd, wake[2];                /* read-only after the start */
    const struct listener_ops *ops; /* read-only after the start */
    void *server;                   /* read-only after the start */
    pthread_t thread;               /* read-only after the start */
    pthread_mutex_t mutex;          /* guards `stopping` and the server */
    bool stopping;
};

/* Listens on a Unix socket in a folder of its own, or on a port of 127.0.0.1. What goes wrong fails the test. */
void listener_start(struct listener *l, const struct listener_ops *ops, void *server, bool tcp);

/* Ends the thread and the socket; connections are the server's to close, before or after. */
void listener_stop(struct listener *l);

/* Makes the loop run once. With or without the mutex. */
void listener_wake(struct listener *l);

void listener_lock(struct listener *l);
void listener_unlock(struct listener *l);

/* Sends all of it, blocking, or as much as the other side takes. Nothing where fd is -1. */
void send_all(int fd, const char *data, size_t length);
void send_text(int fd, const char *text);

#endif
