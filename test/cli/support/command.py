"""For tests of the command: a Redis server, dibs as a process, what is left of it, and results as TAP.

A test is a function with @test("what is so"); it fails by an exception. run_tests() runs them one after another and
prints TAP; DIBS_ONLY is a pattern for their functions' names.
"""

import atexit
import contextlib
import concurrent.futures
import fnmatch
import functools
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

DIBS = os.path.join(os.environ["DIBS_BUILD"], "dibs")
# A shell has what it starts in the background ignore these two, and so would dibs.
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

LIMIT = 20  # seconds, for what is waited for
PASSED = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
TESTS = []


def test(name):
    def add(function):
        TESTS.append((name, function))
        return function

    return add


def run_tests():
    only = os.environ.get("DIBS_ONLY", "*")
    chosen = [(name, function) for name, function in TESTS if fnmatch.fnmatch(function.__name__, only)]
    failed = 0
    print(f"1..{len(chosen)}", flush=True)
    for number, (name, function) in enumerate(chosen, 1):
        try:
            function()
            print(f"ok {number} - {name}", flush=True)
        except Exception:
            failed = 1
            end_all()
            print(f"not ok {number} - {name}")
            for line in traceback.format_exc().splitlines():
                print(f"# {line}", flush=True)
    sys.exit(failed)


def wait_for(condition, what="", seconds=LIMIT):
    """Returns what the condition returned as soon as that is true."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"did not come: {what or condition}"
        time.sleep(0.005)


def equal(value, expected, more=""):
    assert value == expected, f"{value!r} instead of {expected!r} {more}"


def folder():
    return contextlib.closing(Folder())


class Folder:
    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="dibs-cli-")

    def file(self, name):
        return os.path.join(self.path, name)

    def close(self):
        shutil.rmtree(self.path, ignore_errors=True)


class Server:
    """A Redis server on a Unix socket, without persistence, which ends with the tests at the latest."""

    def __init__(self):
        self.folder = Folder()
        self.socket = self.folder.file("s")
        self.url = f"unix://{self.socket}"
        atexit.register(self.close)
        self.start()

    def start(self):
        program = os.environ.get("DIBS_SERVER") or shutil.which("redis-server") or shutil.which("valkey-server")
        arguments = ["--port", "0", "--unixsocket", self.socket, "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(
            [program, *arguments, "--dir", self.folder.path, "--logfile", self.folder.file("log")]
        )
        wait_for(self.answers, "the server")

    def answers(self):
        try:
            return self.ask("PING") == "PONG"
        except OSError:
            return False

    def ask(self, *words):
        """One command, on a connection of its own."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            parts = [w.encode() if isinstance(w, str) else w for w in words]
            connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
            with connection.makefile("rb") as stream:
                return read_reply(stream)

    def owner(self, name):
        return self.ask("GET", f"lock:{name}")

    def waiters(self, name):
        return (self.ask("HLEN", f"dibs:queue:{{lock:{name}}}") - 1) // 2 if self.queued(name) else 0

    def queued(self, name):
        return self.ask("EXISTS", f"dibs:queue:{{lock:{name}}}") == 1

    def left_pttl(self, name):
        return self.ask("PTTL", f"lock:{name}")

    def await_renewal(self, name):
        """Waits until the lease has become longer: a lease that nobody renews only becomes shorter."""
        least = self.left_pttl(name)

        def is_renewed():
            nonlocal least
            before, least = least, min(least, self.left_pttl(name))
            return self.left_pttl(name) > before

        wait_for(is_renewed, f"a renewal of {name}")

    def close(self):
        self.end()
        self.folder.close()

    def end(self):
        if self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait()
        self.process = None

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None


def read_reply(stream):
    line = stream.readline()[:-2].decode()
    kind, rest = line[:1], line[1:]
    if kind in "+-":
        return rest
    if kind == ":":
        return int(rest)
    if kind == "$":
        return stream.read(int(rest) + 2)[:-2].decode("utf-8", "replace") if int(rest) >= 0 else None
    return [read_reply(stream) for _ in range(int(rest))]


_started = []


@functools.cache
def server():
    """The server that the tests of this program share."""
    return Server()


def environment(**more):
    values = {**os.environ, "DIBS_URL": server().url}
    values.pop("NOTIFY_SOCKET", None)
    for name, value in more.items():
        values.pop(name, None)
        if value is not None:
            values[name] = value
    return values


