// redsync on go-redis, as its README says. The defaults stand, but for the lease: 32 tries, 50 to 250 ms apart; when they
// are used up, the contender tries again. redsync extends no lock by itself.
package main

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"dibs/peers/peer"
)

func open(address string, lease time.Duration) (peer.Lock, error) {
	client := redis.NewClient(&redis.Options{Addr: address})
	locks := redsync.New(goredis.NewPool(client))
	lock := func(name string) (func() error, error) {
		mutex := locks.NewMutex(name, redsync.WithExpiry(lease))
		if err := mutex.Lock(); err != nil {
			return nil, err
		}
		return func() error {
			_, err := mutex.Unlock()
			return err
		}, nil
	}
	return lock, client.Ping(context.Background()).Err()
}

func main() { peer.Main(open) }
