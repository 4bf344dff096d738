# dibs bench.
set -u
exec python3 -B "$DIBS_TOP/test/cli/bench.py"
