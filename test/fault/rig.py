"""The fault rig: workers that lock, faults that harm them, and a judge of what came of it.

    python3 rig.py --worker PROGRAM --shim LIBRARY [--topology one|quorum|sentinel|cluster] [--seconds N]
                   [--seed N] [--faults KIND,...] [--processes N] [--threads N] [--names N] [--lease MS]
                   [--long-lease MS] [--shared PERCENT] [--keep-ms MS] [--holds N] [--report FILE] [--tap] [--plan]

The seed decides which faults come when, and on what (--plan prints them and ends). Leases are long where the server
loses state, so that a holder that does not notice the loss is found out before its own deadline passes. Exit status: 0:
all promises were kept; 1: one was broken; 2: the rig itself failed; 3: too little happened for the result to mean
something.
"""

import argparse
import collections
import heapq
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import checker  # noqa: E402
import cluster  # noqa: E402
import judge as judges  # noqa: E402
import plan as plans  # noqa: E402
import quorum  # noqa: E402
import sentinel  # noqa: E402
import servers  # noqa: E402
from checker import MS, Act, Loss  # noqa: E402

TIMEOUT_MS = 300  # connect and command timeout of the workers
CLOSE_MS = 2 * TIMEOUT_MS  # for so long dibs_close waits at most; what it has not released by then stays until its lease ends
SLACK_MS = 150
EXIT_SECONDS = 20
STEP_SECONDS = 60
STRETCHED_MS = 3000  # the longest lease that worker/hold.c extends to
BURST_SECONDS = 120  # within which a burst is over, whatever the machine
GONE_SECONDS = 10  # within which a burst's locks are gone from the store, once all were released
ACCOUNT_OF = {1: "no-kill", 2: "no-id", 5: "no-kill", 6: "no-info"}  # by the worker's index modulo 8
PENDING = object()  # returned by a fault that calls finish by itself
LONG_RUN = 60  # seconds in which each rule is sure to have something to check
LEAST_GRANTS_OF_SHORT = 5  # a second, in a shorter run: on a busy machine little is left of its time beside the faults
MOST_PULSES = 8
SIDECARS = ("fence", "queue", "waiters", "share", "kept")
now = time.monotonic_ns


class Pulse(threading.Thread):
    """Notes when a processor was slow: a short sleep that took long there."""

    def __init__(self, processor):
        super().__init__(daemon=True)
        self.processor, self.stalls = processor, []

    def run(self):
        os.sched_setaffinity(0, {self.processor})  # of this thread alone
        while True:
            begin = now()
            time.sleep(0.01)
            if now() - begin > 60 * MS:
                self.stalls.append((begin, now()))


def united(times):
    """What they cover together, without overlaps."""
    found = []
    for begin, end in sorted(times):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


class Sampler(threading.Thread):
    """Looks which locks' keys are there, and now and then for keys that never expire, on a connection of its own."""

    def __init__(self, rig):
        super().__init__(daemon=True)
        self.rig, self.samples, self.clients = rig, [], {}
        self.eternal = set()
        self.error = None  # what ended the thread, which should never end

    def run(self):
        try:
            self.sample()
        except Exception:
            self.error = traceback.format_exc()

    def sample(self):
        for turn in itertools.count():
            time.sleep(0.03)
            begin, there = now(), None
            try:
                there = self.look(turn % 8 == 0)
            except (OSError, servers.ServerError):
                while self.clients:
                    self.clients.popitem()[1].close()
            self.samples.append((begin, now(), there))

    def look(self, at_expiry):
        """By name, whether a server has the lock's key. None: that is not known."""
        paths = self.rig.watched()
        phase = self.rig.phase_number
        locks = [f"lock:p{phase}:n{name}" for name in range(self.rig.options.names)]
        for path in paths:
            if path not in self.clients:
                self.clients[path] = servers.Client(path, timeout=1.0)
        clients = [self.clients[path] for path in paths]
        if at_expiry:
            keys = locks + [f"dibs:{kind}:{{{lock}}}" for lock in locks for kind in SIDECARS]
            for client in clients:
                self.look_at_expiry(client, keys)
        there = self.rig.look_for(clients, locks)
        same = phase == self.rig.phase_number and paths == self.rig.watched()
        return there if same and paths else None

    def look_at_expiry(self, client, keys):
        for key, left in zip(keys, client.pipeline([("PTTL", key) for key in keys], raises=False)):
            if left == -1:
                self.eternal.add(key)


