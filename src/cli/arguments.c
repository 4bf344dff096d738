#include "cli/arguments.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static char *begin, *end; /* the memory of all words; read-only after arguments_keep */

void arguments_keep(int argc, char **argv)
{
    begin = end = argv[0];
    for (int i = 0; i < argc && argv[i] == end; i++)
        end += strlen(argv[i]) + 1;
}

/* Overwrites what is between the first : of the account and the last @ of the word: a password may have any bytes. */
static void hide_password(char *word, size_t length, bool stays)
{
    char *account = strstr(word, "://"), *password, *at = NULL;

    if (!account || account + 3 > word + length)
        return;
    for (char *c = account + 3; c < word + length; c++)
        if (*c == '@')
            at = c;
    password = at ? memchr(account + 3, ':', (size_t)(at - account - 3)) : NULL;
    if (!password || password + 1 == at)
        return;
    memset(password + 1, '*', (size_t)(at - password - 1));
    if (!stays)
        memmove(password + 2, at, strlen(at) + 1);
}

void arguments_hide_passwords(char *text, bool stays)
{
    for (char *word = text; *word; word += strspn(word, " \t\n")) {
        hide_password(word, strcspn(word, " \t\n"), stays);
        word += strcspn(word, " \t\n");
    }
}

void arguments_overwrite(const char *title)
{
    if (begin == end)
        return;
    memset(begin, 0, (size_t)(end - begin));
    snprintf(begin, (size_t)(end - begin), "%s", title);
}
