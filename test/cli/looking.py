"""For tests of what looks at a store: the command, on servers of topology.py, and locks as if somebody held them."""

import json
import os
import subprocess
import sys

import command

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
