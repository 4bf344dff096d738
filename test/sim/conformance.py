"""Whether the simulation's server answers as redis-server does: the same commands are sent to both, one by one.

    conformance.py SIM LIBRARY SHIM [--seed N] [--commands N] [--cluster]

Prints TAP. The clocks of both are set to the same time before each command. What expires does so when the clocks are
stepped, by far more or far less than a lease: so it does not matter how slow the machine is. Of an error the first word
is compared, which is what dibs looks at; large numbers may differ by what a slow machine takes between the two.
"""
import argparse
import hashlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(TOP, "test", "fault"))
import cluster  # noqa: E402
import servers  # noqa: E402

CLIENTS = 3  # 0 and 1 ask, 2 is subscribed
NODES = 3  # of a cluster: clients 0 to 2 ask one of them each, 3 to 5 listen to sharded channels
LIMIT_S = 150
ANSWER_S = 30  # for one command
STEP_S = 50
LEASES = ("20000", "60000", "120000")  # after whole steps none of them is within 10 s of its end
SLACK = 5  # s
NAMES = ("a", "b")
SCRIPTS = ("acquire", "release", "requeue", "retract", "renew_short", "query", "force", "vote", "raise", "acquire_member")


class Simulated:
    def __init__(self, arguments):
        own, other = socket.socketpair()
        own.settimeout(ANSWER_S)
        self.talk = servers.Client.__new__(servers.Client)
        self.talk.socket, self.talk.file = own, own.makefile("rb")
        with other:
            self.process = subprocess.Popen([arguments.sim, arguments.library, "--commands",
                                             str(NODES if arguments.cluster else 1)], stdin=other, stdout=other)

    def ask(self, client, us, words):
        self.talk.send(client, us, *words)
        return list(iter(self.talk.receive, "END"))

    def set_memory(self, is_short):
        self.ask(0, 0, ["OOM", str(int(is_short))])

    def end(self):
        self.process.kill()
        self.process.wait()


class Real:
    """Each client is a connection. The server dies with this program."""

    def __init__(self, arguments, folder):
        self.clock = servers.Clock(os.path.join(folder, "clock"))
        self.server = servers.Server(os.path.join(folder, "server"), arguments.shim, self.clock)
        self.server.start()
        self.clients = [servers.Client(self.server.path, ANSWER_S) for _ in range(CLIENTS)]

    def ask(self, client, _, words):
        self.clients[client].send(*words)
        replies = [self.clients[client].receive()]
        while is_push(replies[-1]):
            replies.append(self.clients[client].receive())
        return replies

    def set_memory(self, is_short):
        self.server.call("CONFIG", "SET", "maxmemory", "1" if is_short else "0")

    def end(self):
        if self.server.process:
            self.server.process.kill()
            self.server.process.wait()


class RealCluster(cluster.Cluster, Real):
    """Its nodes leave each other alone when the clock is stepped."""

    def __init__(self, arguments, folder):
        cluster.NODES, cluster.NODE_TIMEOUT_MS = NODES, 100_000_000
        self.folder, self.options = folder, arguments
        self.clock = servers.Clock(os.path.join(folder, "clock"))
        self.start_servers()
        self.clients = [servers.Client(self.nodes[i % NODES].path, ANSWER_S) for i in range(2 * NODES)]

    def end(self):
        self.close_servers()


def is_push(reply):
    return isinstance(reply, list) and reply[:1] in ([b"message"], [b"smessage"], [b"sunsubscribe"])


def place_of(address, nodes):
    """The node of that address, as the simulation or as the cluster has it."""
    host, port = address.split(":")
    return int(host.split(".")[3]) if host != "127.0.0.1" else 1 + [node.port for node in nodes].index(int(port))


def without_addresses(reply, nodes):
    if isinstance(reply, servers.ServerError) and str(reply).split()[0] in ("MOVED", "ASK"):
        how, slot, address = str(reply).split()
        return f"{how} {slot} {place_of(address, nodes)}"
    if isinstance(reply, list) and reply and isinstance(reply[0], list) and isinstance(reply[0][-1], list):
        return sorted([first, last, place_of(f"{node[0].decode()}:{node[1]}", nodes)] for first, last, node in reply)
    return reply


