"""The fault rig on a quorum: five masters, and never more than a minority of them harmed at a time.

A master counts as harmed from the begin of its fault until it votes again, and until one lease is over since the fault:
what GUARANTEES.md promises of a quorum is promised as long as less than half of the masters are harmed within one lease.
So here no overlap is excused. Every second worker connects through the proxies, the others directly: a partition shows
them different masters. A second application uses one of these masters with two others, for locks of the same names.
"""

import os
import subprocess
import time

import judge as judges
import plan as plans
import servers
from checker import MS, Act, outlives_locks

MINORITY = (plans.MASTERS - 1) // 2
VOTE_SECONDS = 20  # within which a master votes again after its fault
SHARED = 4  # the master that the second application uses. It never forgets which quorum it belongs to
FORGET = ("master_wipe", "master_restart_lost", "master_del_vote")
DELETE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
now = time.monotonic_ns


def knows(noted):
    """Whether a master that has noted that in dibs:vote knows if it may vote."""
    return noted is not None and not noted.startswith(b"new ")


class Other:
    """
    The second application: one process, whose locks nobody judges. It founds a quorum of three masters, and then is
    given the shared one in the place of one of them.
    """

    def __init__(self, rig):
        self.rig, self.process, self.grants = rig, None, 0
        self.masters = [rig.new_master(f"o{i}") for i in range(3)]
        self.judge = judges.Judge(os.path.join(rig.folder, "other"), rig.MOST_PHASES, rig.options.names, 1, 2)

    def start(self, shared):
        paths = [master.path for master in self.masters[: 2 if shared else 3]] + ([shared.path] if shared else [])
        urls = " ".join(f"unix://{path}" for path in paths)
        words = self.rig.launcher + [self.rig.options.worker, self.judge.path, urls, 0, 1, self.rig.options.lease, 300]
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL)

    def knows_quorum(self):
        found = [master.call("GET", "dibs:vote") for master in self.masters]
        return all(knows(known) and known.split()[6] != b"0" for known in found)

    def enter(self, number, lease_ms):
        if not self.process:
            self.start(None)
            servers.await_that(self.knows_quorum, "the quorum of the second application")
            self.end()
            self.start(self.rig.masters[SHARED])
        self.grants += sum(hold.fence > 0 for hold in self.judge.take())
        self.judge.set_phase(number, lease_ms)

    def end(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process:
            self.end()
        for master in self.masters:
            master.kill()


class Quorum:
    """What differs from a rig with one server."""

    LEAST_GRANTS = 25  # a second
    MOST_PHASES = 10000

    def new_master(self, name):
        clock = servers.Clock(os.path.join(self.folder, f"clock-{name}"))
        master = servers.Server(os.path.join(self.folder, name), self.options.shim, clock)
        master.start()
        return master

    def start_servers(self):
        self.masters, self.proxies = [], []
        for i in range(plans.MASTERS):
            self.masters.append(self.new_master(f"m{i}"))
            self.proxies.append(servers.ProxyProcess(self.masters[i].path))
        self.server = self.masters[0]
        self.other = Other(self)
        self.harmed = set()  # numbers of masters
        self.stepped = set()  # of those whose clock was stepped in this phase,
        self.ever_stepped = set()  # and in any: who connected meanwhile finds later that the clock was set
        self.without_since = 0  # since when no majority of the masters may vote; 0: one may

    def url_of(self, index):
        if index % 2:
            return " ".join(f"unix://{master.path}" for master in self.masters)
        return " ".join(f"redis://127.0.0.1:{proxy.port}" for proxy in self.proxies)

    def watched(self):
        """Who holds a lock has it at three masters, so also at one that is not harmed."""
        return [master.path for i, master in enumerate(self.masters) if i not in self.harmed]

    def check_servers(self):
        for i, master in enumerate(self.masters):
            if master.crashed():
                raise RuntimeError(f"master {i} has ended by itself\n{master.log()}")
            if self.proxies[i].process.poll() is not None:
                raise RuntimeError(f"the proxy of master {i} has ended")
        waiting = self.not_voting()
        for i in waiting - self.ever_stepped:
            self.fail(5, f"phase {self.phase_number}: master {i} may not vote, though nothing happened to it")
        self.note_majority(len(self.harmed | waiting) <= MINORITY)

    def not_voting(self):
        """The masters that are well and may not vote: somebody believes that their clocks were set."""
        return {i for i in range(plans.MASTERS) if i not in self.harmed and self.waits_for_its_vote(i)}

    def note_majority(self, is_there):
        """
        A step of a clock may be found out when it is over, by who was stopped meanwhile: then a master waits beside a
        minority that is harmed, and nobody has a lock.
        """
        if is_there and self.without_since:
            begin, self.without_since = self.without_since - 100 * MS, 0
            self.acts.append(Act("no majority may vote", begin, now(), True))
            self.report.count("ms in which no majority might vote", (now() - begin) // MS)
        elif not is_there and not self.without_since:
            self.without_since = now()

    def close_servers(self):
        self.other.close()
        for master, proxy in zip(self.masters, self.proxies):
            proxy.end()
            master.kill()

    def enter(self, phase):
        super().enter(phase)
        self.other.enter(phase.number, self.usual_lease(phase))

    def counted_other(self):
        self.report.counts["grants of the second application"] = self.other.grants
        return self.other.grants

    def longest_lease(self, phase):
        return self.usual_lease(phase) * 3 // 2

    @staticmethod
    def has_one_clock(phase):
        return False

    # ------------------------------------------------------------------ faults

    def begin(self, fault):
        """A fault of a master waits until fewer masters are harmed, or may not vote, than a minority."""
        if plans.KINDS[fault.kind].track != "master":
            return super().begin(fault)
        phase = self.phases[self.phase_number - 1]
        if len(self.harmed | self.not_voting()) >= MINORITY:
            if now() - self.began < (phase.seconds - plans.CALM) * 1e9:
                self.after(0.05, self.begin, fault)
            else:
                self.skipped[fault.kind] = self.skipped.get(fault.kind, 0) + 1
            return None
        order = [(fault.params["master"] + i) % plans.MASTERS for i in range(plans.MASTERS)]
        index = next(i for i in order if i not in self.harmed and not (i == SHARED and fault.kind in FORGET))
        begin = now()
        finish = getattr(self, "do_" + fault.kind)(fault, index)
        if finish is None:
            self.skipped[fault.kind] = self.skipped.get(fault.kind, 0) + 1
            return None
        self.harmed.add(index)
        self.after(fault.length, self.end_master, fault, index, begin, finish)
        return None

    def end_master(self, fault, index, begin, finish):
        finish()
        self.fired[fault.kind] = self.fired.get(fault.kind, 0) + 1
        about = f"{fault.kind} {fault.params.get('how', '')} at {index}"
        self.acts.append(Act(about, begin, now(), plans.KINDS[fault.kind].disturbs))
        lease = self.longest_lease(self.phases[self.phase_number - 1])
        self.after(lease / 1000, self.recover, fault, index, now())

    def recover(self, fault, index, since):
        """
        The master is harmed no more once it votes. After a step of its clock it may have to wait by that clock, and its
        keys may live a minute longer: see mend.
        """
        if index in self.stepped:
            return
        if not self.votes(index):
            if now() - since < VOTE_SECONDS * 1000 * MS:
                self.after(0.05, self.recover, fault, index, since)
                return
            self.fail(5, f"master {index} did not vote {VOTE_SECONDS} s after {fault}; {self.describe_silence(index)}")
        self.report.worst_time("a master voted again after", now() - since, [str(fault)])
        self.harmed.discard(index)

    def votes_in_us(self, index):
        """None: the master does not know. FROM LONGEST SEEN HIGH FLOOR RUN QUORUM: see vote.lua."""
        known, (seconds, us) = [self.masters[index].call(*words) for words in (("GET", "dibs:vote"), ("TIME",))]
        if not knows(known) or known.split()[4] == b"-" or known.split()[5].decode() != self.masters[index].info("server")["run_id"]:
            return None
        return int(known.split()[0]) - int(seconds) * 1000000 - int(us)

    def votes(self, index):
        try:
            left = self.votes_in_us(index)
        except OSError:
            return False
        return left is not None and left <= 0

    def waits_for_its_vote(self, index):
        return (self.votes_in_us(index) or 0) > 0

    def describe_silence(self, index):
        """What the masters know, and what the one that does not vote is asked."""
        known = [master.call("GET", "dibs:vote") for master in self.masters]
        about = [self.masters[index].info(section) for section in ("clients", "errorstats", "stats")]
        client = servers.Client(self.masters[index].path, timeout=0.5)
        client.send("MONITOR")
        asked, end = [], now() + 500 * MS
        try:
            while now() < end:
                asked.append(client.file.readline().decode(errors="replace")[:200])
        except OSError:
            pass
        return f"the votes: {known}\n    {about}\n    {len(asked)} commands: " + "\n        ".join(asked[:12])

    def do_master_stop(self, fault, index):
        self.masters[index].pause()
        return self.masters[index].resume

    def do_master_restart_kept(self, fault, index):
        return self.masters[index].kill_kept()

    def do_master_restart_lost(self, fault, index):
        self.masters[index].kill()
        return self.masters[index].start

    def do_master_wipe(self, fault, index):
        self.masters[index].call("FLUSHALL")
        return lambda: None

    def do_master_del_vote(self, fault, index):
        self.masters[index].call("DEL", "dibs:vote")
        return lambda: None

    def do_master_snapshot(self, fault, index):
        """It comes back with what it had when the fault began."""
        master = self.masters[index]
        master.call("SAVE")

        def bring_back():
            master.kill()
            master.start(snapshot=True)

        return bring_back

    def do_master_del_key(self, fault, index):
        """Deletes the key of a lock that its owner has at a majority without this master, and without those that are harmed."""
        for i in range(self.options.names):
            key = f"lock:p{self.phase_number}:n{(fault.params['name'] + i) % self.options.names}"
            owner = self.masters[index].call("GET", key)
            others = [m for at, m in enumerate(self.masters) if at != index and at not in self.harmed]
            if owner and sum(m.call("GET", key) == owner for m in others) > plans.MASTERS // 2:
                return (lambda: None) if self.masters[index].call("EVAL", DELETE, 1, key, owner) else None
        return None

    def do_master_partition(self, fault, index):
        proxy, how = self.proxies[index], fault.params["how"]
        if how == "refuse":
            proxy.order(do="refuse", on=True)
            proxy.order(do="cut", share=1, salt=0)
            proxy.order(do="calm")
            return lambda: proxy.order(do="refuse", on=False)
        kind, _, way = how.partition("_")
        proxy.order(do=kind, share=1, salt=0, way=way or None)
        return lambda: proxy.order(do="calm")

    def do_master_network(self, fault, index):
        words = {key: value for key, value in fault.params.items() if key not in ("how", "master")}
        self.proxies[index].order(do=fault.params["how"], **words)
        return lambda: self.proxies[index].order(do="calm")

    def step(self, index, seconds):
        self.stepped.add(index)
        self.ever_stepped.add(index)
        self.masters[index].clock.set(seconds)
        return lambda: self.masters[index].clock.set(0)

    def do_master_clock_forward(self, fault, index):
        return self.step(index, fault.params["seconds"])

    def do_master_clock_back(self, fault, index):
        return self.step(index, -fault.params["seconds"])

    # --------------------------------------------------------------------- end

    def about_key(self, index, key):
        key = key.decode()
        value = self.masters[index].call("GET", key) if key.startswith("lock:") else ""
        return f"    master {index}: {key} {value} {self.masters[index].call('PTTL', key)} ms"

    def describe(self, phase):
        """What the masters have of the phase's locks."""
        found = [(i, key) for i, master in enumerate(self.masters) for key in self.scan(f"*:p{phase.number}:*", master)]
        lines = [self.about_key(index, key) for index, key in found if not outlives_locks(key.decode())]
        return "\n".join(sorted(lines) + [f"    clocks were stepped at {sorted(self.stepped)}"])

    def drain(self, phase):
        super().drain(phase)
        self.note_majority(True)
        for index in self.stepped:
            self.mend(phase, self.masters[index])
        self.harmed -= self.stepped
        self.stepped.clear()

    def mend(self, phase, master):
        """Takes away what a step of the clock left. No lock is held now, so the master may vote."""
        keys = [key for key in self.scan("*", master) if b":p%d:" % phase.number in key]
        if keys:
            master.call("DEL", *keys)
        known = master.call("GET", "dibs:vote")
        if knows(known):
            _, longest, _, highest, floor, *others = known.split()
            floor = highest if floor == b"-" else floor
            master.call("SET", "dibs:vote", b" ".join([b"0", longest, b"0", highest, floor, *others]), "KEEPTTL")

    def keys(self):
        """Every key of any master with its longest remaining time, but for those that say who votes."""
        found = {}
        for master in self.masters:
            for key in self.scan("*", master):
                left = master.call("PTTL", key)
                if key != b"dibs:vote" and left != -2:
                    known = found.get(key.decode(), 0)
                    found[key.decode()] = -1 if -1 in (left, known) else max(left, known)
        return found
