# Runs one test program (or one script of sh or python3 that prints TAP) and leaves its result in a folder.
#
#   run_one.sh VARIANT PROGRAM NAME FOLDER    with DIBS_BUILD and DIBS_TOP set, DIBS_LAUNCH in front of the program
#
# FOLDER gets `output`, and at last `result`: a line "PASSED FAILED", the line to print, and the milliseconds that the program
# took and that it had a processor for. The program has DIBS_TEST_SECONDS (300) to end; processes that it leaves behind are
# ended. FOLDER/pid is there while the program runs: a TERM to that process ends the program and all that it started. With
# DIBS_NICED=niced the program gets the time that others leave, and has six times as long.
set -u

variant=$1 program=$2 name=$3 folder=$4
limit=${DIBS_TEST_SECONDS:-300}
priority=
case $3 in
build/platforms | model/*) limit=$((3 * limit)) ;; # one runs much of this suite twice, the others use a processor all the time
esac
[ "${DIBS_NICED-}" != niced ] || { limit=$((6 * limit)) && priority='nice -n 10'; }

now_ms() {
    stamp=$(date +%s%N)
    case $stamp in
    *[!0-9]*) date +%s000 ;;
    *) echo "${stamp%??????}" ;;
    esac
}

# timeout(1) makes a process group of itself and the program; its id is that of timeout.
end_group() {
    kill -s "$1" -- "-$group" 2>/dev/null
}

group=
stop() {
    [ -z "$group" ] || end_group TERM
    [ -z "$group" ] || { sleep 1 && end_group KILL; }
    rm -f "$folder/pid"
    exit 1
}
trap stop HUP INT TERM

exec 2>>"$folder/output" # the shell says there how a program died
echo $$ >"$folder/pid"
start=$(now_ms)
case $program in
*.sh) launch="$priority ${DIBS_LAUNCH-} timeout -k 10 $limit sh" ;;
*.py) launch="$priority ${DIBS_LAUNCH-} timeout -k 10 $limit python3 -B" ;;
*) launch="$priority ${DIBS_LAUNCH-} timeout -k 10 $limit" ;;
esac
# shellcheck disable=SC2086
CMOCKA_MESSAGE_OUTPUT=TAP $launch "$program" >>"$folder/output" 2>&1 </dev/null &
group=$!
wait "$group"
status=$?
end_group KILL
milliseconds=$(($(now_ms) - start))
times >"$folder/times"

awk -v status="$status" -v limit="$limit" -v variant="$variant" -v name="$name" -v ms="$milliseconds" '
    /^1\.\.[0-9]+/ { planned += substr($0, 4) + 0; plans++ }
    /^ok / && /# *(skip|SKIP|Skip)/ { bad++; next }
    /^ok / { good++ }
    /^not ok / { bad++ }
    END {
        done = good + bad
        if (done < planned) {
            bad += planned - done
            why = ", " planned - done " without a result"
        }
        if (!plans && !bad) {
            bad = 1
            why = ", no plan"
        }
        if (status && !bad)
            bad = 1
        if (status == 124 || status == 137)
            why = why ", over the time limit of " limit " s"
        else if (status > 128)
            why = why ", killed by signal " status - 128
        else if (status)
            why = why ", exit status " status
        printf "%d %d\n", good, bad
        printf "%s  %-5s  %-36s %3d %-5s  %5.1f s", bad ? "FAIL" : "pass", variant, name, good + bad,
            good + bad == 1 ? "test" : "tests", ms / 1000
        print bad ? "  (" bad " failed" why ")" : ""
    }' "$folder/output" >"$folder/result.new"
# The second line of times(1) has the children: 1m2.03s 0m4.50s.
awk -v ms="$milliseconds" -F '[ms ]+' 'NR == 2 { printf "%d %d\n", ms, 1000 * (60 * ($1 + $3) + $2 + $4) }' \
    "$folder/times" >>"$folder/result.new"
mv "$folder/result.new" "$folder/result"
rm -f "$folder/pid"
