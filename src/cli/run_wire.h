/*
 * What the front and the holder of "dibs run" tell each other, over a pair of sockets. Neither ever waits for the
 * other: a message that does not fit into the socket is dropped. Each notices the end of the other.
 */
#ifndef DIBS_CLI_RUN_WIRE_H
#define DIBS_CLI_RUN_WIRE_H

#include <stdbool.h>
#include <stdint.h>

enum run_word {
    /* The front says: */
    RUN_BEAT,      /* the front is alive; the holder answers by RUN_LIMIT */
    RUN_SIGNAL,    /* the signal number must be sent to COMMAND's group */
    RUN_TERM_SENT, /* the front is about to send SIGTERM to COMMAND's group, because the holder does not answer */
    RUN_PAUSED,    /* the front is about to be stopped, on purpose: no RUN_BEAT comes until it goes on */
    /* The holder says: */
    RUN_HELD,    /* the lock is held, and COMMAND is about to be started: value is the fence, text the token */
    RUN_STARTED, /* COMMAND runs: number is its process group */
    RUN_LIMIT, /* value is the time, by cli_now_ms, by which all processes of COMMAND must be dead; 0: none is left, and
                  the holder answers no beat while it releases the lock. number is the lease in milliseconds. Also said
                  just before RUN_STARTED, and when the lease becomes shorter */
    RUN_STOPPED, /* COMMAND was stopped by the signal number */
    RUN_ENDED,   /* COMMAND ended: number is its status as waitpid(2) has it */
    RUN_LOST,    /* the lease was lost */
    RUN_STATUS   /* number is the exit status; this is the last message. Without it the holder was killed */
};

struct run_message {
    int word;
    int number;
    int64_t value;
    char text[192];
};

/* Makes the pair, with descriptors that are closed on exec. Returns false if that failed. */
bool run_wire_open(int wire[2]);

void run_wire_send(int wire, enum run_word word, int number, int64_t value, const char *text);

/* 1: *out is a message. 0: there is none now. -1: the other end is gone. */
int run_wire_receive(int wire, struct run_message *out);

#endif
