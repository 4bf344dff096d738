# For test scripts, after tap.sh: a server of the script's own, on a Unix socket, which ends with the script.
#
#   server_start [ARGUMENT...]   starts redis-server (or $DIBS_SERVER, or valkey-server), waits until it answers, and
#                                sets server_url, server_socket and server_pid; may be called several times; false where it fails
#   server_cli ARGUMENT...       redis-cli with the server that was started last

server_pids=''
server_count=0
trap 'server_stop; rm -rf "$tmp"' EXIT

server_stop() {
    # shellcheck disable=SC2086
    [ -z "$server_pids" ] || { kill $server_pids; wait $server_pids; } 2>/dev/null
    server_pids=''
}

server_program() {
    for server_name in "${DIBS_SERVER-}" redis-server valkey-server; do
        if [ -n "$server_name" ] && command -v "$server_name"; then return; fi
    done
    return 1
}

# The command-line client that came with the server.
server_cli() {
    server_name=$(server_program) || return 1
    "${server_name%-server}-cli" -s "$server_socket" "$@"
}

server_start() {
    server_name=$(server_program) || return 1
    server_count=$((server_count + 1))
    server_socket=$tmp/server$server_count.sock
    server_url=unix://$server_socket
    "$server_name" --port 0 --unixsocket "$server_socket" --save '' --dir "$tmp" "$@" >"$tmp/server$server_count.log" 2>&1 &
    server_pid=$!
    server_pids="$server_pids $server_pid"
    server_tries=0
    until [ "$(server_cli ping 2>/dev/null)" = PONG ]; do
        server_tries=$((server_tries + 1))
        [ "$server_tries" -lt 200 ] || { cat "$tmp/server$server_count.log" && return 1; }
        sleep 0.05
    done
}
