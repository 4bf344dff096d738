/*
 * One lock and its owner as a block of lines.
 */
#ifndef DIBS_CLI_BLOCK_H
#define DIBS_CLI_BLOCK_H

#include <stdio.h>

#include <dibs.h>

#include "cli/locks.h"

/* queue NULL: prints how many wait and share, but not who they are. */
void cli_block_print(FILE *out, const char *name, const dibs_owner *owner, const struct cli_queue *queue);

#endif
