/*
 * What a service tells systemd (sd_notify(3)) if $NOTIFY_SOCKET is set.
 */
#ifndef DIBS_CLI_NOTIFY_H
#define DIBS_CLI_NOTIFY_H

/* Sends state: lines such as "READY=1". Does nothing if $NOTIFY_SOCKET is not set, and ignores failures. */
void notify(const char *state);

#endif
