# The model of messages that a lock may have changed (told.pml): it is sound, also where messages are lost or doubled,
# each fault breaks it, and each of its events does happen. A search that finds nothing must have been complete.
# Needs: spin
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/spin.sh"
model=$DIBS_TOP/test/model/told.pml memory=500 options=-m1000000

# breaks FAULT PROPERTY NUMBER
breaks() {
    wrong "-DFAULT_$1 -DPROPERTY=$2" "assertion violated \\(\\($3!=$3\\)"
}

# happens EVENT NUMBER
happens() {
    wrong "-DTROUBLE -DREACH=$1" "assertion violated \\($2!=$2\\)"
}

tap_plan 15
tap 'sound: every message comes' sound sound ''
tap 'sound: messages are lost and doubled' sound trouble -DTROUBLE
tap 'a message makes the lease lost: it was not' breaks MESSAGE_DECIDES TRUE_LOSS 1
tap 'a message makes the lease last longer: the holder believes too long' breaks PROLONGS BOUNDED 2
tap 'a message during a renewal is forgotten: the holder is not told' breaks FORGOTTEN TOLD 3
tap 'a renewal does not read the lock: the holder is told only once' breaks NOT_READ TOLD 3
tap 'a new connection does not look again: the holder is not told' breaks NOT_ANEW TOLD 3
tap 'it happens: a message is lost' happens LOST_MESSAGE 1
tap 'it happens: a message comes twice' happens DOUBLED_MESSAGE 2
tap 'it happens: a message is for an older lease' happens OLD_MESSAGE 3
tap 'it happens: a message is for what the process did itself' happens OWN_MESSAGE 4
tap 'it happens: a message comes during a renewal' happens IN_FLIGHT 5
tap 'it happens: the connection is made again' happens RECONNECT 6
tap 'it happens: a loss is known by a message' happens LOSS_BY_MESSAGE 7
tap 'it happens: a loss is known by a look' happens LOSS_BY_LOOK 8
tap_end
