# Way 17 of the gallery on a real ZooKeeper server: by chance, and its scenes twenty times in a row; what is said where the
# server is missing or goes; and that nothing of the server stays behind.
# Builds: race
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/deps.sh"
. "$DIBS_TOP/demo/zookeeper.sh"
trap 'zookeeper_stop; rm -rf "$tmp"' EXIT
unset DIBS_ZOOKEEPER DIBS_NO_ZOOKEEPER

race=$DIBS_TOP/build/demo/dibs-race

builds() {
    make -C "$DIBS_TOP" BUILD=build SANITIZE= race
}

# All lines with "figure", "extra" and the like of the results as WORD=NUMBER, a race or scene in a line.
lines() {
    awk '
        $1 == "run" { line = "" }
        $1 == "figure" || $1 == "setting" { line = line " " $2 "=" $3 }
        $1 == "flaws" || $1 == "foretold" || $1 == "rounds" { line = line " " $1 "=" $2 }
        $1 == "extra" { line = line " woken=" $3 }
        $1 == "name" { way = $2 }
        $1 == "end" { print way line }' "$1"
}

# have N WAY WORD...: so many lines of that way have all the words.
have() {
    have_count=$1 have_way=$2
    shift 2
    grep "^$have_way " "$tmp/lines" >"$tmp/some"
    for word in "$@"; do
        [ "$(grep -c " $word\( \|$\)" "$tmp/some")" = "$have_count" ]
    done
}

# One session a process has two threads. The first asks three times, each of the others five times: it is woken once.
races_by_chance() {
    "$race" --processes 3 --threads 24 --rounds 3 --results "$tmp/race" 17
    lines "$tmp/race" | tee "$tmp/lines"
    [ "$(grep -c '^counts 10 10 10$' "$tmp/race")" = 2 ]
    for way in zookeeper zookeeper-fence; do
        have 1 "$way" holds=72 gave_up=0 left=0 most=1 pairs=0 deleted=0 threads_per_round=6 flaws=0
    done
    awk '/^figure commands_per_acquire/ && ($3 < 4.8 || $3 > 6) { exit 1 }
         /^extra/ && ($3 < 60 || $3 > 80) { exit 1 }' "$tmp/race"
}

# Both ways at once: they wait for sessions to end most of the time.
shows_twenty_times() {
    "$race" --forced --rounds 20 --results "$tmp/forced.1" zookeeper &
    "$race" --forced --rounds 20 --results "$tmp/forced.2" zookeeper-fence
    wait $!
}

has_the_numbers() {
    cat "$tmp/forced.1" "$tmp/forced.2" >"$tmp/forced"
    lines "$tmp/forced" | tee "$tmp/lines"
    have 1 zookeeper foretold=20 most=2 pairs=1
    have 4 zookeeper-fence foretold=20 most=1 pairs=0 deleted=0 inverted_percent=0.0 flaws=0
}

# says WORDS COMMAND...: the command fails, and says that.
says() {
    says_words=$1
    shift
    if "$@" >"$tmp/out" 2>&1; then return 1; fi
    cat "$tmp/out"
    grep -q "$says_words" "$tmp/out"
}

is_not_run_without_one() {
    DIBS_ZOOKEEPER='' DIBS_NO_ZOOKEEPER='there is none' "$race" 17 | tee "$tmp/out"
    [ "$(grep -c '^17 .*: NOT RUN: there is none$' "$tmp/out")" = 2 ]
    unset DIBS_ZOOKEEPER
    "$race" 17 | tee "$tmp/out"
    grep -q '^17 .*: NOT RUN: .*sh demo/run --all' "$tmp/out"
    DIBS_ZOOKEEPER=127.0.0.1:1 says 'ZooKeeper at 127.0.0.1:1 does not answer' "$race" 17
}

# So many clients, including the one that asks, are connected within 20 s.
has_clients() {
    for _ in $(seq 40); do
        clients=$(zookeeper_java org.apache.zookeeper.client.FourLetterWordMain 127.0.0.1 "${DIBS_ZOOKEEPER#*:}" srvr |
            awk '$1 == "Connections:" { print $2 }')
        [ "${clients:-0}" -lt "$1" ] || return 0
    done
    return 1
}

# Kills the server while a long race of three processes runs: the race ends with a message.
race_with_a_dying_server() {
    "$race" --rounds 1 --processes 3 --work 2000 17 &
    has_clients 4 || {
        kill $!
        echo 'the race has not connected'
        return 0
    }
    kill -9 "$zookeeper_pid"
    wait $!
}

ends_with_the_server() {
    says "ZooKeeper at $DIBS_ZOOKEEPER does not answer" race_with_a_dying_server
}

leaves_no_server() {
    [ -d "$folder" ]
    zookeeper_stop
    [ ! -e "$folder" ]
    if kill -0 "$pid" 2>/dev/null; then return 1; fi
}

says_why_it_does_not_start() {
    deps_zookeeper() { echo /none; }
    says 'main class org.apache.zookeeper' zookeeper_start
    grep -q 'did not come up' "$tmp/out"
    [ -z "$zookeeper_folder" ]
}

# With SIGINT to the group, as a terminal sends it for Ctrl-C, and with SIGTERM to the script alone.
is_interrupted() {
    python3 -B - "$DIBS_TOP" "$tmp/run" <<'END_OF_SCRIPT'
import os, signal, subprocess, sys

top, folder = sys.argv[1:]
os.mkdir(folder)
signal.signal(signal.SIGINT, signal.default_int_handler)

def running():
    return [line for line in subprocess.check_output(['ps', '-e', '-o', 'pid,args'], text=True).splitlines()
            if folder in line and 'zoo.cfg' in line]

for group, number in ((True, signal.SIGINT), (False, signal.SIGTERM)):
    demo = subprocess.Popen(['sh', top + '/demo/run', '--no-install', '--all', '--work', '500', '--results', folder + '.txt', '17'],
                            env=dict(os.environ, TMPDIR=folder), start_new_session=True,
                            stdout=subprocess.PIPE, text=True)
    for line in demo.stdout:
        if line.startswith('Lease'):
            break
    assert len(running()) == 1, running()
    (os.killpg if group else os.kill)(demo.pid, number)
    assert demo.wait(30) == 128 + number, demo.returncode
    assert not running(), running()
    assert not os.listdir(folder), os.listdir(folder)
END_OF_SCRIPT
}

tap_plan 10
tap 'make race' builds
zookeeper_start || exit 1
folder=$zookeeper_folder pid=$zookeeper_pid
tap 'by chance: the count is right, and each is woken once' races_by_chance
tap 'each scene, twenty times in a row' shows_twenty_times
tap 'the numbers of each scene' has_the_numbers
tap 'a server that dies ends the race, with a message' ends_with_the_server
tap 'the server and its folder' leaves_no_server
zookeeper_stop
unset DIBS_ZOOKEEPER
tap 'without a server' is_not_run_without_one
tap 'a server that does not start' says_why_it_does_not_start
tap 'a demo that is interrupted' is_interrupted
tap 'nothing runs any more' [ -z "$zookeeper_folder$zookeeper_pid" ]
tap_end
