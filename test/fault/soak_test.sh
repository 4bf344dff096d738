# A minute of the fault rig, always the same faults, and two bursts of releases: one result for each promise. See rig.py.
# With a sanitizer, which is slow, there are fewer workers, for a shorter time; the workers that are asked to end are
# searched for leaks.
# Builds: rig
set -u
case ${DIBS_VARIANT-plain} in
plain) size="--seconds 60" ;;
*) size="--seconds 30 --processes 4 --threads 3 --names 4 --holds 2000" ;;
esac
# shellcheck disable=SC2086
exec python3 -B "$DIBS_TOP/test/fault/rig.py" --worker "$DIBS_BUILD/test/fault/worker" \
    --shim "$DIBS_BUILD/test/fault/clock_shim.so" --seed 1 --tap $size
