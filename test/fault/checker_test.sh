# The checker is given histories made by hand, some that keep each promise of the fault rig and some that break it.
# Priority: low
set -u
exec python3 -B "$DIBS_TOP/test/fault/checker_test.py"
