/*
 * What a process of "dibs run" or "dibs hold" hears in its loop: signals; messages of the other process; and the end of
 * what it is tied to.
 */
#ifndef DIBS_CLI_RUN_HEAR_H
#define DIBS_CLI_RUN_HEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum run_role {
    RUN_FRONT,  /* handles the signals of job control as well */
    RUN_HOLDER, /* ignores those of job control */
    RUN_ALONE   /* "dibs hold": leaves those of job control to the system */
};

/*
 * Handles the signals that are passed on, SIGCHLD, and those of the role. Must be called before the others, and again
 * in a forked child. False: there is no descriptor left.
 */
bool run_hear_begin(enum run_role role);

/*
 * Waits until there is something to hear, now or soon, or something to read from `other`, or for ms (-1: for ever).
 * wire and other: descriptors, or -1.
 */
void run_wait(int wire, int other, int ms);

/* ----------------------------------------------------------------- signals */

/* Signals become numbers. COMMAND starts with the same signals ignored and blocked as dibs itself. */

/* The next signal; 0: there is none now. */
int run_signals_next(void);

/* Makes run_signals_next return SIGCHLD, so that the loop looks at everything again. May be called by any thread. */
void run_signals_wake(void);

/* Block all signals, and unblock them, around a fork(2). */
void run_signals_block(void);
void run_signals_unblock(void);

/* To be called in a forked child: restores the signals as dibs found them when it started. */
void run_signals_restore(void);

/* Whether the signal is passed on to COMMAND, and ends a wait for the lock. */
bool run_signals_passed(int signal);

/* Signals, each once, in the order in which each came last; the system does so for a process that does not run. */
struct run_signals {
    int numbers[32];
    size_t count;
};

void run_signals_note(struct run_signals *signals, int number);

/* Sends the signal to the whole process group or to this process, where it has its default effect. */
void run_signals_raise(int signal, bool whole_group);

/* ---------------------------------------------------------------- messages */

/*
 * What the front and the holder of "dibs run" tell each other, over a pair of sockets. Neither waits for the other: a
 * message that does not fit into the socket is dropped; RUN_BEAT and RUN_SIGNAL are sent later. Only the last one,
 * RUN_STATUS, waits for room. Each notices the end of the other.
 */

enum run_word {
    /* The front says: */
    RUN_BEAT,      /* the front is alive; the holder answers by RUN_LIMIT */
    RUN_SIGNAL,    /* the signal number must be sent to COMMAND's group */
    RUN_TERM_SENT, /* the front is about to send SIGTERM to COMMAND's group, because the holder does not answer */
    RUN_PAUSED,    /* the front is about to be stopped, on purpose: no RUN_BEAT comes until it goes on */
    /* The holder says: */
    RUN_HELD,    /* the lock is held, and COMMAND is about to be started: value is the fence, text the token */
    RUN_STARTED, /* COMMAND's process exists: number is its process group */
    RUN_LIMIT, /* value is the time, by cli_now_ms, by which all processes of COMMAND must be dead; 0: none is left, and
                  the holder answers no beat while it releases the lock. number is the lease in milliseconds. Also said
                  before COMMAND is started, and when the lease becomes shorter */
    RUN_STOPPED, /* COMMAND was stopped by the signal number */
    RUN_ENDED,   /* COMMAND ended: number is its status as waitpid(2) has it */
    RUN_STATUS   /* number is the exit status, and value is not 0 if the lease was lost; this is the last message.
                    Without it the holder was killed */
};

struct run_message {
    int word;
    int number;
    int64_t value;
    char text[192];
};

/* Makes the pair, with descriptors that are closed on exec. Returns false if that failed. */
bool run_wire_open(int wire[2]);

/* False: there is no room for the message, which was dropped. */
bool run_wire_send(int wire, enum run_word word, int number, int64_t value, const char *text);

/* 1: *out is a message. 0: there is none now. -1: the other end is gone. */
int run_wire_receive(int wire, struct run_message *out);

/* -------------------------------------------------------------------- ties */

/*
 * What "dibs hold" may be tied to: a process, and standard input. Once one of them has ended, dibs gives up the lock,
 * whether it holds the lock or still waits for it.
 */

/* Returns what has ended, such as "process 7", or NULL. Reads standard input. Called by one thread at a time. */
const char *run_tie_ended(void);

#endif
