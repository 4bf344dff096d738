// bsm/redislock on go-redis. By default it tries once; the example of its documentation for waiting is a try every
// 100 ms, which is bounded by the lease. When that has passed, the contender tries again. It extends no lock by itself.
package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"dibs/peers/peer"
)

func open(address string, lease time.Duration) (peer.Lock, error) {
	client := redis.NewClient(&redis.Options{Addr: address})
	locker := redislock.New(client)
	wait := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	lock := func(name string) (func() error, error) {
		held, err := locker.Obtain(context.Background(), name, lease, wait)
		if err != nil {
			return nil, err
		}
		return func() error { return held.Release(context.Background()) }, nil
	}
	return lock, client.Ping(context.Background()).Err()
}

func main() { peer.Main(open) }
