#include "core/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/require.h"
#include "base/text.h"

#define DECIMAL_MOST 20 /* digits of a 64-bit number */
#define HEX_MOST 16
#define LIMIT_MOST 11 /* ~ and the digits of a 32-bit number */

void dibs__token_form_init(struct dibs__token_form *form, const char *label, const char *host, long pid,
                           const char *runtime)
{
    form->head_size = (size_t)snprintf(form->head, sizeof form->head, "dibs:%s:%s:%ld:", label, host, pid);
    form->tail_size = (size_t)snprintf(form->tail, sizeof form->tail, ":%s:", runtime);
    form->most = form->head_size + DECIMAL_MOST + form->tail_size + HEX_MOST + LIMIT_MOST + 1;
    DIBS__REQUIRE(form->most <= DIBS__TOKEN_MAX);
}

char *dibs__token_write(const struct dibs__token_form *form, const struct dibs__token *token, char *out)
{
    out = dibs__put(out, form->head, form->head_size);
    out = dibs__put_number(out, token->thread, 10);
    out = dibs__put(out, form->tail, form->tail_size);
    out = dibs__put_number(out, token->sequence, 16);
    if (token->shared) {
        *out++ = DIBS__TOKEN_SHARED;
        out = dibs__put_number(out, token->limit, 10);
    }
    if (token->keeps)
        *out++ = DIBS__TOKEN_KEEPS;
    *out = '\0';
    return out;
}

bool dibs__token_sequence(const char *text, uint64_t *out)
{
    const char *colon = strrchr(text, ':');
    size_t digits = colon ? strspn(colon + 1, "0123456789abcdef") : 0;

    if (digits == 0 || digits > HEX_MOST)
        return false;
    char end = colon[1 + digits];
    if (end != '\0' && end != DIBS__TOKEN_SHARED && end != DIBS__TOKEN_KEEPS)
        return false;
    *out = strtoull(colon + 1, NULL, 16);
    return true;
}
