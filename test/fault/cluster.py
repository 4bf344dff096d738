"""The fault rig on a cluster of six nodes: three masters with a replica each. Slots of the names move while in use.

A slot that moves takes its locks along: nothing is lost. A failover counts as a loss of data, of the names of that node
alone.
"""

import os
import time

import servers
from checker import MS, Act, Loss

NODES, MASTERS, SLOTS = 6, 3, 16384
NODE_TIMEOUT_MS = 2000  # a node that is not let run for so long is replaced
FAILOVER_SECONDS = 60
now = time.monotonic_ns


class Node(servers.Server):
    """A node of the cluster. What it knows of the others outlives it."""

    def more_words(self):
        self.bus = servers.free_port()
        return ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS, "--cluster-port", self.bus]

    def id(self):
        return self.call("CLUSTER", "MYID").decode()

    def slots(self):
        """Who has which slots: (first, last, port)."""
        return [(first, last, int(owner[1])) for first, last, owner, *_ in self.call("CLUSTER", "SLOTS")]

    def has_slots_of(self, other):
        """Whether this node takes the other for a master."""
        return any(port == other.port for _, _, port in self.slots())

    def serves(self):
        return b"cluster_state:ok" in self.call("CLUSTER", "INFO")


class Cluster:
    """What differs from a rig with one server."""

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
        servers.await_that(lambda: all(wanted in n.call("CLUSTER", "INFO") for n in self.nodes), "the nodes meet")
        for i, node in enumerate(self.nodes[MASTERS:]):
            servers.await_that(lambda node=node, i=i: self.replicates(node, self.nodes[i]), "a node replicates another")
        servers.await_that(lambda: all(node.serves() for node in self.nodes), "the cluster serves")
        servers.await_that(lambda: all(self.is_in_step(node) for node in self.nodes), "the replicas are in step")
        self.server = self.nodes[0]
        self.away = None  # the node that is killed or stopped
        self.known = self.owners()

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

    def node_at(self, port):
        return next(node for node in self.nodes if node.port == port)

    def present(self):
        return [node for node in self.nodes if node is not self.away]

    def owners(self):
        """The masters in use."""
        return list(dict.fromkeys(self.node_at(port) for _, _, port in sorted(self.present()[0].slots())))

    def slot_of(self, name):
        return self.present()[0].call("CLUSTER", "KEYSLOT", f"lock:p{self.phase_number}:n{name}")

    def owner(self, slot):
        """None: the nodes do not agree."""
        found = {port for node in self.present() for first, last, port in node.slots() if first <= slot <= last}
        return self.node_at(found.pop()) if len(found) == 1 else None

    def check_servers(self):
        for node in self.nodes:
            if node.crashed():
                raise RuntimeError(f"a node has ended by itself\n{node.log()}")

    def close_servers(self):
        for node in self.nodes:
            node.kill()

    # ------------------------------------------------------------------ faults

    def draw_slot(self, fault):
        """The slot of the planned name, the node that has it, and another. None: the nodes do not agree."""
        slot = self.slot_of(fault.params["name"])
        old = self.owner(slot)
        others = [node for node in self.owners() if node is not old]
        return (slot, old, others[fault.params["to"] % len(others)]) if old and others else None

    @staticmethod
    def begin_move(slot, old, new):
        new.call("CLUSTER", "SETSLOT", slot, "IMPORTING", old.id())
        old.call("CLUSTER", "SETSLOT", slot, "MIGRATING", new.id())

    @staticmethod
    def move_keys(slot, old, new):
        while keys := old.call("CLUSTER", "GETKEYSINSLOT", slot, 100):
            for key in keys:
                old.call("MIGRATE", "127.0.0.1", new.port, key, 0, 5000)

    def end_move(self, slot, old, new):
        self.move_keys(slot, old, new)
        for node in (new, old):
            node.call("CLUSTER", "SETSLOT", slot, "NODE", new.id())
        servers.await_that(lambda: self.owner(slot) is new, "all nodes know who has the slot")

    def do_slot_move(self, fault):
        """The slot of a name moves. Its keys go at once, and a while later everybody is told."""
        if not (drawn := self.draw_slot(fault)):
            return None
        self.begin_move(*drawn)
        self.move_keys(*drawn)
        return lambda: self.end_move(*drawn)

    def do_slot_split(self, fault):
        """The slot of a name moves. For a while one of its keys is at the new node and the others are at the old one."""
        if not (drawn := self.draw_slot(fault)):
            return None
        slot, old, new = drawn
        self.begin_move(*drawn)
        for key in old.call("CLUSTER", "GETKEYSINSLOT", slot, 1):
            old.call("MIGRATE", "127.0.0.1", new.port, key, 0, 5000)
        return lambda: self.end_move(*drawn)

    def owned_by(self, node):
        """The names whose slot the node has."""
        return [name for name in range(self.options.names) if self.owner(self.slot_of(name)) is node]

    def draw_master(self, fault):
        masters = self.owners()
        return masters[fault.params["node"] % len(masters)]

    def end_failover(self, fault, begin, old, names, undo):
        """
        Waits until a replica has taken over. The old master comes back only then: before, it would go on as the master,
        or give its replica what it had lost.
        """

        def await_new():
            if any(not node.serves() or node.has_slots_of(old) for node in self.present()):
                self.check_time(begin, "a replica takes over")
                self.after(0.02, await_new)
                return
            undo()
            self.after(0.02, await_step)

        def await_step():
            if not all(n.serves() and self.is_in_step(n) and not n.has_slots_of(old) for n in self.nodes):
                self.check_time(begin, "the old master follows")
                self.after(0.02, await_step)
                return
            for name in names:
                self.lose(fault, begin, name=name, certain=False)
            self.away = None
            self.note_owners(old)
            self.finish(fault, begin, lambda: None)

        await_new()

    @staticmethod
    def check_time(since, what):
        if now() - since > FAILOVER_SECONDS * 1000 * MS:
            raise TimeoutError(f"not in time: {what}")

    def do_node_kill(self, fault):
        """A master is killed, and comes back empty, as a replica. What took over had not heard the last of it."""
        old = self.draw_master(fault)
        begin, names = now(), self.owned_by(old)
        old.call("CONFIG", "SET", "maxclients", 1)
        old.call("CLIENT", "KILL", "TYPE", "replica")

        def kill():
            self.away = old
            old.kill()
            self.after(fault.length, self.end_failover, fault, begin, old, names, lambda: old.start(port=old.port))

        self.after(fault.params["behind"] / 1000, kill)
        return self.PENDING

    def do_node_stop(self, fault):
        """A master is stopped until it is replaced, and when it goes on, takes itself for the master for a moment."""
        old = self.draw_master(fault)
        begin, names, self.away = now(), self.owned_by(old), old
        old.pause()
        self.after(fault.length, self.end_failover, fault, begin, old, names, old.resume)
        return self.PENDING

    def do_node_order(self, fault):
        """A replica is told to take over from its master, which is well, in order, by force or without asking."""
        old = self.draw_master(fault)
        begin, names, replica = now(), self.owned_by(old), self.replica_of(old)
        if replica is None:
            return None
        replica.call("CLUSTER", "FAILOVER", *fault.params["how"].split())
        self.after(0.02, self.end_failover, fault, begin, old, names, lambda: None)
        return self.PENDING

    def replica_of(self, master):
        port = str(master.port)
        return next((node for node in self.nodes if node.info("replication").get("master_port") == port), None)

    def note_owners(self, replaced=None):
        """
        On a slow machine a master may be replaced because it answered late: that is a loss, too, unless it is the one
        that was to be replaced.
        """
        owners = self.owners()
        if set(self.known) - set(owners) - {replaced}:
            self.losses.append(Loss("node_order", self.began, now(), None, False))
            self.acts.append(Act("node_order", self.began, now(), True))
            self.report.count("failovers that nobody planned")
        self.known = owners

    def drain(self, phase):
        super().drain(phase)
        self.note_owners()

    # --------------------------------------------------------------------- end

    def watched(self):
        return [node.path for node in self.present()]

    def look_for(self, clients, locks):
        """
        Which of the locks any node has; None: for one of them no node answers. A key that goes to another node is looked
        for at the node that gets it, too; a key that goes from a node which is looked at late to one that was looked at
        early is found there the second time.
        """
        there = [None] * len(locks)
        for client in clients + clients:
            words = [words for lock in locks for words in (("ASKING",), ("EXISTS", lock))]
            for i, found in enumerate(client.pipeline(words, raises=False)[1::2]):
                if isinstance(found, int):
                    there[i] = there[i] or found == 1
        return None if None in there else there

    def keys(self):
        found = {}
        for node in self.owners():
            for key in self.scan("*", node):
                found[key.decode()] = node.call("PTTL", key)
        return {key: left for key, left in found.items() if left != -2}
