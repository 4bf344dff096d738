# make dist: a tarball of the sources that is the same each time, and that builds and passes its unit tests on its own:
# with the 32 bits of i386, in a root folder that has nothing else of ours, where there is that; else on this system.
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/root.sh"
version=$(awk '/define DIBS_VERSION_M/ || /define DIBS_VERSION_P/ { printf "%s%s", dot, $3; dot = "." }' \
    "$DIBS_TOP/include/dibs.h")
name=dibs-$version
jobs=$(nproc 2>/dev/null || echo 2)

# In copies whose files have other times, without git. What was made in one of them does not count.
is_the_same_each_time() {
    for copy in one other; do
        mkdir "$tmp/$copy"
        tar -C "$DIBS_TOP" --exclude=./.git --exclude=./build --exclude=./lib --exclude=./bench/out --exclude=./demo/gallery.html -cf - . | tar -C "$tmp/$copy" -xmf -
        [ "$copy" = one ] || echo made >"$tmp/$copy/demo/gallery.html"
        SOURCE_DATE_EPOCH=1700000000 sh "$tmp/$copy/src/package/dist.sh" "$version" "$tmp/$copy/build"
        sleep 1
    done
    cmp "$tmp/one/build/$name.tar.gz" "$tmp/other/build/$name.tar.gz"
}

unpacks() {
    make -C "$DIBS_TOP" BUILD="$tmp/dist" dist
    tar -C "$tmp" -xzf "$tmp/dist/$name.tar.gz"
    for file in Makefile README.md LICENSE CHANGELOG.md include/dibs.h test/run; do
        [ -s "$tmp/$name/$file" ]
    done
    [ ! -e "$tmp/$name/build" ] && [ ! -e "$tmp/$name/lib" ] && [ ! -e "$tmp/$name/.git" ]
}

# From a tree without git comes what came from git.
holds_what_the_repository_has() {
    tar -tzf "$tmp/dist/$name.tar.gz" | grep -v '/$' | LC_ALL=C sort >"$tmp/listed"
    if git -C "$DIBS_TOP" ls-tree -r --name-only HEAD >"$tmp/tracked" 2>/dev/null; then
        sed "s,^,$name/," "$tmp/tracked" | LC_ALL=C sort | diff - "$tmp/listed"
    fi
    sh "$tmp/$name/src/package/dist.sh" "$version" "$tmp/again"
    tar -tzf "$tmp/again/$name.tar.gz" | grep -v '/$' | LC_ALL=C sort | diff "$tmp/listed" -
}

builds() {
    MAKEFLAGS='' make -C "$tmp/$name" -j"$jobs" BUILD=build SANITIZE= CFLAGS=-O0 lib cli
    [ "$("$tmp/$name/build/dibs" --version)" = "dibs $version" ]
}

give_up() {
    echo "$*"
    exit 1
}

has_32_bits() (
    root_choose i386
    root_need
    root_work=$tmp
    root_inside true </dev/null
) >"$tmp/why" 2>&1

unit_tests_in_32_bits() {
    DIBS_VARIANTS=plain sh "$tmp/$name/test/platforms/run" --32bit
}

unit_tests() {
    DIBS_VARIANTS=plain CFLAGS=-O0 MAKEFLAGS='' sh "$tmp/$name/test/run" --no-install unit/
}

passes() {
    "$@" >"$tmp/units" 2>&1 </dev/null || true
    grep -v '^pass' "$tmp/units"
    tail -n 1 "$tmp/units" | grep -xE '[1-9][0-9]* passed, 0 failed'
}

tap_plan 5
tap 'the same sources make the same tarball' is_the_same_each_time
tap 'the tarball unpacks to a folder of its name' unpacks
tap 'the tarball holds what the repository has' holds_what_the_repository_has
tap 'the tarball builds' builds
if has_32_bits; then
    tap 'the tarball passes its unit tests, in 32 bits' passes unit_tests_in_32_bits
else
    sed 's/^/# no 32 bits: /' "$tmp/why"
    tap 'the tarball passes its unit tests' passes unit_tests
fi
tap_end