def same(one, other, slack):
    """slack: how much later the one was asked than the other, at most, in s."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b, slack) for a, b in zip(one, other))
    if isinstance(one, servers.ServerError) and isinstance(other, servers.ServerError):
        return str(one).split()[:1] == str(other).split()[:1]
    if isinstance(one, int) and isinstance(other, int):
        allowed = 0 if one <= 100 else slack * 1_000_000 if one > 1e12 else slack * 1000
        return abs(one - other) <= allowed
    if isinstance(one, bytes) and isinstance(other, bytes):
        mine, others = re.split(rb"(\d+)", one), re.split(rb"(\d+)", other)
        return len(mine) == len(others) and all(
            a == b or (a.isdigit() and b.isdigit() and same(int(a), int(b), slack)) for a, b in zip(mine, others))
    return one == other


class Pair:
    def __init__(self, arguments, folder):
        self.stepped = self.asked = self.differing = 0
        self.simulated = Simulated(arguments)
        try:
            self.real = (RealCluster if arguments.cluster else Real)(arguments, folder)
        except BaseException:
            self.simulated.end()
            raise

    def ask(self, client, *words):
        """words: a list stands for words that differ: what the simulation is sent, and what redis-server."""
        began = time.time()
        theirs = self.real.ask(client, 0, [word[1] if isinstance(word, list) else word for word in words])
        now = time.time()
        ours = self.simulated.ask(client, int((now + self.stepped) * 1e6),
                                  [word[0] if isinstance(word, list) else word for word in words])
        nodes = getattr(self.real, "nodes", [])
        ours, theirs = ([without_addresses(reply, nodes) for reply in replies] for replies in (ours, theirs))
        self.asked += 1
        slack = SLACK + 2 * (now - began)
        pushes = [sorted(filter(is_push, replies), key=repr) for replies in (ours, theirs)]  # of keys that expire at once
        if not same(*pushes, slack) or not same(ours[-1:], theirs[-1:], slack):
            self.differing += 1
            shown = [word[:60] for word in words]
            print(f"# client {client}, {shown}:\n#   simulated {str(ours)[:400]}\n#   redis     {str(theirs)[:400]}")
        return ours[-1], theirs[-1]

    def order(self, node, *words):
        """Node 0 to 2 of both clusters: IMPORT, MIGRATE or OWN a slot, or MOVE a key."""
        self.simulated.ask(node, 0, [words[0], str(words[1]), str(words[2] + 1)])
        real, to = self.real.nodes[node], self.real.nodes[words[2]]
        if words[0] == "MOVE":
            real.call("MIGRATE", "127.0.0.1", to.port, words[1], 0, 5000, "REPLACE")
        else:
            how = {"IMPORT": "IMPORTING", "MIGRATE": "MIGRATING", "OWN": "NODE"}[words[0]]
            real.call("CLUSTER", "SETSLOT", words[1], how, to.id())

    def step(self):
        self.stepped += STEP_S
        self.real.clock.set(self.stepped)
        self.ask(0, "EXISTS", *(key for name in NAMES for key in keys_of(name)), "dibs:vote")

    def run_without_memory(self, *commands):
        for server in (self.simulated, self.real):
            server.set_memory(True)
        for command in commands:
            command()
        for server in (self.simulated, self.real):
            server.set_memory(False)

    def end(self):
        self.simulated.end()
        self.real.end()


class Script:
    def __init__(self, name):
        self.text = "\n".join(self.lines_of(name)) + "\n"
        self.sha = hashlib.sha1(self.text.encode()).hexdigest()

    def lines_of(self, name):
        """A script as the library sends it."""
        with open(os.path.join(TOP, "src", "redis", "scripts", name + ".lua"), encoding="ascii") as file:
            for line in map(str.strip, file):
                if line.startswith("-- @insert "):
                    yield from self.lines_of(line.split()[2])
                elif line and not line.startswith("--"):
                    yield line


def greet(pair):
    """The greeting of a connection. Client 2 hears of keys that change, too."""
    for client in range(CLIENTS):
        pair.ask(client, "CLIENT", "SETNAME", "dibs")
    ids = [str(server.ask(2, 0, ["CLIENT", "ID"])[-1]) for server in (pair.simulated, pair.real)]
    pair.ask(0, "CLIENT", "KILL", "ID", "9223372036854775807")
    pair.ask(0, "SCRIPT", "EXISTS", "a" * 40)
    pair.ask(0, "EVAL", "return 1", "0")
    pair.ask(0, "ROLE")
    pair.ask(0, "PING")
    pair.ask(0, "CLIENT", "CACHING", "NO")
    for channel in ("ear", "ear2", "__redis__:invalidate"):
        pair.ask(2, "SUBSCRIBE", channel)
    pair.ask(2, "GET", "k")
    pair.ask(2, "PING")
    pair.ask(1, "CLIENT", "TRACKING", "ON", "REDIRECT", ids, "OPTOUT", "NOLOOP")
    pair.ask(1, "CLIENT", "TRACKING", "ON", "REDIRECT", "99999")


def keys_of(name):
    return [f"lock:{name}", f"dibs:fence:{{lock:{name}}}", f"dibs:queue:{{lock:{name}}}"]


def writes(keys):
    lock = keys[0]
    return [["SET", lock, "x", "PX", "20000"], ["SET", lock, "x", "NX", "PX", "60000"], ["SET", lock], ["DEL", lock],
            ["DEL", *keys], ["HSET", lock, "f", "v"]]


def reads(keys):
    return [["GET", keys[0]], ["GET", keys[2]], ["MGET", *keys], ["EXISTS", *keys], ["PTTL", keys[1]],
            ["PTTL", "nothing"], ["HLEN", keys[2]], ["HMGET", keys[2], "", "x"], ["HGET", keys[0], "f"], ["NOSUCH"],
            ["GET"], ["EVALSHA", "f" * 40, "0"],
            ["EVAL", 'return {1,2,{3,"x"},false,true,1.7}', "0"], ["EVAL", 'return redis.call("NOSUCH")', "0"],
            ["EVAL", 'return redis.pcall("GET")', "0"], ["EVAL", 'return redis.call("GET", KEYS[1])', "1", keys[2]],
            ["EVAL", 'error("x")', "0"], ["EVAL", "syntax error here", "0"],
            ["EVAL", 'return redis.error_reply("MINE x")', "0"],
            ["SCAN", "0", "MATCH", "lock:a", "COUNT", "1000", "TYPE", "string"]]


class Moves:
    """A slot after the other goes from node to node, step by step."""

    def __init__(self, pair, draw):
        self.pair, self.draw, self.step = pair, draw, 0

    def go_on(self):
        if self.step == 0:
            self.slot = self.pair.real.nodes[0].call("CLUSTER", "KEYSLOT", f"lock:{self.draw.choice(NAMES)}")
            self.old = self.pair.real.nodes.index(self.pair.real.owner(self.slot))
            self.new = (self.old + self.draw.choice((1, 2))) % NODES
            self.pair.order(self.new, "IMPORT", self.slot, self.old)
        elif self.step == 1:
            self.pair.order(self.old, "MIGRATE", self.slot, self.new)
        elif keys := self.pair.real.nodes[self.old].call("CLUSTER", "GETKEYSINSLOT", self.slot, 10):
            self.pair.order(self.old, "MOVE", self.draw.choice(keys).decode(), self.new)
            return
        else:
            real = self.pair.real
            for node in (self.new, self.old, 3 - self.new - self.old):
                self.pair.order(node, "OWN", self.slot, self.new)
                servers.await_that(lambda: real.owner(self.slot) is real.nodes[self.new], "all nodes know who has the slot")
        self.step = (self.step + 1) % 3


def cluster_commands(pair, draw, count):
    moves = Moves(pair, draw)

    def listen():
        pair.ask(draw.choice((3, 4, 5)), "SSUBSCRIBE", "ear:{lock:%s}" % draw.choice(NAMES))

    def before(client):
        if draw.random() < 0.12:
            moves.go_on()
        if draw.random() < 0.1:
            listen()
        if draw.random() < 0.3:
            pair.ask(client, "ASKING")
        if draw.random() < 0.1:
            channel = "ear:{lock:%s}" % draw.choice(NAMES)
            pair.ask(client, *draw.choice((["SPUBLISH", channel, "x"], ["CLUSTER", "SLOTS"], ["INFO", "cluster"],
                                           ["PUBSUB", "SHARDNUMSUB", channel])))

    channels = ("", *("ear:{lock:%s}" % name for name in NAMES))
    random_commands(pair, draw, count, (0, 1, 2), (3, 4, 5), channels, before)


def random_commands(pair, draw, count, clients=(0, 1), listeners=(2,), channels=("", "ear", "ear2", "nobody"), before=None):
    scripts = {name: Script(name) for name in SCRIPTS}

    def call(script, keys, *argv):
        words = (str(len(keys)), *keys, *argv)
        if isinstance(pair.ask(client, "EVALSHA", scripts[script].sha, *words)[1], servers.ServerError):
            pair.ask(client, "EVAL", scripts[script].text, *words)

    def talk():
        pair.ask(client, "PUBLISH", channel or "none", "hello")
        pair.ask(client, "PUBSUB", "NUMSUB", "ear", "nobody")
        pair.ask(client, "PUBSUB", "SHARDNUMSUB", "ear")

    for number in range(1, count + 1):
        client, keys = draw.choice(clients), keys_of(draw.choice(NAMES))
        tokens = ("dibs:t1", "dibs:t2", "dibs:t3", "other")
        token, lease, channel = draw.choice(tokens), draw.choice(LEASES), draw.choice(channels)
        asks = (token, str(number), lease, channel)
        actions = {
            "acquire": (5, lambda: call("acquire", keys, *asks, "0")),
            "acquire, too late": (1, lambda: call("acquire", keys, *asks, "1")),
            "release": (2, lambda: call("release", keys, token, *draw.choice(([], ["quiet"], ["5"])))),
            "retract": (1, lambda: call("retract", keys, token, draw.choice(("", "0")))),
            "query": (1, lambda: call("query", keys)),
            "force": (1, lambda: call("force", keys, "0", token)),
            "requeue": (1, lambda: call("requeue", keys, *asks, "0", draw.choice(tokens))),
            "raise": (1, lambda: call("raise", keys, token, "1999000000000000", lease)),
            "vote": (1, lambda: call("vote", ["dibs:vote"], lease, "20000", "0")),
            "acquire_member": (1, lambda: call("acquire_member", keys + ["dibs:vote"], *asks, "0")),
            "renew_short": (2, lambda: call("renew_short", keys[:1], lease, token)),
            "write": (1, lambda: pair.ask(client, *draw.choice(writes(keys)))),
            "read": (2, lambda: pair.ask(client, *draw.choice(reads(keys)))),
            "talk": (1, talk),
            "step": (0.4, pair.step),
            "no memory": (0.4, lambda: pair.run_without_memory(lambda: call("acquire", keys, *asks, "0"),
                                                               lambda: call("release", keys, token),
                                                               lambda: pair.ask(client, "SET", "x", "y"))),
            "forget scripts": (0.2, lambda: pair.ask(client, "SCRIPT", "FLUSH")),
        }
        if before:
            before(client)
        elif client == 1 and draw.random() < 0.5:
            pair.ask(1, "CLIENT", "CACHING", "NO")
        draw.choices([run for _, run in actions.values()], [weight for weight, _ in actions.values()])[0]()
        for listener in listeners:
            pair.ask(listener, "PING")  # what was pushed comes before the answer


def give_up(*_):
    raise TimeoutError(f"not done after {LIMIT_S} s")


def main():
    parser = argparse.ArgumentParser()
    for name in ("sim", "library", "shim"):
        parser.add_argument(name)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", type=int, default=1500)
    parser.add_argument("--cluster", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT_S)
    print("1..1")
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(arguments, folder)
        try:
            draw = random.Random(arguments.seed)
            if arguments.cluster:
                cluster_commands(pair, draw, arguments.commands)
            else:
                greet(pair)
                random_commands(pair, draw, arguments.commands)
        finally:
            pair.end()
    print(f'{"not " if pair.differing else ""}ok 1 - {pair.asked} commands are answered as redis-server does '
          f"({pair.differing} are not)")
    sys.exit(pair.differing > 0)


if __name__ == "__main__":
    main()
