"""dibs run inside dibs run, and what COMMAND leaves running."""

import os
import time

from command import *  # noqa: F403

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
        process.terminate()
        equal(Done(process).status, 128 + 15)
        equal(server().owner("n"), None)
    process = start("run", "n", "sh", "-c", f"exec {DIBS} hold n")
    assert process.stdout.readline().startswith("n held, fence ")
    process.terminate()
    equal(Done(process).status, 0)


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
    process = start("run", "n", "sh", "-c", "echo ready; exec sleep 60")
    equal(process.stdout.readline(), "ready\n")
    equal(dibs("run", "-n", "n", "echo", "ran", env=env).status, 1)
    process.terminate()
    process.communicate()


@test("what COMMAND leaves running is ended with one line that says how many")
def left_behind():
    leave = "setsid sleep 60 >/dev/null 2>&1 & sleep 60 >/dev/null 2>&1 & exit 3"
    done = dibs("run", "--grace", "0.2", "n", "sh", "-c", leave)
    equal((done.status, done.err), (3, "dibs: n: ends 2 processes that sh left running\n"))
    equal(dibs("run", "-q", "--grace", "0.2", "n", "sh", "-c", leave).err, "")


@test("--leave leaves what COMMAND started running, says so, and frees the lock")
def left_alive():
    mark = f"DIBS_TEST_MARK=leave-{os.getpid()}"
    script = "setsid sleep 61 >/dev/null 2>&1 & exit 3"
    done = dibs("run", "--leave", "n", "sh", "-c", script, env=dict([mark.split("=")]))
    equal((done.status, done.err),
          (3, "dibs: n: leaves 1 process of sh running, which the lock does not protect any more\n"))
    equal(server().owner("n"), None)
    left = processes_with(mark)
    equal(len(left), 1)
    for pid in left:
        os.kill(pid, 9)
    equal(dibs("run", "--leave", "n", "true").err, "")


if __name__ == "__main__":
    try:
        run_tests()
    finally:
        close_server()
