# The model of the queue (queue.pml): it is sound, each fault breaks it for its own reason, and each of its events does
# happen. A search that finds nothing must have been complete.
# Needs: spin
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
model=$DIBS_TOP/test/model/queue.pml

# search FOLDER SWITCHES CFLAGS OPTION...: what pan says, in FOLDER/log. Without partial order reduction, which
# could leave nothing out here. -O2 takes longer to compile than it saves.
search() {
    folder=$1 switches=$2 cflags=$3
    shift 3
    mkdir -p "$folder"
    cd "$folder"
    cp "$model" queue.pml
    # shellcheck disable=SC2086
    spin $switches -a queue.pml
    # shellcheck disable=SC2086
    "${CC:-cc}" -w -DNOREDUCE -DMEMLIM=1900 $cflags -o pan pan.c
    ./pan "$@" >log 2>&1 || :
    grep -E 'pan:1|error|states, stored|memory usage' log
}

# complete FOLDER KIND: that KIND of error was looked for, none was found, and the search left nothing out.
complete() {
    grep -q ', errors: 0$' "$1/log"
    grep -Eq "^[[:space:]]*$2[[:space:]]*\\+" "$1/log"
    incomplete='not completed|too small|out of memory|memory limit|truncated|bit statespace|hash.compact'
    if grep -Eiq "$incomplete" "$1/log"; then return 1; fi
}

# safe FOLDER SWITCHES DEPTH
safe() {
    search "$tmp/$1" "$2" '-O1 -DSAFETY' -w24 "-m$3"
    complete "$tmp/$1" 'assertion violations'
    complete "$tmp/$1" 'invalid end states'
}

live() {
    search "$tmp/$1" "-DLIVENESS $2" '-O1 -DNFAIR=3' -w22 -m1000000 -a -f
    complete "$tmp/$1" 'acceptance   cycles'
}

# wrong FOLDER SWITCHES WHAT: the first error is WHAT (a regular expression).
wrong() {
    search "$tmp/$1" "$2" '-O0 -DSAFETY' -w20 -m2000000
    grep -Eq ', errors: 1$' "$tmp/$1/log"
    grep -E '^pan:1: ' "$tmp/$1/log" | grep -Eq "$3"
}

wrong_cycle() {
    search "$tmp/$1" "-DLIVENESS $2" '-O0 -DNFAIR=3' -w20 -m1000000 -a -f
    grep -q '^pan:1: acceptance cycle' "$tmp/$1/log"
}

# breaks FAULT PROPERTY NUMBER SWITCHES
breaks() {
    wrong "$1" "-DFAULT_$1 -DPROPERTY=$2 $4" "assertion violated \\(\\($3!=$3\\)"
}

happens() {
    wrong "$1" "-DREACH=$1" 'assertion violated \([0-9]+!=[0-9]+\)'
}

tap_plan 29
tap 'sound: two clients as slow as can be' safe slow '' 4000000
tap 'sound: three clients as slow as can be, one trouble' \
    safe slow3 '-DCLIENTS=3 -DLEASE=2 -DTROUBLES=1' 1000000
tap 'sound: scripts that stop before the queue is served to its end' safe sweep -DSWEEP 4000000
tap 'no lost wake-up: two clients in time' safe prompt '-DPROMPT=1 -DLEASE=6' 1000000
tap 'no lost wake-up: three clients in time, two troubles' \
    safe prompt3 '-DPROMPT=0 -DCLIENTS=3 -DLEASE=3 -DTROUBLES=2' 1000000
tap 'a patient waiter is granted: two clients, three troubles' live live '-DPROMPT=1 -DTROUBLES=3'
tap 'a patient waiter is granted: three clients, one trouble' \
    live live3 '-DPROMPT=0 -DCLIENTS=3 -DLEASE=3 -DTROUBLES=1'
tap 'a patient waiter is granted: scripts stop, three clients, one trouble' \
    live live_sweep '-DSWEEP -DPROMPT=0 -DCLIENTS=3 -DLEASE=3 -DTROUBLES=1'
tap 'no deadlock: an attempt each of two clients' safe once '-DONCE -DTROUBLES=2' 1000000
tap 'no deadlock: an attempt each of three clients in time' \
    safe once3 '-DONCE -DPROMPT=0 -DCLIENTS=3 -DLEASE=3 -DTROUBLES=2' 1000000

tap 'a grant and pop that are not one step: two holders' breaks NON_ATOMIC_POP EXCLUSION 1 ''
tap 'a push that does not name its ask: two holders' breaks UNNAMED_PUSH EXCLUSION 1 ''
tap 'an entry that is kept on a grant by ask: a token that is over is granted' breaks ENTRY_KEPT FINISHED 3 ''
tap 'waiters that do not ask again: a lost wake-up' breaks NO_REASK WAKE_UP 4 -DPROMPT=1
tap 'waiters that do not ask again: one waits for ever' \
    wrong_cycle unheard '-DFAULT_NO_REASK -DPROPERTY=EXCLUSION -DPROMPT=1 -DTROUBLES=3'
tap 'waiters that do not ask again: one is stuck' \
    wrong stuck '-DFAULT_NO_REASK -DONCE -DTROUBLES=2' 'invalid end state'

tap 'it happens: a grant by push' happens PUSH_GRANT
tap 'it happens: a grant by reply' happens REPLY_GRANT
tap 'it happens: an expiry' happens EXPIRY
tap 'it happens: a holder dies' happens HOLDER_CRASH
tap 'it happens: a waiter dies' happens WAITER_CRASH
tap 'it happens: a push is lost' happens LOST_PUSH
tap 'it happens: an ask runs twice' happens DUPLICATE_ASK
tap 'it happens: a granted token is retracted' happens RETRACTED_GRANT
tap 'it happens: a push names an older ask' happens OLD_PUSH
tap 'it happens: a grant is read too late' happens LATE_GRANT
tap 'it happens: the head of the queue is skipped' happens SKIPPED_HEAD
tap 'it happens: a script stops before the queue is served to its end' \
    wrong STOPPED_SWEEP '-DSWEEP -DREACH=STOPPED_SWEEP' 'assertion violated \(13!=13\)'
tap 'it happens: a holder outlives its lease' happens LOST_LEASE
tap_end
