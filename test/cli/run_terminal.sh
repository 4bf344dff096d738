# dibs run in a terminal, and dibs in the foreground and the background of a shell with job control.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/run_terminal.py"
