# The fault rig for some seconds on five masters, and on a cluster: one result for each. See rig.py.
# Builds: rig
set -u
echo 1..2
status=0

# soak NUMBER TOPOLOGY SECONDS
soak() {
    result=ok
    python3 -B "$DIBS_TOP/test/fault/rig.py" --worker "$DIBS_BUILD/test/fault/worker" \
        --shim "$DIBS_BUILD/test/fault/clock_shim.so" --seed 1 --topology "$2" --seconds "$3" >"$tmp" 2>&1 || {
        result="not ok"
        status=1
    }
    sed 's/^/# /' "$tmp"
    echo "$result $1 - the promises of a $2 are kept"
}

tmp=$(mktemp) || exit 1
trap 'rm -f "$tmp"' EXIT
soak 1 quorum 5
soak 2 cluster 10
exit $status
