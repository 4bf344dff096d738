"""A proxy between the workers and Redis, which harms what passes.

Run by the rig as a process of its own. Prints the port it listens on; reads orders from its standard input, one JSON
object a line, and answers each with a line, a number; ends with its standard input.

    {"do": "backend", "path": P}            connects to that Unix socket from now on
    {"do": "refuse", "on": B}               new connections are closed as soon as they are made
    {"do": KIND, "share": F, "salt": N, ..} harms a share of the connections (chosen by the salt), until "calm"; KIND is
        cut                                 closes them
        stall                               nothing passes
        drop, "way": up|down                what comes on that way is thrown away, as long as the connection lives
        delay, "ms": N                      each piece comes so much later
        throttle, "rate": N                 bytes a second each way
        half_close, "way": up|down          ends that way: its receiver is told that no more comes
        cut_after, "bytes": N               closes each after N bytes of the next piece to the client that is longer
        stuck, "ms": N, "words": [..], "named": B, "until": [..]
                                            a piece to the server that contains one of these words of a command is held
                                            back for N ms, and its client is told that the connection is over. One piece
                                            at a time, so that what the client sends again comes through. named: only
                                            from clients that said AUTH. until: the piece may pass earlier, shortly
                                            after another about the same lock that contains one of those words
    {"do": "messages", "how": H, "ms": N, "of": "recalls"}
                                            harms the messages that keys have changed, beside whatever else acts; with
                                            "of", recalls of kept leases instead. H:
        lost                                they are thrown away
        late                                they come so much later, behind whatever came meanwhile
        doubled                             they come twice at once
        again                               they come, and once more so much later: then for an older lease
        null                                nothing is harmed any more. The answer: how many messages were
    {"do": "calm"}                          ends what harms; what is held back stays so. The answer: how many
                                            connections "cut_after" closed, or from how many "stuck" held a piece back

What a client sent before it went away is still delivered, as it would be by a network.
"""

import collections
import json
import os
import re
import selectors
import socket
import struct
import sys
import time
import zlib

PIECE = 65536
BACKLOG = 1 << 20
SHORTLY = 0.01  # seconds by which what was held back passes after the piece that it waited for
LOCK = re.compile(rb"lock:\w+:\w+")
CHANGES = re.compile(rb"\*3\r\n\$7\r\nmessage\r\n\$20\r\n__redis__:invalidate\r\n")
RECALL = re.compile(rb"\*3\r\n\$7\r\nmessage\r\n\$\d+\r\ndibs:[^\r]*\r\n\$\d+\r\n0 0 ")


def reply_end(data, at):
    """Where the reply ends that begins there; -1: it is not whole."""
    line = data.find(b"\r\n", at)
    if line < 0:
        return -1
    kind, end = data[at : at + 1], line + 2
    if kind == b"$":
        end += max(0, int(data[at + 1 : line]) + 2) if data[at + 1 : line] != b"-1" else 0
        return end if end <= len(data) else -1
    for _ in range(max(0, int(data[at + 1 : line])) if kind == b"*" else 0):
        end = reply_end(data, end)
        if end < 0:
            return -1
    return end


def split_replies(data):
    """The whole replies that the data begins with, and the rest."""
    replies, at = [], 0
    while at < len(data) and (end := reply_end(data, at)) >= 0:
        replies.append(data[at:end])
        at = end
    return replies, data[at:]


class Flow:
    """One direction of a connection: what was read from source and is not yet written to target."""

    def __init__(self, source, target):
        self.source, self.target = source, target
        self.queue = collections.deque()  # (when it may pass, bytes)
        self.queued = 0
        self.ended = False  # the source sends no more
        self.shut = False  # and the target was told
        self.stalled = self.dropping = False
        self.blocked = False  # the target takes no more now
        self.delay = 0.0
        self.rate = 0.0
        self.allowance_at = 0.0
        self.cut_after = -1

    def hold_back(self, until):
        """What was read passes at that time; nothing more is read."""
        self.queue = collections.deque((until, data) for _, data in self.queue)
        self.ended = True

    def discard(self):
        """Nothing passes any more."""
        self.queue.clear()
        self.queued = 0
        self.dropping = True

    def add(self, data, now):
        if not self.dropping:
            self.queue.append((now + self.delay, data))
            self.queued += len(data)

    def due(self):
        """When something can be written; None: not before something else happens."""
        if self.stalled or self.blocked or not self.queue:
            return None
        return max(self.queue[0][0], self.allowance_at)

    def take(self, now):
        when = self.due()
        if when is None or when > now:
            return b""
        data = self.queue[0][1]
        if 0 <= self.cut_after < len(data):
            data = data[: self.cut_after]
        if self.rate:
            data = data[: max(1, int(self.rate / 50))]
        return data

    def wrote(self, count, now):
        when, data = self.queue[0]
        self.queued -= count
        if count == len(data):
            self.queue.popleft()
        else:
            self.queue[0] = (when, data[count:])
        if 0 <= self.cut_after < len(data):
            self.cut_after -= count
        if self.rate:
            self.allowance_at = now + count / self.rate

    def is_cut(self):
        """Whether the rest of a piece must not be passed on any more."""
        return self.cut_after == 0 and bool(self.queue)

    def calm(self):
        self.stalled = False
        self.delay = self.rate = self.allowance_at = 0.0
        self.cut_after = -1


