"""dibs run inside dibs run, and what COMMAND leaves running."""

import contextlib
import os
import re
import signal
import socket
import threading
import time

from support.command import *  # noqa: F403

SHOW = 'echo "$DIBS_NAME $DIBS_FENCE $DIBS_TOKEN"'


@test("dibs run inside dibs run enters the same name, at any depth, and the outer one keeps it")
def entered():
    for inner in (f"{DIBS} run n", f"{DIBS} run -n n", f"{DIBS} run m {DIBS} run n", f"{DIBS} run n {DIBS} run n"):
        script = f"{SHOW}; {inner} sh -c '{SHOW}'; echo $?; exec sleep 60"
        process = start("run", "n", "sh", "-c", script)
        outer = process.stdout.readline()
        equal(process.stdout.readline(), outer, inner)
        equal(process.stdout.readline(), "0\n")
        equal(server().owner("n"), outer.split()[2])
        end_with(128 + 15, process)
        equal(server().owner("n"), None)
    process = start("run", "n", "sh", "-c", f"exec {DIBS} hold n")
    assert process.stdout.readline().startswith("n held, fence ")
    end_with(0, process)


@test("--no-reentry fails instead")
def refused():
    done = dibs("run", "n", "sh", "-c", f"{DIBS} run --no-reentry -E 9 n echo ran; echo $?")
    equal((done.out, done.status), ("9\n", 0))
    equal(done.err, "dibs: n: an outer dibs holds the lock\n")


@test("the store decides: a lock that has ended, or that another client has, is acquired as usual")
def checked():
    old = dibs("run", "n", "sh", "-c", SHOW).out.split()
    env = {"DIBS_NAME": "n", "DIBS_FENCE": old[1], "DIBS_TOKEN": old[2]}
    new = dibs("run", "n", "sh", "-c", SHOW, env=env).out.split()
    assert int(new[1]) > int(old[1]), (new, old)
    process = holder("n")
    equal(dibs("run", "-n", "n", "echo", "ran", env=env).status, 1)
    end(process)


def relay_until_asked(path, asked):
    """Passes on what dibs and the server of the tests say, until dibs asks for a lock: nothing from then on."""

    def pass_on(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if b"dibs:fence:" in data:
                    asked.set()
                if not asked.is_set():
                    target.sendall(data)

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while True:
        client, own = listener.accept()[0], socket.socket(socket.AF_UNIX)
        own.connect(server().socket)
        for ends in ((client, own), (own, client)):
            threading.Thread(target=pass_on, args=ends, daemon=True).start()


@test("a wait for a server that does not tell who has the lock is told, and a signal ends it")
def unanswered():
    others = [word for number in range(63) for word in ("--also", f"m{number}")]
    for command in (("run", "n", "true"), ("hold", "n"), ("hold", *others, "n")):
        with folder() as own:
            path, asked = own.file("relay"), threading.Event()
            threading.Thread(target=relay_until_asked, args=(path, asked), daemon=True).start()
            process = start(*command, env={"DIBS_URL": f"unix://{path}", "DIBS_TOKEN": "dibs:job:host:7:7:ab:1"})
            assert process.stderr.readline().endswith("; waits for that to pass\n")
            process.terminate()
            wait_for(lambda: process.poll() is not None, "the end of dibs")
            equal(Done(process).status, 128 + 15)


@test("with -n a server that does not tell who has the locks is asked once, however many there are")
def unanswered_names():
    others = [word for number in range(40) for word in ("--also", f"m{number}")]
    with folder() as own:
        path, asked = own.file("relay"), threading.Event()
        threading.Thread(target=relay_until_asked, args=(path, asked), daemon=True).start()
        began = time.monotonic()
        env = {"DIBS_URL": f"unix://{path}", "DIBS_TOKEN": "dibs:job:host:7:7:ab:1"}
        done = dibs("run", "-n", *others, "n", "true", env=env)
        assert time.monotonic() - began < LIMIT / 2
        equal((done.status, done.err.count("\n")), (69, 1), done.err)


def outer_lock(lease):
    """A dibs that has the lock, and the environment of its COMMAND."""
    process = start("run", "-t", lease, "n", "sh", "-c", f"{SHOW}; exec sleep 60")
    words = process.stdout.readline().split()
    return process, {"DIBS_NAME": words[0], "DIBS_FENCE": words[1], "DIBS_TOKEN": words[2]}


def await_looks(name, seconds):
    """
    Waits until somebody has looked twice at who has that lock, so many seconds apart by the server's clock, and then once more:
    so the answers to these two were read. Only a look counts the fields of the queue.
    """
    first = last = None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LIMIT)
        connection.connect(server().socket)
        connection.sendall(b"MONITOR\r\n")
        for line in connection.makefile("rb"):
            if f'"HLEN" "dibs:queue:{{lock:{name}}}"'.encode() not in line:
                continue
            if last:
                return
            now = float(line[1:].split()[0])
            first = first or now
            last = now if now - first >= seconds else None
    raise AssertionError("the server has ended")


