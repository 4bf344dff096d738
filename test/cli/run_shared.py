"""dibs run and dibs hold that share a lock: --shared and --slots."""

import json
import re
import subprocess
import time

from support.command import *  # noqa: F403

SHOW = 'echo "$DIBS_FENCE $DIBS_TOKEN"'
SLEEP = ("sh", "-c", f"{SHOW}; exec sleep 60")


def sharers(name="n"):
    """How many share the lock."""
    return int((re.findall(r"sharers +(\d+)", dibs("status", name).out) or [0])[0])


def ends():
    """When their leases end, in ms of the server's clock."""
    words = server().ask("ZRANGEBYSCORE", "dibs:share:{lock:n}", "-inf", "(0", "WITHSCORES")
    return [-int(word) for word in words[1::2]]


def run(*options, inside=SLEEP):
    """A dibs run whose COMMAND has begun, its fence, and its token."""
    process = start("run", *options, "n", *inside)
    fence, token = process.stdout.readline().split()
    return process, int(fence), token


@test("readers are inside together, and no exclusive holder beside them")
def readers():
    first, fence, token = run("--shared")
    second, later, other = run("--shared")
    assert later > fence and other != token, (token, other)
    equal(sharers(), 2)
    equal(dibs("run", "-n", "n", "echo", "ran").status, 1)
    equal(dibs("run", "-n", "--shared", "n", "echo", "ran").out, "ran\n")
    end_with(128 + 15, first)
    equal(dibs("run", "-n", "n", "echo", "ran").status, 1)
    end_with(128 + 15, second)
    writer = hold("n")
    equal(dibs("run", "-n", "--shared", "n", "echo", "ran").status, 1)
    equal(dibs("run", "-n", "--slots", "3", "n", "echo", "ran").status, 1)
    end_with(0, writer)
    equal(server().owner("n"), None)


@test("no reader passes a waiting writer, and the writer waits only for the readers inside")
def writer_waits():
    reader = hold("--shared", "n")
    writer = start("run", "n", *SLEEP)
    wait_for(lambda: server().waiters("n") == 1, "the writer waits")
    equal(dibs("run", "-n", "--shared", "n", "echo", "ran").status, 1)
    late = start("run", "--shared", "n", "echo", "late")
    wait_for(lambda: server().waiters("n") == 2, "the reader waits")
    end_with(0, reader)
    assert len(writer.stdout.readline().split()) == 2
    end_with(128 + 15, writer)
    equal(Done(late).out, "late\n")


@test("a number of slots that lets nobody in is refused, and the error names the valid ones")
def bad_slots():
    for count in ("-1", "0", "2147483648", "three", ""):
        done = dibs("run", "--slots", count, "n", "true")
        equal(done.status, 64)
        assert f'--slots: "{count}" is not a number from 1 to 2147483647' in done.err, done.err


@test("as many as --slots says are inside, and the next gets in when one has left")
def slots():
    inside = [hold("--slots", "3", "n") for _ in range(3)]
    done = dibs("run", "-v", "-n", "-E", "9", "--slots", "3", "n", "echo", "ran")
    equal((done.out, done.status), ("", 9))
    assert "n: no slot is free" in done.err, done.err
    waits = start("run", "-v", "--slots", "3", "n", "echo", "ran")
    line = waits.stderr.readline()
    assert re.fullmatch("dibs: n: waits for the lock, which .* and 2 more share\n", line), line
    end_with(0, inside.pop())
    done = Done(waits)
    equal((done.out, done.status), ("ran\n", 0))
    equal(sharers(), 2)
    end_with(0, *inside)
    equal(server().owner("n"), None)


@test("never more than --slots says, however many come")
def never_more():
    with folder() as files:
        script = f'mkdir {files.path}/$$; ls {files.path} | wc -l; sleep 0.1; rmdir {files.path}/$$'
        many = [start("run", "--slots", "3", "n", "sh", "-c", script) for _ in range(12)]
        counts = [int(Done(process).out) for process in many]
        assert max(counts) <= 3, counts


@test("each slot is renewed, and a killed job keeps its slot no longer than its lease")
def renewed():
    inside = [hold("--slots", "2", "-t", "3", "n") for _ in range(2)]
    waits = start("run", "-w", "30", "--slots", "2", "n", "echo", "ran")
    wait_for(lambda: server().waiters("n") == 1, "the third waits")
    last = max(ends())
    wait_for(lambda: min(ends()) > last, "a renewal of each")
    equal(waits.poll(), None)
    inside[0].kill()
    inside[0].wait()
    equal(Done(waits).out, "ran\n")
    end_with(0, inside[1])


