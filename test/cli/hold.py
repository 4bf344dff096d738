"""dibs hold: holds a lock until a signal arrives, says so on standard output, and tells systemd."""

import os
import re
import signal
import socket
import time

from support.command import *  # noqa: F403


@test("dibs hold says that it holds the lock, and holds it until one of the signals arrives")
def until_a_signal():
    fence = 0
    for number in PASSED:
        process = hold("n")
        last, fence = fence, int(re.fullmatch(r"n held, fence (\d+)\n", process.line).group(1))
        assert fence > last
        assert server().owner("n").startswith("dibs:")
        equal(dibs("run", "-n", "n", "true").status, 1)
        process.send_signal(number)
        equal((Done(process).status, server().owner("n")), (0, None))


@test("dibs hold renews its lease")
def renews():
    process = hold("-t", "4", "n")
    token = server().owner("n")
    for _ in range(2):
        server().await_renewal("n")
    equal(server().owner("n"), token)
    end_with(0, process)


@test("exit statuses of dibs hold: taken, a signal during the wait, no store, wrong usage")
def statuses():
    process = hold("n")
    equal(dibs("hold", "-n", "n").status, 1)
    equal(dibs("hold", "-w", "0.05", "-E", "9", "n").status, 9)
    for number in PASSED:
        waiting = start("hold", "n")
        wait_for(lambda: server().queued("n"))
        waiting.send_signal(number)
        done = Done(waiting)
        equal((done.status, done.out), (128 + number, ""))
        assert not server().queued("n")
    end_with(0, process)
    equal(dibs("hold", "-n", "--url", "unix:///nonexistent", "n").status, 69)
    for arguments, word in (([], "NAME is missing"), ([""], "NAME is empty"), (["n", "true"], "true"), (["n", "-n"], "-n is in the wrong place: options come before NAME"), (["-c", "true", "n"], "-c"),
                            (["--at-least", "1", "n"], "--at-least"), (["-t", "x", "n"], "x")):
        done = dibs("hold", *arguments)
        equal(done.status, 64)
        assert word in done.err and '("dibs hold --help" tells more)' in done.err, done.err


@test("dibs hold exits with 76 if the lease was lost, or can't be renewed, and then before the lease ends")
def lost():
    process = hold("n")
    server().ask("DEL", "lock:n")
    done = Done(process)
    equal(done.status, 76)
    assert "n: the lease was lost: " in done.err, done.err  # and why
    own = Server()
    process = hold("-t", "12", "--grace", "5", "n", env={"DIBS_URL": own.url})
    own.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    wait_for(lambda: "n: the lease can't be renewed, and is about to end" in process.stderr.readline())
    assert time.monotonic() - began < 12 - 1
    equal(Done(process).status, 76)
    own.process.send_signal(signal.SIGCONT)
    process = hold("-t", "6", "--grace", "0.5", "n", env={"DIBS_URL": own.url})
    own.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    equal(Done(process).status, 76)
    assert time.monotonic() - began < 6 + 1  # a release may take 3 s, but not for longer than the lease lasts


@test("dibs hold exits with 76 if it was stopped by SIGSTOP for longer than its lease")
def stopped():
    process = hold("-t", "0.5", "n")
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: server().owner("n") is None)
    process.send_signal(signal.SIGCONT)
    equal(Done(process).status, 76)


@contextlib.contextmanager
def notify_socket(name):
    """What a service manager reads: of a path, or of an abstract name, which begins with @."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name[1:] if name[0] == "@" else name)
        manager.settimeout(LIMIT)
        yield manager


def states(manager, until):
    lines = []
    while until not in lines:
        lines += manager.recv(4096).decode().splitlines()
    return lines


@test("dibs hold tells systemd when it is ready, and when it stops; COMMAND of dibs run may tell by itself")
def notifies():
    with folder() as files:
        for name in (files.file("notify"), f"@dibs-test-{os.getpid()}"):
            with notify_socket(name) as manager:
                other = hold("n")
                process = start("hold", "n", env={"NOTIFY_SOCKET": name})
                wait_for(lambda: server().queued("n"))
                end_with(0, other)
                states(manager, "READY=1")
                assert server().owner("n")
                server().ask("DEL", "lock:n")
                states(manager, "STOPPING=1")
                equal(Done(process).status, 76)
                script = "import os; print(os.environ['NOTIFY_SOCKET'])"
                done = dibs("run", "n", "python3", "-c", script, env={"NOTIFY_SOCKET": name})
                equal(done.out, name + "\n")
    for name in ("", "relative", "/nonexistent/socket", "/" + 200 * "x"):
        process = hold("n", env={"NOTIFY_SOCKET": name})
        end_with(0, process)


@test("--while-pid ends with that process, --while-stdin at the end of standard input")
def tied():
    script = subprocess.Popen(["sleep", "60"])
    process = hold("--while-pid", str(script.pid), "n")
    equal(process.poll(), None)
    script.kill()  # nobody waits for it, as in a container whose first process does not
    equal((Done(process).status, server().owner("n")), (0, None))
    script.wait()
    process = hold("--while-stdin", "n", stdin=subprocess.PIPE)
    process.stdin.write("not the end\n")
    process.stdin.flush()
    owner = server().owner("n")
    assert owner and process.poll() is None
    process.stdin.close()
    process.stdin = None
    equal((Done(process).status, server().owner("n")), (0, None))
    for wrong in ("0", "x", "-1", ""):
        equal(dibs("hold", "--while-pid", wrong, "n").status, 64)


@test("they end the wait as well, with a message, and the status of a lock that was not acquired")
def tied_while_waiting():
    first = hold("n")
    for end_of_it, options in (("process", ()), ("standard input", ("--fair", "-E", "9"))):
        script = subprocess.Popen(["sleep", "60"])
        tie = ("--while-pid", str(script.pid)) if end_of_it == "process" else ("--while-stdin",)
        process = start("hold", *tie, *options, "n", stdin=subprocess.PIPE)
        wait_for(lambda: server().queued("n"))
        script.kill()
        script.wait()
        if end_of_it != "process":
            process.stdin.close()
            process.stdin = None
        done = Done(process)
        equal((done.status, done.out), (9 if options else 1, ""))
        assert done.err.startswith(f"dibs: n: not acquired: {end_of_it}") and "has ended\n" in done.err, done.err
        assert not server().queued("n")
    end_with(0, first)
    equal(dibs("hold", "--while-stdin", "n").status, 1)  # it had ended before
    ended = subprocess.Popen(["true"])
    wait_for(lambda: state_of(ended.pid) == "Z")
    equal(dibs("hold", "--while-pid", str(ended.pid), "n").status, 1)
    ended.wait()
    equal(server().owner("n"), None)


@test("dibs hold does not end because its standard output is not read")
def closed_output():
    read_end, write_end = os.pipe()
    os.close(read_end)  # before it starts: it might have written its line already
    process = start("hold", "n", stdout=write_end)
    os.close(write_end)
    equal(process.stderr.readline(), "dibs: standard output: Broken pipe\n")
    time.sleep(0.2)
    equal(process.poll(), None)
    end_with(0, process)


@test("dibs hold goes on where its line can't be written, and says so")
def full_output():
    with open("/dev/full", "w") as full:
        process = start("hold", "n", stdout=full)
    equal(process.stderr.readline(), "dibs: standard output: No space left on device\n")
    assert server().owner("n")
    end_with(0, process)


run_tests()
