"""The fault rig on a cluster of six nodes: three masters with a replica each. Slots of the names move while in use.

A slot that moves takes its locks along: nothing is lost. A master that is killed is a failover, of that node's names
alone, and counts as a loss of data.
"""

import os
import time

import servers
from checker import MS, Loss

NODES, MASTERS, SLOTS = 6, 3, 16384
NODE_TIMEOUT_MS = 500
FAILOVER_SECONDS = 20
now = time.monotonic_ns


class Node(servers.Server):
    """A node of the cluster. What it knows of the others outlives it."""

    bus = 0

    def more_words(self):
        self.bus = self.bus or servers.free_port()
        return ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS, "--cluster-port", self.bus]

    def id(self):
        return self.call("CLUSTER", "MYID").decode()

    def slots(self):
        """Who has which slots: (first, last, port)."""
        return [(first, last, int(owner[1])) for first, last, owner, *_ in self.call("CLUSTER", "SLOTS")]

    def serves(self):
        return b"cluster_state:ok" in self.call("CLUSTER", "INFO")


class Cluster:
    """What differs from a rig with one server."""

    IS_SPREAD = True

    def start_servers(self):
        self.nodes = [Node(os.path.join(self.folder, f"n{i}"), self.options.shim, self.clock) for i in range(NODES)]
        for i, node in enumerate(self.nodes):
            node.start()
            node.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for i, node in enumerate(self.nodes[:MASTERS]):
            node.call("CLUSTER", "ADDSLOTSRANGE", SLOTS * i // MASTERS, SLOTS * (i + 1) // MASTERS - 1)
        for node in self.nodes[1:]:
            self.nodes[0].call("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus)
        wanted = b"cluster_known_nodes:%d" % NODES
        servers.await_that(lambda: all(wanted in node.call("CLUSTER", "INFO") for node in self.nodes), "the nodes know each other")
        for i, node in enumerate(self.nodes[MASTERS:]):
            servers.await_that(lambda node=node, i=i: self.replicates(node, self.nodes[i]), "a node replicates another")
        servers.await_that(lambda: all(node.serves() for node in self.nodes), "the cluster serves")
        servers.await_that(lambda: all(self.is_in_step(node) for node in self.nodes), "the replicas are in step")
        self.server = self.nodes[0]
        self.owners()
        self.moving = False  # keys go from node to node, so nobody can look for them

    @staticmethod
    def replicates(node, master):
        try:
            node.call("CLUSTER", "REPLICATE", master.id())
            return True
        except servers.ServerError:
            return False

    @staticmethod
    def is_in_step(node):
        found = node.info("replication")
        return found["role"] == "master" or found.get("master_link_status") == "up"

    def url_of(self, index):
        return "redis-cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def alive(self):
        return [node for node in self.nodes if node.process is not None]

    def node_at(self, port):
        return next(node for node in self.nodes if node.port == port)

    def owners(self):
        """The masters in use."""
        self.known = list(dict.fromkeys(self.node_at(port) for _, _, port in self.alive()[0].slots()))
        return self.known

    def slot_of(self, name):
        return self.alive()[0].call("CLUSTER", "KEYSLOT", f"lock:p{self.phase_number}:n{name}")

    def owner(self, slot):
        """None: the nodes do not agree."""
        found = {port for node in self.alive() for first, last, port in node.slots() if first <= slot <= last}
        return self.node_at(found.pop()) if len(found) == 1 else None

    def check_servers(self):
        for node in self.nodes:
            if node.crashed():
                raise RuntimeError(f"a node has ended by itself\n{node.log()}")

    def close_servers(self):
        for node in self.nodes:
            node.kill()

    # ------------------------------------------------------------------ faults

    def do_slot_move(self, fault):
        """The slot of a name moves, with a pause before its keys follow and one before everybody is told."""
        slot = self.slot_of(fault.params["name"])
        old = self.owner(slot)
        others = [node for node in self.owners() if node is not old]
        if old is None or not others:
            return None
        new = others[fault.params["to"] % len(others)]
        self.moving = True
        new.call("CLUSTER", "SETSLOT", slot, "IMPORTING", old.id())
        old.call("CLUSTER", "SETSLOT", slot, "MIGRATING", new.id())

        def end():
            while keys := old.call("CLUSTER", "GETKEYSINSLOT", slot, 100):
                for key in keys:
                    old.call("MIGRATE", "127.0.0.1", new.port, key, 0, 5000)
            for node in (new, old):
                node.call("CLUSTER", "SETSLOT", slot, "NODE", new.id())
            servers.await_that(lambda: self.owner(slot) is new, "all nodes know who has the slot")
            self.owners()
            self.moving = False

        return end

    def do_node_kill(self, fault):
        """A master is killed; its replica takes over; the old one comes back, empty, as a replica."""
        masters = self.owners()
        old = masters[fault.params["node"] % len(masters)]
        owned = [name for name in range(self.options.names) if self.owner(self.slot_of(name)) is old]
        begin, self.moving = now(), True
        old.kill()

        def await_new():
            if any(not node.serves() or any(port == old.port for _, _, port in node.slots()) for node in self.alive()):
                if now() - begin > FAILOVER_SECONDS * 1000 * MS:
                    raise TimeoutError("no replica takes over")
                self.after(0.05, await_new)
                return
            for name in owned:
                self.losses.append(Loss(fault.kind, begin, now(), name, False))
            old.start(port=old.port)
            self.after(0.05, await_step)

        def await_step():
            if not all(node.serves() and self.is_in_step(node) for node in self.nodes):
                if now() - begin > FAILOVER_SECONDS * 1000 * MS:
                    raise TimeoutError("the old master does not follow")
                self.after(0.05, await_step)
                return
            self.owners()
            self.moving = False
            self.finish(fault, begin, lambda: None)

        self.after(0.3, await_new)
        return self.PENDING

    # --------------------------------------------------------------------- end

    def watched(self):
        return [] if self.moving else [node.path for node in self.known]

    def keys(self):
        found = {}
        for node in self.owners():
            for key in self.scan("*", node):
                found[key.decode()] = node.call("PTTL", key)
        return {key: left for key, left in found.items() if left != -2}
