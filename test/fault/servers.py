"""The Redis servers of the rig, and a client that speaks just enough of their protocol."""

import contextlib
import json
import mmap
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time


# Accounts without a right that dibs can do without: then dibs is less sure that an old connection has ended. (The
# subcommands that an account may use are written as servers before Redis 7 understand them.)
ACCOUNTS = {
    "no-kill": "-client +client|id +client|setname",
    "no-id": "-client +client|kill +client|setname",
    "no-info": "-info",
}
PASSWORD = "p"
HERE = os.path.dirname(os.path.abspath(__file__))


class ServerError(Exception):
    """An error reply."""


class Client:
    """A connection to a server's Unix socket. Raises OSError where it breaks or the time is over."""

    def __init__(self, path, timeout=5.0):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            word = word if isinstance(word, bytes) else str(word).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(parts))

    def receive(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server hung up")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return ServerError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if int(rest) < 0 else self.file.read(int(rest) + 2)[:-2]
        return None if int(rest) < 0 else [self.receive() for _ in range(int(rest))]

    def call(self, *words):
        return self.pipeline([words])[0]

    def pipeline(self, commands, raises=True):
        for words in commands:
            self.send(*words)
        replies = [self.receive() for _ in commands]
        for reply in replies:
            if raises and isinstance(reply, ServerError):
                raise reply
        return replies

    def close(self):
        self.file.close()
        self.socket.close()


class Clock:
    """The servers' wall clock is off by this: see clock_shim.c."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(bytes(mmap.PAGESIZE))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)

    def set(self, seconds):
        self.map[0:8] = struct.pack("=q", int(seconds * 1e9))


def program():
    """The server's program and its version, (major, minor) in Redis' counting."""
    chosen = os.environ.get("DIBS_SERVER")
    for name in (chosen,) if chosen else ("redis-server", "valkey-server"):
        if shutil.which(name):
            text = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
            version = re.search(r"v=(\d+)\.(\d+)", text)
            return name, (int(version[1]), int(version[2])) if version else (7, 0)
    raise SystemExit(f"no {chosen or 'redis-server'}")


def free_port():
    """Below those that the system gives to whoever asks for any: a server that was killed can come back to its port."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", random.randrange(10000, 32000)))
            return probe.getsockname()[1]


def await_that(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not in time: {what}")
        time.sleep(0.02)


class Server:
    """One server, in a folder of its own. It dies with the rig."""

    def __init__(self, folder, shim, clock):
        self.folder, self.shim, self.clock = folder, shim, clock
        self.path = os.path.join(folder, "s")
        self.port = 0
        self.name, self.version = program()
        self.process = None
        self.admin = None
        os.mkdir(folder)

    def start(self, persistent=False, port=0, snapshot=False):
        """
        Returns when the server answers. What it had on the disk is gone unless persistent; but for its last snapshot.
        port: 0: a free one.
        """
        if not persistent:
            for entry in os.listdir(self.folder):
                if entry.startswith("appendonly" if snapshot else ("appendonly", "dump")):
                    whole = os.path.join(self.folder, entry)
                    shutil.rmtree(whole) if os.path.isdir(whole) else os.remove(whole)
        for tries in range(5):
            self.port = port or free_port()  # for replication; another program may take the port before the server does
            try:
                self.launch(persistent)
                return
            except OSError:
                if tries == 4 or self.process.poll() is None:
                    raise

    def launch(self, persistent):
        words = [self.name, "--port", self.port, "--bind", "127.0.0.1", "--unixsocket", self.path, "--save", ""]
        words += ["--dir", self.folder, "--appendonly", "yes" if persistent else "no", "--appendfsync", "always"]
        words += ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--hz", "50"]
        if self.version >= (7, 0):
            words += ["--enable-debug-command", "yes"]
        for name in self.accounts():
            words += ["--user", name, "on", ">" + PASSWORD, "~*", *(["&*"] if self.version >= (6, 2) else []), "+@all"]
            words += ACCOUNTS[name].split()
        words += self.more_words()
        self.run(words, dict(os.environ, LD_PRELOAD=self.shim, DIBS_CLOCK_FILE=self.clock.path))

    def run(self, words, environment=None):
        words = [str(word) for word in words]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self.await_answer()

    def more_words(self):
        return []

    def accounts(self):
        """The accounts beside the one that may do all; none before Redis 6."""
        return list(ACCOUNTS) if self.version >= (6, 0) else []

    def await_answer(self, seconds=15):
        end = time.monotonic() + seconds
        while True:
            try:
                self.reconnect()
                self.admin.call("PING")
                return
            except (OSError, ServerError):
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.005)

    def reconnect(self):
        if self.admin:
            self.admin.close()
            self.admin = None
        self.admin = Client(self.path)

    def call(self, *words):
        """On the rig's own connection, which is made again where it broke."""
        try:
            if not self.admin:
                self.reconnect()
            return self.admin.call(*words)
        except OSError:
            self.reconnect()
            return self.admin.call(*words)

    def info(self, section):
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def await_info(self, section, wanted, seconds=10):
        end = time.monotonic() + seconds
        while True:
            found = self.info(section)
            if all(found.get(key) == value for key, value in wanted.items()):
                return
            if time.monotonic() > end:
                raise TimeoutError(f"{section}: {wanted} does not come")
            time.sleep(0.005)

    def kill(self):
        if self.admin:
            self.admin.close()
            self.admin = None
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def kill_kept(self):
        """Kills the server, with everything on the disk. Returns what starts it again."""
        self.call("CONFIG", "SET", "appendonly", "yes")
        wanted = {"aof_enabled": "1", "aof_rewrite_in_progress": "0", "aof_rewrite_scheduled": "0"}
        self.await_info("persistence", dict(wanted, aof_last_bgrewrite_status="ok"))
        self.kill()

        def restart():
            self.start(persistent=True)
            self.call("CONFIG", "SET", "appendonly", "no")

        return restart

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def log(self):
        with open(os.path.join(self.folder, "log"), errors="replace") as log:
            return log.read()[-6000:]

    def crashed(self):
        return self.process is not None and self.process.poll() is not None


class ProxyProcess:
    def __init__(self, backend):
        words = [sys.executable, "-B", os.path.join(HERE, "proxy.py"), backend]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def order(self, **words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("the proxy has ended")
        return int(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait()
