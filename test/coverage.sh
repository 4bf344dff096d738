#!/bin/sh
# Runs the unit and the integration tests and prints which part of the lines of src/core, src/store and src/redis they
# reached, by file and by folder. Fails where a folder has less than DIBS_COVERAGE_LEAST=90 %, or a test failed.
#
#   coverage.sh [--report]    --report: runs nothing, and reports on the runs before
#
# The lines that were not reached are marked ##### in build/coverage/lines/FOLDER-FILE.c.gcov.
set -u

top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
cd "$top" || exit 1
build=build/coverage
lines=$top/$build/lines
status=0

if [ "${1-}" != --report ]; then
    find "$build" -name '*.gcda' -exec rm -f {} + 2>/dev/null
    DIBS_VARIANTS=coverage sh test/run --no-install unit/ integration/ || status=1
fi
rm -rf "$lines"
mkdir -p "$lines"

# Prints one line for each source: its name, how many lines were run, how many there are.
count_lines() {
    find "$build/obj/src/core" "$build/obj/src/store" "$build/obj/src/redis" -name '*.o' | sort | while read -r object; do
        name=${object#"$build"/obj/}
        name=${name%.o}.c
        out=$lines/$(echo "${name#src/}" | tr / -).gcov
        "${GCOV:-gcov}" --stdout "${object%.o}.gcda" 2>/dev/null | awk -v name="$name" '
            / 0:Source:/ { mine = $0 ~ "0:Source:(.*/)?" name "$" }
            mine' >"$out"
        awk -F: -v name="$name" '
            $1 ~ /#####|=====/ { missed++ }
            $1 ~ /[0-9]/ { run++ }
            END { print name, run + 0, run + missed }' "$out"
    done
}

count_lines | awk -v least="${DIBS_COVERAGE_LEAST:-90}" '
    function show(name, run, all) {
        printf "%6.1f %%  %5d of %5d  %s\n", all ? 100 * run / all : 100, run, all, name
    }
    {
        folder = $1
        sub("/[^/]*$", "", folder)
        show($1, $2, $3)
        bad = bad || !$3 # no line of the folder is known
        run[folder] += $2
        all[folder] += $3
    }
    END {
        for (folder in all) {
            show(folder "/", run[folder], all[folder])
            bad = bad || !all[folder] || 100 * run[folder] < least * all[folder]
        }
        exit bad
    }' || status=1
[ "$status" = 0 ] || echo 'a test failed, or a folder has too few lines that were reached' >&2
exit "$status"
