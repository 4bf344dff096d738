#include "cli/look.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/text.h"

int cli_look_option(struct cli_look *look, int option)
{
    switch (option) {
    case CLI_OPTION_JSON:
        look->json = true;
        return CLI_GO_ON;
    case 'q':
        look->quiet = true; /* and what it means to all commands */
        break;
    default:
        break;
    }
    return cli_common_option(option, look->argv, look->help, &look->common) ? CLI_GO_ON : look->common.status;
}

int cli_look_open(dibs_runtime **out, const struct cli_look *look, dibs_config config)
{
    return cli_open(out, &config, look->common.url);
}

dibs_status cli_look_try_open(dibs_runtime **out, const struct cli_look *look, dibs_config config)
{
    return cli_try_open(out, &config, look->common.url);
}

int cli_look_failed(dibs_status status)
{
    if (status == DIBS_INVALID)
        cli_error("%s", dibs_last_error());
    else
        cli_warn("%s", dibs_last_error());
    return cli_exit_of(status);
}

bool cli_count(long *out, const char *text)
{
    char *end;

    errno = 0;
    *out = strtol(text, &end, 10);
    return errno == 0 && end != text && !*end && *out > 0;
}

uint64_t cli_random(void)
{
    uint64_t bits;
    FILE *source = fopen("/dev/urandom", "rb");

    if (!source || fread(&bits, sizeof bits, 1, source) != 1)
        bits = (uint64_t)cli_now_ns() * 2654435761u + (uint64_t)getpid();
    if (source)
        fclose(source);
    return bits;
}