@test("a slot that is forced away from one job costs no other its slot")
def broken():
    first, _, token = run("--shared")
    second, _, _ = run("--shared")
    other = hold("--shared", "n")
    equal(dibs("break", "-y", "--token", token + "0", "n").status, 1)
    done = dibs("break", "-y", "--token", token, "n")
    equal(done.status, 0, done.out)
    assert token in done.out, done.out
    done = Done(first)
    equal(done.status, 76)
    assert "n: the lease was lost" in done.err, done.err
    equal(sharers(), 2)
    equal(dibs("break", "-y", "n").status, 0)
    equal(other.wait(LIMIT), 76)  # it came last
    equal(sharers(), 1)
    end_with(128 + 15, second)


@test("a reader that lost the lock has its grace time while only readers hold it")
def grace():
    script = f"trap 'sleep 0.5; echo in time; exit 3' TERM; sleep 60 & {SHOW}; wait"
    other = hold("--shared", "n")
    reader, _, token = run("--shared", "--grace", "10", inside=("sh", "-c", script))
    equal(dibs("break", "-y", "--token", token, "n").status, 0)
    done = Done(reader)
    equal((done.out, done.status), ("in time\n", 76))
    end_with(0, other)


@test("a job that lost its slot to another is killed at once")
def killed():
    script = f"trap '' TERM; {SHOW}; while :; do sleep 0.05; done"
    other = hold("--slots", "2", "n")
    loser, _, token = run("--slots", "2", "--grace", "40", "-t", "120", inside=("sh", "-c", script))
    waits = start("hold", "--slots", "2", "n")
    wait_for(lambda: server().waiters("n") == 1, "the third waits")
    began = time.monotonic()
    equal(dibs("break", "-y", "--token", token, "n").status, 0)
    assert waits.stdout.readline().startswith("n held, fence ")
    equal(Done(loser).status, 76)
    assert time.monotonic() - began < LIMIT  # not the grace time
    end_with(0, other, waits)


def nested(outer, inner, newer):
    """What a dibs run inside another does, where others came to share the lock meanwhile."""
    script = f"{SHOW}; read go; {DIBS} run -v -w 20 {inner} n sh -c '{SHOW}'; echo $?"
    process = start("run", *outer, "n", "sh", "-c", script, stdin=subprocess.PIPE)
    outside = process.stdout.readline()
    others = [hold(*newer, "n") for _ in range(2)] if newer else []
    process.stdin.write("go\n")
    process.stdin.flush()
    done = Done(process)
    end_with(0, *others)
    equal(done.status, 0)
    return outside, done


@test("a shared lock is entered by dibs run --shared inside, also when others came to share it, and with any limit")
def entered():
    for outer, newer in ((["--shared"], ["--shared"]), (["--slots", "3"], ["--slots", "3"]), (["--slots", "1"], None)):
        for inner in ("--shared", "--slots 1", "--slots 3"):
            outside, done = nested(outer, inner, newer)
            equal(done.out, outside + "0\n", inner)


@test("a shared lock is entered inside also while another client waits for it exclusively")
def entered_before_a_writer():
    script = f"{SHOW}; read go; {DIBS} run --shared n echo in"
    process = start("run", "--shared", "n", "sh", "-c", script, stdin=subprocess.PIPE)
    process.stdout.readline()
    writer = start("run", "n", "echo", "alone")
    wait_for(lambda: server().waiters("n") == 1, "the writer waits")
    process.stdin.write("go\n")
    process.stdin.flush()
    equal(Done(process).out, "in\n")
    equal(Done(writer).out, "alone\n")


@test("an exclusive lock is entered either way, and stays exclusive")
def entered_alone():
    for inner in ("--shared", "--slots 2", ""):
        outside, done = nested([], inner, None)
        equal(done.out, outside + "0\n", inner)
    stranger = f"env -u DIBS_TOKEN {DIBS} run -n --shared n echo"
    equal(dibs("run", "n", "sh", "-c", f"{DIBS} run --shared n {stranger}").status, 1)


@test("dibs run that wants a shared outer lock exclusively fails at once, instead of waiting for itself")
def upgraded():
    for newer in (None, ["--shared"]):
        _, done = nested(["--shared"], "-E 9", newer)
        equal(done.out, "9\n")
        assert "an outer dibs shares the lock: this one would wait for ever" in done.err, done.err
    _, done = nested(["--shared"], "--shared --no-reentry -E 8", ["--shared"])
    equal(done.out, "8\n")


@test("the token of a lock that has ended does not count inside: the lock is acquired as usual")
def ended():
    old = dibs("run", "--shared", "n", "sh", "-c", SHOW).out.split()
    others = [hold("--slots", "2", "n") for _ in range(2)]
    equal(dibs("run", "-n", "--slots", "2", "n", "echo", "ran", env={"DIBS_TOKEN": old[1]}).status, 1)
    end_with(0, *others)


