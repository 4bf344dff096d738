# The build, in a copy of the sources: it does what is needed once, and writes where it should.
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
copy=$tmp/copy
copy_sources "$copy"

build() {
    make -C "$copy" BUILD=build SANITIZE= CFLAGS=-O0 "$@"
}

sums() {
    (cd "$copy" && find . -name build -prune -o -name lib -prune -o -type f -exec cksum {} + | sort)
}

builds_outside_the_sources() {
    sums >"$tmp/before"
    build
    sums >"$tmp/after"
    diff "$tmp/before" "$tmp/after"
}

nothing_twice() {
    build -q
    build | grep 'Nothing to be done'
}

# rebuilds FILE RESULT: after a change of FILE, make builds RESULT again, and a second make does nothing.
rebuilds() {
    touch "$copy/$1"
    if build -q; then return 1; fi
    build
    [ -n "$(find "$copy/$2" -newer "$copy/$1")" ]
    build -q
}

# A changed file of the library is compiled, and what needs the library is linked; nothing else is compiled.
links_again() {
    program=build/test/unit/heap_test
    build "$program"
    touch "$copy/src/base/heap.c"
    build "$program" >"$tmp/commands"
    [ "$(tr ' ' '\n' <"$tmp/commands" | grep -c '\.c$')" = 1 ]
    [ "$copy/$program" -nt "$copy/src/base/heap.c" ]
    build -q "$program"
}

any_script() {
    for script in "$copy"/src/redis/scripts/*.lua; do
        echo "src/redis/scripts/${script##*/}"
        return
    done
}

other_flags() {
    ! build -q CPPFLAGS=-DDIBS_SOME_FLAG
}

says_what_is_missing() {
    mkdir "$tmp/without"
    printf '#!/bin/sh\nexit 1\n' >"$tmp/without/pkg-config"
    chmod +x "$tmp/without/pkg-config"
    if build BUILD="$tmp/none" PKG_CONFIG="$tmp/without/pkg-config" >"$tmp/none.log" 2>&1; then return 1; fi
    grep 'sh demo/run' "$tmp/none.log"
}

cleans() {
    build clean
    [ ! -e "$copy/build" ] && [ ! -e "$copy/lib" ]
}

tap_plan 9
tap 'make writes nothing into the folders of the sources' builds_outside_the_sources
tap 'a second make does nothing' nothing_twice
tap 'a changed header rebuilds the library' rebuilds include/dibs.h lib/libdibs.a
tap 'a changed source file rebuilds the library' rebuilds src/base/clock.c lib/libdibs.a
tap 'a changed script rebuilds the library' rebuilds "$(any_script)" lib/libdibs.a
tap 'a test program is linked again without being compiled' links_again
tap 'other flags rebuild' other_flags
tap 'a missing hiredis is told in one sentence' says_what_is_missing
tap 'make clean removes what was built' cleans
tap_end
