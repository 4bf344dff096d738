# The model of a quorum whose locks may be shared (quorum_shared.pml): it is sound while one master of three fails, each
# fault breaks it, and each of its events does happen. A search that finds nothing must have been complete.
# Needs: spin
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/spin.sh"
model=$DIBS_TOP/test/model/quorum_shared.pml memory=1500
options='-E -m2000000 -w22' # -E: where all attempts are over, nothing happens any more
three='-DCLIENTS=3 -DONCE -DRENEW=0'
fences='-DPROPERTY=FENCE -DRENEW=0 -DWIPES=1'

# lets_in FAULT SWITCHES; leaves_behind FAULT; makes_a_fence_fall FAULT
lets_in() {
    wrong "-DFAULT_$1 ${2:-}" 'assertion violated \(\(1!=1\)\|\|'
}

leaves_behind() {
    wrong "-DFAULT_$1" 'assertion violated \(\(1==2\)\|\|'
}

makes_a_fence_fall() {
    wrong "$fences -DATTEMPTS=3 -DFAULT_$1" 'assertion violated \(\(2!=2\)\|\|'
}

# happens EVENT SWITCHES
happens() {
    wrong "-DREACH=$1 ${2:-}" "assertion violated \\($1!=$1\\)"
}

tap_plan 29
tap 'sound: a sharer and a client that wants the lock alone' sound pair ''
tap 'sound: two sharers, and a client that wants the lock alone' sound sharers "$three -DWIPES=1"
tap 'sound: two sharers that renew, and a client that wants the lock alone' \
    sound renewals '-DCLIENTS=3 -DONCE -DRENEW=1 -DWIPES=0'
tap 'sound: a sharer, and two clients that want the lock alone' sound writers "$three -DALONE=2 -DWIPES=0"
tap 'sound: fences of three attempts' sound fences "$fences -DATTEMPTS=3"
tap 'sound: fences, with two sharers' sound shared_fences "$fences -DCLIENTS=3 -DONCE"
tap 'one master is enough: a sharer is in beside a holder' lets_in MINORITY
tap 'a sharer that leaves takes out the others' lets_in LEAVES_ALL "$three -DWIPES=0"
tap 'a master keeps the lock for the lease of the newest sharer' lets_in NEWEST_LIFE "$three -DWIPES=0"
tap 'a master that lost its data votes at once' lets_in VOTES_AT_ONCE
tap 'it votes as soon as it was admitted' lets_in NO_WAIT
tap 'a sharer tops up where the lock is held alone' lets_in TOPS_UP_BESIDE -DWIPES=1
tap 'a lock is topped up where the master may not vote' lets_in TOPS_UP_FREELY -DWIPES=1
tap 'a retraction comes behind a top-up' lets_in OVERTAKEN
tap 'a retraction that overtook its request is not repeated: a lock is left behind' leaves_behind FINAL_EARLY
tap 'the fence is not raised: it falls' makes_a_fence_fall NO_RAISE
tap 'the fence of a sharer is not raised: that of the next holder is no larger' makes_a_fence_fall SHARED_NOT_RAISED
tap 'a master votes before it knows the fences of the others: a fence falls' makes_a_fence_fall NO_FLOOR
tap 'it learns them before the longest lease is over: a fence falls' makes_a_fence_fall EARLY_FLOOR
tap 'it happens: two clients share the lock' happens 1 "$three"
tap 'it happens: two clients share the lock, and no master has both' happens 2 "$three"
tap 'it happens: a master loses the lock of a sharer' happens 3
tap 'it happens: a master may not vote' happens 4
tap 'it happens: a master that lost its data votes again' happens 5
tap 'it happens: a sharer tops up beside another one' happens 6 -DCLIENTS=3
tap 'it happens: an ask is granted after its client gave up' happens 7
tap 'it happens: a sharer leaves a master, and another one stays' happens 8 "$three"
tap 'it happens: a sharer and a client that wants the lock alone have a vote each' happens 9
tap 'it happens: a fence is raised beside another sharer' happens 10 "$fences -DCLIENTS=3 -DONCE"
tap_end
