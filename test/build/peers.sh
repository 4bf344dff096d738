# bench/peers runs every case with dibs alone, for a fraction of a second, and dibs locks as it should in each. So do its shared locks.
# Builds: peer
set -u
. "$DIBS_TOP/test/support/tap.sh"

runs_every_case() {
    python3 -B "$DIBS_TOP/bench/peers/run" --build "$DIBS_BUILD" --out "$tmp" --peer dibs --rounds 1 --seconds 0.2
}

# Every case is a row of the results, with a figure that is not zero, and no case says that something went wrong.
right() {
    awk -F, '$7 > 0 && ($6 == "us" || $6 == "server_cpu") { seen[$1] = 1 }
             $7 > 0 && $6 ~ /^(wrong|failed|stuck|gave_up)$/ { print; bad = 1 }
             END { n = split("pair nested handover names contend share renew", all, " ")
                   for (i = 1; i <= n; i++) if (!(all[i] in seen)) { print all[i] " has no result"; bad = 1 }
                   exit bad }' "$tmp/peers.csv"
}

one_row_in_the_table() {
    [ "$(grep -c '^| dibs ' "$tmp/peers.md")" = 1 ]
    ! grep -E 'wrong|failed|stuck' "$tmp/peers.md"
}

shared_locks_too() {
    python3 -B "$DIBS_TOP/bench/peers/shared" --build "$DIBS_BUILD" --dibs --rounds 1 --seconds 0.2 --lease 1000 >"$tmp/shared.md"
    grep -E '^\| dibs .*( [0-9.,]+ us \|){4}( [0-9.]+ s \|){4}$' "$tmp/shared.md"
}

tap_plan 4
tap 'every case runs' runs_every_case
tap 'no lock is held twice, lost or stuck' right
tap 'the table has a row for it' one_row_in_the_table
tap 'shared locks: four times of a pair, and four waits for a holder that was killed' shared_locks_too
tap_end
