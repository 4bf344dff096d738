# dibs run inside dibs run, and what COMMAND leaves running.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/run_inside.py"
