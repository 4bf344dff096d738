"""The processes of a comparison: a private server, and the programs that lock."""

import ctypes
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

WAIT_S = 15   # for one answer
START_S = 60  # for the first
PORT_TRIES = 5


class Failed(Exception):
    pass


def end_with_parent():
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def cpu_s(pid):
    """The processor time that a process has used: its clock, as clock_getcpuclockid(3) makes it on Linux."""
    return time.clock_gettime(~pid << 3 | 2) if sys.platform == "linux" else 0.0


class Server:
    """A private redis-server, on a free port of 127.0.0.1 and on a Unix socket for what is asked here."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="dibs-peers-")
        chosen = os.environ.get("DIBS_SERVER")
        name = shutil.which(chosen or "redis-server") or shutil.which(chosen or "valkey-server")
        if not name:
            raise SystemExit(f"no {chosen}" if chosen else "neither redis-server nor valkey-server is installed")
        for _ in range(PORT_TRIES):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = str(probe.getsockname()[1])
            self.url, self.socket = f"redis://127.0.0.1:{port}", socket.socket(socket.AF_UNIX)
            if self.launch(name, port):
                return
        raise SystemExit(f"redis-server does not answer; see {self.folder}/log")

    def launch(self, name, port):
        """False: it does not start, perhaps because another program took the port first."""
        path = f"{self.folder}/redis.sock"
        self.process = subprocess.Popen(
            [name, "--bind", "127.0.0.1", "--port", port, "--unixsocket", path, "--dir", self.folder, "--save", "",
             "--appendonly", "no", "--logfile", f"{self.folder}/log"], preexec_fn=end_with_parent)
        limit = time.monotonic() + 10
        while self.socket.connect_ex(path) != 0:
            if self.process.poll() is not None:
                return False
            if time.monotonic() > limit:
                raise SystemExit(f"redis-server does not answer; see {self.folder}/log")
            time.sleep(0.01)
        return True

    def ask(self, command):
        """The reply, a string, as text."""
        self.socket.sendall(command.encode() + b"\r\n")
        data = self.socket.recv(1 << 20)
        size = int(data[1:data.index(b"\r\n")])
        while len(data) < data.index(b"\r\n") + 4 + size:
            data += self.socket.recv(1 << 20)
        return data.decode(errors="replace")

    def calls(self, commands):
        """How often the commands were called."""
        return sum(int(n) for name, n in re.findall(r"cmdstat_(\w+):calls=(\d+)", self.ask("INFO commandstats"))
                   if name in commands)

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Program:
    """A process of a peer."""

    def __init__(self, peer, build, *arguments):
        folder = build / "peers" / peer.folder if peer.commands else build / "peers"
        words = [str(folder / word) if "/" in word and ":" not in word else word for word in peer.program or ["./dibs"]]
        self.peer, self.bytes = peer, b""
        self.process = subprocess.Popen(words + [str(argument) for argument in arguments], cwd=folder,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                        preexec_fn=end_with_parent)
        if self.answer(START_S) != "ready":
            raise Failed(f"{peer.name}: it is not ready")

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")

    def answer(self, limit_s=WAIT_S):
        while b"\n" not in self.bytes:
            if not select.select([self.process.stdout], [], [], limit_s)[0]:
                raise Failed(f"{self.peer.name}: no answer in {limit_s} s")
            more = self.process.stdout.read(65536)
            if not more:
                raise Failed(f"{self.peer.name}: it ended with status {self.process.wait()}")
            self.bytes += more
        line, _, self.bytes = self.bytes.partition(b"\n")
        return line.decode()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Team:
    """The processes of a peer in a case."""

    def __init__(self, server, build, peer, size, *arguments):
        self.server, self.peer, self.size = server, peer, size
        self.start = lambda: Program(peer, build, arguments[0], server.url, *arguments[1:])
        self.programs = []

    def gather(self):
        """Starts those that do not run."""
        gone = [program for program in self.programs if program.process.poll() is not None]
        for program in gone:
            program.stop()
            self.programs.remove(program)
        while len(self.programs) < self.size:
            self.programs.append(self.start())

    def cpu_s(self):
        return sum(cpu_s(program.process.pid) for program in self.programs)

    def stop(self):
        for program in self.programs:
            program.stop()
        self.programs = []
