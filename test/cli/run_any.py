"""dibs run: random signals to random ones of its processes. The exit status is exact, no descendant of COMMAND is left, and
no process beside dibs is harmed.

DIBS_RUNS=300, DIBS_SEED=1: how many runs, and what draws them.
"""

import contextlib
import os
import random
import resource
import signal
import time

from support.command import *  # noqa: F403

RUNS = int(os.environ.get("DIBS_RUNS", "300"))
SEED = int(os.environ.get("DIBS_SEED", "1"))
WORKERS = 6
STOPS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
HARMLESS = {signal.SIGCONT, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH}
# Without those that stand for a fault of the process itself, which sanitizers take.
FATAL = {signal.SIGKILL, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU, signal.SIGIO}
SIGNALS = sorted(PASSED) * 2 + sorted(STOPS) + sorted(HARMLESS) + sorted(FATAL) + [signal.SIGKILL] * 6

# None of them ends by itself, nor because one of its descendants does. "ready" says that all of it runs. The shells start
# nothing while signals come: dash loses a signal now and then that arrives while it does.
LOOP = "while :; do sleep 77 & wait $!; done"
COMMANDS = {
    "plain": "echo ready; exec sleep 71",
    "family": f"sleep 71 & setsid sleep 72 & (setsid sh -c 'sleep 73 & sleep 74' &); echo ready; {LOOP}",
    "answers": f"trap 'exit 9' INT TERM HUP QUIT USR1 USR2; sleep 71 & echo ready; {LOOP}",
    "deaf": f"trap '' INT TERM HUP QUIT USR1 USR2; (setsid sleep 71 &); sleep 72 & echo ready; {LOOP}",
}
# Execs dibs, as the parent of other processes; one of these has a child.
BESIDE = """env "$1" sleep 75 &
env "$1" sh -c 'sleep 76 & wait' &
shift; exec "$@" """


def is_command(pid):
    """Among the holder's children: COMMAND leads a group. What it left leads none, or a session; its number may be any."""
    try:
        return os.getpgid(pid) == pid != os.getsid(pid)
    except ProcessLookupError:
        return False