class Waits(threading.Thread):
    """
    Notes how long the scheduler of a burst's runtime, and the server, waited for a processor, as the kernel counts it.
    Where the kernel does not count that, nothing is noted, and only the pulses tell that the machine was slow.
    """

    def __init__(self, rig):
        super().__init__(daemon=True)
        self.rig, self.found, self.known, self.at = rig, [], {}, now()

    def run(self):
        while True:
            time.sleep(0.01)
            begin, self.at = self.at, now()
            known, self.known = self.known, dict(self.look())
            grown = {thread: ns - known[thread] for thread, ns in self.known.items() if thread in known}
            own = max((ns for (name, _), ns in grown.items() if name == "dibs-scheduler"), default=0)
            ns = own + sum(ns for (name, _), ns in grown.items() if name == "server")
            if ns:
                self.found.append((begin, self.at, ns))

    def look(self):
        worker, server = self.rig.burst_worker, self.rig.server.process
        if worker is None or worker.state == "dead" or server is None:
            return
        try:
            yield ("server", server.pid), self.waited(f"/proc/{server.pid}")
            for task in os.scandir(f"/proc/{worker.process.pid}/task"):
                with open(task.path + "/comm") as comm:
                    yield (comm.read().strip(), task.name), self.waited(task.path)
        except (OSError, IndexError):
            pass

    @staticmethod
    def waited(folder):
        with open(folder + "/schedstat") as stat:
            return int(stat.read().split()[1])

    def take(self):
        found, self.found = self.found, []
        return found


