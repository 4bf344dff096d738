/*
 * The terminal as a screen: a frame is written whole, in place of the one before; keys come at once and are not echoed.
 * Plain ANSI sequences, which every terminal of today knows. One screen for a process; one thread uses it.
 *
 * However the process ends by a signal that can be caught, or stops by Ctrl-Z, the terminal is as it was before.
 */
#ifndef DIBS_CLI_SCREEN_H
#define DIBS_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What cli_screen_wait returns, beside printable characters. */
enum cli_key {
    CLI_KEY_NONE = 0, /* the time is over */
    CLI_KEY_REDRAW,   /* the window has another size, or the process was stopped */
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

/* The window's size, now. */
void cli_screen_size(size_t *rows, size_t *columns);

/* Shows a frame: as many lines as there are rows, each ended by a \n. False: the terminal is gone. */
bool cli_screen_show(const char *frame);

/* Waits for a key until that time of cli_now_ms(). Returns a printable character, or one of enum cli_key. */
int cli_screen_wait(int64_t until_ms);

#endif
