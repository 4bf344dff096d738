# make dist: a tarball of the sources that is the same each time, and that builds and passes its unit tests on its own.
set -u
. "$DIBS_TOP/test/support/tap.sh"
version=$(awk '/define DIBS_VERSION_M/ || /define DIBS_VERSION_P/ { printf "%s%s", dot, $3; dot = "." }' \
    "$DIBS_TOP/include/dibs.h")
name=dibs-$version
jobs=$(nproc 2>/dev/null || echo 2)

# In copies whose files have other times, without git.
is_the_same_each_time() {
    for copy in one other; do
        mkdir "$tmp/$copy"
        tar -C "$DIBS_TOP" --exclude=./.git --exclude=./build --exclude=./lib --exclude=./bench/out -cf - . | tar -C "$tmp/$copy" -xmf -
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
    MAKEFLAGS='' make -C "$tmp/$name" -j"$jobs" BUILD=build SANITIZE= CFLAGS=-O0 lib cli units
    [ "$("$tmp/$name/build/dibs" --version)" = "dibs $version" ]
}

passes_its_unit_tests() {
    DIBS_VARIANTS=plain DIBS_TARGETS='lib cli units' CFLAGS=-O0 MAKEFLAGS='' sh "$tmp/$name/test/run" --no-install unit/ >"$tmp/units"
    grep -v '^pass' "$tmp/units"
    tail -n 1 "$tmp/units" | grep -xE '[1-9][0-9]* passed, 0 failed'
}

tap_plan 5
tap 'the same sources make the same tarball' is_the_same_each_time
tap 'it unpacks to a folder of its name' unpacks
tap 'it holds what the repository has' holds_what_the_repository_has
tap 'it builds' builds
tap 'it passes its unit tests' passes_its_unit_tests
tap_end
