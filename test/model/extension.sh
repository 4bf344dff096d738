# The model of extensions that are stuck on their way (extension.pml): it is sound, each fault breaks it, and each of
# its events does happen. A search that finds nothing must have been complete.
# Needs: spin
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/spin.sh"
model=$DIBS_TOP/test/model/extension.pml memory=500 options=-m1000000

breaks() {
    wrong "-DFAULT_$1" 'assertion violated \(\(sure==0\)\|\|\(ttl>=sure\)\)'
}

happens() {
    wrong "-DREACH=$1" 'assertion violated \([0-9]+!=[0-9]+\)'
}

tap_plan 8
tap 'sound: a client that believes that it holds owns the lock for as long' sound all ''
tap 'an extension that was never answered is forgotten: nobody owns what is held' breaks NO_BOUND
tap 'an extension may arrive at any time: nobody owns what is held' breaks NO_TIME
tap 'an extension that is sent does not bound the belief: nobody owns what is held' breaks NOT_EARLIER
tap 'it happens: an extension arrives late' happens LATE_ARRIVAL
tap 'it happens: a long extension is answered' happens LONG_ANSWERED
tap 'it happens: what was unanswered can no longer arrive' happens FREED
tap 'it happens: a lease is lost' happens LOST_LEASE
tap_end
