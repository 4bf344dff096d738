#include "store/redis/push.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis/keys.h"

/*
 * Reads the number that the text begins with, as printf writes it, and passes over the blank after it. NULL: there is
 * none.
 */
static const char *take_number(const char *text, uint64_t *out)
{
    char *end;

    if (*text < '0' || *text > '9' || (*text == '0' && text[1] != ' '))
        return NULL;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == ' ' && errno == 0 ? end + 1 : NULL;
}

static const char *take_numbers(const char *text, uint64_t *out, int count)
{
    for (int i = 0; text && i < count; i++)
        text = take_number(text, &out[i]);
    return text;
}

/* Number of the ask, fence (0: a hint), length of the token, then token and key without anything between. */
bool dibs__push_read(struct dibs__pushed *out, const char *key_prefix, const char *bytes, size_t size)
{
    uint64_t numbers[3] = {0};

    if (memchr(bytes, '\0', size))
        return false;
    const char *token = take_numbers(bytes, numbers, 3);
    if (!token || numbers[2] == 0 || numbers[2] >= sizeof out->token)
        return false;
    size_t token_size = (size_t)numbers[2], left = strlen(token);
    const char *name = left > token_size ? dibs__key_name(key_prefix, token + token_size, left - token_size) : NULL;
    if (!name)
        return false;
    memcpy(out->token, token, token_size);
    out->token[token_size] = '\0';
    strcpy(out->name, name);
    out->grant =
        (struct dibs__grant){.name = out->name, .token = out->token, .number = numbers[0], .fence = numbers[1]};
    return out->grant.fence < UINT64_C(1) << 53;
}
