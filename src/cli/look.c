#include "cli/look.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/text.h"

int cli_look_option(struct cli_look *look, int option)
{
    switch (option) {
    case CLI_OPTION_JSON:
        look->json = true;
        return CLI_GO_ON;
    case 'q':
        look->quiet = true; /* besides what cli_common_option does */
        break;
    default:
        break;
    }
    return cli_common_option(option, look->argv, look->help, &look->common) ? CLI_GO_ON : look->common.status;
}

int cli_look_failed(dibs_status status)
{
    if (status == DIBS_INVALID)
        cli_error("%s", dibs_last_error());
    else
        cli_warn("%s", dibs_last_error());
    return cli_exit_of(status);
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