class Worker:
    """
    A worker process and its successors, in one place of the judge's file. more: further arguments; a worker that has
    some connects to the server directly.
    """

    def __init__(self, rig, index, more=()):
        self.rig, self.index, self.more = rig, index, more
        self.incarnation = 0
        self.process = None
        self.state = "dead"  # dead, running, stopped, exiting
        self.exit_by = 0

    def start(self):
        rig = self.rig
        rig.judge.set_quit(self.index, False)
        self.incarnation += 1
        seed = random.Random(f"{rig.options.seed} {self.index} {self.incarnation}").getrandbits(48)
        url = f"unix://{rig.server.path}" if self.more else rig.url_of(self.index)
        words = [rig.options.worker, rig.judge.path, url, self.index, seed, rig.options.lease, TIMEOUT_MS, *self.more]
        with open(os.path.join(rig.folder, f"worker{self.index}.log"), "ab") as log:
            self.process = subprocess.Popen(
                rig.launcher + [str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.state = "running"

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        self.state = "stopped"

    def resume(self):
        self.process.send_signal(signal.SIGCONT)
        self.state = "running"

    def kill(self):
        self.process.kill()
        died = now()  # it runs no more; until the system has cleared it away, seconds may pass
        self.process.wait()
        self.buried(died)

    def ask_exit(self):
        self.rig.judge.set_quit(self.index, True)
        self.state = "exiting"
        self.exit_by = now() + EXIT_SECONDS * 1000 * MS

    def buried(self, died):
        self.state = "dead"
        self.rig.take_dead(self.index, died)
        self.rig.judge.clear_slot_phases(self.index)

    def log(self):
        with open(os.path.join(self.rig.folder, f"worker{self.index}.log"), errors="replace") as log:
            return log.read()[-6000:]

    def reap(self):
        """Whether the worker has ended; an end that the rig did not ask for is a failure."""
        if self.state in ("dead", "stopped"):
            return self.state == "dead"
        code = self.process.poll()
        if code is None:
            if self.state == "exiting" and now() > self.exit_by:
                self.rig.fail(6, f"worker {self.index} did not end within {EXIT_SECONDS} s")
                self.process.send_signal(signal.SIGABRT)
                self.kill()
                return True
            return False
        self.rig.report.check_ended(self.index, self.state == "exiting", code, self.log())
        self.buried(now())
        return True


def find_launcher(worker):
    """What to put in front of the worker: ThreadSanitizer fails with the address randomness of newer kernels."""
    for launcher in ([], ["setarch", os.uname().machine, "-R"]):
        if subprocess.run(launcher + [worker], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 5:
            return launcher
    raise SystemExit(f"{worker} does not run")


def set_sanitizers():
    """A sanitizer's report ends the worker, with a status that the rig takes for a failure."""
    for name, more in (("ASAN", "detect_leaks=1:detect_stack_use_after_return=1"), ("UBSAN", "print_stacktrace=1"),
                       ("TSAN", "second_deadlock_stack=1")):
        os.environ.setdefault(name + "_OPTIONS", f"halt_on_error=1:exitcode=99:{more}")


def is_clock_stepped(phase):
    return any(fault.kind.startswith("clock") for fault in phase.faults)


class Rig:
    LEAST_GRANTS = 20  # a second
    PENDING = PENDING

    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="dibs-fault-")
        self.launcher = find_launcher(options.worker)
        self.report = checker.Report()
        self.clock = servers.Clock(os.path.join(self.folder, "clock"))
        self.stepped_back = 0
        self.server_count = itertools.count()
        self.start_servers()
        self.began = self.wall_ns = 0  # when the phase began, and the wall clock less the log's then
        self.phases = plans.make(options.seed, options.seconds, options, options.kinds)
        self.judge = judges.Judge(
            os.path.join(self.folder, "judge"), len(self.phases) + 2, options.names, options.processes + 1, options.threads
        )
        self.judge.set_keep(options.keep_ms)
        self.judge.set_shared(options.shared)
        self.workers = [Worker(self, index) for index in range(options.processes)]
        self.phase_number = 0
        self.holds, self.acts, self.losses, self.stops, self.bursts = [], [], [], [], []
        self.burst_worker = None
        self.fired, self.planned, self.skipped = {}, {}, {}
        self.signals = collections.Counter({"holder": 0, "waiter": 0, "other": 0})  # to processes, by what these did
        self.sample_count = self.good_count = 0  # in all phases; good: those that told something
        self.good_samples = 1.0  # the least share of good ones in a phase
        self.timers, self.order = [], itertools.count()
        # by track; the first of each acts
        self.waiting = {"network": [], "server": [], "loss": [], "clock": [], "messages": [], "burst": [],
                        "failover": [], "cluster": []}
        self.collected_at = 0
        self.pulses = [Pulse(processor) for processor in sorted(os.sched_getaffinity(0))[:MOST_PULSES]]
        self.sampler, self.waits = Sampler(self), Waits(self)
        self.watchers = [*self.pulses, self.sampler, self.waits]

    def start_servers(self):
        self.server = self.new_server()
        self.server.start()
        self.proxy = servers.ProxyProcess(self.server.path)

    def watched(self):
        """The paths of the servers that the sampler looks at."""
        return [self.server.path]

    @staticmethod
    def look_for(clients, locks):
        """By lock, whether any of the servers has its key; None: that is not known."""
        found = [client.pipeline([("EXISTS", lock) for lock in locks]) for client in clients]
        return [any(of_lock) for of_lock in zip(*found)]

    def counted_other(self):
        """How many locks another application was granted meanwhile; None: there is none."""
        return None

    def url_of(self, index):
        """Several URLs have a space in between."""
        account = ACCOUNT_OF.get(index % 8)
        who = f"{account}:{servers.PASSWORD}@" if account in self.server.accounts() else ""
        return f"redis://{who}127.0.0.1:{self.proxy.port}"

    def new_server(self):
        return servers.Server(os.path.join(self.folder, f"r{next(self.server_count)}"), self.options.shim, self.clock)

    def fail(self, check, text):
        self.report.fail(check, text)

    def take_dead(self, process, died):
        self.holds += self.judge.take_dead(process, died)

    # -------------------------------------------------------------------- time

    def at(self, when, act, *arguments):
        heapq.heappush(self.timers, (when, next(self.order), act, arguments))

    def after(self, seconds, act, *arguments):
        self.at(now() + int(seconds * 1e9), act, *arguments)

    def tend(self):
        """Does what is always to be done."""
        if now() - self.collected_at > 100 * MS:
            self.collected_at = now()
            self.holds += self.judge.take()
            for worker in self.workers:
                if worker.state == "running" or worker.state == "exiting":
                    if worker.reap():
                        self.after(0.02, self.revive, worker)
            self.check_servers()

    def check_servers(self):
        if self.server.crashed():
            code = self.server.process.returncode
            raise RuntimeError(f"the server has ended by itself, with status {code}\n{self.server.log()}")
        if self.proxy.process.poll() is not None:
            raise RuntimeError("the proxy has ended")

    def revive(self, worker):
        if worker.state == "dead":
            worker.start()

    def run_until(self, when):
        """Runs the timers and tends, until a time has come, or until a condition is true."""
        condition = when if callable(when) else lambda: now() >= when
        while not condition():
            self.tend()
            if self.timers and self.timers[0][0] <= now():
                _, _, act, arguments = heapq.heappop(self.timers)
                act(*arguments)
            else:
                time.sleep(min(0.005, max(0.0, (self.timers[0][0] - now()) / 1e9)) if self.timers else 0.005)

    def run_timers_out(self):
        while self.timers:
            self.run_until(self.timers[0][0])
            if self.timers and self.timers[0][0] <= now():
                _, _, act, arguments = heapq.heappop(self.timers)
                act(*arguments)

    def wait_for(self, condition, seconds):
        end = now() + int(seconds * 1e9)
        self.run_until(lambda: condition() or now() >= end)
        return condition()

    # ------------------------------------------------------------------ faults

    def begin(self, fault):
        """Begins a fault when the fault before it in its track has ended, which a slow machine may delay."""
        track = plans.KINDS[fault.kind].track
        if track == "process":
            return self.act(fault)
        self.waiting[track].append(fault)
        if len(self.waiting[track]) == 1:
            self.act(fault)
        return None

    def act(self, fault):
        begin = now()
        finish = getattr(self, "do_" + fault.kind, self.do_network)(fault)
        if finish is PENDING:
            return
        if finish and fault.length:
            self.after(fault.length, self.finish, fault, begin, finish)
        else:
            self.finish(fault, begin, finish)

    def finish(self, fault, begin, finish):
        done = finish is not None and finish() is not False
        counted = self.fired if done else self.skipped
        counted[fault.kind] = counted.get(fault.kind, 0) + 1
        if finish:
            self.acts.append(Act(fault.kind, begin, now(), plans.KINDS[fault.kind].disturbs))
        waiting = self.waiting.get(plans.KINDS[fault.kind].track)
        if waiting:
            waiting.pop(0)
            if waiting:
                self.after(0, self.act, waiting[0])

    def lose(self, fault, begin, end=None, name=None, certain=True, since=0):
        self.losses.append(Loss(fault.kind, begin, end or now(), name, certain, since))

    # Each method do_KIND begins a fault and returns a function that ends it; None: there was nothing to harm. That
    # function returns False where the fault turned out to have harmed nothing.

    def do_network(self, fault):
        kind, params = fault.kind, dict(fault.params)
        if kind.startswith("drop_"):
            kind, params["way"] = "drop", kind[5:]
        self.proxy.order(do=kind, **params)
        return lambda: self.proxy.order(do="calm")

    def do_counted(self, fault, what):
        calm = self.do_network(fault)

        def end():
            count = calm()
            self.report.count(what, count)
            return count > 0

        return end

    def do_cut_after(self, fault):
        return self.do_counted(fault, "connections cut within a reply")

    def do_stuck(self, fault):
        return self.do_counted(fault, "extensions stuck on their way")

    def do_messages(self, fault):
        self.proxy.order(do="messages", **fault.params)

        def end():
            count = self.proxy.order(do="messages", how=None)
            self.report.count("messages of changes harmed", count)
            return count > 0

        return end

    def do_refuse(self, fault):
        self.proxy.order(do="refuse", on=True)
        self.proxy.order(do="cut", share=0.5, salt=len(self.acts))
        self.proxy.order(do="calm")
        return lambda: self.proxy.order(do="refuse", on=False)

    def do_server_stop(self, fault):
        self.server.pause()
        return self.server.resume

    def do_restart_kept(self, fault):
        return self.server.kill_kept()

    def do_script_flush(self, fault):
        self.server.call("SCRIPT", "FLUSH")
        return lambda: None

    def do_kill_normal(self, fault):
        self.server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        return lambda: None

    def do_kill_pubsub(self, fault):
        self.server.call("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
        return lambda: None

    def do_client_pause(self, fault):
        mode = ("WRITE",) if fault.params["writes_only"] and self.server.version >= (6, 2) else ()
        self.server.call("CLIENT", "PAUSE", int(fault.length * 1000), *mode)
        return lambda: None

    def do_debug_sleep(self, fault):
        client = servers.Client(self.server.path)
        client.send("DEBUG", "SLEEP", fault.length)
        return client.close

    def set_config(self, key, value, normal):
        self.server.call("CONFIG", "SET", key, value)
        return lambda: self.server.call("CONFIG", "SET", key, normal)

    def do_maxmemory(self, fault):
        return self.set_config("maxmemory", 1, 0)

    def do_maxclients(self, fault):
        undo = self.set_config("maxclients", 1, 10000)
        self.server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        return undo

    def do_min_replicas(self, fault):
        return self.set_config("min-replicas-to-write", 1, 0)

    def do_flushall(self, fault):
        begin = now()
        self.server.call("FLUSHALL")
        self.lose(fault, begin)
        return lambda: None

    def harm_key(self, fault, command, *arguments):
        """Harms the lock of the planned name, or of the next that has one; returns the name; None: there is no lock."""
        for i in range(self.options.names):
            name = (fault.params["name"] + i) % self.options.names
            if self.server.call(command, f"lock:p{self.phase_number}:n{name}", *arguments):
                return name
        return None

    def do_del_key(self, fault):
        begin, name = now(), self.harm_key(fault, "DEL")
        if name is None:
            return None
        self.lose(fault, begin, name=name)
        return lambda: None

    def do_pexpire_key(self, fault):
        begin, ms = now(), max(1, int(fault.length * 1000))
        name = self.harm_key(fault, "PEXPIRE", ms)
        if name is None:
            return None
        # A renewal may come before the key expires.
        self.lose(fault, begin, end=now() + (ms + 50) * MS, name=name, certain=False)
        return lambda: None

    def do_restart_lost(self, fault):
        begin = now()
        self.server.kill()

        def restart():
            self.server.start()
            self.lose(fault, begin, certain=False)

        return restart

    def do_promotion(self, fault):
        """A replica that misses the last writes takes over."""
        old, new = self.server, self.new_server()
        new.start()
        new.call("REPLICAOF", "127.0.0.1", old.port)
        new.await_info("replication", {"master_link_status": "up"})
        old.call("SET", "rig:mark", "1", "PX", 1000)
        begin = now()
        old.call("WAIT", 1, 2000)
        new.call("REPLICAOF", "NO", "ONE")

        def switch():
            self.proxy.order(do="backend", path=new.path)
            self.proxy.order(do="cut", share=1, salt=0)
            self.proxy.order(do="calm")
            old.kill()
            self.server = new
            self.lose(fault, begin, certain=False)

        return switch

    def step_clock_forward(self, fault, seconds):
        """Every key that would have expired within the step is gone, unless a step back had prolonged it."""
        begin = now()
        self.clock.set(seconds)
        self.lose(fault, begin, end=now() + 20 * MS, since=self.stepped_back)

    def step_clock_back(self, seconds):
        self.clock.set(seconds)
        self.stepped_back = now()

    def do_clock_forward(self, fault):
        self.step_clock_forward(fault, STEP_SECONDS)
        return lambda: self.step_clock_back(0)

    def do_clock_back(self, fault):
        self.step_clock_back(-STEP_SECONDS)
        return lambda: self.step_clock_forward(fault, 0)

    def victim(self, fault):
        """The first running worker, from the planned number on, with the planned role; else the first that runs."""
        count = len(self.workers)
        order = [self.workers[(fault.params["worker"] + i) % count] for i in range(count)]
        running = [worker for worker in order if worker.state == "running"]
        if not running:
            return None
        wanted = fault.params["role"]
        worker = next((worker for worker in running if wanted in self.roles(worker)), running[0])
        found = self.roles(worker)
        self.signals[wanted if wanted in found else found[0]] += 1
        return worker

    def roles(self, worker):
        records = self.judge.open_records(worker.index)
        found = ["holder"] if any(hold.state == judges.HELD for hold in records) else []
        found += ["waiter"] if any(hold.state == judges.ASKING and hold.wait_ms for hold in records) else []
        return found or ["other"]

    def do_worker_stop(self, fault):
        worker, begin = self.victim(fault), now()
        if worker is None:
            return None
        incarnation = worker.incarnation
        worker.stop()

        def resume():
            if worker.state == "stopped" and worker.incarnation == incarnation:
                worker.resume()
            self.stops.append((worker.index, begin, now()))

        return resume

    def do_worker_kill(self, fault):
        worker = self.victim(fault)
        if worker is None:
            return None
        worker.kill()
        return lambda: self.revive(worker)

    def do_worker_exit(self, fault):
        worker = self.victim(fault)
        if worker is None:
            return None
        worker.ask_exit()
        return lambda: None

    # A burst has a process of its own, with locks of its own beside those of the phase. The process is asked to end
    # when its own locks are gone from the store.

    def do_burst(self, fault):
        self.judge.clear_burst()
        how = fault.params["how"]
        worker = self.burst_worker = Worker(self, self.options.processes, (fault.params["holds"], how))
        worker.start()
        self.after(0.02, self.tend_burst, fault, now())
        return PENDING

    def tend_burst(self, fault, begin):
        """Waits until the burst's process has released all its locks."""
        ended = self.burst_worker.reap()
        if not ended and self.judge.burst().state != judges.BURST_ENDED and now() < begin + BURST_SECONDS * 1000 * MS:
            self.after(0.02, self.tend_burst, fault, begin)
            return
        if ended or self.judge.burst().state != judges.BURST_ENDED:
            self.fail(7, f"the burst {fault} was not over in time: {self.judge.burst()}")
        self.tend_gone(fault, begin, now())

    def tend_gone(self, fault, begin, since):
        """Waits until nothing of the burst is left in the store."""
        fences, left = self.found_of_burst()
        if left and now() < since + GONE_SECONDS * 1000 * MS:
            self.after(0.02, self.tend_gone, fault, begin, since)
            return
        burst = self.judge.burst()
        stays = left
        if fault.params["how"] == "close" and burst.ended - burst.ending >= CLOSE_MS * MS:
            self.report.count("bursts whose dibs_close took all of its time", 1)
            stays = [key for key in left[:1000] if self.server.call("PTTL", key) == -1]
        self.report.check_gone(stays, f"a burst of {burst.taken} ({fault.params['how']})")
        for at in range(0, len(fences + left), 1000):
            self.server.call("UNLINK", *(fences + left)[at : at + 1000])
        self.report.count("locks let go of in bursts", burst.taken)
        self.after(0.5, self.end_burst, fault, begin, now())

    def found_of_burst(self):
        """The keys that the burst left: those of fences, which live an hour, and the others."""
        found = [key.decode() for key in self.scan(f"*lock:b{self.options.processes}:*")]
        fences = [key for key in found if checker.outlives_locks(key)]
        return fences, [key for key in found if not checker.outlives_locks(key)]

    def end_burst(self, fault, begin, gone):
        if self.burst_worker.state == "running":
            self.burst_worker.ask_exit()
        if not self.burst_worker.reap():
            self.after(0.02, self.end_burst, fault, begin, gone)
            return
        burst, waits = self.judge.burst(), self.waits.take()
        ending = burst.ending or begin
        self.report.count("AT_RISK beside a burst", burst.at_risk)
        self.bursts.append(checker.Burst(self.options.processes, begin, ending, gone, now(), waits))
        about = f"{burst.taken} locks, {fault.params['how']}, {sum(ns for _, _, ns in waits) // MS} ms not let run"
        print(f"burst: {about}; let go of in {(burst.ended - burst.ending) // MS} ms, gone after "
              f"{(gone - ending) // MS} ms, {burst.at_risk} leases AT_RISK", flush=True)
        self.finish(fault, begin, lambda: burst.taken >= fault.params["holds"] * 0.9)

    def planned_roles(self):
        """The roles that were planned often enough that a process with that role must have been found and signalled."""
        roles = collections.Counter(fault.params.get("role") for phase in self.phases for fault in phase.faults)
        return [role for role in ("holder", "waiter") if roles[role] >= 5]

    # ------------------------------------------------------------------ phases

    def run_phase(self, phase):
        for fault in phase.faults:
            self.planned[fault.kind] = self.planned.get(fault.kind, 0) + 1
        self.enter(phase)
        for fault in phase.faults:
            self.at(self.began + int(fault.at * 1e9), self.begin, fault)
        self.run_until(self.began + int(phase.seconds * 1e9))
        self.run_timers_out()
        self.drain(phase)
        self.check(phase)

    def enter(self, phase):
        self.began = now()
        self.wall_ns = time.time_ns() - now()
        self.phase_number = phase.number
        self.judge.set_phase(phase.number, self.usual_lease(phase), phase.stretches)

    def usual_lease(self, phase):
        return self.options.long_lease if phase.loses else self.options.lease

    def longest_lease(self, phase):
        """Workers draw a lease from 0.5 to 1.5 times the usual one, and extend some leases."""
        return max(self.usual_lease(phase) * 3 // 2, STRETCHED_MS)

    def is_idle(self):
        return not any(self.judge.slot_phase(slot) for slot in range(self.judge.slots))

    def drain(self, phase):
        """Waits until all workers have left the phase's names. No fault acts: a call that does not return is stuck."""
        self.judge.set_phase(0)
        if not self.wait_for(self.is_idle, 8) and is_clock_stepped(phase):
            self.delete_stretched(phase)
        if not self.wait_for(self.is_idle, 25):
            stuck = "\n".join(f"    {hold}" for hold in self.judge.open_records()[:8])
            stuck += "\n" + self.describe(phase)
            self.fail(5, f"phase {phase.number}: calls that do not return though no fault acts:\n{stuck}")
            for worker in self.workers:
                if worker.state != "dead":
                    worker.kill()
                worker.start()
        if is_clock_stepped(phase):
            self.delete_stretched(phase)
        self.holds += self.judge.take()

    def describe(self, phase):
        """What the servers have of the phase's locks."""
        return "\n".join(f"    {key}: {left} ms" for key, left in self.leftovers().items() if f":p{phase.number}:" in key)

    def delete_stretched(self, phase):
        """Deletes the keys of dead workers that live a minute longer because the clock was set back."""
        keys, passed = self.leftovers(), (now() - self.began) // MS
        step, longest = STEP_SECONDS * 1000, self.longest_lease(phase)
        for key in self.report.check_stretched(keys, passed, step, longest):
            begin = now()
            self.server.call("DEL", key)
            if key.startswith("lock:"):
                self.losses.append(Loss("clock_back", begin, now(), int(key.rsplit("n", 1)[1]), True))

    @staticmethod
    def has_one_clock(phase):
        """Whether fences tell the time, by a clock that was not stepped."""
        return not is_clock_stepped(phase)

    def take_samples(self):
        if self.sampler.error or not all(watcher.is_alive() for watcher in self.watchers):
            raise RuntimeError(f"a watcher has ended\n{self.sampler.error}")
        samples, self.sampler.samples = self.sampler.samples, []
        good = sum(there is not None for _, _, there in samples)
        self.sample_count, self.good_count = self.sample_count + len(samples), self.good_count + good
        self.good_samples = min(self.good_samples, good / max(1, len(samples)))
        return samples

    def check(self, phase):
        stops = self.stops + [(w.index, now() - MS, now()) for w in self.workers if w.state == "stopped"]
        samples = self.take_samples()
        wall = time.time_ns() - now()
        about = checker.Circumstances(
            losses=self.losses,
            acts=self.acts,
            stops=stops,
            stalls=united([stall for pulse in self.pulses for stall in pulse.stalls]),
            samples=samples,
            threads=self.options.threads,
            lease_ms=self.longest_lease(phase),
            timeout_ms=TIMEOUT_MS,
            slack_ms=SLACK_MS,
            bursts=list(self.bursts),
            wall_ns=None if not self.has_one_clock(phase) or abs(wall - self.wall_ns) > MS else wall,
        )
        self.report.check_phase(phase.number, [h for h in self.holds if h.phase == phase.number], about)
        for hold in self.holds:
            if hold.phase != phase.number:
                self.fail(6, f"a record of another phase than {phase.number}: {hold}")
        failures = sum(map(len, self.report.failures.values()))
        print(
            f"phase {phase.number} of {len(self.phases)}: {'loses' if phase.loses else 'keeps'} state, "
            f"{len(phase.faults)} faults, {len(self.holds)} acquires, {failures} failures so far",
            flush=True,
        )
        self.holds, self.losses, self.acts, self.stops, self.bursts = [], [], [], [], []
        stalls = [end - begin for begin, end in about.stalls]
        self.report.count("times the machine was slow", len(stalls))
        self.report.counts["ms, its longest pause"] = max(
            [self.report.counts["ms, its longest pause"]] + [stall // MS for stall in stalls]
        )
        for pulse in self.pulses:
            pulse.stalls.clear()

    # --------------------------------------------------------------------- end

    def scan(self, pattern="*", server=None):
        """Every key of the server that matches the pattern."""
        server = server or self.server
        found, cursor = set(), "0"
        while True:
            cursor, some = server.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            cursor = cursor.decode()
            found.update(some)
            if cursor == "0":
                return found

    def keys(self):
        """Every key of the server with its remaining time."""
        return {key.decode(): self.server.call("PTTL", key) for key in self.scan()}

    def leftovers(self):
        """The keys that must be gone a while after the last worker: all but the fences, which live an hour."""
        return {key: left for key, left in self.keys().items() if not checker.outlives_locks(key)}

    def end_workers(self):
        """Ends the workers while they work: every second one is asked to end; then the others are killed."""
        phase = plans.Phase(len(self.phases) + 1, False, 1.0, [])
        self.enter(phase)
        self.run_until(now() + 1000 * MS)
        self.timers.clear()
        leaving = [worker for worker in self.workers[::2] if worker.state == "running"]
        for worker in leaving:
            worker.ask_exit()
        while not all([worker.reap() for worker in leaving]):
            self.holds += self.judge.take()
            time.sleep(0.01)
        for worker in self.workers:
            if worker.state != "dead":
                worker.kill()
        self.holds += self.judge.take()
        self.check(phase)

    def check_leftovers(self):
        longest = max(map(self.longest_lease, self.phases)) / 1000
        time.sleep(0.5)  # what the killed had sent is still on its way
        end = time.monotonic() + 2 * longest + 1
        while self.leftovers() and time.monotonic() < end:
            time.sleep(0.05)
        self.report.check_left(self.keys(), STEP_SECONDS * 1000)
        for key in self.sampler.eternal:
            self.fail(5, f"{key} had no expiry")

    def run(self):
        for worker in self.workers:
            worker.start()
        for watcher in self.watchers:
            watcher.start()
        for phase in self.phases:
            self.run_phase(phase)
        self.end_workers()
        self.check_leftovers()

    def close(self):
        for worker in self.workers + [self.burst_worker] * bool(self.burst_worker):
            if worker.state != "dead":
                worker.process.kill()
                worker.process.wait()
        self.close_servers()
        if not self.options.keep:
            shutil.rmtree(self.folder, ignore_errors=True)


    def close_servers(self):
        self.proxy.end()
        self.server.kill()


class QuorumRig(quorum.Quorum, Rig):
    """Five masters."""


class SentinelRig(sentinel.Sentinel, Rig):
    """A master with two replicas, which three sentinels watch."""


class ClusterRig(cluster.Cluster, Rig):
    """Three masters with a replica each."""


RIGS = {"one": Rig, "quorum": QuorumRig, "sentinel": SentinelRig, "cluster": ClusterRig}


# -------------------------------------------------------------------- reporting


def check_worth(rig):
    """What was missing for the run to mean something: grants, each kind of fault, something to check for each rule."""
    is_short = rig.options.seconds < LONG_RUN
    counts, least = rig.report.counts, rig.options.seconds * (LEAST_GRANTS_OF_SHORT if is_short else rig.LEAST_GRANTS)
    lost = {kind for kind in rig.planned if plans.KINDS[kind].loses}
    forgot = sum(rig.fired.get(kind, 0) for kind in checker.FORGETTING)
    outlived = sum(counts[f"holders that outlived a {kind}"] for kind in checker.FORGETTING)
    harmed = counts["overlaps, class 2"] + counts["holders whose lock the server lost"]
    # "stuck" may find no extension: then nothing is held back. That does not happen four times. In a short run a fault may
    # wait for the end of another until there is no time left for it.
    missing = [f"no {kind}" for kind, times in rig.planned.items() if not rig.fired.get(kind)
               and times >= (4 if kind == "stuck" else 1) and not (is_short and rig.skipped.get(kind))]
    missing += [f"no {role} was signalled" for role in rig.planned_roles() if not rig.signals[role]]
    demands = [
        (2 * sum(rig.fired.values()) >= sum(rig.planned.values()), f"{sum(rig.fired.values())} faults of {sum(rig.planned.values())}"),
        (counts["grants"] >= least, f"{counts['grants']} grants, fewer than {least:.0f}"),
        # Who keeps its leases mostly locks names of its own. It keeps them only while the server tells it of changes, which the
        # faults prevent most of the time. And few of its leases are in use when the server loses its state.
        (counts["contended hand-overs between processes"] >= (1 if rig.options.keep_ms else least / 4), "too few hand-overs between processes"),
        (counts["workers that ended when asked"], "no worker ended when asked"),
        (counts["ms of waits that were watched"], "no wait was watched"),
        # Of the whole run: in a phase whose servers are stopped most of the time, few can tell something.
        (rig.good_count * 2 >= rig.sample_count > 0, f"{rig.good_count} of {rig.sample_count} samples told something"),
        (counts["grants, shared"] * 200 >= counts["grants"] * rig.options.shared, f"{counts['grants, shared']} shared grants"),
        (rig.judge.retaken() * 50 >= counts["grants"] or not rig.options.keep_ms, f"{rig.judge.retaken()} holds over kept leases"),
        (rig.counted_other() != 0, "the second application locked nothing"),
        (counts["leases kept beside a burst"] or not rig.planned.get("burst"), "no lease was kept beside a burst"),
        (harmed or is_short and rig.options.keep_ms or not lost - set(checker.FORGETTING), "the server lost its state, and no lock"),
    ]
    if rig.options.seconds >= LONG_RUN:
        demands += [
            (counts["old holders timed"] or not lost - set(checker.FORGETTING), "no holder was timed whose lock the server had lost"),
            # After about every second restart, a newcomer gets the lock before the holder has restored its lease.
            (outlived or forgot < 12, "no holder outlived a restart that forgot"),
        ]
    return missing + [text for is_met, text in demands if not is_met]


def check_planned_by_seed(options):
    """Whether the same seed plans the same faults in another process, and the next seed other faults."""
    words = [sys.executable, "-B", __file__, "--worker", "-", "--shim", "-", "--plan", "--topology", options.topology]

    def plan_of(seed):
        more = ["--seconds", str(options.seconds), "--seed", str(seed)]
        done = subprocess.run(words + more, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.partition("\n")[2]  # the first line names the seed

    plan, again, other = map(plan_of, (options.seed, options.seed, options.seed + 1))
    return [] if plan == again != other else ["two plans of one seed differ, or those of two seeds do not"]


def write_report(rig, missing):
    report = rig.report
    lines = [f"{rig.options.topology}, seed {rig.options.seed}, {rig.options.seconds} s, {rig.options.processes} processes x "
             f"{rig.options.threads} threads, {rig.options.names} names", "", "faults            planned  done"]
    lines += [f"  {k:<16}{rig.planned[k]:>7}{rig.fired.get(k, 0):>6}" for k in plans.KINDS if k in rig.planned]
    lines += ["", "signals to processes"] + [f"  {value:>8}  {role}" for role, value in rig.signals.items()]
    samples = f"{rig.good_count} of {rig.sample_count} told something, {rig.good_samples:.0%} in the worst phase"
    lines += ["", f"holds over kept leases: {rig.judge.retaken()}"]
    lines += ["", "samples of the keys: " + samples]
    lines += ["", "counts"] + [f"  {value:>8}  {what}" for what, value in sorted(report.counts.items())]
    lines += ["", "worst times"]
    for what, (ns, about) in sorted(report.worsts.items()):
        lines += [f"  {ns / MS:>8.0f} ms  {what}"] + ["                 " + line for line in about]
    lines += ["", "promises"]
    for number, title in checker.TITLES.items():
        failures = report.failures.get(number, [])
        lines.append(f"  ({number}) {title}: {f'{len(failures)} FAILURES' if failures else 'kept'}")
        lines += ["      " + line for failure in failures[:8] for line in failure.splitlines()]
    lines += ["  too little was done: " + "; ".join(missing)] if missing else []
    return "\n".join(lines)


def publish(rig, missing):
    text = write_report(rig, missing)
    print("\n".join("# " + line for line in text.splitlines()) if rig.options.tap else text, flush=True)
    if rig.options.report:
        with open(rig.options.report, "w") as file:
            file.write(text + "\n")


def print_tap(rig, missing, unplanned):
    results = [(f"({n}) {title}", rig.report.failures.get(n, [])) for n, title in checker.TITLES.items()]
    results.append(("enough was done for that to mean something", missing))
    results.append(("the seed decides what is planned", unplanned))
    print(f"1..{len(results)}")
    for number, (title, failures) in enumerate(results, 1):
        print(f"{'not ok' if failures else 'ok'} {number} - {title}")
        for failure in failures[:8]:
            print("\n".join("# " + line for line in failure.splitlines()))


def parse_options():
    parser = argparse.ArgumentParser(description="The fault rig of dibs.")
    parser.add_argument("--worker", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--topology", choices=list(RIGS), default="one")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--faults", default=None)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--names", type=int, default=6)
    parser.add_argument("--lease", type=int, default=600, help="the usual one, in ms")
    parser.add_argument("--long-lease", type=int, default=2000, help="the same where the server loses state")
    parser.add_argument("--shared", type=int, default=0, help="percent of the holds that are shared")
    parser.add_argument("--keep-ms", type=int, default=0, help="how long workers keep leases; 0: they keep none")
    parser.add_argument("--holds", type=int, default=30000, help="what is let go of in a burst")
    parser.add_argument("--report", default=None)
    parser.add_argument("--tap", action="store_true")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keeps the folder with the logs")
    options = parser.parse_args()
    options.kinds = options.faults.split(",") if options.faults is not None else None
    for kind in options.kinds or []:
        if kind and kind not in plans.KINDS:
            parser.error(f"no fault {kind}; there are {' '.join(plans.KINDS)}")
    if options.seed is None:
        options.seed = random.SystemRandom().getrandbits(32)
    return options


def main():
    options = parse_options()
    print(f"seed {options.seed}", flush=True)
    if options.plan:
        print("\n".join(map(str, plans.make(options.seed, options.seconds, options, options.kinds))))
        return 0
    set_sanitizers()
    rig = RIGS[options.topology](options)
    missing = []
    try:
        rig.run()
        missing = check_worth(rig)
    except BaseException as error:
        missing = ["the run was ended: " + traceback.format_exception_only(error)[-1].splitlines()[0]]
        raise
    finally:
        publish(rig, missing)
        rig.close()
    unplanned = []
    if options.tap:
        unplanned = check_planned_by_seed(options)
        print_tap(rig, missing, unplanned)
    return 1 if any(rig.report.failures.values()) else 3 if missing or unplanned else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    try:
        sys.exit(main())
    except (Exception, KeyboardInterrupt):
        traceback.print_exc()
        sys.exit(2)
