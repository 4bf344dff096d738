# dibs run: random signals to random ones of its processes. The exit status is exact, nothing is left, nobody else is harmed.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/run_any.py"
