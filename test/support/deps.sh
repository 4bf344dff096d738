# What demo/run and test/run need, and how to get it. To be read with `.` by a POSIX shell.
#
#   deps_require NEED...   returns 0 when everything is there, after installing what was not;
#                          else says what to install by hand and returns 1
#   deps_check NEED...     the same without installing
#   deps_jobs              prints how many things to do at once
#
# A NEED is one of the words in deps_have, or any command's name. With everything there nothing is printed, nothing is
# installed and no network is used.

deps_jobs() {
    nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2
}

# --------------------------------------------------------------- what is there

deps_command() {
    command -v "$1" >/dev/null 2>&1
}

# deps_links COMPILER SUFFIX FLAG...: a program that includes a header of the C library can be built.
deps_links() (
    compiler=$1 suffix=$2
    shift 2
    deps_command "$compiler" || exit 1
    folder=$(mktemp -d) || exit 1
    trap 'rm -rf "$folder"' EXIT
    printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' >"$folder/probe.$suffix"
    "$compiler" "$@" -o "$folder/probe" "$folder/probe.$suffix" >/dev/null 2>&1
)

# The first python3 in the PATH may not be the one for which the system has packages.
deps_python_has() {
    for python in python3 /usr/bin/python3 /usr/local/bin/python3; do
        "$python" -c "import $1" >/dev/null 2>&1 && return 0
    done
    return 1
}

# Prints the java that works: on macOS, the system's own only says where to get one.
deps_java() {
    for java in java "${JAVA_HOME:-/usr}/bin/java" /opt/homebrew/opt/openjdk/bin/java /usr/local/opt/openjdk/bin/java; do
        if deps_command "$java" && "$java" -version >/dev/null 2>&1; then
            echo "$java"
            return
        fi
    done
    return 1
}

# Prints the class path of a ZooKeeper server, with what writes its log.
deps_zookeeper() {
    if [ -e /usr/share/java/zookeeper.jar ]; then
        echo /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar
        return
    fi
    for folder in /opt/homebrew /usr/local; do
        if [ -d "$folder/opt/zookeeper/libexec/lib" ]; then
            echo "$folder/opt/zookeeper/libexec/lib/*"
            return
        fi
    done
    return 1
}

deps_header() {
    for folder in /usr /usr/local /opt/homebrew; do
        [ ! -e "$folder/include/$1" ] || return 0
    done
    return 1
}

# The browser's command. A stub that only says where to get Chromium is none.
deps_chromium() {
    for browser in chromium chromium-browser google-chrome; do
        timeout 20 "$browser" --version >/dev/null 2>&1 && echo "$browser" && return
    done
    return 1
}

deps_have() {
    case $1 in
    compiler) deps_links "${CC:-cc}" c ;;
    sanitizers)
        deps_links "${CC:-cc}" c -fsanitize=address,undefined && deps_links "${CC:-cc}" c -fsanitize=thread
        ;;
    gcc) deps_links gcc c ;;
    clang) deps_links clang c ;;
    c++) deps_links g++ cc ;;
    hiredis | cmocka | sqlite3 | libuv | lua5.1) pkg-config --exists "$1" >/dev/null 2>&1 ;;
    tls) ! pkg-config --exists hiredis_ssl >/dev/null 2>&1 || pkg-config --exists libssl libcrypto ;; # after hiredis
    redis-server) deps_command redis-server || deps_command valkey-server ;;
    redis-py) deps_python_has redis ;;
    timeout) timeout 5 true >/dev/null 2>&1 ;;
    find) deps_command find ;;
    sdt) printf '#include <sys/sdt.h>\n' | "${CC:-cc}" -fsyntax-only -x c - >/dev/null 2>&1 ;;
    java) deps_java >/dev/null ;;
    zookeeper) deps_zookeeper >/dev/null ;;
    libzookeeper) deps_header zookeeper/zookeeper.h ;; # where the Makefile looks for it
    asio) deps_header asio.hpp ;;                       # likewise
    chromium) deps_chromium >/dev/null ;;
    debootstrap) deps_command debootstrap || [ -x /usr/sbin/debootstrap ] ;;
    *) deps_command "$1" ;; # make, pkg-config, nm, awk, spin, python3, clang-tidy, ...: commands of that name
    esac
}

deps_missing() {
    for need in "$@"; do
        deps_have "$need" || printf '%s ' "$need"
    done
}

# ------------------------------------------------------------ how to install it

deps_manager() {
    for manager in apt-get dnf apk pacman brew; do
        if deps_command "$manager"; then
            echo "$manager"
            return
        fi
    done
}

