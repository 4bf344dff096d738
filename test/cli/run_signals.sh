# dibs run: 1,000 runs with random signals leave nothing behind.
set -u
exec python3 -B "$DIBS_TOP/test/cli/run_signals.py"
