# What the documents name is there: files, functions, tests and other names of the sources, and the numbers of the rules
# and invariants that the sources refer to.
#
# In the documents, what stands between backticks is one of
#   src/core/lease.c, core/lease.c      a file or folder, from the top or from src; may hold a *
#   core/lease.c:dibs__lease_lose()     a function, and the file that defines it
#   dibs_lock()                         a function
#   some_name, struct x, enum x         a word of the sources; every word with a _ is expected to be one
# or anything else, which is not looked at.
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
cd "$DIBS_TOP" || exit 1
documents="README.md doc/*.md"

# The spans between backticks, outside of blocks of code. No span goes over the end of a line.
spans() {
    awk '/^```/ { inside = !inside; next }
         !inside { n = split($0, part, "`"); for (i = 2; i <= n; i += 2) print part[i] }' "$@" | sort -u
}

sources() {
    find src include test bench demo Makefile -type f ! -name docs.sh ! -path '*/corpus/*' ! -name '*.patch'
}

sources | tr '\n' '\0' | xargs -0 grep -ohE '[A-Za-z_][A-Za-z0-9_]*' | sort -u >"$tmp/words"

is_file() {
    for at in $1 src/$1; do
        [ -e "$at" ] && return
    done
    false
}

defines() {
    grep -qE "^([a-z].*[ *]|local function )$2\(([^;]*|.*\{)\$" "$1"
}

is_function() {
    file=${1%%:*}
    name=${1##*:}
    name=${name%??}
    if [ "$file" = "$1" ]; then
        grep -qE "^[a-z].*[ *]$name\(|^local function $name\(" -r src include
    else
        is_file "$file" && if [ -e "src/$file" ]; then defines "src/$file" "$name"; else defines "$file" "$name"; fi
    fi
}

# Prints those of the spans on standard input that are not there.
missing() {
    while read -r span; do
        case $span in
        *[!A-Za-z0-9_\ ./:*\(\)-]* | '' | -* | *.) continue ;;
        *' '*'('* | *:) continue ;;
        *'()') is_function "$span" ;;
        'struct '* | 'enum '*) grep -qxF "${span#* }" "$tmp/words" ;;
        *' '* | *:* | *'('* | /*) continue ;;
        */* | *.[ch] | *.lua | *.sh | *.py | *.pml | *.md | *.awk) is_file "$span" ;;
        *.* | *-* | *'*'*) continue ;;
        *_*) grep -qxF "$span" "$tmp/words" ;;
        *) continue ;;
        esac || echo "$span"
    done
}

names_what_is_there() {
    spans $documents | missing >"$tmp/missing"
    [ ! -s "$tmp/missing" ] || { echo "named, and not there:" && cat "$tmp/missing" && false; }
}

links_lead_somewhere() {
    for document in $documents; do
        awk '/^```/ { inside = !inside; next } !inside' "$document" | grep -oE '\]\([^)#:]+\)' | sed 's/^](//; s/)$//' | while read -r link; do
            [ -e "$(dirname "$document")/$link" ] || echo "$document: $link"
        done
    done >"$tmp/broken"
    [ ! -s "$tmp/broken" ] || { cat "$tmp/broken" && false; }
}

# Prints the numbers in "rules 20 and 21" or "invariant 2", one a line.
numbers() {
    grep -rohiwE "$1s? [0-9]+((,| and| to| or) [0-9]+)*" src test include doc README.md | grep -oE '[0-9]+' | sort -nu
}

rules() {
    sed -n 's/^| \([0-9][0-9]*\) |.*/\1/p' doc/PROTOCOL.md | sort -n
}

invariants() {
    awk '/^## /{ here = $2 == "Invariants" } here && /^[0-9]+\. / { print $1 + 0 }' doc/ARCHITECTURE.md
}

# The numbers on standard input are among those that the command prints.
are_all_among() {
    "$@" >"$tmp/known"
    while read -r number; do
        grep -qx "$number" "$tmp/known" || echo "there is no number $number"
    done >"$tmp/unknown"
    [ ! -s "$tmp/unknown" ] || { cat "$tmp/unknown" && false; }
}

rules_are_written_down() {
    numbers rule | are_all_among rules
}

invariants_are_written_down() {
    numbers invariant | are_all_among invariants
}

rules_are_numbered_without_a_gap() {
    rules | awk '$1 != NR { print "rule " NR " is missing"; bad = 1 } END { exit bad || NR == 0 }'
}

# Each rule tells of an accident and names a test that shows it, unless the rule is not built yet.
rules_have_a_test() {
    find test -name '*.c' -exec sed -n -e 's/^static void \([a-z0-9_]*\)(struct world \*w)$/\1/p' \
        -e 's/^TEST[A-Z_]*(\([a-z0-9_]*\).*$/\1/p' {} + | sort -u >"$tmp/tests"
    grep '^| [0-9]* |' doc/PROTOCOL.md | grep -v 'Not built' | while IFS='|' read -r _ number _ accident shown _; do
        [ "$(echo "$accident" | wc -c)" -gt 10 ] || echo "rule$number tells of no accident"
        echo "$shown" | awk -F '`' '{ for (i = 2; i < NF; i += 2) if ($i ~ /^[a-z0-9_]+$/) print $i }' | sort -u >"$tmp/shown"
        [ -n "$(comm -12 "$tmp/shown" "$tmp/tests")" ] || echo "rule$number names no test"
        comm -23 "$tmp/shown" "$tmp/tests" | sed "s/\$/ is no test, says rule$number/"
    done >"$tmp/untested"
    [ ! -s "$tmp/untested" ] || { cat "$tmp/untested" && false; }
}

