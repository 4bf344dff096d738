# The model of a quorum (quorum.pml): it is sound while one master of three fails, each fault breaks it, and each of its
# events does happen. A search that finds nothing must have been complete.
# Needs: spin
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/spin.sh"
model=$DIBS_TOP/test/model/quorum.pml memory=1500
options='-E -m8000000' # -E: where all attempts are over, nothing happens any more

# lets_two_in FAULT; makes_a_fence_fall FAULT
lets_two_in() {
    wrong "-DFAULT_$1" 'assertion violated \(\(1!=1\)\|\|'
}

makes_a_fence_fall() {
    wrong "-DPROPERTY=FENCE -DFAULT_$1" 'assertion violated \(\(2!=2\)\|\|'
}

# happens EVENT PROPERTY
happens() {
    wrong "-DPROPERTY=$2 -DREACH=$1" "assertion violated \\($1!=$1\\)"
}

tap_plan 27
tap 'sound: at most one holds the lock' sound mutex -DPROPERTY=MUTEX
tap 'sound: fences grow' sound fence -DPROPERTY=FENCE
tap 'one master is enough: two are in' lets_two_in MINORITY
tap 'a lease counts from the answers: two are in' lets_two_in FROM_ANSWERS
tap 'a master that lost its data votes at once: two are in' lets_two_in VOTES_AT_ONCE
tap 'it votes as soon as it was admitted: two are in' lets_two_in NO_WAIT
tap 'a master whose clock has stepped goes on voting: two are in' lets_two_in STEP_UNSEEN
tap 'small steps of a clock add up unseen: two are in' lets_two_in STEPS_ADD
tap 'a step during the wait of a master changes nothing about the wait: two are in' lets_two_in WAITS_ONCE
tap 'a retraction comes behind a top-up: two are in' lets_two_in OVERTAKEN
tap 'a lock is topped up where the master may not vote: two are in' lets_two_in TOPS_UP_FREELY
tap 'one master is enough for a renewal: two are in' lets_two_in RENEWS_FEW
tap 'the fence is not raised: it falls' makes_a_fence_fall NO_RAISE
tap 'a master votes before its clock has passed the others: a fence falls' makes_a_fence_fall NO_CLOCK
tap 'it happens: the votes are split' happens 1 MUTEX
tap 'it happens: a master loses its data under a holder' happens 2 MUTEX
tap 'it happens: a clock steps under a holder' happens 3 MUTEX
tap 'it happens: a master may not vote' happens 4 MUTEX
tap 'it happens: a master that lost its data votes again' happens 5 MUTEX
tap 'it happens: a lock is topped up' happens 6 MUTEX
tap 'it happens: a lock is held without the master that fails' happens 7 MUTEX
tap 'it happens: an ask is granted after its client gave up' happens 8 MUTEX
tap 'it happens: a fence is raised' happens 9 FENCE
tap 'it happens: a clock steps a little under a holder' happens 10 MUTEX
tap 'it happens: a grant does not count, because a clock has stepped' happens 11 MUTEX
tap 'it happens: a step ends a wait too early' happens 12 MUTEX
tap 'it happens: a master that waits is told of a step' happens 13 MUTEX
tap_end
