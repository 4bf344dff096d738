"""dibs run: 1,000 runs with random signals at random moments. None leaves a process, a key or an entry in a queue.

DIBS_RUNS=1000, DIBS_SEED=1: how many runs, and what draws them.
"""

import os
import random
import signal
import subprocess
import time

from support.command import *  # noqa: F403

RUNS = int(os.environ.get("DIBS_RUNS", "1000"))
SEED = int(os.environ.get("DIBS_SEED", "1"))
WORKERS = 8
NAMES = 5  # fewer than workers: some wait
COMMANDS = [
    "exec sleep 0.05",
    "sleep 0.05; exit 5",
    "sleep 60 & sleep 60 & wait",
    "setsid sleep 60 & exec sleep 0.05",
    "(setsid sh -c 'sleep 60 & sleep 60' &) ; sleep 60",
    "trap '' INT TERM HUP QUIT USR1 USR2; (setsid sleep 60 &); sleep 0.03",
    "trap 'exit 9' INT TERM HUP QUIT USR1 USR2; sleep 0.05 & wait",
    "while :; do sleep 0.01 & done",
]


class Run:
    def __init__(self, number):
        draw = random.Random(SEED * 1_000_003 + number)
        self.name = f"n{draw.randrange(NAMES)}"
        self.command = draw.choice(COMMANDS)
        self.options = draw.choice([[], [], ["--fair"], ["-w", "0.02"], ["-n"]])
        # At last one that ends every COMMAND, which is to come soon enough.
        self.acts = [(draw.random() * 0.12, draw.choice(PASSED)) for _ in range(draw.randrange(1, 4))]
        if draw.random() < 0.1:
            self.acts.append((draw.random() * 0.1, signal.SIGKILL))
        if draw.random() < 0.1:
            self.acts += [(draw.random() * 0.05, signal.SIGSTOP), (0.06 + draw.random() * 0.05, signal.SIGCONT)]
        self.acts.sort()
        self.mark, self.environment = new_mark()
        self.title = f"run {number} of seed {SEED}: {self.options} {self.name} {self.command!r} {self.acts}"

    def __str__(self):
        return self.title

    def signals(self):
        return [int(number) for _, number in self.acts]

    def do(self):
        arguments = ["--grace", "0.05", "-q", *self.options, self.name, "sh", "-c", self.command]
        process = start("run", *arguments, env=self.environment, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL)
        began = time.monotonic()
        for moment, number in self.acts:
            time.sleep(max(0, began + moment - time.monotonic()))
            process.send_signal(number)
        while process.poll() is None:
            time.sleep(0.01)
            if time.monotonic() > began + 0.3:  # COMMAND may be started only now, or was asked to end before its trap
                process.send_signal(signal.SIGTERM)
                time.sleep(0.05)
            assert time.monotonic() < began + 30, "does not end"
        self.check(process.returncode)

    def check(self, status):
        sent = [*self.signals(), int(signal.SIGTERM)]
        # A signal that comes before main() ends dibs as it does any program.
        assert status in [0, 1, 5, 9, *[128 + each for each in sent], *[-each for each in sent]], status
        if status == -signal.SIGKILL:
            wait_for(lambda: not processes_with(self.mark), "the end of all processes", 10)
        left = processes_with(self.mark)
        assert not left, [(pid, read(f"/proc/{pid}/cmdline")) for pid in left]



@test(f"{RUNS} runs end, and leave no process")
def no_process():
    do_all(map(Run, range(RUNS)), WORKERS)


@test("nor a key, nor an entry in a queue")
def no_key():
    equal(server().ask("KEYS", "lock:*"), [])
    equal(server().ask("KEYS", "dibs:queue:*"), [])


run_tests()
