# The Debian packages: built in a root folder of Debian 13, checked by lintian, then installed in a bare one, where they
# are used as a newcomer would. Fails where there is no root folder; see platforms.sh.
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/root.sh"
version=$(awk '/define DIBS_VERSION_M/ || /define DIBS_VERSION_P/ { printf "%s%s", dot, $3; dot = "." }' \
    "$DIBS_TOP/include/dibs.h")
debs=$tmp/debs

give_up() {
    echo "# packages: $*"
    exit 1
}

# Nobody makes the root folders again while this script holds the lock.
root_choose full
root_need

# ---------------------------------------------------------------- to build them

builds() {
    root_work=$tmp/build
    mkdir -p "$root_work/dibs" "$debs"
    tar -C "$DIBS_TOP" --exclude=./.git --exclude=./build --exclude=./lib --exclude=./bench/out -cf - . |
        tar -C "$root_work/dibs" -xf -
    root_inside DEB_BUILD_OPTIONS=noautodbgsym make -C /tmp/dibs deb </dev/null
    mv "$root_work"/dibs/build/deb/*.deb "$root_work"/dibs/build/deb/*.changes "$root_work"/dibs/build/deb/*.buildinfo "$debs"
    (cd "$debs" && printf '%s\n' *.deb | sed 's/_[^_]*\.deb$//') >"$tmp/names"
    printf '%s\n' "dibs_$version-1" "libdibs-dev_$version-1" "libdibs0_$version-1" | diff - "$tmp/names"
}

# Prints the files of a package but those of its own documentation.
files_of() {
    dpkg-deb --fsys-tarfile "$debs/$1"_*.deb | tar -tf - | grep -v -e '/$' -e '^\./usr/share/doc/'
}

have_their_parts() {
    files_of libdibs0 | sed 's,/lib/[^/]*/,/lib/,' | LC_ALL=C sort >"$tmp/part"
    printf './usr/lib/%s\n' "libdibs.so.${version%%.*}" "libdibs.so.$version" | diff - "$tmp/part"
    files_of dibs >"$tmp/part"
    for file in bin/dibs share/man/man1/dibs.1.gz share/bash-completion/completions/dibs \
        share/zsh/vendor-completions/_dibs share/fish/vendor_completions.d/dibs.fish; do
        grep -qx "./usr/$file" "$tmp/part" || { echo "dibs has no $file" && false; }
    done
    grep -qx './usr/lib/systemd/system/dibs-hold@.service' "$tmp/part"
    dpkg-deb --fsys-tarfile "$debs"/dibs_*.deb | tar -tf - | grep -x './usr/share/doc/dibs/SERVICES.md'
    if grep -v /systemd/ "$tmp/part" | grep -e /lib/ -e /include/ -e '\.3\.gz$'; then return 1; fi
    files_of libdibs-dev >"$tmp/part"
    for header in "$DIBS_TOP"/include/*.h*; do
        grep -qx "./usr/include/${header##*/}" "$tmp/part"
    done
    grep -qx './usr/share/man/man3/dibs_trylock.3.gz' "$tmp/part"
}

