"""Servers for tests in Python: one, a quorum, one with sentinels, a cluster. They die with the test.

Each class has url, which is for $DIBS_URL, and servers; all of these keep locks.
"""

import atexit
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
import servers as rig  # noqa: E402

SLOTS = 16384
MASTER = "mymaster"


def await_true(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"it did not come to pass within {seconds} s: {what}")
        time.sleep(0.01)


def folder():
    """A new one, with a short path, as Unix sockets need it. It is removed at the end."""
    made = tempfile.mkdtemp(prefix="dibs")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


class Server(rig.Server):
    """One server, at a Unix socket and at a port. words: more of its configuration."""

    def __init__(self, *words):
        super().__init__(os.path.join(folder(), "d"), "", None)
        self.words = words
        self.start()
        atexit.register(self.kill)
        self.servers = [self]

    def launch(self, persistent):
        words = [self.name, "--port", self.port, "--bind", "127.0.0.1", "--unixsocket", self.path, "--save", ""]
        self.run(words + ["--dir", self.folder, *self.words])

    @property
    def url(self):
        return f"unix://{self.path}"


class Quorum:
    def __init__(self):
        self.servers = [Server() for _ in range(3)]
        self.url = " ".join(server.url for server in self.servers)


class Sentinel(rig.Server):
    """One sentinel, and its master."""

    def __init__(self):
        self.servers = [Server()]
        super().__init__(os.path.join(folder(), "d"), "", None)
        self.start()
        atexit.register(self.kill)
        self.url = f"redis-sentinel://127.0.0.1:{self.port}/{MASTER}"

    def launch(self, persistent):
        path = os.path.join(self.folder, "sentinel.conf")
        with open(path, "w") as file:
            file.write(f"port {self.port}\nbind 127.0.0.1\nunixsocket {self.path}\ndir {self.folder}\n"
                       f"sentinel monitor {MASTER} 127.0.0.1 {self.servers[0].port} 1\n")
        self.run([self.name, path, "--sentinel"])


class Cluster:
    """Three masters."""

    def __init__(self):
        # The cluster's own port is 10,000 above; so the ports have to be low enough.
        self.servers = [Node() for _ in range(3)]
        for i, server in enumerate(self.servers):
            slots = range(SLOTS * i // 3, SLOTS * (i + 1) // 3)
            server.call("CLUSTER", "ADDSLOTS", *slots)
            server.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for server in self.servers[1:]:
            server.call("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port, self.servers[0].bus)
        for server in self.servers:
            await_true(lambda at=server: self.is_whole(at), "the cluster")
        self.url = f"redis-cluster://127.0.0.1:{self.servers[0].port}"

    @staticmethod
    def is_whole(server):
        info = server.call("CLUSTER", "INFO").decode()
        return "cluster_state:ok" in info and "cluster_known_nodes:3" in info


class Node(Server):
    def launch(self, persistent):
        self.bus = rig.free_port()
        self.words = ("--cluster-enabled", "yes", "--cluster-port", self.bus, "--cluster-node-timeout", 2000)
        super().launch(persistent)
