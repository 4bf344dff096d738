# dibs bench.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/bench.py"
