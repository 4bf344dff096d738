"""For tests of what looks at a store: the command, on servers of topology.py, and locks as if somebody held them."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

from support import command

sys.path.insert(0, os.path.join(os.environ["DIBS_TOP"], "test", "support"))
import topology  # noqa: E402,F401

DIBS = command.DIBS
RUNTIME = "0123456789abcdef" * 2
OK, FAILED, USAGE, UNAVAILABLE, OUTPUT = 0, 1, 64, 69, 74
NOWHERE = "redis://127.0.0.1:1"


class Result:
    def __init__(self, process, words):
        self.words, self.status, self.out, self.err = words, process.returncode, process.stdout, process.stderr

    @property
    def text(self):
        return self.out.decode()

    @property
    def json(self):
        return json.loads(self.out.decode("utf-8", "strict"))

    def __repr__(self):
        return f"{self.words} ended with {self.status}\n{self.out.decode(errors='replace')}{self.err.decode(errors='replace')}"


def environment(url, **more):
    return {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC", "DIBS_URL": url, **more}


def dibs(url, *words, seconds=20, stdin=b"", **more):
    """Runs the command until it ends."""
    process = subprocess.run([DIBS, *words], input=stdin, capture_output=True, timeout=seconds, env=environment(url, **more))
    return Result(process, words)


class Terminal:
    """The command at a terminal of its own. size: rows and columns; 0: the terminal does not tell."""

    def __init__(self, url, *words, size=(0, 0), **variables):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            os.execve(DIBS, [DIBS, *words], environment(url, **{"TERM": "xterm", **variables}))

    def type(self, keys):
        os.write(self.fd, keys)

    def read(self, until=None, seconds=60):
        """What is shown from now on: at least up to that text; None: up to the end."""
        shown, end = b"", time.monotonic() + seconds
        while until is None or until not in shown:
            expect(time.monotonic() < end, until, shown)
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    more = os.read(self.fd, 65536)
                except OSError:  # it has ended
                    more = b""
                expect(more or until is None, until, shown)
                if not more:
                    return shown
                shown += more
        return shown

    def status(self):
        """Waits for its end."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return status


def expect(condition, *what):
    if not condition:
        raise AssertionError(" ".join(repr(item) for item in what))


def expect_status(result, status):
    expect(result.status == status, status, result)
    return result


def token(label="job", host="alpha", pid=4711, thread=4711, sequence="0"):
    return f"dibs:{label}:{host}:{pid}:{thread}:{RUNTIME}:{sequence}"


def put(server, name, owner=None, lease_ms=30000, held_s=None, prefix=b"lock:"):
    """A lock that looks as if it had been granted held_s seconds ago."""
    name = name if isinstance(name, bytes) else name.encode()
    key = prefix + name
    server.call("SET", key, owner or token(), *(("PX", lease_ms) if lease_ms else ()))
    if held_s is not None:
        seconds, us = (int(part) for part in server.call("TIME"))
        fence = b"dibs:fencet:%s" % key if b"{" in key else b"dibs:fence:{%s}" % key
        server.call("SET", fence, seconds * 1000000 + us - int(held_s * 1000000), "EX", 3600)


def main(*tests):
    """Runs the tests, each a function, whose name tells what is so."""
    command.TESTS.extend((test.__name__.replace("_", " "), test) for test in tests)
    command.run_tests()
