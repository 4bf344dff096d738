# The gallery's races: each scene shows what it is to show, twenty times in a row, and a sound way no flaw in any of its
# scenes. The numbers of the last time are looked at here as well.
set -u
. "$DIBS_TOP/test/support/tap.sh"

race=$DIBS_TOP/build/demo/dibs-race

builds() {
    make -C "$DIBS_TOP" BUILD=build SANITIZE= race
}

shows_twenty_times() {
    "$race" --forced --rounds 20 --results "$tmp/forced" >"$tmp/table" 2>&1 || {
        cat "$tmp/table"
        return 1
    }
}

# Each scene of the results as a line: WAY FORETOLD SOUND FLAWS COUNT LIMIT MOST PAIRS DELETED LEFT GAVE_UP.
lines() {
    awk '
        $1 == "way" { way = $2 }
        $1 == "sound" { sound = $2 }
        $1 == "setting" || $1 == "figure" { number[$2] = $3 }
        $1 == "foretold" || $1 == "flaws" { number[$1] = $2 }
        $1 == "counts" { number["count"] = $NF }
        $1 == "end" {
            print way, number["foretold"], sound, number["flaws"], number["count"], number["limit"], number["most"],
                  number["pairs"], number["deleted"], number["left"], number["gave_up"]
        }' "$tmp/forced"
}

# Every way has a scene, and the numbers of the flawed ones are what their articles did not expect.
has_the_numbers() {
    lines
    lines | awk '
        { seen[$1]++; flaws[$1] += $4; unsound[$1] += !$3 }
        $2 != 20 { bad = 1; print "not twenty times: " $0 }
        $3 == 1 && ($4 != 0 || $5 != $6 || $7 > 1 || $8 + $9 + $10 + $11 != 0) { bad = 1; print "not sound: " $0 }
        $1 == 1 && ($10 != 1 || $11 != 1) { bad = 1; print "no deadlock: " $0 }
        ($1 ~ /^[345678]$/ || $1 == 10) && ($5 <= $6 || $8 < 1) { bad = 1; print "no two inside: " $0 }
        $1 ~ /^[3568]$/ && $9 < 1 { bad = 1; print "no lock of another deleted: " $0 }
        $1 == 7 && $9 != 0 { bad = 1; print "a lock of another deleted: " $0 }
        END {
            for (way = 1; way <= 19; way++) {
                if (!seen[way] && way != 17) { bad = 1; print "no scene of way " way }
                if (unsound[way] && !flaws[way]) { bad = 1; print "no flaw of way " way }
            }
            exit bad
        }'
}

# By chance: few threads, two ways. The last lines are a complete run.
races_by_chance() {
    "$race" --threads 24 --processes 3 --rounds 2 --seed 7 --results "$tmp/race" --svg "$tmp/race.svg" set-del dibs
    grep -q '^figure holds 48$' "$tmp/race"
    [ "$(grep -c '^hold ' "$tmp/race")" = 48 ] # of the first round of each
    [ "$(tail -n 1 "$tmp/race")" = end ]
    python3 -B -c 'import sys, xml.etree.ElementTree as t; t.parse(sys.argv[1])' "$tmp/race.svg"
}

refuses_bad_input() {
    for bad in '--rounds 0' '--lease 19' '--processes x' 'none' '--svg' '--more' '--results /none/file'; do
        # shellcheck disable=SC2086
        "$race" $bad >"$tmp/out" 2>"$tmp/errors" && return 1
        [ -s "$tmp/errors" ]
    done
    "$race" --list | grep -q '^11  dibs'
}

tap_plan 5
tap 'make race' builds
tap 'each scene, twenty times in a row' shows_twenty_times
tap 'the numbers of each way' has_the_numbers
tap 'a race by chance, its results and its picture' races_by_chance
tap 'what is wrong is refused' refuses_bad_input
tap_end
