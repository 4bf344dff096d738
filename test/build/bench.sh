# The benchmarks: each runs, though so briefly that nothing is measured, and leaves CSV files and plots; a wrong result
# is a failure, a missed target is none.
# Builds: benches
set -u
. "$DIBS_TOP/test/support/tap.sh"
cd "$DIBS_TOP" || exit 1
out=$tmp/out
tables='pair threads polling handover handoff nested leases losses start calls tasks tasks-enter tasks-waiting tasks-grants load topologies names names-floor minority shared shared-readers shared-writer shared-renewal keep keep-once keep-turns keep-recall keep-end'

all_run() {
    sh bench/run --quick --rounds 1 --out "$out"
}

tells_targets() {
    sh bench/run --quick --rounds 1 --transport unix --out "$tmp/one" start >"$tmp/start"
    grep -E '^[0-9]+ targets met, [0-9]+ not' "$tmp/start"
}

# is_table FILE TEXTS: there are lines below the header, all with as many columns as the header; those behind TEXTS hold a
# number or nothing, but for the last one of targets.csv, which holds a verdict.
is_table() {
    [ -s "$1" ] || { echo "$1 is missing" && return 1; }
    awk -F, -v file="$1" -v texts="$2" '
        NR == 1 { columns = NF; next }
        NF != columns { print file ": " $0; bad = 1 }
        { for (i = texts + 1; i <= NF; i++) if ($i !~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/ && $i != "") { print file ": " $i; bad = 1 } }
        END { exit bad || NR < 2 }' "$1"
}

csv_is_valid() {
    for table in $tables; do
        is_table "$out/$table.csv" 5
    done
    is_table "$out/handover-percentiles.csv" 3
    grep -qE ',(met|MISSED)$' "$out/targets.csv"
    sed 's/,[^,]*,[^,]*,[^,]*$//' "$out/targets.csv" >"$tmp/figures.csv"
    awk -F, 'NF != 6 { print; bad = 1 } END { exit bad }' "$tmp/figures.csv"
}

# Both transports, and all that is compared.
csv_is_complete() {
    for table in pair threads polling handoff start calls tasks tasks-enter tasks-waiting tasks-grants load names; do
        for transport in 'Unix socket' TCP; do
            grep -q "^$transport,.*,dibs,.*,[0-9]" "$out/$table.csv" || { echo "$table: no $transport" && return 1; }
        done
    done
    grep -q ',dibs without polling,' "$out/pair.csv"
    for side in 'three masters' 'five masters' 'cluster of three'; do
        grep -q "^TCP,with 2000 us of delay,$side,acquire,.*,[0-9]" "$out/topologies.csv"
    done
}

plots_are_drawn() {
    if command -v gnuplot >/dev/null; then
        for plot in threads-time threads-cpu handover load; do
            python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$out/$plot.svg"
        done
    fi
}

does_without_gnuplot() {
    GNUPLOT=/nonexistent/gnuplot sh bench/plots.sh "$out" >"$tmp/line"
    grep 'install gnuplot' "$tmp/line"
    [ "$(wc -l <"$tmp/line")" = 1 ]
}

# Deletes the lock of plain hiredis repeatedly while it is measured.
fails_on_a_wrong_result() {
    mkdir "$tmp/server"
    TMPDIR=$tmp/server "$DIBS_BUILD/bench/pairs" --threads 1 --transport unix --rounds 1 --round-ms 5000 &
    python3 - "$tmp/server" $! <<'END'
import glob, os, socket, sys, time
limit = time.time() + 30
while time.time() < limit and os.path.exists("/proc/" + sys.argv[2]):
    for path in glob.glob(sys.argv[1] + "/*/redis.sock"):
        try:
            server = socket.socket(socket.AF_UNIX)
            server.connect(path)
            while server.send(b"DEL pair:0\r\n") and server.recv(100):
                pass
        except OSError:
            time.sleep(0.01)
END
    if wait $!; then return 1; fi
}

tap_plan 7
tap 'all run' all_run
tap 'the CSV files are tables' csv_is_valid
tap 'the CSV files have all that was measured' csv_is_complete
tap 'the plots are drawn' plots_are_drawn
tap 'without gnuplot there is one line about plots' does_without_gnuplot
tap 'targets are counted' tells_targets
tap 'a wrong result is a failure' fails_on_a_wrong_result
tap_end
