# make mutants, for a source that one quick program tests: the tool that says what the tests notice says what is true. And
# make check, which finds the programs of a file.
# Needs: gcc
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"

# tries NUMBER PROGRAM: slips in src/base/heap.c, with that program alone. The tool fails where too few are noticed.
tries() {
    status=0
    python3 -B "$DIBS_TOP/test/mutants/mutants.py" --work "$tmp/mutants" --number "$1" --seed 1 --jobs 2 \
        --programs "$2" base/heap.c >"$tmp/said" 2>"$tmp/errors" || status=$?
    cat "$tmp/said" "$tmp/errors"
    [ "$status" -le 1 ] && [ ! -s "$tmp/errors" ]
}

# A slip that makes the program fail is noticed, and none for the reason that the tool can't link the program.
notices_slips() {
    tries 4 unit/heap_test
    grep -E '^[0-9]+ slips can be made; 4 drawn' "$tmp/said"
    grep -E '^ +[0-9]+ noticed by unit/heap_test: (failed|crashed|came to no end|lost memory)' "$tmp/said"
    if grep 'does not link' "$tmp/said"; then return 1; fi
    grep -E '^[1-4] of [1-4] noticed' "$tmp/said"
}

# A program that does not run the line of a slip says nothing of it.
knows_what_is_not_reached() {
    tries 2 unit/glob_test
    grep -E '^0 of 2 noticed.* not reached: 2,' "$tmp/said"
}

# Without them, such a test fails with or without a slip, and is left out.
has_what_tests_read() {
    cat "$DIBS_TOP"/test/integration/*.c | sed -n 's,.*"\(doc/[A-Za-z]*\.md\)".*,\1,p' | sort -u >"$tmp/read"
    [ -s "$tmp/read" ] || return
    while read -r name; do
        [ -f "$tmp/mutants/tree/$name" ] || return
    done <"$tmp/read"
}

needs_a_source() {
    if python3 -B "$DIBS_TOP/test/mutants/mutants.py" --work "$tmp/mutants" --number 1 --programs unit/glob_test no/such; then
        return 1
    fi
}

reach() {
    python3 -B "$DIBS_TOP/test/mutants/reach.py" --counts "$tmp/counts" "$@" >"$tmp/found" || return
    tr '\n' ' ' <"$tmp/found"
}

finds_the_programs_of_a_file() {
    [ "$(reach src/core/outage_budget.c)" = 'unit/outage_budget_queue_test unit/outage_budget_test ' ]
    [ "$(reach test/unit/turn_test.c)" = 'unit/turn_test ' ]
    [ "$(reach test/build/docs.sh)" = 'build/docs ' ]
    reach src/cli/text.c | grep 'cli/look '
    if reach no/such.c; then return 1; fi
}

# Of three programs that run lines of turn.c, two are enough for all lines, and the unit test is chosen anyway.
chooses_by_counted_lines() {
    cat >"$tmp/counts" <<'END'
{"unit/glob_test": {"key": "", "seconds": 0.1, "lines": {"src/core/turn.c": [1]}},
 "unit/url_test": {"key": "", "seconds": 0.1, "lines": {"src/base/heap.c": [1]}},
 "integration/queue_test": {"key": "", "seconds": 1, "lines": {"src/core/turn.c": [1, 2, 3]}},
 "integration/fair_test": {"key": "", "seconds": 1, "lines": {"src/core/turn.c": [2]}}}
END
    reach src/core/turn.c | grep '^integration/queue_test unit/cells_test unit/glob_test '
    reach --every src/core/turn.c | grep '^integration/fair_test integration/queue_test unit/cells_test unit/glob_test '
}

tap_plan 6
tap 'slips are noticed by the program that runs them' notices_slips
tap 'a slip that no program runs is not reached' knows_what_is_not_reached
tap 'the copy has the documents that tests read' has_what_tests_read
tap 'no slip at all is an error' needs_a_source
tap 'the programs of a file, by its name' finds_the_programs_of_a_file
tap 'the programs of a file, by the lines that they run' chooses_by_counted_lines
tap_end