# deps_packages MANAGER NEED...: the names of the packages; alternatives are joined by |.
deps_packages() {
    manager=$1
    shift
    for need in "$@"; do
        case $manager:$need in
        apt-get:compiler | apt-get:gcc | apt-get:sanitizers) echo gcc libc6-dev ;;
        apt-get:clang) echo clang libc6-dev ;;
        apt-get:c++) echo g++ libc6-dev ;;
        apt-get:hiredis) echo libhiredis-dev ;;
        apt-get:cmocka) echo libcmocka-dev ;;
        apt-get:sqlite3) echo libsqlite3-dev ;;
        apt-get:libuv) echo libuv1-dev ;;
        apt-get:asio) echo libasio-dev ;;
        apt-get:lua5.1) echo liblua5.1-0-dev ;;
        apt-get:redis-server) echo 'redis-server|valkey-server' ;;
        apt-get:tls) echo libssl-dev ;;
        apt-get:sdt) echo systemtap-sdt-dev ;;
        apt-get:redis-py) echo python3 python3-redis ;;
        apt-get:debootstrap) echo debootstrap debian-archive-keyring ;;
        apt-get:valgrind) echo valgrind libc6-dbg ;;
        apt-get:java) echo default-jre-headless ;;
        apt-get:zookeeper) echo libzookeeper-java ;; # has the server; the package zookeeper makes it a service
        apt-get:libzookeeper) echo libzookeeper-mt-dev ;;

        dnf:compiler | dnf:gcc) echo gcc glibc-devel ;;
        dnf:sanitizers) echo gcc libasan libubsan libtsan ;;
        dnf:c++) echo gcc-c++ ;;
        dnf:pkg-config) echo pkgconf-pkg-config ;;
        dnf:hiredis) echo hiredis-devel ;;
        dnf:cmocka) echo libcmocka-devel ;;
        dnf:sqlite3) echo sqlite-devel ;;
        dnf:libuv) echo libuv-devel ;;
        dnf:asio) echo asio-devel ;;
        dnf:lua5.1) echo compat-lua-devel ;;
        dnf:redis-server) echo 'valkey|redis' ;;
        dnf:tls) echo openssl-devel ;;
        dnf:sdt) echo systemtap-sdt-devel ;;
        dnf:redis-py) echo python3 python3-redis ;;
        dnf:debootstrap) echo debootstrap debian-keyring ;;
        dnf:clang-tidy | dnf:clang-format) echo clang-tools-extra ;;

        apk:compiler | apk:gcc) echo gcc musl-dev ;;
        apk:c++) echo g++ musl-dev ;;
        apk:sanitizers) ;; # gcc has no sanitizers with musl
        apk:pkg-config) echo pkgconf ;;
        apk:hiredis) echo hiredis-dev ;;
        apk:cmocka) echo cmocka-dev ;;
        apk:lua5.1) echo lua5.1-dev ;;
        apk:sqlite3) echo sqlite-dev ;;
        apk:libuv) echo libuv-dev ;;
        apk:asio) echo asio-dev ;;
        apk:redis-server) echo 'valkey|redis' ;;
        apk:tls) echo openssl-dev ;;
        apk:sdt) echo systemtap-dev ;;
        apk:redis-py) echo python3 py3-redis ;;
        apk:debootstrap) echo debootstrap debian-archive-keyring ;;
        apk:clang-tidy | apk:clang-format) echo clang-extra-tools ;;
        apk:valgrind) echo valgrind musl-dbg ;;

        pacman:compiler | pacman:gcc | pacman:c++ | pacman:sanitizers) echo gcc ;;
        pacman:pkg-config) echo pkgconf ;;
        pacman:redis-server) echo 'valkey|redis' ;;
        pacman:python3) echo python ;;
        pacman:lua5.1) echo lua51 ;;
        pacman:redis-py) echo python python-redis ;;
        pacman:debootstrap) echo debootstrap debian-archive-keyring ;;
        pacman:clang-tidy | pacman:clang-format) echo clang ;;

        brew:compiler | brew:gcc | brew:clang | brew:c++ | brew:sanitizers | brew:nm | brew:redis-py) ;; # not from brew
        brew:lua5.1) ;; # not from brew
        brew:pkg-config) echo pkgconf ;;
        brew:redis-server) echo redis ;;

        brew:clang-tidy) echo llvm ;;
        brew:chromium) ;; # not from brew
        brew:debootstrap | brew:unshare) ;; # Linux alone
        apt-get:abidiff) echo abigail-tools ;;
        dnf:abidiff | apk:abidiff) echo libabigail ;;
        pacman:abidiff | brew:abidiff) ;; # no package
        dnf:lintian | apk:lintian | pacman:lintian | brew:lintian) ;; # of Debian alone
        brew:valgrind) ;; # does not run on current versions of macOS

        brew:java) echo openjdk ;;
        brew:libzookeeper) echo zookeeper ;;
        *:java | dnf:*zookeeper | apk:*zookeeper | pacman:*zookeeper) ;; # no package of ZooKeeper; java is for that alone

        dnf:spin | apk:spin | pacman:spin) ;; # no package: spin is built from its sources

        *:tls) echo openssl ;;
        *:sqlite3) echo sqlite ;;
        *:nm | *:objcopy) echo binutils ;;
        *:timeout) echo coreutils ;;
        *:unshare) echo util-linux ;;
        *:find) echo findutils ;;
        *:awk) echo gawk ;;
        *) echo "$need" ;; # make, pkg-config, hiredis, cmocka, clang, spin, clang-tidy, clang-format, cppcheck, valgrind
        esac
    done | tr ' ' '\n' | sort -u
}

