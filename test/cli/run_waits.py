"""dibs run and dibs hold while they wait: outages of the store, what they say, and what ends the wait."""

import contextlib
import os
import re
import select
import time

from support.command import *  # noqa: F403

RIDES_OUT = "; waits for that to pass\n"


def waiter(own, *arguments):
    return start(*arguments, env={"DIBS_URL": own.url})


@test("a queued job is not lost while the store is away for longer than the library's 5 s")
def outage_while_queued():
    own = Server()
    holder = waiter(own, "run", "-t", "600", "n", "sleep", "60")
    wait_for(lambda: own.owner("n"))
    waiting = [waiter(own, "run", *options, "n", "echo", "ran") for options in ((), ("-w", "600"))]
    wait_for(lambda: own.waiters("n") == 2)
    own.kill()
    for each in waiting:
        line = each.stderr.readline()
        assert line.startswith("dibs: n: ") and line.endswith(RIDES_OUT), line
    time.sleep(7)  # what must not happen: that they end after 5 s
    equal([each.poll() for each in waiting], [None, None])
    own.start()
    holder.terminate()
    for each in waiting:
        done = Done(each)
        equal((done.status, done.out), (0, "ran\n"), done.err)
    holder.communicate()


@test("a job that was started while the store is away is not lost either")
def outage_at_the_start():
    own = Server()
    own.kill()
    for arguments, out in ((("run", "n", "echo", "ran"), "ran\n"), (("hold", "-w", "600", "n"), "n held, fence ")):
        waiting = waiter(own, *arguments)
        line = waiting.stderr.readline()
        assert line.startswith("dibs: n: ") and line.endswith(RIDES_OUT), line
        own.start()
        assert waiting.stdout.readline().startswith(out)
        assert end(waiting).status in (0, 128 + 15)
        own.kill()


@test("--outage and -w end the wait for a store with 69, and -n does not wait for one")
def outage_limits():
    own = Server()
    own.kill()
    # The time runs from the start of dibs on, which must have tried once before it is over.
    for options, told in ((("--outage", "1"), True), (("--outage", "0"), False), (("-w", "1"), True), (("-n",), False)):
        done = Done(waiter(own, "run", *options, "n", "true"))
        equal((done.status, RIDES_OUT in done.err), (69, told), options)
    own.start()
    holder = waiter(own, "run", "-t", "600", "n", "sleep", "60")
    wait_for(lambda: own.owner("n"))
    waiting = waiter(own, "run", "--outage", "0.3", "n", "true")
    wait_for(lambda: own.queued("n"))
    own.kill()
    equal(Done(waiting).status, 69)
    holder.kill()
    holder.communicate()


@test("a store that refuses the account is no outage")
def refused():
    equal(Done(start("run", "--url", server().url.replace("unix://", "unix://u:p@"), "n", "true")).status, 69)


@test("--min-replicas and --durable: the lock counts only where they are met")
def kept_safe():
    done = dibs("run", "-n", "--min-replicas", "1", "n", "echo", "ran")
    equal((done.status, done.out), (69, ""))
    assert "replica" in done.err, done.err
    done = dibs("run", "-n", "--durable", "n", "echo", "ran")  # the server of the tests has no append-only file
    assert done.status in (64, 69) and not done.out, done.status
    equal(dibs("run", "--min-replicas", "0", "n", "echo", "ran").out, "ran\n")


@test("a wait for want of replicas says so, while it lasts and at its end, however short it is")
def waits_for_replicas():
    for seconds in ("0.001", "0.003", "0.006", "0.01", "0.02", "0.05", "0.3", "1.3"):
        for names in (["n"], ["--also", "m", "n"]):
            done = dibs("run", "-w", seconds, "--min-replicas", "1", *names, "echo", "ran")
            equal((done.status, done.out), (69, ""), done.err)
            told = "0 of 1 replicas acknowledged" in done.err or "too few replicas acknowledged" in done.err
            assert told and done.err.count('"n"') == 0, done.err
    waiting = start("run", "--min-replicas", "2", "n", "true")
    equal(waiting.stderr.readline(), "dibs: n: waits until 2 replicas confirm the lock\n")
    end_with(128 + 15, waiting)


@test("-v says where the server grants no lock, as a replica, and the job runs once the server does")
def says_that_a_replica_grants_nothing():
    with contextlib.closing(Server()) as own:
        own.ask("REPLICAOF", "127.0.0.1", "1")
        waiting = waiter(own, "run", "-v", "n", "echo", "ran")
        lines = iter(waiting.stderr.readline, "")
        line = next(line for line in lines if "waits for the lock" in line)
        equal(line, "dibs: n: waits for the lock, which nobody holds: the server does not grant it; \"dibs doctor\" tells why\n")
        own.ask("REPLICAOF", "NO", "ONE")
        done = Done(waiting)
        equal((done.status, done.out), (0, "ran\n"), done.err)


