# The programs of demo/examples that use an event loop of others: libuv, Asio. As build/examples, which runs the rest.
# Needs: c++
# Builds: demos cli
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/server.sh"
. "$DIBS_TOP/test/support/examples.sh"

# The coroutine whose name somebody has is cancelled; the others are not held up by it.
times_out() {
    server_cli set lock:taken somebody px 600000
    example asio_timeout one taken two one >"$tmp/out"
    cat "$tmp/out"
    [ "$(grep -cE '^(one|two): sold, with fence [1-9][0-9]*$' "$tmp/out")" = 3 ]
    grep -x 'taken: timed out' "$tmp/out"
    server_cli del lock:taken
    [ "$(server_cli keys 'lock:*')" = '' ]
    [ "$(example asio_timeout taken)" != 'taken: timed out' ]
    status=0
    DIBS_URL=unix:///nowhere/at.all example asio_timeout one 2>"$tmp/err" || status=$?
    [ "$status" = 1 ] && grep '^failed: .*/nowhere/at.all' "$tmp/err"
}

tap_plan 5
tap 'the library is installed' installs
for example in $examples_more; do
    tap "$example, built as it says" compiles "$example"
done
server_start || exit 1
DIBS_URL=$server_url
tap 'a server on libuv' serves_requests libuv_server
tap 'coroutines of Asio' times_out
tap_end
