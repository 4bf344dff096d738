# The model of the fences of a quorum (fence.pml): they grow while two masters of five fail, each fault makes one fall, and
# each of its events does happen. A search that finds nothing must have been complete.
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/spin.sh"
model=$DIBS_TOP/test/model/fence.pml memory=1500
options='-E -m1000000' # -E: where all attempts are over, nothing happens any more

falls() {
    wrong "-DFAULT_$1" 'assertion violated \(fence>last\)'
}

# happens EVENT
happens() {
    wrong "-DREACH=$1" 'assertion violated'
}

tap_plan 10
tap 'sound: fences grow where one is wiped and one is away' sound fence ''
tap 'sound: fences grow where two are wiped' sound wiped '-DWIPES=2 -DKILLS=0'
tap 'a master that lost its data has no floor: a fence falls' falls NO_FLOOR
tap 'the floor is what the clocks show that can be reached: a fence falls' falls CLOCKS
tap 'the floor is read before the wait is over: a fence falls' falls TOO_SOON
tap 'a minority tells the floor: a fence falls' falls FEW
tap 'masters that wait tell the floor: a fence falls' falls 'ANY_SOURCE -DWIPES=2 -DKILLS=0'
tap 'it happens: a master that lost its data votes again' happens 1
tap 'it happens: two masters wait at the same time' happens '2 -DWIPES=2'
tap 'it happens: a master loses its data while a fence is raised' happens 3
tap_end
