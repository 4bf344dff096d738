# The demo: three ways of bare Redis commands let the counter pass ten, dibs does not; the table says so, and the picture
# shows it.
# Builds: race
set -u
. "$DIBS_TOP/test/support/tap.sh"

builds() {
    make -C "$DIBS_TOP" BUILD=build SANITIZE= race
}

# In about one round of ten bare commands stop at ten by chance: in five rounds of three ways, once in 30,000 runs.
races() {
    "$DIBS_TOP/build/demo/counter_race" --rounds 5 --lease 100 --work 20 --delay 30 --svg "$tmp/race.svg" >"$tmp/table"
    cat "$tmp/table"
    grep -q '^dibs  *10 10 10 10 10 ' "$tmp/table"
    [ "$(grep -cE '^SET NX PX.* 1[1-9] ' "$tmp/table")" = 3 ]
}

# The strip of dibs is the last. Where a busy machine kept dibs from renewing a lease, and it said so, two may be inside.
draws() {
    python3 -B - "$tmp/race.svg" "$(grep -c "lost and noticed" "$tmp/table")" <<'END_OF_SCRIPT'
import sys, xml.etree.ElementTree as tree
strips = []
for item in tree.parse(sys.argv[1]).getroot():
    if item.get('class') == 'title':
        strips.append((item.text, None))
    elif strips and not strips[-1][1]:
        strips[-1] = (strips[-1][0], [part.get('class') for part in item.iter()])
assert len(strips) == 4, strips
assert strips[3][0] == 'dibs: the counter ends at 10', strips[3][0]
assert strips[3][1].count('in') >= 10 and 'wrong' not in strips[3][1]
assert 'renewed' in strips[3][1] or sys.argv[2] != '0'
assert 'both' not in strips[3][1] or sys.argv[2] != '0'
for title, kinds in strips[:3]:
    assert title.startswith('SET NX PX') and {'both', 'lease'} <= set(kinds), title
    assert 'renewed' not in kinds, title
END_OF_SCRIPT
}

refuses_bad_input() {
    for bad in '--rounds 0' '--way none' '--svg' 'more'; do
        # shellcheck disable=SC2086
        "$DIBS_TOP/build/demo/counter_race" $bad >"$tmp/out" 2>&1 && return 1
        [ -s "$tmp/out" ]
    done
    ! "$DIBS_TOP/build/demo/counter_race" --rounds 1 --way dibs --svg "$tmp/none/race.svg" >"$tmp/out" 2>&1
    grep -q 'No such file' "$tmp/out"
}

tap_plan 4
tap 'make race' builds
tap 'dibs stops at ten, the others do not' races
tap 'the picture shows it' draws
tap 'what is wrong is refused' refuses_bad_input
tap_end