@test("--also: all names are shared alike")
def also():
    first = hold("--shared", "--also", "b", "a")
    second = hold("--shared", "--also", "c", "b")
    equal([sharers(name) for name in "abc"], [1, 2, 1])
    equal([dibs("run", "-n", name, "true").status for name in "abc"], [1, 1, 1])
    inside = f"{DIBS} run -n --shared --also d b echo b; {DIBS} run -n b echo no; {DIBS} run -n --shared c echo c"
    equal(dibs("run", "--shared", "--also", "b", "e", "sh", "-c", inside).out, "b\nc\n")
    end_with(0, first, second)
    equal([server().owner(name) for name in "abcde"], [None] * 5)


@test("--at-least keeps the slot")
def at_least():
    equal(dibs("run", "--slots", "2", "--at-least", "60", "n", "true").status, 0)
    equal(sharers(), 1)
    other = hold("--slots", "2", "n")
    equal(dibs("run", "-n", "--slots", "2", "n", "true").status, 1)
    end_with(0, other)
    equal(dibs("break", "-y", "n").status, 0)


@test("status, list and watch show how many share a lock, and status who they are")
def shown():
    first, fence, token = run("--shared")
    lock = json.loads(dibs("status", "--json", "n").out)["locks"][0]
    equal(([sharer["token"] for sharer in lock["sharing"]], lock["sharers"]), ([token], 1))
    second, _, newest = run("--shared")
    alone = hold("alone")
    text = dibs("status", "n").out
    assert "sharers  2, of whom" in text and "2. sh on " in text and token in text and newest in text, text
    lock = json.loads(dibs("status", "--json", "n").out)["locks"][0]
    equal((lock["sharers"], lock["token"]), (2, newest))
    equal([sharer["token"] for sharer in lock["sharing"]], [newest, token])
    equal(lock["sharing"][1]["fence"], str(fence))
    assert lock["sharing"][1]["sharer"]["pid"] == int(token.split(":")[3]), lock
    assert 0 < lock["sharing"][1]["left_ms"] <= 30000 and lock["sharing"][1]["held_ms"] >= 0, lock
    rows = [line.split() for line in dibs("list", "-s", "sharers").out.splitlines()]
    equal([(row[0], row[-1]) for row in rows], [("NAME", "SHARERS"), ("n", "2"), ("alone", "0")])
    equal([each["sharers"] for each in json.loads(dibs("list", "--json").out)["locks"]], [0, 2])
    watch = start("watch", "-i", "0.1", "n")
    equal(watch.stdout.readline().split("\t")[7], "2\n")
    end_with(128 + 15, first)
    equal(watch.stdout.readline().split("\t")[7], "1\n")  # though the newest is the same
    end_with(128 + 15, second)
    equal(watch.stdout.readline().split("\t")[1:], ["free", "n\n"])
    watch.kill()
    watch.wait()
    end_with(0, alone)


def limits():
    """What doctor finds of limits."""
    findings = json.loads(dibs("doctor", "--json").out)["findings"]
    return [(finding["verdict"], finding["text"]) for finding in findings if finding["subject"] == "limits"]


@test("doctor finds clients that give different limits, also a waiting one")
def different():
    equal(limits(), [])
    inside = [hold("--slots", "3", "n"), hold("--slots", "3", "n")]
    equal(limits(), [("ok", "1 lock is shared, with the same limit by all who use one.")])
    waits = start("hold", "--slots", "2", "n")
    wait_for(lambda: server().waiters("n") == 1, "the one with another limit")
    said = "Those who share n, or wait to, give different limits:"
    equal(limits(), [("warn", f"{said} 3 (2), 2 (1).")])
    end_with(0, inside.pop())
    assert waits.stdout.readline().startswith("n held")
    equal(limits(), [("warn", f"{said} 2 (1), 3 (1).")])
    end_with(0, *inside, waits)
    reader, slot = hold("--shared", "n"), hold("--slots", "9", "n")
    equal(limits(), [("warn", f"{said} 9 (1), none (1).")])
    end_with(0, reader, slot)


@test("invalid values of --shared and --slots are refused")
def refused():
    for value in ("0", "-1", "", "three", "3x", "99999999999"):
        done = dibs("run", "--slots", value, "n", "true")
        equal((done.status, "--slots" in done.err), (64, True), value)
    for command in (("run", "--shared", "--slots", "2", "n", "true"), ("hold", "--slots", "2", "--shared", "n")):
        done = dibs(*command)
        equal(done.status, 64)
        assert "--shared and --slots exclude each other" in done.err, done.err


run_tests()