@test("a job without a terminal that waits for a lock which the server does not grant says so, also if it is in the queue")
def says_without_a_terminal_that_nothing_is_granted():
    with contextlib.closing(Server()) as own:
        other = waiter(own, "run", "-t", "2", "n", "sleep", "60")
        wait_for(lambda: own.owner("n"))
        queued = waiter(own, "run", "n", "echo", "ran")
        wait_for(lambda: own.waiters("n") == 1, "the job is in the queue")
        own.ask("REPLICAOF", "127.0.0.1", "1")
        late = waiter(own, "run", "n", "echo", "ran")
        other.kill()
        other.wait()
        for waiting in (queued, late):
            assert "which nobody holds: the server does not grant it" in waiting.stderr.readline()
        own.ask("REPLICAOF", "NO", "ONE")
        for waiting in (queued, late):
            done = Done(waiting)
            equal((done.status, done.out), (0, "ran\n"), done.err)


@test("-v says at once that dibs waits, and who has held the lock since when")
def says_that_it_waits():
    other = holder("n")
    for command in (["run", "-v", "n", "true"], ["hold", "-v", "n"]):
        waiting = start(*command)
        lines = iter(waiting.stderr.readline, "")
        line = next(line for line in lines if "waits for the lock" in line)
        assert re.search(r"n: waits for the lock, which sh@\S+:\d+ has held since \d{4}-\d\d-\d\d \d\d:", line), line
        end(waiting)
    waiting = start("run", "n", "true")
    wait_for(lambda: server().queued("n"))
    time.sleep(1.5)  # what must not happen: that it says so where no terminal is
    equal(end(waiting).err, "")
    end(other)


@test("on a terminal dibs says after a second that it waits")
def says_so_on_a_terminal():
    other = holder("n")
    own, its = os.openpty()
    for options in ([], ["-q"]):
        waiting = start("run", *options, "n", "true", stderr=its)
        wait_for(lambda: server().queued("n"))
        if not options:
            wait_for(lambda: select.select([own], [], [], 0)[0], "a message")
            assert b"waits for the lock, which sh@" in os.read(own, 4096)
        else:
            time.sleep(1.5)
            assert not select.select([own], [], [], 0)[0]
        end(waiting)
    os.close(own)
    os.close(its)
    end(other)


@test("a standard error that takes no more keeps no signal from ending the wait")
def signal_beside_a_stalled_error():
    server().ask("SET", "lock:n", "another client", "PX", "60000")
    out, into = full_pipe()
    try:
        for command in (["run", "-v", "n", "true"], ["hold", "-v", "n"]):
            waiting = start(*command, stderr=into)
            wait_for(lambda: server().queued("n"))
            time.sleep(0.5)  # it has something to say after 20 ms
            waiting.send_signal(signal.SIGTERM)
            equal(waiting.wait(LIMIT), 128 + signal.SIGTERM)
            wait_for(lambda: not server().queued("n"))
        with contextlib.closing(Server()) as own:
            own.ask("SET", "lock:n", "another client", "PX", "60000")
            waiting = start("run", "n", "true", env={"DIBS_URL": own.url}, stderr=into)
            wait_for(lambda: own.queued("n"))
            own.kill()
            time.sleep(1)  # it is told at once that the server is away
            waiting.send_signal(signal.SIGTERM)
            equal(waiting.wait(LIMIT), 128 + signal.SIGTERM)
    finally:
        os.close(into)
        os.close(out)
        server().ask("DEL", "lock:n")


@test("the same where the owner is a process of another host with the same number, as in containers")
def says_so_of_a_twin():
    other = holder("n")
    own, its = os.openpty()
    waiting = start("run", "n", "true", stderr=its)
    token = f"dibs:job:elsewhere:{holder_of(waiting)}:1:{32 * 'a'}:0"
    server().ask("SET", "lock:n", token, "PX", "60000")
    wait_for(lambda: select.select([own], [], [], 0)[0], "a message")
    # A machine that is busy for a second hides what this test is for, and fails nobody.
    assert re.search(rb"waits for the lock, which (job@elsewhere|sh@)", os.read(own, 4096))
    end(waiting)
    os.close(own)
    os.close(its)
    server().ask("DEL", "lock:n")
    other.communicate()


@test("the exit status is 71 where there is no descriptor for a connection")
def no_descriptors():
    for limit in range(4, 30):
        done = subprocess.run(
            ["sh", "-c", f"ulimit -n {limit}; exec {DIBS} run n true"], env=environment(), capture_output=True, text=True
        )
        if done.returncode == 0:
            return
        assert done.returncode in (71, 126, 127, 2), (limit, done.returncode, done.stderr)
    raise AssertionError("no limit was enough")


run_tests()
