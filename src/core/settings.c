#include "core/settings.h"

#include <stdlib.h>
#include <string.h>

bool dibs__settings_add_url(struct dibs__settings *settings, const char *url, size_t size)
{
    char **urls = realloc(settings->urls, (settings->url_count + 1) * sizeof *urls);

    if (urls)
        settings->urls = urls;
    char *copy = urls ? strndup(url, size) : NULL;
    if (copy)
        urls[settings->url_count++] = copy;
    return copy != NULL;
}

static void free_text(char **text)
{
    free(*text);
    *text = NULL;
}

void dibs__settings_free(struct dibs__settings *settings)
{
    for (size_t i = 0; settings->urls && i < settings->url_count; i++)
        free(settings->urls[i]);
    free(settings->urls);
    settings->urls = NULL;
    free_text(&settings->key_prefix);
    free_text(&settings->label);
    dibs__access_free(settings->access);
    settings->access = NULL;
}