lintian_finds_no_error() {
    lintian --allow-root --fail-on error "$debs"/*.changes
}

# The symbols file gives the version that a program needs.
has_symbols_file() {
    dpkg-deb --ctrl-tarfile "$debs"/libdibs0_*.deb | tar -xOf - ./symbols >"$tmp/symbols"
    cat "$tmp/symbols"
    grep -x 'libdibs.so.0 libdibs0 #MINVER#' "$tmp/symbols"
    grep -x ' dibs_open@DIBS_0 0\.1\.0' "$tmp/symbols"
    dpkg-deb -f "$debs"/dibs_*.deb Depends | grep -E 'libdibs0 \(>= 0\.1\.0\)'
}

# ------------------------------------------------------------------ to use them

# A repository of the new packages and of those that the full root folder was made of. apt finds out which are needed.
is_bare() {
    mkdir -p "$tmp/use/repository"
    root_work=$tmp/use
    cp "$root_cache"/packages/*.deb "$debs"/*.deb "$root_work/repository/"
    chmod -R a+rX "$tmp/use"
    root_inside sh -c 'cd /tmp/repository && dpkg-scanpackages -m . 2>/dev/null >Packages' </dev/null
    root_choose bare
    [ -d "$root" ]
    root_copy "$tmp/bare"
    root_inside sh -c '! command -v cc && ! command -v redis-server && ! ls /usr/lib/*/libhiredis*' </dev/null
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # no service starts
    chmod 755 "$root/usr/sbin/policy-rc.d"
    rm -f "$root"/etc/apt/sources.list.d/*
    echo 'deb [trusted=yes] file:/tmp/repository ./' >"$root/etc/apt/sources.list"
    root_inside apt-get update </dev/null
}

in_bare() {
    root=$tmp/bare root_access=rw root_work=$tmp/use
    root_inside "$@" </dev/null
}

installs() {
    in_bare DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o DPkg::Options::=--force-unsafe-io "$@"
}

command_alone() {
    installs dibs
    [ "$(in_bare dibs --version)" = "dibs $version" ]
    in_bare sh -c '! command -v cc && ! ls /usr/include/dibs.h'
}

runs_under_a_lock() {
    installs redis-server
    in_bare DIBS_URL=unix:///tmp/server.sock sh -ec '
        redis-server --port 0 --unixsocket /tmp/server.sock --save "" >/tmp/server.log &
        while [ ! -S /tmp/server.sock ]; do sleep 0.1; done
        dibs run nightly sh -c "echo \$DIBS_NAME \$DIBS_FENCE; dibs run --no-reentry -n nightly true || echo taken"
        redis-cli -s /tmp/server.sock shutdown nosave' >"$tmp/ran"
    cat "$tmp/ran"
    grep -xE 'nightly [1-9][0-9]*' "$tmp/ran"
    grep -x taken "$tmp/ran"
}

compiles() {
    installs libdibs-dev gcc libc6-dev pkg-config
    cat >"$tmp/use/app.c" <<'END'
#include <dibs.h>
#include <stdio.h>

int main(void)
{
    dibs_runtime *rt;

    if (dibs_open(&rt, NULL) != DIBS_OK || dibs_lock(rt, "a") != DIBS_OK || dibs_unlock(rt, "a") != DIBS_OK)
        return 1;
    dibs_close(rt);
    puts(dibs_version());
    return 0;
}
END
    [ "$(in_bare DIBS_URL=mem: sh -ec 'cd /tmp && cc app.c -o app $(pkg-config --cflags --libs dibs) && ./app')" = "$version" ]
}

compiles_statically() {
    [ "$(in_bare DIBS_URL=mem: sh -ec '
        cd /tmp
        cc app.c -o app $(pkg-config --static --cflags --libs dibs | sed "s/-ldibs/-l:libdibs.a/")
        ldd app | grep -q libdibs || ./app')" = "$version" ]
}

purges() {
    in_bare DEBIAN_FRONTEND=noninteractive apt-get purge -y dibs libdibs0 libdibs-dev
    [ -z "$(find "$tmp/bare/usr" "$tmp/bare/etc" "$tmp/bare/var/lib/dpkg/info" -name '*dibs*')" ]
}

tap_plan 10
tap 'make deb builds dibs, libdibs0 and libdibs-dev' builds
tap 'each has its part of what is installed' have_their_parts
tap 'lintian finds no error in them' lintian_finds_no_error
tap 'the symbols file tells which version a program needs' has_symbols_file
tap 'a bare root folder has neither a compiler nor hiredis' is_bare
tap 'the command installs there, with what it needs and no more' command_alone
tap 'it runs a command under a lock of a real server' runs_under_a_lock
tap 'a program is built by pkg-config against libdibs-dev' compiles
tap 'and with the static library' compiles_statically
tap 'all of them are removed without a trace' purges
tap_end
