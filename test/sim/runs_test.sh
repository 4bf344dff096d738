# The simulation: 200 seeds that are always the same, each run twice, so that a seed is seen to give one trace; 200 that
# are drawn each time, 60 in which leases are kept, and 200 in which masters of a new quorum forget; and the seeds of
# test/sim/seeds.txt, which once showed a defect.
# Builds: sim-build
set -u

number=0
failed=0

# result TEXT COMMAND...
result() {
    text=$1
    shift
    number=$((number + 1))
    if "$@" >"$log" 2>&1; then
        echo "ok $number - $text: $(awk '/ runs, / { runs += $1; failures += $3 } END { print runs " runs, " failures " failures" }' "$log")"
    else
        failed=1
        echo "not ok $number - $text"
        sed 's/^/# /' "$log"
    fi
}

simulate() {
    "$DIBS_BUILD/sim/sim" "$DIBS_BUILD/sim/dibs.so" "$@"
}

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
echo 1..5
fresh=$(($(date +%s) * 1000))
result "the same seeds give the same traces" simulate --seed 1 --runs 200 --twice
result "seeds from $fresh on" simulate --seed $fresh --runs 200
result "kept leases, from there on" simulate --only kept --seed $fresh --runs 60
result "new quorums, from there on" simulate --only founding --seed $fresh --runs 200
old() {
    while read -r only seed _; do
        case $only in '#'* | '') continue ;; esac
        # shellcheck disable=SC2046
        simulate --seed "$seed" --runs 1 $([ "$only" = any ] || echo --only "$only") || return 1
    done <"$DIBS_TOP/test/sim/seeds.txt"
}
result "seeds that showed a defect once" old
exit $failed