NO_MORE = "dibs: n: the lease was lost: the outer dibs does not hold the lock any more\n"


@test("an inner dibs that is no descendant lives as long as the outer lock, beyond the outer lease")
def outlives_the_lease():
    outer, env = outer_lock("2")
    inner = ready(start("run", "n", "sh", "-c", "echo ready; sleep 3", env=env))
    done = Done(inner)
    equal((done.status, done.err), (0, ""))
    end(outer)


@test("an inner dibs bears that the outer lease becomes shorter, once the time of --at-least is over")
def shorter_lease():
    done = dibs("run", "-t", "2", "--at-least", "4", "n", "sh", "-c", f"{DIBS} run n sleep 6")
    equal((done.status, done.err), (0, ""))


@test("what its first process was silent for before that does not count by the shorter times")
def shorter_lease_of_the_silent():
    outer = start("run", "-t", "4", "--at-least", "9", "n", "sh", "-c", f"exec {DIBS} run n sh -c 'echo ready; exec sleep 11'")
    inner = children(holder_of(ready(outer)))[0]
    time.sleep(5)
    os.kill(inner, signal.SIGSTOP)
    wait_for(lambda: server().left_pttl("n") <= 4000, "the shorter lease")
    time.sleep(1.2)  # the inner one looks each second
    os.kill(inner, signal.SIGCONT)
    done = Done(outer)
    equal((done.status, done.err), (0, ""))


@test("an inner dibs bears that as well while it waits for another name")
def shorter_lease_during_the_wait():
    other = holder("m")
    outer = start("run", "-t", "2", "--at-least", "8", "n", "sh", "-c", f"{DIBS} run --also m n echo ran")
    wait_for(lambda: server().queued("m"), "a waiter")
    wait_for(lambda: server().left_pttl("n") <= 2000, "the shorter lease")
    await_looks("n", 0)
    end(other)
    done = Done(outer)
    equal((done.status, done.out, done.err), (0, "ran\n", ""))


@test("what an inner dibs can't release stays locked for its own lease, not for the outer one: it says so")
def lease_of_its_own():
    with contextlib.closing(Server()) as own:
        inner = f"{DIBS} run -t 60 --also m n kill -STOP {own.process.pid}"
        outer = start("run", "-t", "20", "n", "sh", "-c", f"{inner}; kill -CONT {own.process.pid}", env={"DIBS_URL": own.url})
        assert ": could not be released, and stays locked for up to 60 s: " in (done := Done(outer)).err, done.err


@test("an inner dibs bears a restart without data, after which the outer one restores the lock")
def restart():
    with contextlib.closing(Server()) as own:
        env = {"DIBS_URL": own.url}
        outer = start("run", "-t", "8", "n", "sh", "-c", f"{DIBS} run n sh -c 'echo ready; sleep 3'; echo $?", env=env)
        ready(outer)
        for _ in range(3):
            own.kill()
            time.sleep(0.1)
            own.start()
        done = Done(outer)
        equal((done.status, done.out, done.err), (0, "0\n", ""))


def waits_when_the_outer_lock_ends(lease, *command):
    """An inner dibs that waits for m beside its outer lock, which is released then; and the holder of m."""
    other = holder("m")
    outer, env = outer_lock(lease)
    inner = start("run", "--also", "m", "n", *command, env=env)
    wait_for(lambda: server().queued("m"), "a waiter")
    end(outer)
    return inner, other


@test("COMMAND does not start under an outer lock that was lost during the wait for another name")
def lost_meanwhile():
    inner, other = waits_when_the_outer_lock_ends("2", "echo", "ran")
    next_one = holder("n")
    await_looks("n", 0)
    end(other)
    done = Done(inner)
    equal((done.status, done.out), (76, ""))
    end(next_one)


