/* Options of the command line that are numbers. */
#ifndef DIBS_DEMO_OPTIONS_H
#define DIBS_DEMO_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OPTIONS_MOST = 32, OPTION_NUMBERS = 1000 /* what getopt_long returns for the first of them */ };

struct number_option {
    const char *name;
    unsigned *value;
    unsigned least, most;
};

/* All of them, as getopt_long wants them. */
void options_join(struct option out[OPTIONS_MOST], const struct number_option *numbers, size_t number_count,
                  const struct option *others, size_t other_count);

/* Whether the option is one of the numbers, which then has its value. Ends the program (2) where the text is none. */
bool option_take_number(const struct number_option *numbers, size_t count, int option, const char *text);

/* The number; where the text is none, or out of range, says so on stderr and ends the program (2). */
uint64_t option_number(const char *name, const char *text, uint64_t least, uint64_t most);

#endif
