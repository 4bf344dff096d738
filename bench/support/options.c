#include "support/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/common/cleanup.h"

struct bench_options bench_options = {.rounds = 7, .round_ms = 300, .transport = {true, true}};

bool bench_number(const char *text, unsigned least, unsigned most, unsigned *out)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (end == text || *end != '\0' || value < least || value > most)
        return false;
    *out = (unsigned)value;
    return true;
}

static bool choose_transport(const char *word)
{
    bool tcp = strcmp(word, "tcp") == 0;

    bench_options.transport[BENCH_TCP] = tcp;
    bench_options.transport[BENCH_UNIX] = !tcp;
    return tcp || strcmp(word, "unix") == 0;
}

bool bench_option(int option, const char *argument)
{
    switch (option) {
    case 'R':
        return bench_number(argument, 1, OPTIONS_ROUNDS_MOST, &bench_options.rounds);
    case 'M':
        return bench_number(argument, 1, 60000, &bench_options.round_ms);
    case 'T':
        return choose_transport(argument);
    case 'O':
        bench_options.out = argument;
        return true;
    default:
        return false;
    }
}

FILE *bench_csv(const char *name, const char *header)
{
    char path[512];

    if (!bench_options.out)
        return NULL;
    if (mkdir(bench_options.out, 0777) != 0 && errno != EEXIST)
        cleanup_fail("no folder %s: %s", bench_options.out, strerror(errno));
    snprintf(path, sizeof path, "%s/%s.csv", bench_options.out, name);
    FILE *file = fopen(path, "ae");
    if (!file)
        cleanup_fail("%s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    if (ftell(file) == 0)
        fprintf(file, "%s\n", header);
    return file;
}
