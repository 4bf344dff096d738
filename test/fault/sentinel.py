"""The fault rig on a master with two replicas and three sentinels. Every failover is a loss of data.

The workers know the sentinels alone. The rig's own commands go to the master that the sentinels name.
"""

import os
import time

import servers
from checker import MS

DATA, SENTINELS = 3, 3
MASTER = "mymaster"
DOWN_AFTER_MS = 300
FAILOVER_SECONDS = 20  # within which the sentinels name another master, and the old one follows it
# By default a sentinel looks every few seconds.
HURRY = ("SENTINEL", "DEBUG", "INFO-PERIOD", 200, "PING-PERIOD", 100, "ASK-PERIOD", 100, "PUBLISH-PERIOD", 500)
now = time.monotonic_ns


class SentinelServer(servers.Server):
    """A sentinel for a master on that port."""

    def __init__(self, folder, master_port):
        super().__init__(folder, "", None)
        self.master_port = master_port

    def launch(self, persistent):
        path = os.path.join(self.folder, "sentinel.conf")
        with open(path, "w") as file:
            file.write(f"port {self.port}\nbind 127.0.0.1\nunixsocket {self.path}\ndir {self.folder}\n"
                       f"sentinel monitor {MASTER} 127.0.0.1 {self.master_port} 2\n"
                       f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\n"
                       f"sentinel failover-timeout {MASTER} 3000\n")
        self.run([self.name, path, "--sentinel"])
        self.call(*HURRY)

    def named(self):
        """The port of the master."""
        return int(self.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1])

    def knows_all(self):
        words = self.call("SENTINEL", "MASTER", MASTER)
        fields = dict(zip(words[::2], words[1::2]))
        return fields[b"num-slaves"] == b"%d" % (DATA - 1) and fields[b"num-other-sentinels"] == b"%d" % (SENTINELS - 1)


class Sentinel:
    """What differs from a rig with one server."""

    def start_servers(self):
        self.data = [self.new_server() for _ in range(DATA)]
        for server in self.data:
            server.start()
            if server is not self.data[0]:
                server.call("REPLICAOF", "127.0.0.1", self.data[0].port)
                server.await_info("replication", {"master_link_status": "up"})
        self.server = self.data[0]
        self.sentinels = []
        for i in range(SENTINELS):
            self.sentinels.append(SentinelServer(os.path.join(self.folder, f"s{i}"), self.server.port))
            self.sentinels[i].start()
        servers.await_that(lambda: all(sentinel.knows_all() for sentinel in self.sentinels), "the sentinels know each other")

    def url_of(self, index):
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis-sentinel://{hosts}/{MASTER}"

    def check_servers(self):
        for server in self.data + self.sentinels:
            if server.crashed():
                raise RuntimeError(f"a server has ended by itself\n{server.log()}")

    def close_servers(self):
        for server in self.sentinels + self.data:
            server.kill()

    # ------------------------------------------------------------------ faults

    def end_failover(self, fault, begin, old, undo):
        """
        Waits for another master. The old one comes back only then, and follows it: before, it would be taken for the
        master again, or give its followers what it had lost.
        """
        since = now()

        def is_over():
            ports = {sentinel.named() for sentinel in self.sentinels}
            self.server = next((server for server in self.data if {server.port} == ports), old)
            return self.server is not old and self.server.call("ROLE")[0] == b"master"

        def await_new():
            if not is_over():
                self.check_time(since, "the sentinels name another master")
                self.after(0.02, await_new)
                return
            undo()
            self.after(0.02, await_following)

        def await_following():
            if not all(self.follows(server) for server in self.data if server is not self.server):
                self.check_time(since, "the replicas follow the new master")
                self.after(0.02, await_following)
                return
            self.lose(fault, begin, certain=False)
            self.finish(fault, begin, lambda: None)

        await_new()

    @staticmethod
    def check_time(since, what):
        if now() - since > FAILOVER_SECONDS * 1000 * MS:
            raise TimeoutError(f"not in time: {what}")

    def follows(self, server):
        try:
            found = server.info("replication")
        except (OSError, servers.ServerError):
            return False
        return found.get("master_port") == str(self.server.port) and found.get("master_link_status") == "up"

    def do_failover_kill(self, fault):
        """The master is killed, and comes back empty."""
        begin, old = now(), self.server
        old.kill()
        self.after(fault.length, self.end_failover, fault, begin, old, lambda: old.start(port=old.port))
        return self.PENDING

    def do_failover_stop(self, fault):
        """The master is stopped, and when it goes on, it takes itself for the master for a moment."""
        begin, old = now(), self.server
        old.pause()
        self.after(fault.length, self.end_failover, fault, begin, old, old.resume)
        return self.PENDING

    def do_failover_order(self, fault):
        begin, old = now(), self.server
        try:
            self.sentinels[len(self.acts) % SENTINELS].call("SENTINEL", "FAILOVER", MASTER)
        except servers.ServerError:
            return None  # just after another, a sentinel may find no good replica
        self.after(fault.length, self.end_failover, fault, begin, old, lambda: None)
        return self.PENDING

    def do_sentinel_stop(self, fault):
        sentinel = self.sentinels[fault.params["sentinel"]]
        sentinel.pause()
        return sentinel.resume