def start(*arguments, env=None, **more):
    """Starts dibs; its output is read by communicate()."""
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([DIBS, *arguments], env=environment(**(env or {})), text=True, **{**files, **more})
    _started.append(process)
    return process


def end_all():
    """After a test that failed: what it started does not disturb the next one. Stopped holders die with their front."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            for pid in (*descendants(process.pid), process.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)
            process.kill()
            process.wait()


class Done:
    def __init__(self, process):
        self.out, self.err = process.communicate(timeout=60)
        self.status = process.returncode


def dibs(*arguments, **more):
    """Runs dibs to its end."""
    return Done(start(*arguments, **more))


def holder(name, *options, **more):
    """dibs run with the lock, and COMMAND running."""
    process = start("run", *options, name, "sh", "-c", "echo $$; exec sleep 60", **more)
    process.command = int(process.stdout.readline())
    return process


def ready(process):
    """Waits until COMMAND has said that."""
    equal(process.stdout.readline(), "ready\n")
    return process


def hold(*arguments, **more):
    """dibs hold with the lock."""
    process = start("hold", *arguments, **more)
    process.line = process.stdout.readline()
    assert " held, fence " in process.line, process.line
    return process


def end(process):
    process.send_signal(signal.SIGTERM)
    return Done(process)


def end_with(status, *processes):
    for process in processes:
        process.send_signal(signal.SIGTERM)
    equal([Done(process).status for process in processes], [status] * len(processes))


def do_all(runs, workers):
    """Calls do() of each, in so many threads."""

    def failure_of(run):
        try:
            run.do()
        except Exception as error:
            return f"{run}: {error!r}"

    server()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        failures = [each for each in pool.map(failure_of, runs) if each]
    assert not failures, "\n".join([f"{len(failures)} failed", *failures[:5]])


_serial = itertools.count()


def new_mark():
    """A mark for the environment of a process and its descendants, as processes_with takes it, and that environment."""
    value = f"{os.getpid()}-{next(_serial)}"
    return f"DIBS_TEST_MARK={value}", {"DIBS_TEST_MARK": value}


def fields_of(pid):
    """What /proc says of a process behind its name, which may have any bytes: fields_of(pid)[N] is number N + 3 of proc(5)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def environment_of(pid):
    """
    None while that process execs: it has a new memory then, whose environment can't be read before the kernel has noted where
    that ends, and after that where the code begins. Nothing once it has no memory any more, because it has ended.
    """
    with open(f"/proc/{pid}/environ", "rb") as file:
        found = file.read()
    if found:
        return found
    fields = fields_of(pid)
    memory, code, begin, end = (int(fields[index]) for index in (20, 23, 47, 48))
    return None if memory and not (code and begin == end) else found


def has_mark(pid, mark):
    """Whether that process has the mark, "NAME=VALUE", in its environment; false once it has ended."""
    try:
        found = wait_for(lambda: [each] if (each := environment_of(pid)) is not None else None, f"the end of an exec of {pid}")
    except OSError:
        return False
    return mark.encode() + b"\0" in found[0]


def processes_with(mark):
    """The processes that have the mark in their environment; not those that have ended."""
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid() and has_mark(pid, mark)]


def name_of(pid):
    return read(f"/proc/{pid}/comm").strip()


def parent_of(pid):
    """None once it has ended."""
    with contextlib.suppress(OSError):
        return int(fields_of(pid)[1])
    return None


def children(pid):
    """By what each process says of its parent: the system's own list of children may leave some out while others end."""
    return [int(each) for each in os.listdir("/proc") if each.isdigit() and parent_of(each) == pid]


def descendants(pid):
    found = children(pid)
    return found + [each for child in found for each in descendants(child)]


def guard_of(process):
    """The process between dibs as it was started and the one that has the lock."""
    return wait_for(lambda: children(process.pid), "the guard")[0]


def holder_of(process):
    """The process of dibs run that has the lock."""
    return wait_for(lambda: children(guard_of(process)), "the holder")[0]


def state_of(pid):
    """None once nothing is left of it."""
    with contextlib.suppress(OSError):
        return fields_of(pid)[0].decode()
    return None


def alive(pid):
    return state_of(pid) not in (None, "Z")


def full_pipe():
    """Its ends. It takes no more: whoever writes there waits for a reader."""
    out, into = os.pipe()
    os.set_blocking(into, False)
    try:
        while True:
            os.write(into, bytes(4096))
    except BlockingIOError:
        os.set_blocking(into, True)
    return out, into


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
