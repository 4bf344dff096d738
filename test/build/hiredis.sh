# A program that has a hiredis of another kind than the one that the library was built with, whose symbols have the same
# names: test/support/other_hiredis.h, which ends the program where the library uses it. DIBS_OTHER_HIREDIS=/opt/hiredis tries it
# with the hiredis that is installed there, if its first number is another one.
# Builds: lib cli
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/server.sh"
lib=$DIBS_TOP/lib
cc="${CC:-cc} -std=c11 -Wall -Wextra -Werror"
other=${DIBS_OTHER_HIREDIS:-}
other_inside=${other:+$other/lib/libhiredis.a}
other_inside=${other_inside:-$tmp/other.o}
hiredis_version=$(pkg-config --modversion hiredis)
hiredis_libs=$(pkg-config --libs $(! pkg-config --exists hiredis_ssl || echo hiredis_ssl libssl libcrypto) hiredis)

cat >"$tmp/app.c" <<'END_OF_C'
#include <dibs.h>
#include <stdio.h>

void *redisReaderCreate(void);
void redisReaderFree(void *reader);

int main(void)
{
    dibs_runtime *rt;

    redisReaderFree(redisReaderCreate()); /* the program's own use of its hiredis */
    dibs_status status = dibs_open(&rt, NULL);
    if (status == DIBS_OK)
        status = dibs_lock(rt, "a");
    if (status == DIBS_OK)
        status = dibs_unlock(rt, "a");
    printf("%s %s\n", dibs_status_name(status), dibs_last_error());
    dibs_close(rt);
    return 0;
}
END_OF_C

compiles() {
    if [ -n "$other" ]; then
        ln -s "$other/lib/libhiredis.so" "$tmp/libother.so"
    else
        $cc $(pkg-config --cflags hiredis) -D_GNU_SOURCE -fPIC -x c -c -o "$tmp/other.o" "$DIBS_TOP/test/support/other_hiredis.h"
        $cc -shared -Wl,-soname,libother.so -o "$tmp/libother.so" "$tmp/other.o"
    fi
    $cc "-I$DIBS_TOP/include" -c -o "$tmp/app.o" "$tmp/app.c"
    # As where no static hiredis is installed: a shared library that needs the shared one.
    mkdir -p "$tmp/needs"
    $cc -shared -Wl,-soname,libdibs.so.0 -Wl,-z,nodelete "-Wl,--version-script=$DIBS_TOP/src/package/dibs.map" -pthread \
        -o "$tmp/needs/libdibs.so.0" -Wl,--whole-archive "$lib/libdibs.a" -Wl,--no-whole-archive $hiredis_libs
    ln -s libdibs.so.0 "$tmp/needs/libdibs.so"
}

# program FOLDER-OF-LIBDIBS WORD...: links and runs the program, and leaves what it says in `said`.
program() {
    folder=$1
    shift
    $cc -pthread -o "$tmp/app" "$tmp/app.o" "$@"
    DIBS_URL=$server_url LD_LIBRARY_PATH=$folder:$tmp${other:+:$other/lib} "$tmp/app" >"$tmp/said"
    cat "$tmp/said"
}

works() {
    program "$@"
    grep -x 'DIBS_OK ' "$tmp/said"
}

is_refused() {
    program "$@"
    grep -F "DIBS_INVALID the program has another hiredis than $hiredis_version, " "$tmp/said"
}

sees_its_own_alone() {
    if objdump -p "$lib/libdibs.so" | grep 'NEEDED *libhiredis'; then return 1; fi
    if nm -D "$lib/libdibs.so" | grep -i -e redis -e freeReplyObject; then return 1; fi
}

# Also where hiredis is in a folder in which the system does not look for libraries.
command_needs_none() {
    if objdump -p "$DIBS_BUILD/dibs" | grep 'NEEDED *libhiredis'; then return 1; fi
}

# Of what would be run: the libraries with which the shared library is linked.
links() {
    make -n -C "$DIBS_TOP" BUILD="$tmp/none" SANITIZE= "$@" lib | sed -n 's,.* -o [^ ]*/libdibs\.so.* [^ ]*scripts_lua\.o,,p'
}

can_need_the_shared_one() {
    links >"$tmp/inside"
    links HIREDIS_LINK=shared >"$tmp/needed"
    cat "$tmp/inside" "$tmp/needed"
    grep -q 'libhiredis\.a' "$tmp/inside"
    grep -q -e '-lhiredis' "$tmp/needed"
    if grep 'libhiredis\.a' "$tmp/needed"; then return 1; fi
}

tap_plan 9
server_start || exit 1
tap 'the program and the stand-in compile' compiles
tap 'libdibs.so has a hiredis inside that no other code sees' sees_its_own_alone
tap 'the command has a hiredis inside, too' command_needs_none
tap 'libdibs.so needs the shared hiredis where that is wanted' can_need_the_shared_one
tap 'a program with another hiredis inside, and libdibs.so' works "$lib" "$other_inside" "-L$lib" -ldibs
tap 'a program with another shared hiredis, and libdibs.so' works "$lib" "-L$tmp" -lother "-L$lib" -ldibs
tap 'a program with another hiredis inside, and libdibs.a: refused' is_refused "$lib" "$other_inside" "$lib/libdibs.a" $hiredis_libs
tap 'a program with another shared hiredis, and libdibs.a: refused' is_refused "$lib" "$lib/libdibs.a" "-L$tmp" -lother $hiredis_libs
tap 'a libdibs.so without a hiredis inside: refused' is_refused "$tmp/needs" "$other_inside" "-L$tmp/needs" -ldibs
tap_end
