# An installed copy: what is in it, and that programs outside can be built against it: in C and C++, with the shared and
# the static library, as pkg-config, CMake and README.md say.
# Needs: gcc c++ cmake
# Builds: lib cli
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
version=$(awk '/define DIBS_VERSION_M/ || /define DIBS_VERSION_P/ { printf "%s%s", dot, $3; dot = "." }' \
    "$DIBS_TOP/include/dibs.h")
prefix=$tmp/prefix
cc=${CC:-cc}

make_target() {
    make -C "$DIBS_TOP" BUILD=build SANITIZE= "$@"
}

installs() {
    make_target install PREFIX="$prefix"
    cp -R "$prefix" "$tmp/static"
    rm "$tmp"/static/lib/libdibs.so*
    sed "s,^prefix=.*,prefix=$tmp/static," "$prefix/lib/pkgconfig/dibs.pc" >"$tmp/static/lib/pkgconfig/dibs.pc"
    ! grep -q "$prefix/" "$tmp/static/lib/pkgconfig/dibs.pc" # all folders stand below the prefix
}

# Each file that a copy has on top of "dibs.h", at the place for it.
expected() {
    (cd "$DIBS_TOP/include" && printf './include/%s\n' *.h* | grep -v '\*')
    printf './lib/%s\n' libdibs.a libdibs.so "libdibs.so.${version%%.*}" "libdibs.so.$version" pkgconfig/dibs.pc \
        cmake/dibs/dibs-config.cmake cmake/dibs/dibs-config-version.cmake
    echo ./bin/dibs
    echo ./lib/systemd/system/dibs-hold@.service
    (cd "$DIBS_TOP/doc" && printf './share/doc/dibs/%s\n' SERVICES.md systemd/*.service)
    for page in "$DIBS_TOP"/doc/man/*.[1-8]; do
        [ ! -f "$page" ] || echo "./share/man/man${page##*.}/${page##*/}"
        sed -n '/^\.Nd/q; s/^\.Nm \([a-z_0-9]*\).*/\1/p' "$page" | grep -vx "$(basename "${page%.*}")" |
            sed "s,.*,./share/man/man${page##*.}/&.${page##*.},"
    done
    for pair in dibs.bash:bash-completion/completions/dibs _dibs:zsh/site-functions/_dibs \
        dibs.fish:fish/vendor_completions.d/dibs.fish; do
        [ ! -f "$DIBS_TOP/src/cli/completion/${pair%%:*}" ] || echo "./share/${pair#*:}"
    done
}

stages() {
    make_target install PREFIX=/usr DESTDIR="$tmp/stage"
    (cd "$tmp/stage/usr" && find . ! -type d | LC_ALL=C sort) >"$tmp/staged"
    expected | LC_ALL=C sort | diff - "$tmp/staged"
    cmp "$DIBS_TOP/include/dibs.h" "$tmp/stage/usr/include/dibs.h"
    ! grep -r "$tmp" "$tmp/stage/usr/lib/pkgconfig" "$tmp/stage/usr/lib/cmake"
}

runs_the_command() {
    [ "$("$prefix/bin/dibs" --version)" = "dibs $version" ]
}

