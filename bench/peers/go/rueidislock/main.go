// rueidislock, with the options that its README recommends for one server of Redis 7.0.5 or later. It waits for the
// server's notice that the key was released, and extends its locks by itself, each after half its lease.
package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"dibs/peers/peer"
)

func open(address string, lease time.Duration) (peer.Lock, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{address}},
		KeyValidity:    lease,
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	lock := func(name string) (func() error, error) {
		_, cancel, err := locker.WithContext(context.Background(), name)
		return func() error { cancel(); return nil }, err
	}
	return lock, err
}

func main() { peer.Main(open) }
