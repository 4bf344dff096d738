# A minute of the fault rig, always the same faults: one result for each promise. See rig.py.
set -u
exec python3 -B "$DIBS_TOP/test/fault/rig.py" --worker "$DIBS_BUILD/test/fault/worker" \
    --shim "$DIBS_BUILD/test/fault/clock_shim.so" --seconds 60 --seed 1 --tap
