// Package peer runs a lock as the other locks of this folder are run, with goroutines. "../run" says what the arguments
// and the lines of input mean.
package peer

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Lock waits for the lock of a name as long as the library does by default. The function that it returns unlocks.
type Lock func(name string) (func() error, error)

// Open connects to a server at host:port.
type Open func(address string, lease time.Duration) (Lock, error)

const grace = 2 * time.Second

type result struct {
	Seconds  float64  `json:"seconds"`
	GaveUp   uint64   `json:"gave_up"`
	Stuck    int      `json:"stuck"`
	Acquires []uint64 `json:"acquires"`
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func increment(file *os.File) {
	var bytes [8]byte
	_, err := file.ReadAt(bytes[:], 0)
	must(err)
	binary.LittleEndian.PutUint64(bytes[:], binary.LittleEndian.Uint64(bytes[:])+1)
	_, err = file.WriteAt(bytes[:], 0)
	must(err)
}

// awaitEnd gives up when none of them has ended for the time of grace. It returns how many have not.
func awaitEnd(ended <-chan struct{}, left int) int {
	for ; left > 0; left-- {
		select {
		case <-ended:
		case <-time.After(grace):
			return left
		}
	}
	return 0
}

func crowd(lock Lock, count int, seconds float64, words []string) {
	var over atomic.Bool
	var gaveUp atomic.Uint64
	ended := make(chan struct{}, count)
	var file *os.File
	acquires := make([]atomic.Uint64, count)
	if len(words) > 1 {
		var err error
		file, err = os.OpenFile(words[1], os.O_RDWR, 0)
		must(err)
		defer file.Close()
	}
	start := time.Now()
	for i := range count {
		name := words[0]
		if file == nil {
			name = fmt.Sprintf("%s:%d", name, i)
		}
		go func() {
			defer func() { ended <- struct{}{} }()
			for !over.Load() {
				unlock, err := lock(name)
				if err != nil {
					gaveUp.Add(1)
					continue
				}
				if !over.Load() {
					if file != nil {
						increment(file)
					}
					acquires[i].Add(1)
				}
				must(unlock())
			}
		}()
	}
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	over.Store(true)
	taken := time.Since(start).Seconds()
	out := result{taken, gaveUp.Load(), awaitEnd(ended, count), make([]uint64, count)}
	for i := range acquires {
		out.Acquires[i] = acquires[i].Load()
	}
	text, err := json.Marshal(out)
	must(err)
	fmt.Println(string(text))
	if out.Stuck > 0 {
		os.Exit(0)
	}
}

func take(lock Lock, count int, name string) []func() error {
	held := make([]func() error, count)
	for i := range held {
		var err error
		for held[i], err = lock(fmt.Sprintf("%s:%d", name, i)); err != nil; {
			held[i], err = lock(fmt.Sprintf("%s:%d", name, i))
		}
	}
	fmt.Println(time.Now().UnixNano())
	return held
}

func release(held []func() error) {
	called := time.Now()
	for _, unlock := range held {
		must(unlock())
	}
	fmt.Println(called.UnixNano())
}

// Main is the program of a lock.
func Main(open Open) {
	lease, err := strconv.Atoi(os.Args[3])
	must(err)
	count, err := strconv.Atoi(os.Args[4])
	must(err)
	seconds, err := strconv.ParseFloat(os.Args[5], 64)
	must(err)
	lock, err := open(strings.TrimPrefix(os.Args[2], "redis://"), time.Duration(lease)*time.Millisecond)
	must(err)
	fmt.Println("ready")
	var held []func() error
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch words := strings.Fields(lines.Text()); {
		case os.Args[1] == "crowd":
			crowd(lock, count, seconds, words)
		case held == nil:
			held = take(lock, count, words[0])
		default:
			release(held)
			held = nil
		}
	}
}