stages_with_blanks() {
    make_target install PREFIX=/usr DESTDIR="$tmp/a  stage's"
    (cd "$tmp/a  stage's/usr" && find . ! -type d | LC_ALL=C sort) | diff "$tmp/staged" -
    make_target uninstall PREFIX=/usr DESTDIR="$tmp/a  stage's"
    [ -z "$(find "$tmp/a  stage's" ! -type d)" ]
}

# Everybody may read what is installed, also where root's umask is strict, and a file of an earlier copy was private.
stages_for_everybody() {
    mkdir -p "$tmp/all/usr/lib/pkgconfig"
    (umask 077 && : >"$tmp/all/usr/lib/pkgconfig/dibs.pc" && make_target install PREFIX=/usr DESTDIR="$tmp/all")
    [ -z "$(find "$tmp/all/usr" ! -type l ! -perm -444)" ]
    [ -z "$(find "$tmp/all/usr" -type d ! -perm -555)" ]
}

# Nothing is made, neither there nor in the folder of the sources.
refuses_blanks() {
    if make -C "$DIBS_TOP" SANITIZE= lib BUILD="$tmp/two words" >"$tmp/said" 2>&1; then return 1; fi
    grep 'BUILD must not contain blanks' "$tmp/said"
    for target in install uninstall; do
        if make_target $target PREFIX="$tmp/two words" >"$tmp/said" 2>&1; then return 1; fi
        grep 'PREFIX must not contain blanks' "$tmp/said"
    done
    [ ! -e "$tmp/two" ]
    [ ! -e "$DIBS_TOP/words" ]
}

# The folder of the sources may have blanks and quotes in its name: what is run there is whole.
sources_with_blanks() {
    copy="$tmp/the sources'"
    mkdir "$copy"
    (cd "$DIBS_TOP" && tar -cf - Makefile include doc src test/sim/sim.mk) | tar -C "$copy" -xf -
    for target in deb bench; do
        make -n -C "$copy" --no-print-directory BUILD=build SANITIZE= -o benches $target >"$tmp/said"
        grep "the sources'" "$tmp/said"
        sh -n "$tmp/said"
    done
}

# They name the command where it was installed, and are whole otherwise.
has_units() {
    for unit in lib/systemd/system/dibs-hold@.service share/doc/dibs/systemd/report.service; do
        grep "^ExecStart=$prefix/bin/dibs " "$prefix/$unit"
        sed "s,$prefix/bin,/usr/bin," "$prefix/$unit" | diff "$DIBS_TOP/doc/systemd/${unit##*/}" -
    done
    diff "$DIBS_TOP/doc/SERVICES.md" "$prefix/share/doc/dibs/SERVICES.md"
}

# What stood there before, such as a folder of man pages with those of others, stays.
uninstalls() {
    mkdir -p "$tmp/stage/usr/lib/pkgconfig" "$tmp/stage/usr/bin"
    touch "$tmp/stage/usr/lib/pkgconfig/other.pc" "$tmp/stage/usr/bin/other"
    make_target uninstall PREFIX=/usr DESTDIR="$tmp/stage"
    [ "$(cd "$tmp/stage/usr" && find . ! -type d | LC_ALL=C sort | tr '\n' ' ')" = './bin/other ./lib/pkgconfig/other.pc ' ]
    [ ! -e "$tmp/stage/usr/lib/cmake/dibs" ]
    [ ! -e "$tmp/stage/usr/share/doc/dibs" ]
}

elsewhere() {
    make_target install PREFIX=/usr LIBDIR=/usr/lib/some-arch BINDIR=/usr/games MANDIR=/usr/man DESTDIR="$tmp/else"
    [ -x "$tmp/else/usr/games/dibs" ]
    [ -f "$tmp/else/usr/lib/some-arch/cmake/dibs/dibs-config.cmake" ]
    [ ! -e "$tmp/else/usr/bin" ]
    [ ! -e "$tmp/else/usr/share/man" ]
    make_target uninstall PREFIX=/usr LIBDIR=/usr/lib/some-arch BINDIR=/usr/games MANDIR=/usr/man DESTDIR="$tmp/else"
    [ -z "$(find "$tmp/else" ! -type d)" ]
}

flags_of() {
    PKG_CONFIG_PATH=$1/lib/pkgconfig
    export PKG_CONFIG_PATH
    shift
    pkg-config "$@" dibs
}

knows_version() {
    [ "$(flags_of "$prefix" --modversion)" = "$version" ]
}

# A program that is built with the shared library needs no hiredis, nor its headers.
names_no_hiredis() {
    flags_of "$prefix" --cflags >"$tmp/flags"
    [ "$(tr -d ' \n' <"$tmp/flags")" = "-I$prefix/include" ]
    flags_of "$prefix" --libs >"$tmp/flags"
    if grep hiredis "$tmp/flags"; then return 1; fi
    flags_of "$prefix" --static --libs | grep -e -lhiredis
    [ "$(flags_of "$prefix" --variable=hiredis)" = "$(pkg-config --modversion hiredis)" ]
}

# A program that is C as well as C++.
write_program() {
    cat >"$tmp/version.$1" <<'END'
#include <dibs.h>
#include <stdio.h>

int main(void)
{
    dibs_runtime *rt;

    if (dibs_open(&rt, NULL) != DIBS_OK)
        return 1;
    dibs_close(rt);
    puts(dibs_version());
    return 0;
}
END
}

needs_shared() {
    objdump -p "$1" | grep "NEEDED *libdibs\.so\.${version%%.*}\$"
}

# runs PROGRAM: on a store in memory, it prints the version.
runs() {
    [ "$(DIBS_URL=mem: LD_LIBRARY_PATH=$prefix/lib "$1")" = "$version" ]
}

# shared SUFFIX COMPILER FLAG...
shared() {
    suffix=$1
    shift
    write_program "$suffix"
    "$@" "$tmp/version.$suffix" -o "$tmp/shared" $(flags_of "$prefix" --cflags --libs)
    needs_shared "$tmp/shared"
    runs "$tmp/shared"
}

# static SUFFIX COMPILER FLAG...
static() {
    suffix=$1
    shift
    write_program "$suffix"
    "$@" "$tmp/version.$suffix" -o "$tmp/static/version" $(flags_of "$tmp/static" --static --cflags --libs)
    if needs_shared "$tmp/static/version"; then return 1; fi
    runs "$tmp/static/version"
}

# cmake_project FOLDER LANGUAGE PACKAGE TARGET: a project with one program of the CMake package in that prefix.
cmake_project() {
    suffix=c
    [ "$2" = C ] || suffix=cc
    write_program "$suffix"
    mkdir -p "$1"
    mv "$tmp/version.$suffix" "$1/"
    cat >"$1/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.10)
project(outside $2)
find_package($3)
add_executable(outside version.$suffix)
target_link_libraries(outside $4)
END
}

# cmake_builds FOLDER PREFIX
cmake_builds() {
    cmake -S "$1" -B "$1/build" -DCMAKE_PREFIX_PATH="$2" -DCMAKE_FIND_USE_SYSTEM_PACKAGE_REGISTRY=OFF
    cmake --build "$1/build"
    runs "$1/build/outside"
}

cmake_shared() {
    cmake_project "$tmp/cs" "$1" "dibs ${version%.*} REQUIRED" dibs::dibs
    cmake_builds "$tmp/cs" "$prefix"
    needs_shared "$tmp/cs/build/outside"
    rm -rf "$tmp/cs"
}

# In a prefix that was moved, and with both libraries installed.
cmake_static() {
    mv "$prefix" "$tmp/moved"
    cmake_project "$tmp/ct" "$1" "$2" "$3"
    cmake_builds "$tmp/ct" "$tmp/moved"
    mv "$tmp/moved" "$prefix"
    if needs_shared "$tmp/ct/build/outside"; then return 1; fi
    rm -rf "$tmp/ct"
}

cmake_only_static() {
    cmake_project "$tmp/co" C 'dibs REQUIRED' dibs::dibs
    cmake_builds "$tmp/co" "$tmp/static"
    rm -rf "$tmp/co"
}

cmake_refuses() {
    cmake_project "$tmp/cr" C "dibs $1" dibs::dibs
    if cmake -S "$tmp/cr" -B "$tmp/cr/build" -DCMAKE_PREFIX_PATH="${2-$prefix}"; then return 1; fi
    rm -rf "$tmp/cr"
}

# Neither the next major version, nor a later one than this; nor a component that is not there.
cmake_refuses_others() {
    cmake_refuses "$((${version%%.*} + 1)) REQUIRED"
    cmake_refuses "${version%%.*}.999 REQUIRED"
    cmake_refuses 'REQUIRED COMPONENTS shared' "$tmp/static"
    cmake_refuses 'REQUIRED COMPONENTS nonsense'
}

# The first block of C in README.md that is a whole program.
readme_program() {
    awk '/^```c$/ { inside = 1; text = ""; next }
         /^```$/ && inside { inside = 0; if (text ~ /int main\(/) { printf "%s", text; exit } }
         inside { text = text $0 "\n" }' "$DIBS_TOP/README.md"
}

readme() {
    readme_program >"$tmp/app.c"
    [ -s "$tmp/app.c" ] || { echo 'no C program in README.md' && false; }
    line=$(sed -n 's/^\$* *\(cc app\.c -o app .*\)$/\1/p' "$DIBS_TOP/README.md" | head -n 1)
    [ -n "$line" ] || { echo 'no line that begins with "cc app.c -o app" in README.md' && false; }
    cd "$tmp"
    PKG_CONFIG_PATH=$prefix/lib/pkgconfig sh -ec "$line"
    [ -x app ]
}

tap_plan 25
tap 'make install' installs
tap 'make install with DESTDIR' stages
tap 'with a DESTDIR that has blanks' stages_with_blanks
tap 'with a strict umask' stages_for_everybody
tap 'a PREFIX or BUILD with blanks is refused' refuses_blanks
tap 'sources in a folder with blanks' sources_with_blanks
tap 'make uninstall' uninstalls
tap 'BINDIR, LIBDIR and MANDIR' elsewhere
tap 'the installed command' runs_the_command
tap 'units of systemd with the path of the installed command' has_units
tap 'pkg-config tells the version' knows_version
tap 'pkg-config names hiredis for the static library alone' names_no_hiredis
tap 'gcc, pkg-config: the shared library' shared c gcc
tap 'gcc, pkg-config: the static library' static c gcc
tap 'g++, pkg-config: the shared library' shared cc g++
tap 'g++, pkg-config: the static library' static cc g++
tap 'cc, pkg-config: the shared library' shared c $cc
tap 'gcc, CMake: the shared library' cmake_shared C
tap 'g++, CMake: the shared library' cmake_shared CXX
tap 'gcc, CMake: the static component, in a prefix that was moved' cmake_static C 'dibs REQUIRED COMPONENTS static' dibs::dibs
tap 'g++, CMake: the static component, in a prefix that was moved' cmake_static CXX 'dibs REQUIRED COMPONENTS static' dibs::dibs
tap 'CMake: both libraries, each by its name' cmake_static C 'dibs REQUIRED COMPONENTS shared static' dibs::static
tap 'CMake: a version or a component that is not there is refused' cmake_refuses_others
tap 'CMake: without the shared library, dibs::dibs is the static one' cmake_only_static
tap 'the program in README.md, built as it says' readme
tap_end
