# The model of a name that is locked again, and released, by plain commands (relock.pml): it is sound, each fault breaks it, and each of its
# events does happen. A search that finds nothing must have been complete. The server and the other party may do nothing more,
# so end states are not looked at.
# Needs: spin
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/spin.sh"
model=$DIBS_TOP/test/model/relock.pml memory=1900 options='-E -m1000000 -w24'

# breaks FAULT PROPERTY [SWITCH]
breaks() {
    wrong "-DFAULT_$1 -DPROPERTY=$2 ${3-}" "assertion violated.*\\(\\($2!=$2\\)"
}

# happens EVENT [SWITCH]
happens() {
    wrong "-DREACH=$1 ${2-}" "assertion violated \\($1!=$1\\)"
}

tap_plan 22
tap 'sound: no two holders, fences that rise, nobody passed, nothing left' sound sound ''
tap 'sound: the same where some share the lock' sound sharing '-DSHARING -DATTEMPTS=2'
tap 'F is not looked at: a fence falls' breaks NO_LOOK_AT_F 2
tap 'F is read before K is set: a fence falls' breaks F_BEFORE_K 2
tap 'the queue is not looked at: a waiter is passed' breaks NO_LOOK_AT_Q 3
tap 'after a break the fence is that of the hold before: it does not rise' breaks OLD_FENCE 2
tap 'a fence is used at a server that forgot others: it falls' breaks ANY_SERVER 2
tap 'the fence of a sharer is used alone: it is not known that somebody was alone' breaks ANY_KIND 6 -DSHARING
tap 'a sharer asks without having released what it took: a fence falls' breaks STAYS_SHARER 2 -DSHARING
tap 'a release looks at the queue first: who waits is left alone' breaks Q_BEFORE_DELETE 5
tap 'a release sees who waits, and no script runs: that one is left alone' breaks NO_SCRIPT 5
tap 'a release whose connection broke is not sent again: who waits is left alone' breaks NO_SCRIPT_THEN 5
tap 'it happens: the lock is granted again' happens 1
tap 'it happens: another client had the lock since' happens 2
tap 'it happens: the waiter gets the lock back' happens 3
tap 'it happens: the connection breaks' happens 4
tap 'it happens: the server comes back with an older fence' happens 5
tap 'it happens: plain commands release the lock' happens 6
tap 'it happens: a script serves the queue behind them' happens 7
tap 'it happens: the connection breaks while the lock is released' happens 8
tap 'it happens: a sharer is granted the lock again' happens 9 -DSHARING
tap 'it happens: a second sharer comes' happens 10 -DSHARING
tap_end