# Runs as root. A Debian package starts its service when it is installed, unless /usr/sbin/policy-rc.d says no.
deps_apt_script='
    export DEBIAN_FRONTEND=noninteractive
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap "rm -f $policy" EXIT
        trap "exit 1" HUP INT TERM
        printf "#!/bin/sh\nexit 101\n" >"$policy" && chmod 755 "$policy"
    fi
    install() {
        apt-get -o DPkg::Lock::Timeout=60 install -y --no-install-recommends "$@"
    }
    install "$@" && exit 0
    apt-get -o DPkg::Lock::Timeout=60 update && install "$@"
    exit $?
'

deps_as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif [ -z "${CI-}" ] && (: </dev/tty) 2>/dev/null; then
        sudo "$@" # may ask for a password
    else
        sudo -n "$@"
    fi
}

# deps_install_with MANAGER PACKAGE...
deps_install_with() {
    manager=$1
    shift
    case $manager in
    apt-get) deps_as_root sh -c "$deps_apt_script" sh "$@" ;;
    dnf) deps_as_root dnf install -y "$@" ;;
    apk) deps_as_root apk add --no-cache "$@" ;;
    pacman) deps_as_root pacman -Sy --noconfirm --needed "$@" ;;
    brew) brew install "$@" ;;
    esac
}

# deps_install_quietly MANAGER PACKAGE...: shows what the manager said only where it failed.
deps_install_quietly() (
    log=$(mktemp) || exit 1
    trap 'rm -f "$log"' EXIT
    deps_install_with "$@" >"$log" 2>&1 </dev/null && exit 0
    cat "$log" >&2
    exit 1
)

# deps_install_first MANAGER PACKAGE|PACKAGE...: installs the first of them that can be installed.
deps_install_first() (
    manager=$1 IFS='|'
    log=$(mktemp) || exit 1
    trap 'rm -f "$log"' EXIT
    for package in $2; do
        deps_install_with "$manager" "$package" >>"$log" 2>&1 </dev/null && exit 0
    done
    cat "$log" >&2
    exit 1
)

# ----------------------------------------------------------------- both together

deps_by_hand() {
    echo "$*" >&2
    return 1
}

deps_check() {
    missing=$(deps_missing "$@")
    [ -z "$missing" ] || deps_by_hand "missing: ${missing% }"
}

deps_require() {
    missing=$(deps_missing "$@")
    [ -z "$missing" ] && return 0
    manager=$(deps_manager)
    if [ -z "$manager" ]; then
        deps_by_hand "missing: ${missing% }; no package manager known here was found: install them by hand"
        return 1
    fi
    # shellcheck disable=SC2086
    packages=$(deps_packages "$manager" $missing | tr '\n' ' ')
    packages=${packages% }
    if [ -z "$packages" ]; then
        deps_by_hand "missing: ${missing% }; $manager has no package of that"
        return 1
    fi
    if [ "$manager" != brew ] && [ "$(id -u)" != 0 ] && ! deps_command sudo; then
        deps_by_hand "missing: ${missing% }; as root, install: $packages"
        return 1
    fi
    echo "missing: ${missing% }; installing with $manager: $packages" >&2
    plain='' failed=''
    for package in $packages; do
        case $package in *'|'*) ;; *) plain="$plain $package" ;; esac
    done
    # shellcheck disable=SC2086
    [ -z "$plain" ] || deps_install_quietly "$manager" $plain || failed=yes
    for package in $packages; do
        case $package in *'|'*) deps_install_first "$manager" "$package" || failed=yes ;; esac
    done
    missing=$(deps_missing "$@")
    [ -z "$missing" ] && return 0
    deps_by_hand "still missing${failed:+ (the installation failed)}: ${missing% }; install by hand: $packages"
}
