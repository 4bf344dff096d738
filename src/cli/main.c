/*
 * dibs(1): locks at a shell prompt. Chooses the command; each has a file of its own.
 */
#include <fcntl.h>
#include <getopt.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static const struct cli_command *const commands[] = {&cli_run,   &cli_hold,   &cli_status, &cli_list, &cli_watch,
                                                     &cli_break, &cli_doctor, &cli_bench,  NULL};

static void print_help(FILE *out)
{
    fputs("Usage: dibs COMMAND [OPTION...] [ARGUMENT...]\n\nCommands:\n", out);
    for (const struct cli_command *const *command = commands; *command; command++)
        fprintf(out, "  %-8s %s\n", (*command)->name, (*command)->summary);
    fputs("\n\"dibs COMMAND --help\" tells more of each, and \"dibs --version\" which dibs this\n"
          "is. The store is that of --url or --url-file, else of $DIBS_URL, else\n"
          "redis://127.0.0.1:6379.\n",
          out);
}

static const struct cli_command *find(const char *name)
{
    for (const struct cli_command *const *command = commands; *command; command++)
        if (!strcmp((*command)->name, name))
            return *command;
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
        cli_error("%.*s is in the wrong place: options come after the command (\"dibs --help\" tells more)",
                  cli_shown_length(word), word);
    else
        cli_error("there is no command \"%s\"; \"dibs --help\" lists them", word);
    return CLI_USAGE;
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

static int check(enum cli_arguments kind, char **words)
{
    size_t most = kind == CLI_NO_ARGUMENT ? 0 : kind < CLI_SOME_NAMES ? 1 : SIZE_MAX;
    int result = kind >= CLI_ONE_NAME && !*words ? cli_usage_error("NAME is missing") : CLI_OK;

    for (size_t i = 0; words[i] && result == CLI_OK; i++) {
        if (i == most)
            result = cli_refuse_argument(words[i]);
        else if (kind == CLI_ONE_NAME || kind == CLI_SOME_NAMES)
            result = cli_check_name(words[i]);
    }
    return result;
}

/* The frame of all commands. argv begins with the command's name. */
static int run(const struct cli_command *command, int argc, char **argv)
{
    int result = cli_read_options(command, argc, argv);
    char **words = argv + optind;

    if (result == CLI_OK)
        result = check(command->arguments, words);
    if (result != CLI_OK)
        return result;
    return command->look ? cli_look(command->look, words) : command->run(words);
}

int main(int argc, char **argv)
{
    cli_keep_arguments(argc, argv);
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
            fputs(find(argv[2])->help, stdout);
        else
            print_help(stdout);
        return cli_end(CLI_OK);
    }
    if (is_one_of(argv[1], "--version", "-V", "version")) {
        printf("dibs %s\n", dibs_version());
        return cli_end(CLI_OK);
    }
    const struct cli_command *command = find(argv[1]);
    return command ? run(command, argc - 1, argv + 1) : refuse(argv[1]);
}
