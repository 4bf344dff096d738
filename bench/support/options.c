#include "support/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/common/cleanup.h"

enum { QUICK_ROUNDS = 2, QUICK_ROUND_MS = 30, QUICK_LEAST = 10 };

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
    case 'Q':
        bench_options.quick = true;
        bench_options.rounds = QUICK_ROUNDS;
        bench_options.round_ms = QUICK_ROUND_MS;
        return true;
    case 'O':
        bench_options.out = argument;
        return true;
    default:
        return false;
    }
}

void bench_read_options(int argc, char **argv, const char *usage)
{
    static const struct option options[] = {BENCH_OPTIONS, {0}};

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (!bench_option(option, optarg)) {
            fprintf(option == 'h' ? stdout : stderr, "%s" BENCH_OPTIONS_USAGE, usage);
            exit(option == 'h' ? 0 : 2);
        }
    if (optind < argc) {
        fprintf(stderr, "%s" BENCH_OPTIONS_USAGE, usage);
        exit(2);
    }
}

noreturn void bench_run(bool (*run)(void))
{
    bool done = true;

    bench_start();
    for (enum bench_transport transport = 0; transport < BENCH_TRANSPORTS; transport++) {
        bench_use(transport);
        if (bench_options.transport[transport])
            done = run() && done;
    }
    cleanup_exit(done ? 0 : 1);
}

unsigned bench_scaled(unsigned count)
{
    unsigned scaled = bench_options.quick ? count / 100 : count;

    return scaled < QUICK_LEAST && count > QUICK_LEAST ? QUICK_LEAST : scaled;
}

FILE *bench_csv(const char *name, const char *header)
{
    char path[512];

    if (!bench_options.out)
        return NULL;
    if (mkdir(bench_options.out, 0777) != 0 && errno != EEXIST)
        cleanup_fail("no folder %s: %s", bench_options.out, strerror(errno));
    snprintf(path, sizeof path, "%s/%s.csv", bench_options.out, name);
    bool is_new = access(path, F_OK) != 0;
    FILE *file = fopen(path, "ae");
    if (!file)
        cleanup_fail("%s: %s", path, strerror(errno));
    if (is_new)
        fprintf(file, "%s\n", header);
    return file;
}
