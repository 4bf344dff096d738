# The programs of demo/examples: each is built by the command line in its first comment, with an installed copy of the
# library, is run on a server, and does what it is an example of.
# Needs: c++ sqlite3
# Builds: demos cli
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/server.sh"
. "$DIBS_TOP/test/support/examples.sh"
examples=$examples_plain

builds_them() {
    make -C "$DIBS_TOP" BUILD=build SANITIZE= demos
    for example in $examples; do
        [ -x "$DIBS_TOP/build/demo/examples/$example" ]
    done
}

# Every file is in the lists, and the other way round. build/loops runs the others.
lists_all() {
    find "$DIBS_TOP/demo/examples" -type f | sed -e 's,.*/,,' -e 's,\..*,,' | sort >"$tmp/there"
    # shellcheck disable=SC2086
    echo $examples $examples_more | tr ' ' '\n' | sort | diff - "$tmp/there"
}

uses_public_headers() {
    ! grep -nE '^ *# *include *"' "$DIBS_TOP"/demo/examples/*
}

# ------------------------------------------------------------------ what they do

section() {
    jobs=''
    for i in 1 2 3 4 5 6 7 8 9 10; do
        example guard_section "$tmp/counter" >>"$tmp/section" &
        jobs="$jobs $!"
    done
    for job in $jobs; do
        wait "$job"
    done
    [ "$(cat "$tmp/counter")" = 10 ]
    sed 's/raised to //' "$tmp/section" | sort -n | diff - "$tmp/ten"
    is_free counter
}

skip() {
    example try_and_skip >"$tmp/first" &
    first=$!
    wait_until grep cleaning "$tmp/first"
    [ "$(example try_and_skip)" = 'another process is cleaning up: nothing to do' ]
    wait "$first"
    [ "$(cat "$tmp/first")" = 'cleaning up' ]
    [ "$(example try_and_skip)" = 'cleaning up' ]
    status=0
    DIBS_URL=unix:///nowhere example try_and_skip || status=$?
    [ "$status" = 1 ]
}

limited() {
    server_cli set lock:report somebody px 60000
    for wait_ms in 0 200; do
        status=0
        example limited_wait "$wait_ms" >"$tmp/out" || status=$?
        [ "$status" = 75 ] && grep 'not now: .*report' "$tmp/out"
    done
    server_cli del lock:report
    [ "$(example limited_wait 5000)" = 'the report is written' ]
}

# outpaced NAME RESULT EXAMPLE ARGUMENT...: starts the example with $old as its last argument, stops it while it holds the
# lock of NAME, and gives the lock to another with $new, which must print RESULT. Then the first one goes on, and must be
# refused.
outpaced() {
    lock=$1 result=$2 program=$3
    shift 3
    LD_LIBRARY_PATH=$prefix/lib "$here/$program" "$@" "$old" >"$tmp/stale" &
    stale=$!
    wait_until is_locked "$lock"
    kill -STOP "$stale"
    server_cli del "lock:$lock" # as if the lease had ended
    [ "$(example "$program" "$@" "$new")" = "$result" ]
    kill -CONT "$stale"
    status=0
    wait "$stale" || status=$?
    [ "$status" = 1 ] && grep '^refused' "$tmp/stale"
}

sql() {
    old=1000 new=10
    outpaced alice deposited fence_sql "$tmp/shop.db" alice
    outpaced alice deposited fence_sql "$tmp/shop.db" alice
    python3 -c 'import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute("SELECT id, balance, fence > 0 FROM account"))' \
        "$tmp/shop.db" >"$tmp/rows"
    echo "('alice', 20, 1)" | diff - "$tmp/rows"
}

file() {
    old=stale new=fresh
    mkdir "$tmp/states"
    outpaced state written fence_file "$tmp/states"
    cat "$tmp/states/$(ls "$tmp/states" | grep '^[0-9]*$' | tail -n 1)" >"$tmp/state"
    printf fresh | cmp - "$tmp/state"
    [ "$(example fence_file "$tmp/states" last)" = written ]
    [ "$(ls -A "$tmp/states" | wc -l)" = 1 ] && [ "$(cat "$tmp"/states/*)" = last ]
}

redis() {
    old=stale new=fresh
    outpaced stock set fence_redis "$server_socket" 0 stock
    [ "$(server_cli hget stock value)" = fresh ]
    [ "$(server_cli hget stock fence | tr -d '\n' | wc -c)" = 19 ]
}

pool() {
    [ "$(example thread_pool)" = '40 tasks; 10 forgot a lock; now 0 locks are held' ]
    [ "$(server_cli keys 'lock:customer*')" = '' ]
}

forks() {
    example fork >"$tmp/out"
    printf '%s\n' 'child:  dibs_check says DIBS_NOT_HELD' 'child:  holds the lock' 'parent: holds the lock' \
        'parent: unlocks' >"$tmp/expected"
    sort "$tmp/out" | diff "$tmp/expected" -
    awk '/parent: unlocks/ { parent = 1 } /child:  holds/ { exit !parent }' "$tmp/out"
    is_free printer
}

hears() {
    example events >"$tmp/out" 2>"$tmp/events" &
    job=$!
    wait_until grep migrating "$tmp/out"
    server_cli del lock:migration
    status=0
    wait "$job" || status=$?
    cat "$tmp/out" "$tmp/events"
    [ "$status" = 1 ] && grep '^stopped after [0-9]* steps: the lock is lost$' "$tmp/out"
    awk '/^stopped/ { exit $3 >= 600 }' "$tmp/out" # 600 steps are all that there are
    grep '^event: .*migration' "$tmp/events"
}

majority() {
    # shellcheck disable=SC2086
    example quorum $quorum >"$tmp/out"
    kill "$second_pid"
    # shellcheck disable=SC2086
    example quorum $quorum >>"$tmp/out"
    cat "$tmp/out"
    [ "$(grep -c '^a majority of 3 servers has the lock, with fence [1-9][0-9]*$' "$tmp/out")" = 2 ]
}

cxx() {
    example cplusplus >"$tmp/out"
    printf '%s\n' 'both accounts are ours' "alice's account was ours" stored | diff - "$tmp/out"
    server_cli set lock:account:alice somebody px 60000
    (sleep 0.1; server_cli del lock:account:alice) &
    example cplusplus | grep stored
    status=0
    DIBS_URL=unix:///nowhere/at.all example cplusplus 2>"$tmp/err" || status=$?
    [ "$status" = 1 ] && grep '^failed: .*/nowhere/at.all' "$tmp/err"
}

