# The model of the queue of a lock that may be shared (shared.pml): it is sound, with a writer and without, with limits that
# differ, each fault breaks it, and each of its events does happen. A search that finds nothing must have been complete.
# Needs: spin
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/spin.sh"
model=$DIBS_TOP/test/model/shared.pml memory=1900 options='-m1000000 -w22'

# breaks FAULT PROPERTY NUMBER SWITCHES
breaks() {
    wrong "-DFAULT_$1 -DPROPERTY=$2 ${4:-}" "assertion violated \\(\\($3!=$3\\)"
}

# happens EVENT NUMBER SWITCHES
happens() {
    wrong "-DREACH=$1 ${3:-}" "assertion violated \\($2!=$2\\)"
}

tap_plan 14
tap 'sound: a writer among readers' sound readers -DLIMIT=0
tap 'sound: two writers among readers' sound writers '-DLIMIT=0 -DALONE=2'
tap 'sound: a semaphore' sound semaphore '-DALONE=0 -DLIMIT=2'
tap 'sound: limits that differ, and a writer' sound differ '-DLIMIT=1 -DDIFFER'
tap 'a reader does not look at the queue: it passes a writer' breaks PASSED_WRITER ORDER 3
tap 'a waiter that gives up does not serve the queue: others wait for nobody' breaks UNSERVED SERVED 4
tap 'the dead are not taken out: their places are never free' breaks DEAD_KEPT GONE 5
tap 'a late renewal puts a sharer back: there is one too many' breaks REVIVED AT_MOST 2
tap 'it happens: two sharers are let in together' happens TOGETHER 1
tap 'it happens: a push is lost' happens LOST_PUSH 2
tap 'it happens: a waiter that gives up lets others in' happens LEFT_QUEUE 3
tap 'it happens: the head of the queue is dead' happens DEAD_HEAD 4
tap 'it happens: a dead sharer is taken out beside another' happens FREED 5
tap 'it happens: a renewal comes late' happens LATE 6
tap_end
