# The gallery's races: each scene shows what it is to show, twenty times in a row, and a sound way no flaw in any of its
# scenes. The numbers of the last time are looked at here as well. By chance, libdibs shows no flaw either.
# Builds: race
set -u
. "$DIBS_TOP/test/support/tap.sh"

race=$DIBS_TOP/build/demo/dibs-race

builds() {
    make -C "$DIBS_TOP" BUILD=build SANITIZE= race
}

# ---------------------------------------------------------------- the scenes

# Scenes wait more than they work, so ways run beside each other, each lane with servers of its own. What is in no lane
# here is in the last one. Way 17 has a test of its own.
lane_1='dibs-quorum'
lane_2='dibs dibs-failover'
lane_3='redlock fair-zset stream setnx-expire'
lane_4='fair-list sleep-retry script dibs-min-replicas'
lane_5='thread-name set-del owner-value compare-del'

ways_in_no_lane() {
    "$race" --list | awk -v others=" $lane_1 $lane_2 $lane_3 $lane_4 $lane_5 " '
        /^[ 0-9][0-9]  / && $1 != 17 && !index(others, " " $2 " ") { print $2 }'
}

shows_twenty_times() {
    lane_6=$(ways_in_no_lane)
    pids=
    for lane in 1 2 3 4 5 6; do
        eval "ways=\$lane_$lane"
        # shellcheck disable=SC2154,SC2086 # the words of the lane
        "$race" --forced --rounds 20 --results "$tmp/forced.$lane" $ways >"$tmp/table.$lane" 2>&1 &
        pids="$pids $!"
    done
    status=0
    lane=0
    for pid in $pids; do
        lane=$((lane + 1))
        wait "$pid" || {
            status=$?
            cat "$tmp/table.$lane"
        }
    done
    cat "$tmp"/forced.[1-6] >"$tmp/forced"
    return "$status"
}

# Each run of a results file as a line: NAME SCENE NUMBER=VALUE... A scene has its number among the way's, a race 0.
lines() {
    awk '
        $1 == "name" { name = $2; scene = 0 }
        $1 == "run" { line = name " " ($2 == "scene" ? ++scene : 0); extra = 0 }
        $1 == "sound" { sound = $2 }
        $1 == "setting" || $1 == "figure" { line = line " " $2 "=" $3 }
        $1 == "rounds" || $1 == "foretold" || $1 == "flaws" { line = line " " $1 "=" $2 }
        $1 == "counts" { line = line " count=" $NF }
        $1 == "extra" { line = line " extra" ++extra "=" $3 }
        $1 == "end" { print line " sound=" sound }' "$1"
}

# What a scene's numbers must be: NAME SCENE CONDITION..., a number that is left out as meaningless being 0. The flawed
# ways' numbers are what their articles did not expect.
expected_of_scenes='
setnx-expire 1 count=0 left=1 gave_up=1
getset 1 count=2 most=2 pairs=1 deleted=1
getset 2 extra1=1
set-del 1 count=2 most>1 pairs>0 deleted>0
watchdog 1 count=2 most=2 extra1>0
owner-value 1 count>1 most>1 pairs>1 deleted>1 extra1>1
compare-del 1 count=3 most=2 pairs=1 deleted=1
script 1 count=2 most=2 pairs=1 deleted=0
script 2 count=2 most=2 pairs=1 deleted=0
thread-name 1 count=2 most>1 pairs>0 deleted>0
sleep-retry 1 inverted_percent>0 idle_ms>190 extra1>0
late-renewal 1 count=2 most=2 pairs=1 deleted=0 extra1>0
dibs 1 count=1 holds=2
dibs 2 count=1 holds=2
dibs 3 count=1 holds=2 noticed=1
dibs 4 count=1 holds=2 noticed=1
dibs 5 count=3 holds=3 inverted_percent=0
redlock 1 count=2 holds=2 most=1
redlock 2 count=1 holds=1 gave_up=1
redlock 3 count=2 most=2 pairs=1
dibs-quorum 1 count=2 holds=2
dibs-quorum 2 count=1 holds=1 denied=1
dibs-quorum 3 count=1 holds=2
dibs-quorum 4 count=1 holds=2 noticed=1
replica 1 count=2 most=2 pairs=1
dibs-failover 1 count=1 holds=2 noticed=1
dibs-failover 2 count=1 holds=2 noticed=0
dibs-min-replicas 1 count=2 holds=2 noticed=0
dibs-min-replicas 2 count=0 holds=0 denied=1
fair-list 1 count=0 holds=0 left=1 gave_up=1
fair-list 2 idle_ms>90
fair-list 3 deleted=1
fair-zset 1 inverted_percent>0
fair-zset 2 count=0 holds=0 left=1 gave_up=1
semaphore 1 most=3 pairs=1
semaphore 2 most=3 pairs=1
semaphore-dibs 1 most=2 holds=3
semaphore-dibs 2 most=2 holds=3
watch 1 count=2 extra1=1 extra2=2
stream 1 count=0 holds=0 left=1 gave_up=1
cache-alone 1 most=2 extra1=1 extra2=1
cache-dibs 1 most=1 extra1=0 extra2=1
sale-alone 1 most=6 extra1=2 extra2=4
sale-dibs 1 most=1 extra1=0 extra2=4
packets-alone 1 most=6 extra1=1 extra2=5 extra3>10000
packets-dibs 1 most=1 extra1=0 extra2=5 extra3=10000
'

