# The core of the suite on Debian 13, with another hiredis, another compiler and two other servers: see platforms/run.
# Fails where there is no root folder: test/run makes one while it installs what is missing, which needs root and a
# network, and leaves this program out where it can't; "make test-platforms" makes one as well, and says what stands in
# the way.
set -u
. "$DIBS_TOP/test/support/tap.sh"

DIBS_VARIANTS=plain sh "$DIBS_TOP/test/platforms/run" --core >"$tmp/out" 2>&1 &
running=$!
trap 'kill "$running" 2>/dev/null; wait "$running"; exit 1' HUP INT TERM
wait "$running"

passes() {
    grep -E "^$1: [1-9][0-9]* passed, 0 failed$" "$tmp/out" || {
        grep -vE '^pass ' "$tmp/out"
        return 1
    }
}

tap_plan 2
tap 'the core passes on Debian 13 with Redis' passes redis-server
tap 'the core passes on Debian 13 with Valkey' passes valkey-server
tap_end
