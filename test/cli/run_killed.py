"""dibs run: whichever of its processes are killed, all descendants of COMMAND are ended, and no other process is."""

import contextlib
import os
import signal
import time

from support.command import *  # noqa: F403

# A COMMAND of five processes: in sessions of their own, without the parent that started them, and deaf to what asks.
FAMILY = """trap '' TERM HUP INT
(setsid sh -c "trap '' TERM; sleep 61 & sleep 62" &)
setsid sleep 63 &
echo ready; while :; do sleep 0.05; done"""

# Runs dibs in its own place, as the child of nobody who knows, with a helper that it started before. When the file `go`
# appears, the helper starts a child and an orphan: younger than all of dibs, and in the middle of COMMAND's.
BESIDE = """
import ctypes, os, sys, time
go, subreaper, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
if os.fork() == 0:
    os.environ["DIBS_TEST_MARK"] = os.environ["DIBS_TEST_STRANGER"]
    while not os.path.exists(go):
        time.sleep(0.01)
    os.spawnlp(os.P_NOWAIT, "setsid", "setsid", "sleep", "64")
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            os.execlp("sleep", "sleep", "65")
        os._exit(0)
    os.wait()
    os.execlp("sleep", "sleep", "66")
if subreaper == "adopts":
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: as process 1 of a container, which adopts all
os.execv(arguments[0], arguments)
"""
STRANGERS = ["64", "65", "66"]


