# An installed copy: what is in it, and that programs can be built against it as README.md says.
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
    sed "s,^prefix=.*,prefix=$tmp/static,; s,$prefix/,$tmp/static/,g" "$prefix/lib/pkgconfig/dibs.pc" \
        >"$tmp/static/lib/pkgconfig/dibs.pc"
}

stages() {
    make_target install PREFIX=/usr DESTDIR="$tmp/stage"
    (cd "$tmp/stage/usr" && find . ! -type d ! -name '*.h' | sort) >"$tmp/staged"
    printf './lib/%s\n' libdibs.a libdibs.so "libdibs.so.${version%%.*}" "libdibs.so.$version" pkgconfig/dibs.pc |
        sort | diff - "$tmp/staged"
    cmp "$DIBS_TOP/include/dibs.h" "$tmp/stage/usr/include/dibs.h"
    ! grep -r "$tmp" "$tmp/stage/usr/lib/pkgconfig"
}

uninstalls() {
    make_target uninstall PREFIX=/usr DESTDIR="$tmp/stage"
    [ -z "$(find "$tmp/stage" ! -type d)" ]
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

write_program() {
    cat >"$tmp/version.c" <<'END'
#include <dibs.h>
#include <stdio.h>

int main(void)
{
    dibs_runtime *rt;

    if (dibs_open(&rt, NULL) == DIBS_OK)
        dibs_close(rt);
    puts(dibs_version());
    return 0;
}
END
}

shared() {
    write_program
    "$cc" "$tmp/version.c" -o "$tmp/shared" $(flags_of "$prefix" --cflags --libs)
    objdump -p "$tmp/shared" | grep "NEEDED *libdibs\.so\.${version%%.*}\$"
    [ "$(DIBS_URL=mem: LD_LIBRARY_PATH=$prefix/lib "$tmp/shared")" = "$version" ]
}

static() {
    write_program
    "$cc" "$tmp/version.c" -o "$tmp/static/version" $(flags_of "$tmp/static" --static --cflags --libs)
    [ "$(DIBS_URL=mem: "$tmp/static/version")" = "$version" ]
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

tap_plan 7
tap 'make install' installs
tap 'make install with DESTDIR' stages
tap 'make uninstall' uninstalls
tap 'pkg-config tells the version' knows_version
tap 'a program with the shared library' shared
tap 'a program with the static library' static
tap 'the program in README.md, built as it says' readme
tap_end
