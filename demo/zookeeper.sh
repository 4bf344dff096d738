# A ZooKeeper server for the gallery, in a temporary folder, on a free port of 127.0.0.1. To be read with `.` by a POSIX
# shell, after test/support/deps.sh.
#
#   zookeeper_needs   prints what deps_require is to get
#   zookeeper_start   starts a server and exports DIBS_ZOOKEEPER, its address. Where the server does not come up, says why
#                     and returns 1. Where DIBS_ZOOKEEPER has an address already, that server is used.
#   zookeeper_stop    ends the server that was started, if one was, and removes its folder
#
# The caller calls zookeeper_stop at its end, however that comes.

zookeeper_folder=
zookeeper_pid=
zookeeper_limit=30 # seconds

# Sessions that are shorter than 400 ms would end by themselves where the machine is busy.
zookeeper_config() {
    echo "dataDir=$zookeeper_folder/data"
    echo "clientPort=$1"
    echo 'clientPortAddress=127.0.0.1'
    echo 'tickTime=100'
    echo 'minSessionTimeout=400'
    echo 'maxSessionTimeout=60000'
    echo 'maxClientCnxns=0'
    echo 'admin.enableServer=false'
}

# Between 10000 and 32000: systems give ports of their own choice from above that.
zookeeper_port() {
    od -An -N2 -tu2 /dev/urandom | awk '{ print 10000 + $1 % 22000 }'
}

# zookeeper_java CLASS ARGUMENT...: in a shell of its own, which java replaces.
zookeeper_java() {
    exec "$(deps_java)" -Xmx256m -cp "$(deps_zookeeper)" "$@"
}

zookeeper_answers() {
    zookeeper_java org.apache.zookeeper.client.FourLetterWordMain 127.0.0.1 "$1" srvr 2>/dev/null | grep -q '^Mode:'
}

# 1: the server has ended, or does not answer in time.
zookeeper_comes_up() {
    zookeeper_deadline=$(($(date +%s) + zookeeper_limit))
    while kill -0 "$zookeeper_pid" 2>/dev/null; do
        ! zookeeper_answers "$1" || return 0
        [ "$(date +%s)" -lt "$zookeeper_deadline" ] || return 1
        sleep 0.1
    done
    return 1
}

zookeeper_try() {
    zookeeper_config "$1" >"$zookeeper_folder/zoo.cfg"
    zookeeper_java org.apache.zookeeper.server.quorum.QuorumPeerMain "$zookeeper_folder/zoo.cfg" \
        >"$zookeeper_folder/log" 2>&1 </dev/null &
    zookeeper_pid=$!
    zookeeper_comes_up "$1" && return 0
    zookeeper_end
    return 1
}

zookeeper_needs() {
    echo libzookeeper
    [ -n "${DIBS_ZOOKEEPER-}" ] || echo zookeeper java
}

zookeeper_start() {
    [ -z "${DIBS_ZOOKEEPER-}" ] || return 0
    zookeeper_folder=$(mktemp -d) || return 1
    for _ in 1 2 3 4 5; do
        zookeeper_free=$(zookeeper_port)
        if zookeeper_try "$zookeeper_free"; then
            export DIBS_ZOOKEEPER="127.0.0.1:$zookeeper_free"
            return 0
        fi
        grep -q 'Address already in use' "$zookeeper_folder/log" || break
    done
    echo "the ZooKeeper server did not come up; the end of its log:" >&2
    tail -n 10 "$zookeeper_folder/log" | sed 's/^/    /' >&2
    zookeeper_stop
    return 1
}

zookeeper_end() {
    [ -n "$zookeeper_pid" ] || return 0
    { kill "$zookeeper_pid" && wait "$zookeeper_pid"; } 2>/dev/null || :
    zookeeper_pid=
}

zookeeper_stop() {
    zookeeper_end
    [ -z "$zookeeper_folder" ] || rm -rf "$zookeeper_folder"
    zookeeper_folder=
}
