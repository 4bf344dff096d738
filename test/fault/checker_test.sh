# The checker itself: histories made by hand that keep each promise of the fault rig, and such that break it.
set -u
exec python3 -B "$DIBS_TOP/test/fault/checker_test.py"
