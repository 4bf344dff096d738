"""redis-py's Lock, with threads. "run" says what the arguments and the lines of input mean.

As its documentation says: one client for all threads, `with client.lock(name, timeout)`. The defaults stand: a waiter
asks every 100 ms, for ever. redis-py renews no lock by itself. hiredis parses the replies, as redis-py recommends.
"""

import json
import os
import sys
import threading
import time

import redis

GRACE_S = 2


def contend(client, name, lease, file, over, counts, number):
    while not over.is_set():
        with client.lock(name, timeout=lease):
            if over.is_set():
                return
            if file is not None:
                count = int.from_bytes(os.pread(file, 8, 0), "little")
                os.pwrite(file, (count + 1).to_bytes(8, "little"), 0)
            counts[number] += 1


def await_end(threads):
    """Gives up when none of them has ended for GRACE_S. Returns how many have not."""
    left, limit = len(threads), time.monotonic() + GRACE_S
    while left and time.monotonic() < limit:
        alive = sum(thread.is_alive() for thread in threads)
        if alive < left:
            left, limit = alive, time.monotonic() + GRACE_S
        time.sleep(0.01)
    return left


def crowd(client, lease, count, seconds, name, path=None):
    file = os.open(path, os.O_RDWR) if path else None
    over, counts = threading.Event(), [0] * count
    threads = [
        threading.Thread(
            target=contend, daemon=True,
            args=(client, name if path else f"{name}:{i}", lease, file, over, counts, i))
        for i in range(count)
    ]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    time.sleep(max(0, start + seconds - time.monotonic()))
    over.set()
    end = time.monotonic()
    acquires = list(counts)
    stuck = await_end(threads)
    print(json.dumps({"seconds": end - start, "gave_up": 0, "stuck": stuck, "acquires": acquires}), flush=True)
    if stuck:
        os._exit(0)
    if path:
        os.close(file)


def hold(client, lease, count, name, held):
    called = time.monotonic_ns()
    if held:
        for lock in held:
            lock.release()
        held.clear()
        print(called, flush=True)
        return
    for i in range(count):
        held.append(client.lock(f"{name}:{i}", timeout=lease))
        held[-1].acquire()
    print(time.monotonic_ns(), flush=True)


def main():
    case, url, lease, count, seconds = sys.argv[1:]
    client = redis.Redis.from_url(url)
    client.ping()
    held = []
    print("ready", flush=True)
    for line in sys.stdin:
        if case == "crowd":
            crowd(client, int(lease) / 1000, int(count), float(seconds), *line.split())
        else:
            hold(client, int(lease) / 1000, int(count), line.strip(), held)


main()