# meets EXPECTED LINES: every run is expected and meets its conditions, and all that are expected are there.
meets() {
    cat "$2"
    printf '%s' "$1" | awk -v runs="$2" '
        function number(name) { return name in value ? value[name] : 0 }
        function fail(why) { bad = 1; print "not met: " run ": " why }
        function check(condition, parts) {
            if (condition ~ />/) {
                split(condition, parts, ">")
                if (!(number(parts[1]) > parts[2] + 0)) fail(condition)
            } else {
                split(condition, parts, "=")
                if (number(parts[1]) != parts[2] + 0) fail(condition)
            }
        }
        NF { expected[$1 " " $2] = $0 }
        END {
            while ((getline line < runs) > 0) {
                count = split(line, words, " ")
                run = words[1] " " words[2]
                split("", value)
                for (i = 3; i <= count; i++) {
                    split(words[i], parts, "=")
                    value[parts[1]] = parts[2]
                }
                if (!(run in expected)) { fail("is not expected"); continue }
                count = split(expected[run], words, " ")
                for (i = 3; i <= count; i++) check(words[i])
                if (words[2] > 0) check("foretold=20")
                if (number("sound")) {
                    check("flaws=0"); check("pairs=0"); check("deleted=0"); check("left=0"); check("gave_up=0")
                    if (number("most") > number("room")) fail("too many inside")
                    if (number("counts") && number("count") != number("limit")) fail("the counter")
                }
                delete expected[run]
            }
            for (run in expected) fail("is missing")
            exit bad
        }'
}

has_the_numbers() {
    lines "$tmp/forced" >"$tmp/lines"
    meets "$expected_of_scenes" "$tmp/lines"
}

# -------------------------------------------------------------- races by chance

# Few threads, two ways. The last line shows that the results are complete.
races_by_chance() {
    "$race" --threads 24 --processes 3 --rounds 2 --seed 7 --results "$tmp/race" --svg "$tmp/race.svg" set-del dibs
    grep -q '^figure holds 48$' "$tmp/race"
    [ "$(grep -c '^hold ' "$tmp/race")" = 48 ] # of the first round of each
    [ "$(tail -n 1 "$tmp/race")" = end ]
    python3 -B -c 'import sys, xml.etree.ElementTree as t; t.parse(sys.argv[1])' "$tmp/race.svg"
}

# A value is rebuilt once for each time that it expires, and what is sold and taken is what there is: 5 items of 4
# pieces, 5 parts of 100.00; three rounds of each.
expected_by_chance='
dibs 0 rounds=3 count=10 holds=300
dibs-quorum 0 rounds=3 count=10 holds>200
cache-dibs 0 rounds=3 processes=4 threads=200 extra1=0 extra2=3
sale-dibs 0 rounds=3 processes=4 holds=300 extra1=0 extra2=60
packets-dibs 0 rounds=3 processes=4 holds=300 extra1=0 extra2=15 extra3=30000
'

is_sound_by_chance() {
    "$race" --threads 100 --processes 4 --lease 50 --work 10 --delay 15 --results "$tmp/chance" \
        dibs dibs-quorum cache-dibs sale-dibs packets-dibs
    lines "$tmp/chance" >"$tmp/lines"
    meets "$expected_by_chance" "$tmp/lines"
}

refuses_bad_input() {
    for bad in '--rounds 0' '--lease 19' '--processes x' '--threads -1' '--work 1e9' '--seed' 'none' '--svg' '--more' \
        '--results /none/file'; do
        # shellcheck disable=SC2086
        "$race" $bad >"$tmp/out" 2>"$tmp/errors" && return 1
        [ -s "$tmp/errors" ]
    done
    "$race" --list | grep -q '^11  dibs'
}

tap_plan 6
tap 'make race' builds
tap 'each scene, twenty times in a row' shows_twenty_times
tap 'the numbers of each way' has_the_numbers
tap 'a race by chance, its results and its picture' races_by_chance
tap 'libdibs shows no flaw by chance' is_sound_by_chance
tap 'what is wrong is refused' refuses_bad_input
tap_end
