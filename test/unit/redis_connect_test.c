/* What tests send to servers without dibs (support/common/redis_connect.h). */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/common/redis_connect.h"
#include "support/test.h"

/* SIGPIPE would end this program. */
TEST(a_connection_that_was_just_closed_raises_no_signal)
{
    int ends[2];

    sigset_t pending;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    redisContext *redis = redisConnectFd(ends[0]);
    close(ends[1]);
    assert_null(redis_try(redis, "PING"));
    assert_int_equal(errno, EPIPE);
    assert_int_equal(redis->err, REDIS_ERR_IO);
    redisFree(redis);
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGPIPE));
}

TESTS(NULL, NULL)
