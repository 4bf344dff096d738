# The model of admissions to a quorum (admission.pml): at most one client holds the lock though one master after the other
# forgets, each fault lets two in, and each of its events does happen. A search that finds nothing must have been complete.
# Needs: spin
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/spin.sh"
model=$DIBS_TOP/test/model/admission.pml memory=1500
options='-E -m1000000'

lets_two_in() {
    wrong "-DFAULT_$1" 'assertion violated +!\(\(holds\[0\]&&holds\[1\]\)\)'
}

# happens EVENT
happens() {
    wrong "-DREACH=$1" "assertion violated \\(${1%% *}!=${1%% *}\\)"
}

tap_plan 19
tap 'sound: at most one holds the lock' sound admission ''
tap 'a quorum is new though one that was heard knows it: two are in' lets_two_in ONE_KNOWS
tap 'a quorum is new though one is silent, to a client that knows that there was one: two are in' lets_two_in SILENT
tap 'an admitted master votes at once: two are in' lets_two_in NO_WAIT
tap 'a master that came back with older data votes at once: two are in' lets_two_in OLDER_VOTES
tap 'another application admits a master: two are in' lets_two_in OTHERS_ADMIT
tap 'a key alone is deleted: two are in' lets_two_in KEY_DELETED
tap 'sound: nor while the quorum is new' sound new -DNEW
tap 'a quorum is new after one look: two are in' lets_two_in 'ONE_LOOK -DNEW'
tap 'a master is admitted without its mark: two are in' lets_two_in 'NO_MARK -DNEW'
tap 'a new quorum is new though one was not heard: two are in' lets_two_in 'SILENT -DNEW'
tap 'it happens: two of three do not know' happens 1
tap 'it happens: a master that forgot has a vote' happens 2
tap 'it happens: both masters that forgot have a vote' happens 3
tap 'it happens: a majority does not know, and the third says that the quorum is not new' happens 4
tap 'it happens: masters of a new quorum are admitted at once' happens '5 -DNEW'
tap 'it happens: another client admits masters of a new quorum, too' happens '6 -DNEW'
tap 'it happens: the other client finds that a master has forgotten its mark' happens '7 -DNEW'
tap 'it happens: a majority does not know, and the third is silent to a client that knows that there was a quorum' happens 8
tap_end
