#include "race/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void options_join(struct option out[OPTIONS_MOST], const struct number_option *numbers, size_t number_count,
                  const struct option *others, size_t other_count)
{
    size_t count = 0;

    for (size_t i = 0; i < number_count && count + 1 < OPTIONS_MOST; i++)
        out[count++] = (struct option){numbers[i].name, required_argument, NULL, OPTION_NUMBERS + (int)i};
    for (size_t i = 0; i < other_count && count + 1 < OPTIONS_MOST; i++)
        out[count++] = others[i];
    out[count] = (struct option){NULL, 0, NULL, 0};
}

bool option_take_number(const struct number_option *numbers, size_t count, int option, const char *text)
{
    size_t which = (size_t)option - OPTION_NUMBERS;

    if (option < OPTION_NUMBERS || which >= count)
        return false;
    *numbers[which].value =
        (unsigned)option_number(numbers[which].name, text, numbers[which].least, numbers[which].most);
    return true;
}

uint64_t option_number(const char *name, const char *text, uint64_t least, uint64_t most)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || end == text || *end || !isdigit((unsigned char)*text) || value < least || value > most) {
        fprintf(stderr, "--%s: a number from %llu to %llu, not \"%s\"\n", name, (unsigned long long)least,
                (unsigned long long)most, text);
        exit(2);
    }
    return value;
}