class Connection:
    def __init__(self, number, client, server):
        self.number, self.client, self.server = number, client, server
        self.up, self.down = Flow(client, server), Flow(server, client)
        self.flows = {client: self.up, server: self.down}
        self.watched = {}
        self.sticks = False  # a piece of this connection must be held back
        self.named = False  # its client said AUTH
        self.hears = False  # its client subscribed to the changes of keys
        self.rest = b""  # of it: what came last, and is no whole reply yet

    def flow_to(self, end):
        return self.down if end is self.client else self.up


class Proxy:
    def __init__(self, backend):
        self.backend, self.refusing = backend, False
        self.selector = selectors.DefaultSelector()
        self.connections = set()
        self.accepted = 0
        self.acting = None  # the order that new connections feel too
        self.cuts = 0  # connections closed within a reply or held back, by what acts
        self.stuck_until = 0.0  # for what is held back, and the locks that this is about
        self.stuck, self.stuck_locks, self.until = None, set(), []
        self.messages, self.harmed = None, 0  # the order that harms messages, and how many it has
        self.later = []  # messages still to be passed on: when, for which connection
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, None)
        os.set_blocking(0, False)
        self.selector.register(0, selectors.EVENT_READ, None)
        self.orders = b""

    # ------------------------------------------------------------- connections

    def accept(self):
        try:
            client, _ = self.listener.accept()
        except OSError:
            return
        server = socket.socket(socket.AF_UNIX)
        try:
            if self.refusing:
                raise ConnectionRefusedError
            server.connect(self.backend)
        except OSError:
            client.close()
            server.close()
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for end in (client, server):
            end.setblocking(False)
        self.accepted += 1
        connection = Connection(self.accepted, client, server)
        self.connections.add(connection)
        if self.acting and self.acting["do"] in ("stall", "drop", "delay", "throttle", "cut_after", "stuck"):
            self.harm(connection, self.acting)
        self.watch(connection)

    def close(self, connection, reset=False):
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        for end in (connection.client, connection.server):
            if end in connection.watched:
                self.selector.unregister(end)
            if reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()

    def watch(self, connection):
        for end, flow in connection.flows.items():
            events = 0
            if not flow.ended and flow.queued < BACKLOG:
                events |= selectors.EVENT_READ
            if connection.flow_to(end).blocked:
                events |= selectors.EVENT_WRITE
            known = connection.watched.get(end, 0)
            if events == known:
                continue
            if not known:
                self.selector.register(end, events, connection)
            elif not events:
                self.selector.unregister(end)
            else:
                self.selector.modify(end, events, connection)
            connection.watched[end] = events
            if not events:
                del connection.watched[end]

    def read(self, connection, flow):
        try:
            data = flow.source.recv(PIECE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            flow.ended = True
            return
        if flow is connection.down:
            flow.add(self.harm_messages(connection, data) if connection.hears else data, time.monotonic())
            return
        flow.add(data, time.monotonic())
        connection.hears = connection.hears or b"__redis__:invalidate" in data
        connection.named = connection.named or self.has_word(data, ["AUTH"])
        if connection.sticks and self.is_to_stick(connection, data):
            self.stick(connection, data)
        elif self.stuck and self.has_word(data, self.until) and self.stuck_locks & set(LOCK.findall(data)):
            self.unstick()

    def harm_messages(self, connection, data):
        """
        What may pass of the data. Of a connection that hears changes only whole replies pass, so that between any two
        pieces there may come another.
        """
        replies, connection.rest = split_replies(connection.rest + data)
        passing = []
        for reply in replies:
            passing += self.harm_message(connection, reply) if self.is_harmed(reply) else [reply]
        return b"".join(passing)

    def is_harmed(self, reply):
        if not self.messages:
            return False
        return (RECALL if self.messages.get("of") == "recalls" else CHANGES).match(reply)

    def harm_message(self, connection, message):
        """What may pass of the message now."""
        self.harmed += 1
        how = self.messages["how"]
        if how in ("late", "again"):
            self.later.append((time.monotonic() + self.messages["ms"] / 1000, connection, message))
        return {"lost": [], "late": [], "doubled": [message, message], "again": [message]}[how]

    def tell_later(self):
        """Lets messages come whose time that is. The connections that get one."""
        now = time.monotonic()
        due = [(connection, message) for when, connection, message in self.later if when <= now]
        self.later = [later for later in self.later if later[0] > now]
        for connection, message in due:
            connection.down.add(message, now)
        return {connection for connection, _ in due if connection in self.connections}

    @staticmethod
    def has_word(data, words):
        return any(b"\r\n$%d\r\n%s\r\n" % (len(word), word.encode()) in data for word in words)

    def is_to_stick(self, connection, data):
        if time.monotonic() < self.stuck_until or self.acting["named"] > connection.named:
            return False
        return self.has_word(data, self.acting["words"])

    def stick(self, connection, data):
        self.cuts += 1
        self.stuck_until = time.monotonic() + self.acting["ms"] / 1000
        self.stuck, self.stuck_locks, self.until = connection, set(LOCK.findall(data)), self.acting["until"]
        connection.up.hold_back(self.stuck_until)
        connection.down.discard()
        try:
            connection.client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def unstick(self):
        self.stuck_until = min(self.stuck_until, time.monotonic() + SHORTLY)
        self.stuck.up.hold_back(self.stuck_until)
        self.stuck = None

    def write(self, flow):
        """False: the target is gone."""
        now = time.monotonic()
        while data := flow.take(now):
            try:
                count = flow.target.send(data)
            except (BlockingIOError, InterruptedError):
                count = 0
            except OSError:
                return False
            flow.wrote(count, now)
            flow.blocked = count < len(data)
        return True

    def pump(self, connection):
        """Writes what is due, passes on ends; closes the connection where both sides are done."""
        for flow in (connection.up, connection.down):
            if not self.write(flow):
                flow.discard()
                if flow is connection.up:
                    connection.down.ended = True
            if flow.is_cut():
                self.cuts += 1
                return self.close(connection, reset=True)
            if flow.ended and not flow.queue and not flow.shut and not flow.stalled:
                flow.shut = True
                try:
                    flow.target.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
        if connection.up.shut and connection.down.shut:
            return self.close(connection)
        return self.watch(connection)

    # ------------------------------------------------------------------ orders

    @staticmethod
    def is_chosen(connection, order):
        number = zlib.crc32(b"%d %d" % (connection.number, order.get("salt", 0)))
        return number % 1000 < 1000 * order.get("share", 1)

    @staticmethod
    def ways(connection, order):
        way = order.get("way")
        return [flow for name, flow in (("up", connection.up), ("down", connection.down)) if way in (None, name)]

    def harm(self, connection, order):
        kind = order["do"]
        if not self.is_chosen(connection, order):
            return
        if kind == "cut":
            self.close(connection, reset=order.get("reset", False))
        elif kind == "half_close":
            for flow in self.ways(connection, order):
                flow.ended = True
        elif kind == "cut_after":
            connection.down.cut_after = order["bytes"]
        connection.sticks = kind == "stuck"
        for flow in self.ways(connection, order):
            if kind == "stall":
                flow.stalled = True
            elif kind == "drop":
                flow.dropping = True
            elif kind == "delay":
                flow.delay = order["ms"] / 1000
            elif kind == "throttle":
                flow.rate = order["rate"]

    def obey(self, order):
        kind, cuts = order["do"], self.cuts
        if kind == "messages":
            harmed, self.harmed = self.harmed, 0
            self.messages = order if order["how"] else None
            return harmed
        if kind == "backend":
            self.backend = order["path"]
        elif kind == "refuse":
            self.refusing = order["on"]
        elif kind == "calm":
            self.acting = None
            for connection in list(self.connections):
                connection.sticks = False
                for flow in (connection.up, connection.down):
                    flow.calm()
        else:
            self.acting, self.cuts = order, 0
            for connection in list(self.connections):
                self.harm(connection, order)
        for connection in list(self.connections):
            self.pump(connection)
        return cuts if kind == "calm" else 0

    def read_orders(self):
        data = os.read(0, PIECE)
        if not data:
            sys.exit(0)
        self.orders += data
        while b"\n" in self.orders:
            line, self.orders = self.orders.split(b"\n", 1)
            print(self.obey(json.loads(line)), flush=True)

    # -------------------------------------------------------------------- loop

    def dues(self):
        flows = [(c, flow.due()) for c in self.connections for flow in (c.up, c.down) if flow.queue]
        return [(due, connection) for connection, due in flows if due is not None]

    def next_due(self):
        dues = [due for due, _ in self.dues()] + [when for when, _, _ in self.later]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def late(self):
        now = time.monotonic()
        return {connection for due, connection in self.dues() if due <= now}

    def run(self):
        print(self.listener.getsockname()[1], flush=True)
        while True:
            touched = set()
            for key, events in self.selector.select(self.next_due()):
                if key.fileobj is self.listener:
                    self.accept()
                elif key.fileobj == 0:
                    self.read_orders()
                elif key.data in self.connections:
                    if events & selectors.EVENT_READ:
                        self.read(key.data, key.data.flows[key.fileobj])
                    if events & selectors.EVENT_WRITE:
                        key.data.flow_to(key.fileobj).blocked = False
                    touched.add(key.data)
            for connection in touched | self.tell_later() | self.late():
                if connection in self.connections:
                    self.pump(connection)


if __name__ == "__main__":
    Proxy(sys.argv[1]).run()
