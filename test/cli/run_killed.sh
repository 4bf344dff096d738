# dibs run: whichever of its processes are killed, all descendants of COMMAND are ended, and no other process is.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/run_killed.py"
