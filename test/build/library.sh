# The library as compilers and linkers see it: no warnings, a header that stands alone, no symbol too many.
# Needs: gcc c++ clang nm sdt
# Builds: lib
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
header=$DIBS_TOP/include/dibs.h
lib=$DIBS_TOP/lib
major=$(awk '$2 == "DIBS_VERSION_MAJOR" { print $3 }' "$header")
pedantic="-Wall -Wextra -Wpedantic -Werror -I$DIBS_TOP/include"

builds_without_warnings() {
    make -C "$DIBS_TOP" CC="$1" BUILD="$tmp/$1" SANITIZE= CFLAGS='-O2 -Werror' lib
}

header_alone() {
    language=$1
    shift
    printf '#include <dibs_metrics.h>\n' >"$tmp/metrics.$language"
    "$@" $pedantic -fsyntax-only "$tmp/metrics.$language"
    printf '#include <dibs.h>\n' >"$tmp/alone.$language"
    "$@" $pedantic -fsyntax-only "$tmp/alone.$language"
}

includes_three_headers() {
    sed -n 's/^ *# *include *//p' "$header" | sort >"$tmp/includes"
    printf '<stdbool.h>\n<stddef.h>\n<stdint.h>\n' | diff - "$tmp/includes"
}

# The functions that the headers declare are all that the library exports.
public_functions() {
    sed -n 's/^DIBS_API[A-Z_]* [^(]*[ *]\(dibs_[a-z0-9_]*\)(.*/\1/p' "$DIBS_TOP"/include/*.h | sort
}

finds_every_function() {
    [ "$(public_functions | wc -l)" = "$(cat "$DIBS_TOP"/include/*.h | grep -c '^DIBS_API')" ]
}

exports_the_header() {
    public_functions >"$tmp/public"
    nm -D --defined-only "$lib/libdibs.so" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' | sort >"$tmp/exported"
    diff "$tmp/public" "$tmp/exported"
}

# Each with the symbol version, without which a program would run with a later library that means another thing.
has_symbol_versions() {
    nm -D --defined-only "$lib/libdibs.so" | awk '$2 != "A" { print $3 }' >"$tmp/versioned"
    [ -s "$tmp/versioned" ]
    ! grep -v "^dibs_[a-z0-9_]*@@DIBS_$major\$" "$tmp/versioned"
}

keeps_to_its_names() {
    nm -g --defined-only "$lib/libdibs.a" | awk 'NF == 3 { print $3 }' >"$tmp/global"
    [ -s "$tmp/global" ]
    ! grep -v -e '^dibs_' -e '^_\.stapsdt\.base$' "$tmp/global" # the second is weak, hidden, and every probe's
}

has_soname() {
    objdump -p "$lib/libdibs.so" | grep -q "SONAME *libdibs\.so\.$major\$"
}

# The probes of base/probe.h, each with a name and a number, where <sys/sdt.h> is installed; none, where they are left out.
has_its_probes() {
    sed -n 's/^ \*  *\([a-z_]*\)  *name, .*/\1/p' "$DIBS_TOP/src/base/probe.h" | sort >"$tmp/told"
    [ "$(wc -l <"$tmp/told")" = 7 ]
    readelf -n "$tmp/gcc/lib/libdibs.so" | awk '$1 == "Provider:" { dibs = $2 == "dibs" } $1 == "Name:" && dibs { print $2 }' |
        sort -u | diff "$tmp/told" -
    make -C "$DIBS_TOP" BUILD="$tmp/none" SANITIZE= CPPFLAGS=-DDIBS_WITHOUT_PROBES "$tmp/none/obj/src/core/core.o"
    ! readelf -n "$tmp/none/obj/src/core/core.o" | grep stapsdt
}

tap_plan 13
tap 'gcc: no warnings' builds_without_warnings gcc
tap 'clang: no warnings' builds_without_warnings clang
tap 'header alone: C11, gcc' header_alone c gcc -std=c11
tap 'header alone: C11, clang' header_alone c clang -std=c11
tap 'header alone: C++17, g++' header_alone cc g++ -std=c++17
tap 'header alone: C++17, clang' header_alone cc clang -std=c++17
tap 'header includes stdbool, stddef and stdint only' includes_three_headers
tap 'every DIBS_API in the headers is found' finds_every_function
tap 'libdibs.so exports the functions of the headers and nothing else' exports_the_header
tap 'each of them has the symbol version of the major number' has_symbol_versions
tap 'libdibs.a defines only names that begin with dibs_' keeps_to_its_names
tap 'libdibs.so has its SONAME from the version' has_soname
tap 'the probes are there, and can be left out' has_its_probes
tap_end
