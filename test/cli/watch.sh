# dibs watch.
set -u
exec python3 -B "$DIBS_TOP/test/cli/watch.py"