class Run:
    def __init__(self, number):
        self.draw = random.Random(SEED * 1_000_003 + number)
        self.kind = self.draw.choice(["late", "late", "late", "early", "waits"])
        self.command = self.draw.choice(sorted(COMMANDS))
        self.beside = self.draw.random() < 0.5
        self.number = number
        self.mark, self.environment = new_mark()
        self.strange, _ = new_mark()
        self.name = "taken" if self.kind == "waits" else f"n{number}"
        self.acts, self.pids, self.gone = [], {}, set()

    def __str__(self):
        acts = ", ".join(f"{role} {number.name}" for role, number in self.acts)
        return f"run {self.number} of seed {SEED}, {self.kind} {self.command}{' beside others' if self.beside else ''}: {acts}"

    # ------------------------------------------------------------ processes

    def start(self):
        words = [DIBS, "run", "-q", "-t", "60", "--grace", "0.1", self.name, "sh", "-c", COMMANDS[self.command]]
        if self.beside:
            words = ["sh", "-c", BESIDE, "sh", self.strange, *words]
        self.process = subprocess.Popen(
            words, env=environment(**self.environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.pids["front"] = self.process.pid

    def strangers(self):
        return processes_with(self.strange) if self.beside else []

    def look(self):
        """Finds the processes that there are by now."""
        def child(parent, name):
            for pid in children(self.pids.get(parent, 0)):
                if name_of(pid) == name:
                    self.pids.setdefault(name, pid)

        if "front" not in self.gone:
            child("front", "lock-guard")
        child("lock-guard", "dibs-holder")
        if "command" not in self.pids and self.kind == "late":
            self.pids["command"] = next(filter(is_command, children(self.pids["dibs-holder"])))
        if "command" in self.pids and "dibs-holder" in self.pids:
            below = [pid for pid in descendants(self.pids["dibs-holder"]) if pid != self.pids["command"]]
            if below:
                self.pids["descendant"] = self.draw.choice(below)

    # ----------------------------------------------------------------- acts

    def act(self):
        self.look()
        role, number = self.draw.choice(sorted(self.pids)), self.draw.choice(SIGNALS)
        if self.ends(role, number) and not self.may_end(role):
            number = signal.SIGCONT
        if role in self.gone or (role == "front" and self.process.poll() is not None):
            return
        self.acts.append((role, number))
        if self.ends(role, number):
            self.gone.add(role)
        self.kill(role, number)

    def ends(self, role, number):
        """Whether a process of dibs itself dies by the signal."""
        if role == "lock-guard":
            return number == signal.SIGKILL
        return role in ("front", "dibs-holder") and number in FATAL

    def may_end(self, role):
        """SERVICES.md says what is left where two or three of dibs' processes are killed."""
        gone = {*self.gone, role} & {"front", "lock-guard", "dibs-holder"}
        return len(gone) < 3 and not (gone == {"lock-guard", "dibs-holder"} and (self.beside or self.kind == "early"))

    # ------------------------------------------------------------- statuses

    def of_command(self, number):
        """COMMAND's status where it gets the signal; None: it goes on."""
        if number in PASSED and self.command in ("answers", "deaf"):
            return 9 if self.command == "answers" else None
        return None if number in STOPS | HARMLESS else 128 + number

    def of(self, role, number):
        """The status of dibs where this is the only act; None: it goes on."""
        if role in ("front", "dibs-holder") and number in PASSED:
            return 128 + number if self.kind == "waits" else self.of_command(number)
        if self.ends(role, number):
            return {"front": -number, "lock-guard": None, "dibs-holder": 71 if self.kind == "waits" else 76}[role]
        return self.of_command(number) if role == "command" else None

    def brought(self):
        """The status that each act would bring."""
        acts = list(self.acts)
        if ("dibs-holder", signal.SIGSTOP) in acts and ("lock-guard", signal.SIGKILL) in acts:
            acts.append(("dibs-holder", signal.SIGHUP))  # by the system, where that orphans a group that is stopped
        return {self.of(role, number) for role, number in acts} - {None}

    def is_open(self):
        """Whether none of them is certain: a SIGTSTP ends a wait, which starts over, so other signals may be lost."""
        starts_over = self.kind == "waits" and ("front", signal.SIGTSTP) in self.acts
        orphan = ("dibs-holder", signal.SIGSTOP) in self.acts and ("lock-guard", signal.SIGKILL) in self.acts
        return starts_over or orphan or self.kind == "early"

    def expected(self):
        last = {"answers": 9, "deaf": 128 + signal.SIGKILL}.get(self.command, 128 + signal.SIGTERM)
        found = self.brought()
        if self.kind == "waits":
            last = 128 + signal.SIGTERM
        if self.is_open():
            found |= {last}
        if self.kind == "early":  # there may have been no COMMAND, or no trap, or no handler of dibs
            numbers = {number for _, number in self.acts if number not in STOPS | HARMLESS} | {signal.SIGTERM}
            found |= {128 + number for number in numbers} | {-number for number in numbers} | {71, 76, last}
        if ("descendant", signal.SIGINT) in self.acts:  # shells take it for Ctrl-C
            found |= {128 + signal.SIGINT, 9, last}
        return found or {last}

    # -------------------------------------------------------------- the whole

    def do(self):
        self.start()
        try:
            if self.kind == "late":
                equal(self.process.stdout.readline(), b"ready\n")
            elif self.kind == "waits":
                wait_for(lambda: self.look() or ("dibs-holder" in self.pids and self.is_queued()), "a place in the queue")
            before = self.beside and wait_for(lambda: len(self.strangers()) == 3 and self.strangers(), "the others")
            for _ in range(self.draw.randrange(1, 4)):
                time.sleep(self.draw.random() * (0.06 if self.kind == "early" else 0.03))
                self.act()
            self.end()
            equal(self.process.returncode in self.expected(), True, f"{self.process.returncode}, not {self.expected()}")
            killed = self.process.returncode < 0
            wait_for(lambda: not self.left(), "the end of all processes", LIMIT if killed else 0)
            assert not before or all(alive(pid) and state_of(pid) != "T" for pid in before), f"harmed: {before}"
        finally:
            self.process.stdout.close()
            for pid in self.strangers():  # they do not end by themselves, but one waits for another
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def is_queued(self):
        return any(f":{self.pids['dibs-holder']}:" in field for field in server().ask("HKEYS", "dibs:queue:{lock:taken}"))

    def left(self):
        """What dibs and COMMAND have left, and what it is."""
        return [(pid, read(f"/proc/{pid}/cmdline")) for pid in processes_with(self.mark)]

    def end(self):
        """What was stopped goes on. Then dibs ends by itself, or COMMAND is asked to, as often as it may start only now."""
        until = time.monotonic() + 60
        if self.brought() and not self.is_open():
            wait_for(lambda: self.go_on() or self.process.poll() is not None, "the end of dibs", 60)
        while self.process.poll() is None or (self.process.returncode < 0 and self.left()):
            assert time.monotonic() < until, f"does not end: {self.left()}"
            self.look()
            self.go_on()
            if self.process.poll() is None:
                self.kill("front", signal.SIGTERM)
            if self.command == "deaf" and self.kind != "waits":
                for pid in processes_with(self.mark):
                    if "trap ''" in read(f"/proc/{pid}/cmdline") and pid not in self.pids.values():
                        self.pids["command"] = pid
                self.kill("command", signal.SIGKILL)
            time.sleep(0.03)

    def go_on(self):
        """Again and again: dibs stops itself a little after a SIGTSTP."""
        for role in ("lock-guard", "dibs-holder", "front", "command"):
            self.kill(role, signal.SIGCONT)

    def kill(self, role, number):
        """Unless it has ended: then its number may be that of a process of somebody else."""
        if role in self.pids and has_mark(self.pids[role], self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[role], number)



@test("the tests see a process all the while that it execs")
def seen_while_it_execs():
    mark, own = new_mark()
    script = 'exec sh -c "$0" "$0"'
    process = subprocess.Popen(["sh", "-c", script, script], env=environment(**own))
    try:
        missed = sum(not has_mark(process.pid, mark) for _ in range(20000))
    finally:
        process.kill()
        process.wait()
    equal(missed, 0)
    equal(processes_with(mark), [])


@test(f"{RUNS} runs with random signals to random processes: exact statuses, nothing is left, no stranger is harmed")
def any_signal_to_any_process():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with_lock = hold("taken")
    do_all(map(Run, range(RUNS)), WORKERS)
    end(with_lock)


run_tests()
