# The model of extensions that are stuck on their way (extension.pml): it is sound, each fault breaks it, and each of
# its events does happen. A search that finds nothing must have been complete.
# Needs: spin
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
model=$DIBS_TOP/test/model/extension.pml

# search FOLDER SWITCHES: what pan says, in FOLDER/log.
search() {
    mkdir -p "$tmp/$1"
    cd "$tmp/$1"
    cp "$model" extension.pml
    # shellcheck disable=SC2086
    spin $2 -a extension.pml
    "${CC:-cc}" -w -O1 -DSAFETY -DNOREDUCE -DMEMLIM=500 -o pan pan.c
    ./pan -m1000000 >log 2>&1 || :
    grep -E 'pan:1|error|states, stored|memory usage' log
}

sound() {
    search sound ''
    grep -q ', errors: 0$' "$tmp/sound/log"
    grep -Eq '^[[:space:]]*assertion violations[[:space:]]*\+' "$tmp/sound/log"
    incomplete='not completed|too small|out of memory|memory limit|truncated|bit statespace|hash.compact'
    if grep -Eiq "$incomplete" "$tmp/sound/log"; then return 1; fi
}

# wrong SWITCHES WHAT: the first error is WHAT (a regular expression).
wrong() {
    search "$1" "$1"
    grep -Eq ', errors: 1$' "$tmp/$1/log"
    grep -E '^pan:1: ' "$tmp/$1/log" | grep -Eq "$2"
}

breaks() {
    wrong "-DFAULT_$1" 'assertion violated \(\(sure==0\)\|\|\(ttl>=sure\)\)'
}

happens() {
    wrong "-DREACH=$1" 'assertion violated \([0-9]+!=[0-9]+\)'
}

tap_plan 8
tap 'sound: a client that believes that it holds owns the lock for as long' sound
tap 'an extension that was never answered is forgotten: nobody owns what is held' breaks NO_BOUND
tap 'an extension may arrive at any time: nobody owns what is held' breaks NO_TIME
tap 'an extension that is sent does not bound the belief: nobody owns what is held' breaks NOT_EARLIER
tap 'it happens: an extension arrives late' happens LATE_ARRIVAL
tap 'it happens: a long extension is answered' happens LONG_ANSWERED
tap 'it happens: what was unanswered can no longer arrive' happens FREED
tap 'it happens: a lease is lost' happens LOST_LEASE
tap_end
