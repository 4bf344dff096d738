# The manual pages: mandoc finds no fault with them, every exported function has a page of its name with the header's
# prototype, and each page leads to pages that are there.
# Needs: mandoc
# Builds: cli
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
cd "$DIBS_TOP" || exit 1
pages=$(echo doc/man/*.[1-8])

# That a manual of the system is not installed, or not in a database, is no fault of the page. What mandoc says on one
# stream may come in the middle of a line of the other.
lint() {
    mandoc -Tlint -W style "$@" >"$tmp/lint" 2>"$tmp/errors" || true
    cat "$tmp/lint" "$tmp/errors" | grep -vE 'referenced manual not found|mandoc.db' >"$tmp/faults" || true
    cat "$tmp/faults"
    [ ! -s "$tmp/faults" ]
}

finds_a_fault() {
    sed 's/^\.Sh DESCRIPTION/.Sh DESCRIPTION\n.Bl -tag/' doc/man/dibs.3 >"$tmp/dibs.3"
    ! lint "$tmp/dibs.3"
}

# The names that a page's section NAME has, one a line.
names_of() {
    sed -n 's/^\.Nm \([a-z_0-9]*\).*/\1/p; /^\.Nd/q' "$1"
}

functions() {
    sed -n 's/^DIBS_API[A-Z_]* [^(]*[ *]\(dibs_[a-z0-9_]*\)(.*/\1/p' include/*.h | sort
}

# The functions, each once, and nothing else but the library itself, are the names of the pages of section 3.
names_every_function() {
    for page in doc/man/*.3; do
        names_of "$page"
    done | grep -vx dibs | sort >"$tmp/named"
    functions | diff - "$tmp/named"
    for page in doc/man/*.3; do
        names_of "$page" | grep -qx "$(basename "$page" .3)"
    done
}

# Prototypes as "type name(parameter, parameter)", one a line, without needless blanks.
squeeze() {
    sed -e 's/[[:space:]][[:space:]]*/ /g' -e 's/ *\([(),;]\) */\1/g' -e 's/\* */*/g' -e 's/^ *//' -e 's/;$//' | sort
}

prototypes_of_the_headers() {
    cat include/*.h | awk '/^DIBS_API[A-Z_]* / { text = "" } { text = text " " $0 } /^DIBS_API[A-Z_]* /, /;/ { if (/;/) print text }' |
        sed -n 's/^.*DIBS_API[A-Z_]* //p' | squeeze
}

prototypes_of_the_pages() {
    awk -F '"' '/^\.Ft / { type = substr($0, 5) }
        /^\.Fn / && type != "" {
            split($0, word, " ")
            text = type " " word[2] "("
            if (word[3] == "void")
                text = text "void"
            for (i = 2; i <= NF; i += 2)
                text = text (i > 2 ? ", " : "") $i
            print text ")"
            type = ""
        }' doc/man/*.3 | squeeze
}

has_the_prototypes() {
    prototypes_of_the_headers >"$tmp/declared"
    [ "$(wc -l <"$tmp/declared")" = "$(functions | wc -l)" ]
    prototypes_of_the_pages | diff "$tmp/declared" -
}

leads_somewhere() {
    sed -n 's/^\.Xr \(dibs[a-z_]*\) \([1-8]\).*/\1.\2/p' $pages | sort -u | while read -r page; do
        [ -f "doc/man/$page" ] || echo "there is no page $page"
    done >"$tmp/lost"
    [ ! -s "$tmp/lost" ] || { cat "$tmp/lost" && false; }
}

# Every option that "dibs COMMAND --help" tells of is in dibs(1).
has_the_options() {
    for command in $("$DIBS_BUILD/dibs" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
        grep -q "^\.Ss dibs $command\$" doc/man/dibs.1 || echo "no section on $command"
        "$DIBS_BUILD/dibs" "$command" --help | sed -n 's/^  .*--\([a-z][a-z-]*\).*/\1/p'
    done >"$tmp/options"
    [ "$(grep -c . "$tmp/options")" -gt 20 ]
    ! grep ' ' "$tmp/options"
    sort -u "$tmp/options" | while read -r option; do
        grep -qE "Fl -$option( |\$)" doc/man/dibs.1 || echo "--$option is not in dibs.1"
    done >"$tmp/missing"
    [ ! -s "$tmp/missing" ] || { cat "$tmp/missing" && false; }
}

tap_plan 6
tap 'mandoc finds no fault with the pages' lint $pages
tap 'a fault is found' finds_a_fault
tap 'every function is the name of one page' names_every_function
tap 'the pages have the prototypes of the headers' has_the_prototypes
tap 'each page leads to pages that are there' leads_somewhere
tap 'the options of the command are in dibs(1)' has_the_options
tap_end
