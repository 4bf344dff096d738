# How the scripts that run the programs of demo/examples build them. To be read with `.` behind tap.sh and server.sh; needs what
# "make demos" and "make cli" build.
#
#   examples_plain, examples_more    their names: those that need nothing else, and those for a library that may be missing
#   installs                         dibs, in a folder of the test
#   compiles EXAMPLE                 with that, by the command in its first comment
#   example EXAMPLE ARGUMENT...      runs it; $DIBS_URL is its store
#   serves_requests EXAMPLE          the server does what test/support/requests.py wants to see, in two processes
examples_plain='guard_section try_and_skip limited_wait fence_sql fence_file fence_redis thread_pool fork events quorum
    cplusplus unit_test epoll_server moving_jobs cancel_wait transfer readers workers'
examples_more='libuv_server asio_timeout'
prefix=$tmp/prefix
here=$tmp/examples

installs() {
    make -C "$DIBS_TOP" BUILD=build SANITIZE= install PREFIX="$prefix"
    cp -R "$DIBS_TOP/demo/examples" "$here"
}

# compiles EXAMPLE: by the line of its comment that begins with a compiler; it must be there once.
compiles() {
    cd "$here"
    line=$(sed -n "s,^ \* *\(cc $1\.c -o .*\)\$,\1,p; s,^ \* *\(c++ .* $1\.cpp -o .*\)\$,\1,p" "$1".c*)
    echo "$line"
    [ "$(echo "$line" | wc -l)" = 1 ] && [ -n "$line" ]
    PKG_CONFIG_PATH=$prefix/lib/pkgconfig sh -ec "$line"
}

DIBS_URL=
export DIBS_URL
example() {
    name=$1
    shift
    LD_LIBRARY_PATH=$prefix/lib "$here/$name" "$@"
}

# wait_until COMMAND...: until it is true, for ten seconds at the most.
wait_until() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 1000 ] || return 1
        sleep 0.01
    done
}

is_locked() {
    [ "$(server_cli exists "lock:$1")" = 1 ]
}

is_free() {
    ! is_locked "$1"
}

# starts EXAMPLE NAME: a server of requests, as $pid, on port $port.
starts() {
    LD_LIBRARY_PATH=$prefix/lib "$here/$1" >"$tmp/$2" &
    pid=$!
    wait_until grep -q '^listening on' "$tmp/$2"
    port=$(sed -n 's/^listening on //p' "$tmp/$2")
}

serves_requests() {
    starts "$1" one
    first=$pid first_port=$port
    starts "$1" two
    python3 -B "$DIBS_TOP/test/support/requests.py" "$server_socket" "$first_port" "$port"
    # shellcheck disable=SC2086
    for server in $first $pid; do
        kill -TERM "$server"
        wait "$server"
    done
    [ "$(cat "$tmp/one" "$tmp/two" | grep -c ' is ours, with fence [1-9][0-9]*$')" -ge 80 ]
    [ "$(server_cli keys 'lock:*')" = '' ]
}
