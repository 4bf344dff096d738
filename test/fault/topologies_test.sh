# The fault rig for some seconds on five masters, and on a cluster; with holds that are shared, and with leases that are
# kept, on one server and on a cluster: one result for each. See rig.py.
# Builds: rig
set -u
echo 1..5
status=0

# soak NUMBER SECONDS WHAT OPTION...
soak() {
    number=$1 seconds=$2 what=$3
    shift 3
    result=ok
    python3 -B "$DIBS_TOP/test/fault/rig.py" --worker "$DIBS_BUILD/test/fault/worker" \
        --shim "$DIBS_BUILD/test/fault/clock_shim.so" --seed 1 --seconds "$seconds" "$@" >"$tmp" 2>&1 || {
        result="not ok"
        status=1
    }
    sed 's/^/# /' "$tmp"
    echo "$result $number - the promises are kept: $what"
}

tmp=$(mktemp) || exit 1
trap 'rm -f "$tmp"' EXIT
soak 1 5 "a quorum" --topology quorum
soak 2 10 "a cluster" --topology cluster
soak 3 10 "shared holds" --shared 50
soak 4 10 "kept leases" --keep-ms 100 --names 104
soak 5 10 "kept leases on a cluster" --topology cluster --keep-ms 100 --names 104
exit $status
