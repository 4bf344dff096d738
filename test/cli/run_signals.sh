# dibs run: 1,000 runs with random signals leave nothing behind.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/run_signals.py"
