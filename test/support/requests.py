"""What two servers of demo/examples must do with requests: requests.py SOCKET PORT PORT, with Redis on that Unix socket.

Each request is served under the lock of its name; a request whose name is locked elsewhere holds nobody up; a client that leaves
waits no longer. Exit status 0 where that is so.
"""

import socket
import sys
import threading
import time

LIMIT = 60  # seconds for everything
CLIENTS, REQUESTS, NAMES = 8, 5, ["sku:1", "sku:2"]


def connect(port):
    return socket.create_connection(("127.0.0.1", port), LIMIT)


def ask(client, name):
    client.sendall(name.encode() + b"\n")


def answer(client):
    line = b""
    while not line.endswith(b"\n"):
        more = client.recv(1000)
        assert more, "the server hung up"
        line += more
    return line.decode().strip()


def served(client):
    word, fence = answer(client).split()
    assert word == "served", word
    return int(fence)


def redis(path, *words):
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    server.sendall(" ".join(words).encode() + b"\r\n")
    return server.recv(10000)


def crowd(ports):
    """Many clients of both servers: every request has a fence of its own, and those of one client rise."""
    fences = []

    def be_client(number):
        client = connect(ports[number % 2])
        own = []
        for i in range(REQUESTS):
            ask(client, NAMES[(number // 2 + i) % 2])
            own.append(served(client))
        fences.append(own)

    threads = [threading.Thread(target=be_client, args=(n,)) for n in range(2 * CLIENTS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(fences) == 2 * CLIENTS, "a client failed"
    every = [fence for own in fences for fence in own]
    assert len(set(every)) == len(every) == 2 * CLIENTS * REQUESTS
    for own in fences:
        assert own[::2] == sorted(own[::2]) and own[1::2] == sorted(own[1::2]), own


def blocked(path, port):
    redis(path, "SET", "lock:blocked", "somebody", "PX", "600000")
    leaves, stays, other = connect(port), connect(port), connect(port)
    ask(leaves, "blocked")
    ask(stays, "blocked")
    for _ in range(3):
        ask(other, "sku:1")
        assert served(other)
    leaves.close()
    ask(other, "sku:2")
    assert served(other)
    redis(path, "DEL", "lock:blocked")
    assert served(stays)
    end = time.monotonic() + LIMIT
    while redis(path, "EXISTS", "lock:blocked") != b":0\r\n":  # who left holds nothing
        assert time.monotonic() < end
        time.sleep(0.01)


def errors(port):
    client = connect(port)
    ask(client, "")
    assert answer(client).startswith("refused: "), "a name without a byte"
    ask(client, "sku:1")
    assert served(client)


ports = [int(port) for port in sys.argv[2:]]
crowd(ports)
for one in ports:
    blocked(sys.argv[1], one)
    errors(one)
