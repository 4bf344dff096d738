#include "core/settings.h"

#include <stdlib.h>

void dibs__settings_free(struct dibs__settings *settings)
{
    free(settings->url);
    free(settings->key_prefix);
    free(settings->label);
    settings->url = settings->key_prefix = settings->label = NULL;
}
