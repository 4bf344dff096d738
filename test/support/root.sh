# Root folders of Debian 13, each made by debootstrap in a cache folder the first time, and commands that run in one: as
# root, on Linux. To be read with `.`; the script defines give_up, which says why it ends and exits.
#
#   root_choose KIND             full: to build and to test in; bare: nothing but what every Debian has; i386: 32 bits
#   root_have                    makes the root folder where there is none; root_need gives up instead
#   root_inside COMMAND...       runs COMMAND there, and $root_work is its /tmp. The root folder itself is read-only.
#   root_copy FOLDER             copies the root folder; root_inside then runs in the copy, and may write there
#   root_stop                    ends what root_inside or root_have began; for traps
#
# DIBS_CACHE: the cache folder, else dibs in $XDG_CACHE_HOME or ~/.cache. DIBS_MIRROR: the Debian mirror, else the one
# of this system's apt, else that of debootstrap.
#
# All runs in namespaces of mounts and processes, which end with the script however it ends; nothing is mounted outside
# of them.

PATH=$PATH:/usr/sbin:/sbin
root_suite=trixie
root_cache=${DIBS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/dibs}
root_running=
root_access=ro

# What tests of the library need; redis-server, openssl and python3 for the test programs.
root_tools=make,pkg-config,libhiredis-dev,libssl-dev,libcmocka-dev,redis-server,openssl,python3,python3-redis

root_packages() {
    case $1 in
    full) echo "build-essential,cmake,debhelper,valkey-server,$root_tools" ;;
    i386) echo "gcc,libc6-dev,$root_tools" ;;
    bare) ;;
    esac
}

root_choose() {
    root_kind=$1
    root_list=$(root_packages "$1")
    # Another list, another folder.
    root=$root_cache/$root_suite-$1-$(echo "$root_list" | cksum | cut -d ' ' -f 1)
    [ "$1" != i386 ] || [ "$(uname -m)" = x86_64 ] || give_up "this machine does not run programs of i386"
}

# In namespaces of its own, all of whose processes end when the script ends or is told to stop.
root_apart() {
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --propagation private "$@" 8>&- &
    root_running=$!
    wait "$root_running"
    root_status=$?
    root_running=
    return "$root_status"
}

root_stop() {
    [ -z "$root_running" ] || { kill -KILL "$root_running" && wait "$root_running"; } 2>/dev/null
}

root_is_able() {
    [ "$(uname -s)" = Linux ] || give_up "needs Linux"
    [ "$(id -u)" = 0 ] || give_up "must be run as root"
    for command in unshare setpriv mount chroot flock; do
        command -v "$command" >/dev/null 2>&1 || give_up "$command is missing (Debian: util-linux, coreutils)"
    done
    unshare --mount --pid --fork true 2>/dev/null || give_up "this system lets nobody make namespaces (unshare)"
}

root_mirror() {
    if [ -n "${DIBS_MIRROR-}" ]; then
        echo "$DIBS_MIRROR"
    elif command -v apt-get >/dev/null 2>&1; then
        apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' \
            'Component: main' 2>/dev/null | head -n 1
    fi
}

# The bare root folder is made of the packages that the full one left in the cache folder, and is remade with it.
root_options() {
    [ -z "$root_list" ] || echo "--include=$root_list"
    [ "$root_kind" != i386 ] || echo --arch=i386
    [ "$root_kind" = i386 ] || echo "--cache-dir=$root_cache/packages"
}

root_make() {
    command -v debootstrap >/dev/null 2>&1 || give_up "debootstrap is missing: install it"
    echo "making $root: $root_suite${root_list:+ with $root_list}" >&2
    rm -rf --one-file-system "$root_cache"/*.new "$root_cache/$root_suite-$root_kind"-* "$root_cache/$root_suite"-[0-9]*
    [ "$root_kind" != full ] || rm -rf --one-file-system "$root_cache/packages" "$root_cache/$root_suite"-bare-*
    mkdir -p "$root_cache/packages"
    # shellcheck disable=SC2046
    root_apart timeout 900 debootstrap --variant=minbase $(root_options) "$root_suite" "$root.new" $(root_mirror) \
        >"$root_cache/log" 2>&1 || {
        tail -n 20 "$root_cache/log" "$root.new/debootstrap/debootstrap.log" >&2 2>/dev/null
        rm -rf --one-file-system "$root.new"
        give_up "debootstrap failed, and no root folder was made before: is there a network?"
    }
    rm -rf "$root.new"/var/cache/apt/archives/*.deb "$root.new"/var/lib/apt/lists/*
    mv "$root.new" "$root"
}

# A script that uses a root folder holds a shared lock on the cache folder, one that makes a root folder the exclusive
# lock.
root_have() {
    root_is_able
    mkdir -p "$root_cache" && exec 8>"$root_cache/lock" || give_up "no folder $root_cache"
    flock -s 8
    [ ! -d "$root" ] || return 0
    flock 8
    [ -d "$root" ] || root_make
    flock -s 8
}

root_need() {
    root_is_able
    mkdir -p "$root_cache" && exec 8>"$root_cache/lock" || give_up "no folder $root_cache"
    flock -s 8
    [ -d "$root" ] || give_up "there is no root folder $root: \"make test-platforms\" makes it"
}

# As the first process of the namespaces: when it ends, all others do.
root_enter='
    root=$0 work=$1
    shift
    mount --bind "$root" "$root" && mount -o "remount,bind,$ROOT_ACCESS" "$root" &&
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount --bind "$work" "$root/tmp" || exit 1
    exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp "$@"
'

root_copy() {
    cp -a "$root" "$1" && root=$1 root_access=rw
}

root_inside() {
    ROOT_ACCESS=$root_access root_apart sh -c "$root_enter" "$root" "$root_work" "$@"
}