class Job:
    """dibs run with that COMMAND."""

    def __init__(self, *wrapper, inner=(), options=("-t", "2"), **more):
        self.mark, own = new_mark()
        self.process = subprocess.Popen(
            [*wrapper, DIBS, "run", *options, "n", *inner, "sh", "-c", FAMILY], env=environment(**own, **more), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        ready(self.process)
        wait_for(lambda: all(f"sleep 6{i}" in self.programs() for i in (1, 2, 3)), "all of COMMAND")
        guards = [pid for pid in children(self.process.pid) if name_of(pid) == "lock-guard"]
        self.guard = guards[0]
        self.holder = children(self.guard)[0]

    def processes(self):
        return processes_with(self.mark)

    def programs(self):
        return [read(f"/proc/{pid}/cmdline").replace("\0", " ").strip() for pid in self.processes()]

    def is_over(self):
        """Dibs may still give the lock up."""
        return not any("sleep" in program or "sh -c" in program for program in self.programs())

    def end(self):
        """After all of it was killed that the test has killed."""
        self.process.communicate(timeout=60)
        wait_for(lambda: not self.processes(), "the end of all processes")


def run_beside(subreaper, harm):
    """The strangers live on, whatever becomes of the processes of dibs."""
    with folder() as files:
        mark, own = new_mark()
        job = Job(sys.executable, "-c", BESIDE, files.file("go"), subreaper, DIBS_TEST_STRANGER=own["DIBS_TEST_MARK"])

        def strangers():
            found = processes_with(mark)
            lines = {read(f"/proc/{pid}/cmdline").replace("\0", " ").strip(): pid for pid in found}
            return [lines[f"sleep {each}"] for each in STRANGERS if f"sleep {each}" in lines]

        try:
            open(files.file("go"), "w").close()
            before = wait_for(lambda: len(strangers()) == 3 and strangers(), "the strangers")
            harm(job)
            wait_for(job.is_over, "the end of COMMAND")
            assert job.process.wait(timeout=60) in (76, -signal.SIGKILL)
            equal(strangers(), before)
            assert all(map(alive, before)), before
        finally:
            for pid in strangers():
                os.kill(pid, signal.SIGKILL)
        job.end()


@test("what the shell started before dibs is no descendant of COMMAND: it survives a holder that is killed")
def beside_a_killed_holder():
    run_beside("adopts not", lambda job: os.kill(job.holder, signal.SIGKILL))


@test("the same where dibs adopts all orphans, as process 1 of a container does")
def beside_as_the_first_process():
    run_beside("adopts", lambda job: os.kill(job.holder, signal.SIGKILL))


@test("what the shell started before dibs survives a holder that is stopped for longer than its lease")
def beside_a_stopped_holder():
    run_beside("adopts", lambda job: os.kill(job.holder, signal.SIGSTOP))


@test("what the shell started before dibs survives a guard and a front that are killed")
def beside_two_killed():
    def harm(job):
        os.kill(job.guard, signal.SIGKILL)
        job.process.kill()

    run_beside("adopts", harm)


@test("a holder that is killed as soon as COMMAND runs has lost the lock: 76, and --on-lost knows which")
def killed_at_once():
    for number in range(20):
        script = ["--on-lost", 'echo "$DIBS_NAME"', f"n{number}", "sh", "-c", "kill -9 $PPID; sleep 60"]
        done = dibs("run", "-t", "2", *script)
        equal((done.status, done.out), (76, f"n{number}\n"), done.err)
        assert "that has the lock was killed" in done.err, done.err


def kill(pid):
    with contextlib.suppress(ProcessLookupError):  # it ended because the one before did
        os.kill(pid, signal.SIGKILL)


@test("any two of the three processes of dibs are killed: no descendant of COMMAND lives on")
def two_are_killed():
    for pair in (("process", "guard"), ("process", "holder"), ("guard", "holder")):
        job = Job()
        pids = {"process": job.process.pid, "guard": job.guard, "holder": job.holder}
        for each in pair:
            kill(pids[each])
        wait_for(job.is_over, f"the end of COMMAND without {pair}")
        job.end()


@test("pkill -9 dibs kills COMMAND and all its descendants before the lock is free")
def all_that_are_called_dibs():
    job = Job()
    named = [pid for pid in (job.process.pid, job.guard, job.holder) if "dibs" in name_of(pid)]
    equal(len(named), 2)
    wait_for(lambda: "dibs" not in read(f"/proc/{job.guard}/cmdline"), "the guard's own words")  # nor for pkill -f
    token = server().owner("n")
    for pid in named:
        kill(pid)
    wait_for(job.is_over, "the end of COMMAND")
    assert server().owner("n") in (token, None)
    job.end()
    wait_for(lambda: server().owner("n") is None, "the end of the lease")


NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


@test("all three are killed: in a namespace of process ids no descendant of COMMAND lives on, as SERVICES.md says")
def all_are_killed():
    if subprocess.run([*NAMESPACE, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        return  # this system allows no such namespace
    job = Job(inner=NAMESPACE)
    for pid in (job.process.pid, job.guard, job.holder):
        kill(pid)
    wait_for(job.is_over, "the end of COMMAND")
    job.end()


@test("without /proc what COMMAND leaves running can't be found: that is said, and dibs ends")
def without_proc():
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if subprocess.run([*hidden, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        return  # this system allows no such namespace
    mark, own = new_mark()
    script = "setsid sleep 67 >/dev/null 2>&1 & exit 3"
    done = subprocess.run([*hidden, DIBS, "run", "--grace", "0.2", "n", "sh", "-c", script], capture_output=True, text=True,
                          env=environment(**own), timeout=60)
    left = processes_with(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    equal((done.returncode, len(left)), (3, 1), done.stderr)
    assert "n: what sh left running can't be found without /proc" in done.stderr, done.stderr
    equal(server().owner("n"), None)


@test("a guard that is killed or stopped is not missed")
def without_the_guard():
    for number in (signal.SIGKILL, signal.SIGSTOP):
        job = Job(options=("-t", "30", "--grace", "0.1"))
        os.kill(job.guard, number)
        wait_for(lambda: state_of(job.guard) in (None, "T"))
        job.process.send_signal(signal.SIGUSR1)  # COMMAND ends by it
        out, err = job.process.communicate(timeout=60)
        equal((job.process.returncode, err), (128 + signal.SIGUSR1, ""))
        equal(job.processes(), [])
        equal(server().owner("n"), None)


run_tests()
