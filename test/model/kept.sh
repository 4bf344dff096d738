# The model of leases that a process keeps (kept.pml): it is sound, each fault breaks it, and each of its events does happen.
# A search that finds nothing must have been complete. The model ends where its fences do, so end states are not looked at.
# Needs: spin
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/spin.sh"
model=$DIBS_TOP/test/model/kept.pml memory=1900 options='-E -m1000000 -w22'

# breaks FAULT PROPERTY NUMBER SWITCHES
breaks() {
    wrong "-DFAULT_$1 -DPROPERTY=$2 ${4:-}" "assertion violated \\(\\($3!=$3\\)"
}

# happens EVENT NUMBER
happens() {
    wrong "-DTROUBLE -DREACH=$1" "assertion violated \\($2!=$2\\)"
}

tap_plan 21
tap 'sound: as slow as can be' sound slow ''
tap 'sound: as slow as can be, with trouble' sound trouble -DTROUBLE
tap 'in time: nobody waits longer than the bounds' sound prompt -DPROMPT
tap 'in time, with trouble: nobody waits longer than the bounds' sound prompt_trouble '-DPROMPT -DTROUBLE'
tap 'the deadline is set behind the shortening: two holders' breaks DEADLINE_LATER EXCLUSION 1 -DTROUBLE
tap 'a kept lease is taken again after its loss: two holders' breaks TAKEN_LATE EXCLUSION 1
tap 'a recalled lease is taken again: two holders' breaks TAKEN_RECALLED EXCLUSION 1
tap 'fences are used before they are sure: one falls' breaks GUESSED_FENCE FENCE 2 -DTROUBLE
tap 'a kept lease is not shortened: a dead keeper is in the way for a whole lease' breaks NOT_SHORTENED SHORTENED 3 -DPROMPT
tap 'a recall is ignored: the other waits' breaks IGNORED SOON 4 -DPROMPT
tap 'it happens: a kept lease is taken again' happens RETAKEN 1
tap 'it happens: a recall finds the lease kept' happens RECALLED 2
tap 'it happens: a recall finds the lease in use' happens RECALL_IN_USE 3
tap 'it happens: a recall comes when the lease is over' happens RECALL_LATE 4
tap 'it happens: a recall is lost' happens RECALL_LOST 5
tap 'it happens: a short lease is taken again' happens TAKEN_SHORT 6
tap 'it happens: a request runs late' happens RUN_LATE 7
tap 'it happens: a request is not answered' happens UNANSWERED 8
tap 'it happens: the keeper dies' happens KEEPER_DIED 9
tap 'it happens: nobody uses the lease for long' happens IDLE 10
tap 'it happens: a recall comes when the lease was taken again' happens OLD_RECALL 11
tap_end
