/*
 * dibs(1): locks at a shell prompt. Chooses the command; each has a file of its own.
 */
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/look.h"

/* run gets the arguments from the command's name on, and returns the exit status. */
static const struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary; /* one line for "dibs --help" */
} commands[] = {
    {"run", cli_run, "runs a program while it holds a lock"},
    {"hold", cli_hold, "holds a lock until a signal arrives"},
    {"status", cli_status, "tells who holds locks"},
    {"list", cli_list, "lists the locks that are held"},
    {"watch", cli_watch, "shows the locks that are held, and keeps the list up to date"},
    {"break", cli_break, "takes a lock away from its owner"},
    {"doctor", cli_doctor, "looks for what in the store endangers locks"},
    {"bench", cli_bench, "measures how long acquire, release and hand-over take"},
    {NULL, NULL, NULL},
};

static void print_help(FILE *out)
{
    fputs("Usage: dibs COMMAND [OPTION...] [ARGUMENT...]\n\nCommands:\n", out);
    for (const struct cli_command *command = commands; command->name; command++)
        fprintf(out, "  %-8s %s\n", command->name, command->summary);
    fputs("\n\"dibs COMMAND --help\" tells more of each, and \"dibs --version\" which dibs this\n"
          "is. The store is that of --url or --url-file, else of $DIBS_URL, else\n"
          "redis://127.0.0.1:6379.\n",
          out);
}

static const struct cli_command *find(const char *name)
{
    for (const struct cli_command *command = commands; command->name; command++)
        if (!strcmp(command->name, name))
            return command;
    return NULL;
}

/*
 * Opens those of the first three descriptors that are closed: otherwise a descriptor that dibs opens could become one
 * of them, and messages would be written to it. Nothing can be written to them, as to a closed one. A program that dibs
 * starts finds them closed again.
 */
static void fill_standard_files(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY | O_CLOEXEC) < 0)
            return;
}

static int refuse(const char *word)
{
    if (*word == '-')
        cli_error("%.*s comes before the command; options come after it (\"dibs --help\" tells more)",
                  cli_shown_length(word), word);
    else
        cli_error("there is no command \"%s\"; \"dibs --help\" lists them", word);
    return CLI_USAGE;
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

int main(int argc, char **argv)
{
    arguments_keep(argc, argv);
    fill_standard_files();
    setlocale(LC_CTYPE, ""); /* for names of locks that are not ASCII */
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (is_one_of(argv[1], "--help", "-h", "help")) {
        if (argc > 2 && !find(argv[2]))
            return refuse(argv[2]);
        if (argc > 2)
            return find(argv[2])->run(2, (char *[]){argv[2], (char[]){"--help"}, NULL});
        print_help(stdout);
        return cli_end(CLI_OK);
    }
    if (is_one_of(argv[1], "--version", "-V", "version")) {
        printf("dibs %s\n", dibs_version());
        return cli_end(CLI_OK);
    }
    const struct cli_command *command = find(argv[1]);
    return command ? command->run(argc - 1, argv + 1) : refuse(argv[1]);
}
