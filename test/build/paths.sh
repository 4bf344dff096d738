# How much code a call runs through: distinct functions, the files that they stand in, and mutexes that are locked, each
# as the median of several calls, with a library that reports each function which it enters (-finstrument-functions).
# Functions of headers count once, in the header: addr2line of binutils 2.40 finds that by DWARF 4 alone, so that is what
# the library is built with. Macros and libc do not count. doc/ARCHITECTURE.md has the table; where a path has grown
# longer than that says, or much shorter, the table must be corrected.
# Needs: gcc
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/server.sh"

builds() {
    make -s -C "$DIBS_TOP" BUILD="$tmp/build" SANITIZE= CC=gcc CFLAGS='-O0 -gdwarf-4 -finstrument-functions' "$tmp/build/lib/libdibs.a"
    # shellcheck disable=SC2046
    gcc -std=c11 -O0 -no-pie -pthread -I"$DIBS_TOP/include" -o "$tmp/paths" "$DIBS_TOP/test/build/paths.c" \
        "$tmp/build/lib/libdibs.a" $(pkg-config --libs hiredis) $(pkg-config --libs hiredis_ssl openssl 2>/dev/null)
}

counts() {
    DIBS_URL=$server_url "$tmp/paths" >"$tmp/entered"
    python3 -B "$DIBS_TOP/test/build/paths.py" "$tmp/paths" "$tmp/entered" >"$tmp/table"
    [ "$(wc -l <"$tmp/table")" = 5 ]
}

# The check of the table can fail.
differs() {
    sed 's/| last unlock | [0-9]*/| last unlock | 1/' "$DIBS_TOP/doc/ARCHITECTURE.md" >"$tmp/other.md"
    if python3 -B "$DIBS_TOP/test/build/paths.py" --check "$tmp/table" "$tmp/other.md"; then return 1; fi
}

tap_plan 4
tap 'the library is built so that it reports its functions' builds
server_start || exit 1
tap 'the functions of each path are counted' counts
sed 's/^/# /' "$tmp/table"
tap 'the table in doc/ARCHITECTURE.md says so' python3 -B "$DIBS_TOP/test/build/paths.py" --check "$tmp/table" "$DIBS_TOP/doc/ARCHITECTURE.md"
tap 'a table that says otherwise is noticed' differs
tap_end
