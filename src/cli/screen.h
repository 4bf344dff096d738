/*
 * The terminal as a screen. Each frame replaces the one before as a whole; keys are read at once and are not echoed.
 * Uses plain ANSI sequences, which every terminal of today knows. A process has one screen, used by one thread.
 *
 * When SIGHUP, SIGINT, SIGQUIT or SIGTERM ends the process, or Ctrl-Z stops it, the terminal is restored.
 */
#ifndef DIBS_CLI_SCREEN_H
#define DIBS_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What cli_screen_wait returns besides printable characters. */
enum cli_key {
    CLI_KEY_NONE = 0, /* no key was pressed in time */
    CLI_KEY_REDRAW,   /* the window has another size, the process was stopped, or the key has no meaning */
    CLI_KEY_UP = 256,
    CLI_KEY_DOWN,
    CLI_KEY_PAGE_UP,
    CLI_KEY_PAGE_DOWN,
    CLI_KEY_HOME,
    CLI_KEY_END
};

/* Whether standard output is a terminal that can be a screen. */
bool cli_screen_possible(void);

/* False: errno says why not. */
bool cli_screen_enter(void);
void cli_screen_leave(void);

/* The current size of the window. */
void cli_screen_size(size_t *rows, size_t *columns);

/* Shows a frame: as many lines as there are rows, each ended by a \n. False: the terminal is gone. */
bool cli_screen_show(const char *frame);

/* Waits for a key until that time of cli_now_ms(). Returns a printable character, or one of enum cli_key. */
int cli_screen_wait(int64_t until_ms);

#endif