@test("an inner dibs that is no descendant ends its COMMAND once the outer one has released the lock")
def ends_with_the_outer_lock():
    for command in (["run", "--grace", "0.2", "n", "sh", "-c", "echo ready; exec sleep 60"], ["hold", "n"]):
        outer, env = outer_lock("20")
        inner = start(*command, env=env)
        inner.stdout.readline()
        end(outer)
        done = Done(inner)
        equal((done.status, done.err), (76, NO_MORE), command)


@test("where an inner dibs waits for another name meanwhile, it says so as well")
def waits_under_an_outer_lock():
    inner, other = waits_when_the_outer_lock_ends("20", "sleep", "60")
    wait_for(lambda: server().owner("n") is None, "the release")
    await_looks("n", 2.1)  # for two seconds the inner one believes that the lock may come back
    end(other)
    done = Done(inner)
    equal((done.status, done.err), (76, "dibs: n and 1 more: the lease was lost: the outer dibs does not hold the lock any more\n"))
    equal(server().owner("m"), None)


@test("what an inner dibs says of its wait is not of the name that the outer one has")
def says_what_it_waits_for():
    other = holder("m")
    outer, env = outer_lock("20")
    done = dibs("run", "-v", "-w", "1", "--also", "m", "n", "true", env=env)
    equal(done.status, 1)
    assert "m: waits for the lock, which" in done.err and "n: waits" not in done.err, done.err
    end(other)
    # It says so after the second look, a second after the first one.
    done = dibs("run", "-v", "-w", "3", "--min-replicas", "1", "--also", "m", "n", "true", env=env)
    equal(done.status, 69, done.err)
    assert "waits until 1 replica confirms the lock" in done.err and "acknowledged" in done.err, done.err
    end(outer)


@test("where all processes of the outer dibs are killed, the inner one ends its COMMAND before the lease does")
def ends_before_the_outer_lease():
    with folder() as files:
        pid, log = files.file("pid"), files.file("log")
        inner = f"{DIBS} run n sh -c 'echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 60' 2>{log}; echo $? >>{log}"
        # The inner one ends COMMAND when a quarter of the lease and the margin are left: the longer the lease, the later
        # a busy machine may run it.
        outer = start("run", "-t", "16", "n", "sh", "-c", f"setsid sh -c \"{inner.replace('$', chr(92) + '$')}\" & wait")
        wait_for(lambda: read(pid), "the inner COMMAND")
        doomed = [outer.pid, guard_of(outer), holder_of(outer)]
        for each in doomed:
            os.kill(each, signal.SIGSTOP)
        # The end of a stopped process' parent lets it go on (SIGCONT of an orphaned group): the holder would kill all.
        for each in reversed(doomed):
            os.kill(each, signal.SIGKILL)
        done = dibs("run", "n", "sh", "-c", f"grep -q . /proc/{read(pid).strip()}/cmdline 2>/dev/null && echo both; true")
        equal((done.status, done.out), (0, ""))
        wait_for(lambda: re.search(r"^\d+\n", read(log), re.M), "the end of the inner dibs")
        # Whichever process of the inner one finds the time first.
        said = "the lease can't be renewed, and is about to end|the process that holds the lock does not answer: the lease is lost"
        assert re.fullmatch(f"dibs: n: ({said})\n76\n", read(log)), read(log)


@test("what COMMAND leaves running is ended with one line that says how many")
def left_behind():
    leave = "setsid sleep 60 >/dev/null 2>&1 & sleep 60 >/dev/null 2>&1 & exit 3"
    done = dibs("run", "--grace", "0.2", "n", "sh", "-c", leave)
    equal((done.status, done.err), (3, "dibs: n: ends 2 processes that sh left running\n"))
    equal(dibs("run", "-q", "--grace", "0.2", "n", "sh", "-c", leave).err, "")


@test("--leave leaves what COMMAND started running, says so, and frees the lock")
def left_alive():
    mark, env = new_mark()
    script = "setsid sleep 61 >/dev/null 2>&1 & exit 3"
    done = dibs("run", "--leave", "n", "sh", "-c", script, env=env)
    equal((done.status, done.err),
          (3, "dibs: n: leaves 1 process of sh running, which the lock does not protect any more\n"))
    equal(server().owner("n"), None)
    left = processes_with(mark)
    equal(len(left), 1)
    for pid in left:
        os.kill(pid, 9)
    equal(dibs("run", "--leave", "n", "true").err, "")


run_tests()