# The rules of ACCOUNTS.md allow all that the scripts call.
scripts_need_no_other_right() {
    grep -ohE "call\('[A-Z]+'(, '[A-Z]*NUMSUB')?" src/redis/scripts/*.lua | tr -d "(' " | sed 's/^call//; s/,/|/' | tr A-Z a-z | sort -u >"$tmp/called"
    [ "$(wc -l <"$tmp/called")" -gt 15 ] || return 1
    while read -r right; do
        grep -qF " +$right" doc/ACCOUNTS.md || echo "no rule has +$right"
    done <"$tmp/called" >"$tmp/no_right"
    [ ! -s "$tmp/no_right" ] || { cat "$tmp/no_right" && false; }
}

sources_are_on_the_map() {
    for source in $(find src -name '*.c'); do
        grep -qF "\`${source#src/}\`" doc/ARCHITECTURE.md || echo "$source is not on the map"
    done >"$tmp/unmapped"
    [ ! -s "$tmp/unmapped" ] || { cat "$tmp/unmapped" && false; }
}

# The sources without a unit test of their name, and what CONTRIBUTING.md names as such: each belongs to the other.
untested_sources_are_named() {
    sed -n '/^| sources | why/,/^$/p' doc/CONTRIBUTING.md | cut -d '|' -f 2 | grep -oE '`[^`]+`' | tr -d '`' >"$tmp/patterns"
    for source in $(cd src && find api base core redis store -name '*.c'); do
        name=$(basename "$source" .c)
        for at in "test/unit/${name}_test.c" "test/unit/${name}_"*_test.c; do [ -e "$at" ] && continue 2; done
        found=
        while read -r pattern; do
            # shellcheck disable=SC2254
            case $source in $pattern) found=$pattern && echo "$pattern" ;; esac
        done <"$tmp/patterns" >>"$tmp/used"
        [ -n "$found" ] || echo "$source has no unit test, and CONTRIBUTING.md does not say why"
    done >"$tmp/untold"
    sort -u "$tmp/used" | sort - "$tmp/patterns" | uniq -u | sed 's/$/ in CONTRIBUTING.md names no source without a test/' >>"$tmp/untold"
    [ ! -s "$tmp/untold" ] || { cat "$tmp/untold" && false; }
}

mutexes_are_in_the_lock_order() {
    grep -rhoE '^DIBS__MUTEX_CLASS\([a-z_]+' src --include='*.[ch]' | sed 's/.*(//' | sort >"$tmp/mutexes"
    sed -n 's/^| `\([a-z_]*_mutex\)` |.*/\1/p' doc/ARCHITECTURE.md | sort | diff "$tmp/mutexes" -
}

# What the first line names is not there, and is found missing; what the second names is there, or not looked at.
notices_what_is_not_there() {
    cat >"$tmp/false.md" <<'END'
A `src/core/gone.c`, `core/lease.c:no_such_function()`, `no_such_function()`, `struct no_such`, `no_such_test_anywhere`.
A `src/core`, `core/lease.h`, `dibs_lock()`, `DIBS_LOST`, `make bugs`, `{0, ...}`, `SET K token`, `lock:`, `-1`.
END
    spans "$tmp/false.md" | missing | sort >"$tmp/found"
    printf '%s\n' 'core/lease.c:no_such_function()' 'no_such_function()' no_such_test_anywhere src/core/gone.c \
        'struct no_such' | sort | diff - "$tmp/found"
    ! echo 999 | are_all_among rules >/dev/null
}

# README.md is what somebody reads who wants to know whether to go on; the rest has a place elsewhere.
readme_is_short() {
    [ "$(wc -l <README.md)" -le 150 ]
}

tap_plan 12
tap 'what the documents name is there' names_what_is_there
tap 'links between the documents lead somewhere' links_lead_somewhere
tap 'README.md has 150 lines at most' readme_is_short
tap 'every rule that is referred to is in PROTOCOL.md' rules_are_written_down
tap 'every invariant that is referred to is in ARCHITECTURE.md' invariants_are_written_down
tap 'the rules are numbered without a gap' rules_are_numbered_without_a_gap
tap 'every rule has an accident and a test' rules_have_a_test
tap 'the rules for accounts allow all that the scripts call' scripts_need_no_other_right
tap 'every source file is on the map of ARCHITECTURE.md' sources_are_on_the_map
tap 'a source without a unit test of its name is named as such' untested_sources_are_named
tap 'every mutex class is in the lock order' mutexes_are_in_the_lock_order
tap 'a name that is not there is noticed' notices_what_is_not_there
tap_end
