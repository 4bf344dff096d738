"""dibs run and dibs hold with several names: all of them or none."""

import contextlib
import signal
import sys
import time

from support.command import *  # noqa: F403


def owners(*names):
    return [server().owner(name) for name in names]


@test("COMMAND runs while all names are held, and then none is")
def all_of_them():
    process = start("run", "--also", "b", "--also", "a", "c", "sh", "-c", 'echo "$DIBS_NAME"; exec sleep 60')
    equal(process.stdout.readline(), "c\n")
    assert all(owner and owner.startswith("dibs:") for owner in owners("a", "b", "c")), owners("a", "b", "c")
    for name in ("a", "b", "c"):
        equal(dibs("run", "-n", "--also", "d", name, "true").status, 1)
    end_with(128 + 15, process)
    equal(owners("a", "b", "c", "d"), [None] * 4)


@test("a taken name leaves none of several locked, and is reported")
def none_of_them():
    other = hold("b")
    done = dibs("run", "-v", "-n", "--also", "b", "a", "echo", "ran")
    equal((done.out, done.status), ("", 1))
    assert '"b"' in done.err, done.err
    done = dibs("run", "-v", "-w", "1", "--also", "b", "a", "echo", "ran")
    equal((done.out, done.status), ("", 1))
    assert "b: waits for the lock, which" in done.err, done.err
    equal(owners("a"), [None])
    end_with(0, other)


@test("two jobs that want the same names in another order never wait for each other for ever")
def in_any_order():
    pairs = [start("run", "--also", second, first, "true") for _ in range(10) for first, second in ("ab", "ba")]
    equal([Done(process).status for process in pairs], [0] * len(pairs))


@test("COMMAND may name any of the names again: it enters the outer lock")
def inside():
    script = f"{DIBS} run -n b echo b; {DIBS} run -n --also c --also b a echo abc; {DIBS} run -n --no-reentry b echo no"
    done = dibs("run", "--also", "b", "a", "sh", "-c", script)
    equal((done.out, done.status), ("b\nabc\n", 1))


@test("if one of several names is lost, COMMAND is ended")
def lost():
    process = holder("a", "--also", "b")
    equal(dibs("break", "-y", "b").status, 0)
    done = Done(process)
    equal(done.status, 76)
    assert "a and 1 more: the lease was lost: b: its key is gone" in done.err, done.err
    equal(owners("a", "b"), [None, None])


@test("a long name that is lost is told whole")
def lost_of_a_long_name():
    name = "x" + 60 * "\u00e9"
    process = holder("a", "--also", name, env={"LC_ALL": "C.UTF-8"})
    equal(dibs("break", "-y", name).status, 0)
    done = Done(process)
    equal(done.status, 76)
    assert f"a and 1 more: the lease was lost: {name}: its key is gone" in done.err, done.err


@test("with --at-least the other names stay locked where one is lost")
def others_at_least():
    process = holder("a", "--at-least", "60", "--also", "b", "--also", "c")
    equal(dibs("break", "-y", "b").status, 0)
    equal(Done(process).status, 76)
    equal([bool(owner) for owner in owners("a", "b", "c")], [True, False, True])
    for name in ("a", "c"):
        equal(dibs("break", "-y", name).status, 0)


@test("--at-least of many names keeps dibs for some seconds only where the server does not answer at the end")
def many_names_at_least():
    with contextlib.closing(Server()) as own:
        others = [word for number in range(30) for word in ("--also", f"m{number}")]
        stop = f"kill -STOP {own.process.pid}"
        process = start("run", "--at-least", "60", *others, "n", "sh", "-c", stop, env={"DIBS_URL": own.url})
        wait_for(lambda: process.poll() is not None, "the end of dibs")
        done = Done(process)
        equal(done.status, 0, done.err)
        assert "n and 30 more: stays locked for up to 60 s: " in done.err, done.err


# Goes on after SIGTERM, and notes when that came, and when it still ran.
TOLD = """
import os, signal, sys, time
def note(what):
    os.write(1, f"{what} {time.monotonic()}\\n".encode())
signal.signal(signal.SIGTERM, lambda number, frame: note("TERM"))
while True:
    note("runs")
    time.sleep(0.02)
"""


@test("many leases are made shorter after --at-least while the server does not answer: COMMAND has its grace time nevertheless")
def many_names_made_shorter():
    with contextlib.closing(Server()) as own, folder() as files:
        others = [word for number in range(4) for word in ("--also", f"m{number}")]
        options = ["-t", "4", "--grace", "1", "--at-least", "11", *others]
        with open(files.file("log"), "w") as log:
            process = start("run", *options, "n", sys.executable, "-c", TOLD, env={"DIBS_URL": own.url}, stdout=log)
        wait_for(lambda: own.owner("n"))
        began = time.monotonic()
        time.sleep(6)
        own.process.send_signal(signal.SIGSTOP)  # the leases, renewed after 3.7 s, end after 14.7 s
        time.sleep(began + 11.8 - time.monotonic())
        process.send_signal(signal.SIGSTOP)  # it would send SIGTERM as well
        with_lock = holder_of(process)
        wait_for(lambda: state_of(with_lock) in (None, "Z"), "the end of the process with the lock")
        process.send_signal(signal.SIGCONT)
        equal(Done(process).status, 76)
        with open(files.file("log")) as log:
            lines = [line.split() for line in log]
        told = min(float(at) for what, at in lines if what == "TERM")
        assert float(lines[-1][1]) - told > 0.5, lines[-1]


@test("dibs hold holds and releases several names")
def held():
    process = hold("--also", "b", "a")
    assert process.line.startswith("a and 1 more held, fence "), process.line
    assert all(owners("a", "b"))
    end_with(0, process)
    equal(owners("a", "b"), [None, None])


@test("a name that is given twice is held once")
def twice():
    process = hold("--also", "a", "--also", "b", "--also", "b", "a")
    assert process.line.startswith("a and 1 more held, fence "), process.line
    end_with(0, process)
    equal(owners("a", "b"), [None, None])


@test("a name that is given many times counts once")
def many_times():
    equal(dibs("run", *["--also", "same"] * 65, "same", "true").status, 0)
    equal(dibs("run", *[word for i in range(64) for word in ("--also", f"n{i}")], "n", "true").status, 64)


@test("if one is lost while another is waited for, the exit status says so")
def lost_meanwhile():
    other = hold("b")
    process = start("run", "--also", "b", "a", "true")
    wait_for(lambda: owners("a")[0] and server().waiters("b") == 1, "the wait for b")
    equal(dibs("break", "-y", "a").status, 0)
    end_with(0, other)
    equal(Done(process).status, 76)
    equal(owners("a", "b"), [None, None])


@test("an invalid name of --also is refused")
def refused():
    for name in ("", "n" * 513):
        done = dibs("run", "--also", name, "a", "true")
        equal(done.status, 64)
        assert ("NAME has 513 bytes, more than 512" if name else "NAME is empty") in done.err, done.err


run_tests()
