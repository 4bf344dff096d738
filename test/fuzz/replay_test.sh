# Runs the corpora of the fuzz targets: no input that ever broke something does so again. See run for how to find more.
# Builds: replays
set -u
. "$DIBS_TOP/test/support/tap.sh"

replays() {
    "$DIBS_BUILD/test/fuzz/$1_replay" "$DIBS_TOP/test/fuzz/corpus/$1"
}

tap_plan 3
tap 'URLs' replays url
tap 'replies of a server' replays reply
tap 'messages of grants' replays push
tap_end