unit() {
    DIBS_URL='' example unit_test | grep 'all tests passed'
}

moves() {
    example moving_jobs | grep -E '^100 of 100 turns; a job went on with another thread [0-9]+ times$'
    is_free stock
}

cancels() {
    [ "$(example cancel_wait 3000)" = 'the report is written' ]
    server_cli set lock:report somebody px 600000
    [ "$(example cancel_wait 300)" = 'cancelled: nothing is held, and nothing is waited for' ]
    server_cli del lock:report
    [ "$(server_cli keys '*{lock:report}*' | grep -v fence)" = '' ]
    is_free report
}

# Money goes both ways at once, and none is lost on the way.
transfers() {
    mkdir "$tmp/accounts"
    cd "$tmp/accounts"
    echo 100 >alice
    echo 100 >bob
    jobs=''
    for i in 1 2 3 4 5; do
        example transfer alice bob 3 &
        jobs="$jobs $!"
        example transfer bob alice 2 &
        jobs="$jobs $!"
    done
    for job in $jobs; do
        wait "$job"
    done
    [ "$(cat alice bob | tr '\n' ' ')" = '95 105 ' ]
    status=0
    example transfer alice bob 1000 2>"$tmp/err" || status=$?
    [ "$status" = 1 ] && grep '^alice has 95' "$tmp/err"
    is_free account:alice
    is_free account:bob
}

# All see one value, which one of them made.
reads() {
    jobs=''
    for i in 1 2 3 4 5 6; do
        example readers "$tmp/value" >>"$tmp/values" 2>>"$tmp/made" &
        jobs="$jobs $!"
    done
    for job in $jobs; do
        wait "$job"
    done
    [ "$(wc -l <"$tmp/values")" -eq 6 ]
    [ "$(sort -u "$tmp/values")" = "$(cat "$tmp/value")" ]
    [ "$(cat "$tmp/made")" = 'made the value' ]
    is_free cache
}

# Never more than three are inside.
works() {
    jobs=''
    for i in 1 2 3 4 5 6 7 8; do
        example workers "$tmp/worked" &
        jobs="$jobs $!"
    done
    for job in $jobs; do
        wait "$job"
    done
    awk '{ inside += $1 == "in" ? 1 : -1; most = inside > most ? inside : most }
         END { exit !(NR == 16 && inside == 0 && most >= 1 && most <= 3) }' "$tmp/worked"
    is_free workers
}

tap_plan 40
seq 10 >"$tmp/ten"
tap 'make demos builds all' builds_them
tap 'all of them are run here' lists_all
tap 'they include nothing of this tree' uses_public_headers
tap 'the library is installed' installs
for example in $examples; do
    tap "$example, built as it says" compiles "$example"
done
server_start && quorum=$server_url && server_start && quorum="$quorum $server_url" && second_pid=$server_pid &&
    server_start || exit 1
quorum="$quorum $server_url" DIBS_URL=$server_url
tap 'guard a section' section
tap 'try and skip' skip
tap 'wait for a limited time' limited
tap 'fence: SQL' sql
tap 'fence: a file' file
tap 'fence: a Redis key' redis
tap 'a thread pool' pool
tap 'fork' forks
tap 'events' hears
tap 'a quorum' majority
tap 'C++' cxx
tap 'a unit test' unit
tap 'a server on epoll' serves_requests epoll_server
tap 'jobs that move' moves
tap 'a wait that is cancelled' cancels
tap 'a transfer' transfers
tap 'readers and a writer' reads
tap 'three workers at a time' works
tap_end
