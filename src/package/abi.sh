# The binary interface that the public headers promise, held against that of the last release, by abidiff.
#
#   sh src/package/abi.sh write INCLUDE            prints the interface of the headers in that folder, for abidiff
#   sh src/package/abi.sh check INCLUDE BASELINE   prints what changed since BASELINE; fails if a program that was built
#                                                  with the headers of then would not run with a library of now
#
# A program goes on running where functions, constants, or fields in place of reserved words were added. The interface is
# read from a library of functions that do nothing, made of the headers: so it is small, and does not depend on what is
# inside the real one. The baseline is of machines with 64 bits.
set -eu

mode=$1
include=$2
package=$(cd "$(dirname "$0")" && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# A definition of each function that the headers declare.
definitions() {
    awk '/^DIBS_API/ { text = ""; inside = 1 }
         inside { text = text " " $0 }
         inside && /;$/ { sub(/;$/, "", text); print text " { __builtin_trap(); }"; inside = 0 }' "$include"/*.h
}

# Without the headers of the C library: the types in there are not ours.
hollow_library() {
    mkdir "$work/system"
    echo 'typedef struct FILE FILE;' >"$work/system/stdio.h"
    {
        for header in "$include"/*.h; do
            echo "#include <${header##*/}>"
        done
        definitions
    } >"$work/hollow.c"
    major=$(awk '$2 == "DIBS_VERSION_MAJOR" { print $3 }' "$include/dibs.h")
    ${CC:-cc} -std=c11 -g -O0 -ffreestanding -fPIC -shared -I"$work/system" -I"$include" -Wl,-soname,"libdibs.so.$major" \
        -Wl,--version-script="$package/dibs.map" -nostdlib -o "$work/hollow.so" "$work/hollow.c"
}

# Fails where the report of abidiff has a line that tells of anything else than an addition.
only_additions() {
    awk '
        /^$|summary: / { next }
        /^ *type size hasn.t changed$|^ *there are data member changes:$/ { next }
        /^.(struct|enum|typedef) .* changed:$/ { next }
        /^ *[0-9]+ (Added functions?|data member insertions?|enumerator insertions?):$/ { next }
        /^ *\[A\] / { next }
        /^ *.[^:]*., at offset [0-9]+ \(in bits\)$/ { next }
        /^ *.[a-z_]*::DIBS_[A-Z_]*. value .[0-9]+.$/ { next }
        /^ *type .uint64_t\[[0-9]+\]. of .[a-z_]*::reserved. changed:$/ { reserved = 4; next }
        reserved-- > 0 && /^ *(type name changed from|array type size changed from|array type subrange 1 changed length|and offset changed from .*by \+)/ { next }
        { bad = 1 }
        END { exit bad }' "$1"
}

hollow_library
case $mode in
write)
    abidw --no-architecture --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --no-parameter-names \
        --type-id-style hash "$work/hollow.so" | sed "s,path='[^']*',path='headers',"
    ;;
check)
    status=0
    abidiff --leaf-changes-only --no-show-locs --no-architecture "$3" "$work/hollow.so" >"$work/report" || status=$?
    cat "$work/report"
    case $status in
    0) ;;
    4) only_additions "$work/report" ;; # a change that may break a program, or not
    *) exit 1 ;;
    esac
    ;;
esac
