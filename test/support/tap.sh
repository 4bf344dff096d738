# For test scripts: results as TAP, and a temporary folder, $tmp, which is removed at the end. To be read with `.`.
#
#   tap_plan N
#   tap NAME COMMAND...    one result: ok if the command returns 0; otherwise what the command printed is shown

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

tap_count=0
tap_failed=0

tap_plan() {
    echo "1..$1"
}

# The command runs in a shell of its own with -e: the first command in it that fails ends the shell, except a command
# behind !, which needs an `if`.
tap() {
    tap_name=$1
    shift
    tap_count=$((tap_count + 1))
    (
        set -e
        "$@"
    ) >"$tmp/tap.log" 2>&1
    if [ $? = 0 ]; then
        echo "ok $tap_count - $tap_name"
    else
        echo "not ok $tap_count - $tap_name"
        sed 's/^/# /' "$tmp/tap.log"
        tap_failed=1
    fi
}

tap_end() {
    exit "$tap_failed"
}

# copy_sources FOLDER: copies the sources, without what was built, for a script that changes or builds them.
copy_sources() {
    mkdir -p "$1"
    for entry in Makefile README.md include src demo test bench; do
        [ ! -e "$DIBS_TOP/$entry" ] || cp -R "$DIBS_TOP/$entry" "$1/"
    done
}
