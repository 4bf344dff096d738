# dibs run: its exit statuses, its options, and what COMMAND gets and leaves.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/run_statuses.py"
