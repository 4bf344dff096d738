"""Decides from the judge's log of one phase whether the library kept its promises.

The judgement is exact: if dibs_check was called at a time t and said DIBS_OK, the hold was valid at some instant from t
on, and a hold is valid without a break from its acquire to its loss. So a hold claims all instants from the return of
its acquire to the *begin* of its last check that said DIBS_OK, or of its last unlock if that said DIBS_OK. Only the
bounds on time have slack, because a machine may be slow; where the rig saw that it was, they have more.

A pair of holds is excused (class 2) if the server lost locks between the grant of the first and that of the second.
The first is the one that was seen to hold first, but where may_be_older() says otherwise.
"""

from __future__ import annotations

import bisect
import collections
import sys
from typing import NamedTuple

import judge

MS = 1_000_000
FAILURES_KEPT = 100  # of each promise
STOP_GRACE = 300 * MS  # after which a process that was stopped is taken to be on its way again
TITLES = {
    1: "no two hold a name at one instant while the server keeps its state",
    2: "where the server lost its state, the fence protects and the old holder knows in time",
    3: "fences rise",
    4: "who lost its lease was told before another was granted it",
    5: "nothing is left behind, and nobody sleeps beside a free lock",
    6: "no crash, leak or thread left over, no wrong status",
    7: "a burst of releases costs nobody its lease, and nothing is left of it",
}
FORGETTING = ("restart_lost", "promotion", "failover_kill", "failover_stop", "failover_order", "node_kill",
              "node_stop", "node_order")
# What a run may be asked to have counted: reported also where it is 0.
COUNTED = (
    "grants",
    "contended hand-overs between processes",
    "overlaps, class 1",
    "overlaps, class 2",
    "old holders timed",
    "holders whose lock the server lost",
    "holds that began with a lease that the server had lost",
    "losses told",
    "writes rejected",
    "ms of waits that were watched",
    "ms of them beside a free lock",
    "workers that ended when asked",
    "leases extended",
    "holds whose end was foretold",
    "leases kept beside a burst",
    *(f"holders that outlived a {kind}" for kind in FORGETTING),
)
EXPECTED = (judge.OK, judge.BUSY, judge.TIMEOUT, judge.UNAVAILABLE, judge.STORE_ERROR, judge.CLOSED, judge.CANCELLED)


class Act(NamedTuple):
    """A fault as it was done."""

    kind: str
    begin: int
    end: int
    disturbs: bool


class Loss(NamedTuple):
    """The server lost locks between begin and end."""

    kind: str
    begin: int
    end: int
    name: int | None  # None: of all names
    certain: bool  # every lock held at begin is gone for good; else some may be
    since: int = 0  # the loss of locks that were asked for before then is not certain either


class Burst(NamedTuple):
    """Between begin and end a process released all of very many locks at once. The process lived before and after."""

    process: int
    born: int
    begin: int
    end: int  # when the last lock was gone from the store
    died: int
    waits: list  # (begin, end, ns): for ns in all, its runtime's scheduler and the server waited for a processor


class Circumstances(NamedTuple):
    """What else happened, beside the log."""

    losses: list
    acts: list
    stops: list  # (process, begin, end)
    stalls: list  # (begin, end): the machine was slow
    samples: list  # (begin, end, [whether the lock's key is there, by name]) or (begin, end, None): not known
    threads: int
    lease_ms: int  # the longest
    timeout_ms: int
    slack_ms: int  # for threads to be run; the stalls come on top
    wall_ns: int | None  # the servers' wall clock less the log's clock; None: it was stepped
    bursts: list = []


def claim_end(hold):
    return max(hold.last_ok, hold.left if hold.left_end and hold.unlock_status == judge.OK else 0)


def sure_end(hold):
    """Until when the hold's lease was sure to last, or until its unlock if that came before; 0: that is not known."""
    return min(hold.sure_until, hold.left or sys.maxsize)


def longest_lease(hold):
    return max(hold.lease_ms, hold.extended_ms)


def text_of(hold):
    return (
        f"slot {hold.slot} wait {hold.wait_ms} lease {hold.lease_ms} flags {hold.flags} {judge.STATUS[hold.status]} "
        f"fence {hold.fence >> 10}+{hold.fence & 1023} asked {hold.asked} returned {hold.returned} "
        f"first ok by {hold.first_ok_end} last ok {hold.last_ok} lost {hold.told_lost} "
        f"left {hold.left}..{hold.left_end} unlock {judge.STATUS[hold.unlock_status]} died {hold.died} "
        f"extended to {hold.extended_ms} sure until {hold.sure_until}"
    )


def outlives_locks(key):
    """Whether dibs leaves the key: that of a fence, or of the fences of those who shared."""
    return key.startswith(("dibs:fence", "dibs:share"))


def lease_of(hold):
    """
    What tells its lease from others of the name. One that is handed over within a process has one fence of the store,
    with another step for each hold. One that is shared is never handed over, and two of them may have the same fence.
    """
    return (hold.fence, hold.slot) if hold.flags & judge.SHARED else hold.fence >> 10


def may_share(hold, other):
    """Whether both may hold the name at one instant."""
    return hold.flags & other.flags & judge.SHARED


def overlaps_in_time(begin, end, other_begin, other_end):
    return begin <= other_end and other_begin <= end


class NameCheck:
    """The holds of one name."""

    def __init__(self, phase, name, holds, circumstances, report):
        self.phase, self.name, self.all, self.about, self.report = phase, name, holds, circumstances, report
        self.granted = sorted((h for h in holds if h.status == judge.OK and h.fence), key=lambda h: h.fence)
        self.losses = [loss for loss in circumstances.losses if loss.name in (None, name)]
        self.asks = collections.defaultdict(list)  # when each process was asking
        for hold in holds:
            self.asks[self.process(hold)].append((hold.asked, hold.returned or hold.died or sys.maxsize))
        # A lease that is handed over within a process has one fence of the store; it is as old as its first hold.
        self.root, self.granted_at, self.dated = {}, {}, {}
        for hold in self.granted:
            lease = lease_of(hold)
            self.root[lease] = min(self.root.get(lease, hold.asked), hold.asked)
            self.granted_at[lease] = min(self.granted_at.get(lease, hold.returned), hold.returned)
            if lease not in self.dated:
                self.dated[lease] = self.date(hold)

    def process(self, hold):
        return hold.slot // self.about.threads

    def date(self, hold):
        """
        When the hold's lease was granted, according to its fence, which is the server's time in microseconds unless the
        clock went back. None: that is not known, or the fence can't be that time, because the process asked for nothing
        then.
        """
        if self.about.wall_ns is None:
            return None
        told = (hold.fence >> 10) * 1000 - self.about.wall_ns
        asked = any(begin - 5 * MS <= told <= end + 5 * MS for begin, end in self.asks[self.process(hold)])
        return told if asked else None

    def grant_time(self, hold):
        """
        The earliest and the latest time at which the server can have granted the hold's lease: between ask and return,
        or nearer, where the fence tells the time.
        """
        lease = lease_of(hold)
        told = self.dated[lease]
        return (self.root[lease], self.granted_at[lease]) if told is None else (told - 5 * MS, told + 5 * MS)

    def granted_by(self, hold):
        """The latest time at which the hold can have begun; for a lease that was handed over, its return."""
        return hold.returned if hold.fence & 1023 else min(hold.returned, self.grant_time(hold)[1])

    def excuse(self, older, newer):
        """The last loss that lets both believe that they hold the name; None: there is none."""
        if lease_of(older) == lease_of(newer):
            return None
        since, until = self.grant_time(older)[0], self.grant_time(newer)[1]
        losses = [loss for loss in self.losses if loss.end >= since and loss.begin <= until]
        return max(losses, key=lambda loss: loss.end, default=None)

    def may_be_older(self, later, earlier):
        """
        Whether the hold that began later, with a smaller fence, may have the older lease of the two, granted before the
        other's: its process may have been stopped before it read the grant.
        """
        lease = lease_of(later)
        if lease == lease_of(earlier) or (self.about.wall_ns is not None and self.dated[lease] is None):
            return False
        return self.grant_time(later)[0] <= self.grant_time(earlier)[1]

    def came_late(self, later, earlier):
        """
        Whether may_be_older(), and the server lost that lease before it granted the other. The process may still hand
        it over, or read the grant only now (doc/GUARANTEES.md, data lost, 4). The other exception there, fences that
        were lost while the clock was set back, is never planned and not excused.
        """
        return self.may_be_older(later, earlier) and self.excuse(later, earlier) is not None

    def fail(self, check, why, *holds):
        lines = [f"phase {self.phase} name {self.name}: {why}"] + ["    " + text_of(hold) for hold in holds]
        end = max(claim_end(holds[0]), holds[0].returned)
        lines += ["    near it: " + line for line in self.report.acts_near(holds[0].asked, end)]
        self.report.fail(check, "\n".join(lines))

    def run(self):
        self.check_pairs()
        self.check_limit()
        self.check_order()
        self.check_rejected()
        self.check_known()
        self.count_outlived()
        self.check_absent()
        self.check_foretold()

    # ------------------------------------------------------ 1, 2 and 4: pairs

    def suspects(self):
        """Pairs (a, b) where by the log b was granted after a, and a still held then, or has the larger fence."""
        ordered = sorted(self.granted, key=lambda h: (self.granted_at[lease_of(h)], h.returned))
        earliest, smallest = [sys.maxsize], [sys.maxsize]  # of all holds behind the place in `ordered`
        for hold in reversed(ordered):
            earliest.append(min(earliest[-1], self.granted_by(hold)))
            smallest.append(min(smallest[-1], hold.fence))
        for i, a in enumerate(ordered):
            after = len(ordered) - i - 1
            if self.claims(a) <= earliest[after] and a.fence < smallest[after]:
                continue
            for b in ordered[i + 1 :]:
                if may_share(a, b):
                    continue
                if self.granted_by(b) < self.claims(a) or b.fence < a.fence:
                    yield a, b

    @staticmethod
    def claims(hold):
        """Until when the hold is sure to have been valid; 0: at no time."""
        end = claim_end(hold)
        return end if end >= hold.returned else 0

    def check_pairs(self):
        for older, newer in self.suspects():
            if newer.fence < older.fence and self.may_be_older(newer, older):
                older, newer = newer, older
            overlap = min(claim_end(older), claim_end(newer)) - max(older.returned, newer.returned)
            late = self.claims(older) - self.granted_by(newer)
            loss = self.excuse(older, newer)
            if loss:
                self.check_excused(older, newer, loss, overlap)
                continue
            if overlap > 0:
                self.report.count("overlaps, class 1")
                self.fail(1, f"two held it for {overlap / MS:.3f} ms", older, newer)
            if late > 0:
                self.fail(4, f"told so {late / MS:.3f} ms after the next was granted", older, newer)

    def check_limit(self):
        """No more hold the name at one instant than may share it."""
        inside = []
        for hold in sorted(self.granted, key=lambda h: h.returned):
            limit = hold.flags >> judge.LIMIT_SHIFT
            inside = [h for h in inside if self.claims(h) > hold.returned]
            if limit and self.claims(hold):
                inside.append(hold)
            if not limit or len(inside) <= limit:
                continue
            if any(self.excuse(h, hold) for h in inside[:-1]):
                self.report.count("limits exceeded, class 2")
            else:
                self.fail(1, f"{len(inside)} shared it, not {limit} at most", *inside)

    def check_excused(self, older, newer, loss, overlap):
        if overlap > 0:
            self.report.count("overlaps, class 2")
            self.report.count(f"overlaps after {loss.kind}")
        if newer.rejected and older.accepted and newer.fence < older.fence:
            self.fail(2, "the judge refused the new holder, having seen the old one", older, newer)
        if newer.first_accept_end and older.last_accept > newer.first_accept_end and not newer.flags & judge.SHARED:
            self.fail(2, "the judge took a write of the old holder after one of the new", older, newer)
        self.check_bound(older, loss)

    def check_bound(self, hold, loss):
        """
        The old holder learns of the server's loss within a third of its lease (of the longest that it was extended to)
        plus the command timeout. That time begins when its process read of the grant, if that was after the loss.
        """
        if self.may_be_restored(hold, loss):
            self.report.count("holders that may have restored what was lost")
            return
        since = max(loss.end, self.granted_at[lease_of(hold)])
        late = hold.last_ok - since
        if late <= 0 or hold.flags & judge.FIXED or self.report.is_stopped(hold, since):
            return
        if any(act.disturbs and since < act.begin < hold.last_ok for act in self.about.acts):
            return
        self.report.count("old holders timed")
        self.report.worst("an old holder knew after", late, hold, since, hold.last_ok)
        usual = (longest_lease(hold) / 3 + self.about.timeout_ms) * MS
        self.report.worst("... beyond a third of its lease and the timeout", late - usual, hold, since, hold.last_ok)
        if late > usual + self.about.slack_ms * MS + self.report.stalled(since, hold.last_ok):
            self.fail(2, f"knew of {loss.kind} only after {late / MS:.0f} ms", hold)

    def meets_by(self, forgot):
        return forgot.end + self.report.meeting(forgot) + self.report.stalled(forgot.end, forgot.end + self.report.meeting(forgot))

    def may_be_restored(self, hold, loss):
        """
        Whether the server forgot the hold's lease and lost something again before the holder had surely met it: one of
        the two is this loss. When the holder meets the server, it restores the lease: it can't tell what the server
        forgot from what others deleted there since (doc/GUARANTEES.md, data lost, 3).
        """
        granted = self.granted_at[lease_of(hold)]
        return any(
            forgot.kind in FORGETTING
            and granted < forgot.end <= again.begin <= self.meets_by(forgot)
            and loss in (forgot, again)
            for forgot in self.losses
            for again in self.losses
        )

    def check_known(self):
        for loss in self.losses:
            for hold in self.granted:
                lease = lease_of(hold)
                is_gone = loss.certain and self.root[lease] >= loss.since and self.granted_at[lease] < loss.begin
                if is_gone and hold.last_ok > loss.end:
                    self.report.count("holders whose lock the server lost")
                    self.check_bound(hold, loss)

    def count_outlived(self):
        """
        Counts the holders whose lease was restored after a restart that forgot it: otherwise their unlock would have
        found it lost. An unlock that says OK soon after the restart does not count: it may have been sent before.
        """
        for loss in self.losses:
            for hold in self.granted if loss.kind in FORGETTING else []:
                released = hold.left > loss.end + self.about.timeout_ms * MS and hold.unlock_status == judge.OK
                if self.granted_at[lease_of(hold)] < loss.begin and released:
                    self.report.count(f"holders that outlived a {loss.kind}")

    # --------------------------------------------------------------- 3: fences

    def check_order(self):
        """Fences rise from every hold to each that was asked for later, or was valid later."""
        returned = valid = None
        previous = None
        for hold in reversed(self.granted):  # from the largest fence down: the earliest of those that are larger
            if previous and previous.fence == hold.fence and not may_share(previous, hold):
                self.fail(3, "two holds have one fence", hold, previous)
            previous = hold
            if returned and returned.returned <= hold.asked:
                self.check_fall(returned, hold)
            if valid and not may_share(hold, valid) and hold.first_ok_end and valid.first_ok_end < hold.last_ok and hold.last_ok > hold.returned:
                if valid.first_ok_end < hold.returned and valid.last_ok <= hold.returned:
                    self.check_fall(valid, hold)
            if returned is None or hold.returned < returned.returned:
                returned = hold
            if hold.first_ok_end and (valid is None or hold.first_ok_end < valid.first_ok_end):
                valid = hold

    def check_fall(self, earlier, later):
        """earlier has the larger fence."""
        if self.came_late(later, earlier):
            self.report.count("holds that began with a lease that the server had lost")
            return
        self.fail(3, "the fence fell", earlier, later)

    def check_rejected(self):
        for hold in self.granted:
            if hold.rejected:
                self.report.count("writes rejected", hold.rejected)
            if not hold.ok_after_rejected:
                continue
            if not self.is_lost(hold, hold.ok_after_rejected):
                self.fail(1, "a check said OK after the judge had seen a larger fence", hold)

    # ------------------------------------------- 4, without waiting for another

    def check_absent(self):
        """No holder may say that it holds a lock after the store was seen without the lock's key."""
        absent = [(s[0], s[1]) for s in self.about.samples if s[2] is not None and not s[2][self.name]]
        for hold in self.granted:
            i = bisect.bisect_right(absent, (hold.returned, 0))
            if i < len(absent) and absent[i][1] < claim_end(hold) and not self.is_lost(hold, absent[i][1]):
                late = claim_end(hold) - absent[i][1]
                self.fail(4, f"said that it holds it {late / MS:.3f} ms after its key was not in the store", hold)

    def check_foretold(self):
        """Until the end that dibs_hold_of told, nobody else is granted the name, and its holder does not lose it."""
        grants = sorted((self.granted_by(hold), hold) for hold in self.granted)
        for hold in self.granted:
            until = sure_end(hold)
            if until <= hold.returned:
                continue
            self.report.count("holds whose end was foretold")
            if 0 < hold.told_lost < until and not self.is_lost(hold, hold.told_lost):
                early = (until - hold.told_lost) / MS
                self.fail(4, f"lost {early:.3f} ms before it was sure to end", hold)
            for granted, newer in grants[bisect.bisect_right(grants, (hold.returned,)) :]:
                if granted >= until:
                    break
                if newer.fence > hold.fence and not may_share(hold, newer) and not self.excuse(hold, newer):
                    self.fail(4, f"granted {(until - granted) / MS:.3f} ms before it was sure to end", hold, newer)

    def is_lost(self, hold, until):
        since = self.grant_time(hold)[0]
        return any(loss.end >= since and loss.begin <= until for loss in self.losses)

    # -------------------------------------------------------------- 5: sleepers

    def free_times(self):
        """When the key did not exist, by the samples and by the log."""
        run = None
        for begin, end, there in self.about.samples:
            if there is None or there[self.name] or (run and begin - run[1] > 300 * MS):
                if run:
                    yield from self.between_holds(*run)
                run = None
            if there is not None and not there[self.name]:
                run = (run[0], begin) if run else (end, begin)
        if run:
            yield from self.between_holds(*run)

    def between_holds(self, begin, end):
        """Parts of that time in which the log shows no hold that begins or ends: the samples miss short ones."""
        for i in range(bisect.bisect_right(self.moves, begin), len(self.moves)):
            if self.moves[i] >= end:
                break
            yield begin, self.moves[i]
            begin = self.moves[i]
        yield begin, end

    def asks_every(self, waiter):
        """
        The lease (ms) that decides how often the store is asked for the waiter, which is every third of it: the longest
        that a waiting thread of its process wants, because the one that asks may ask for those behind it too.
        """
        until = waiter.returned or waiter.died or sys.maxsize
        return max(
            peer.lease_ms
            for peer in self.all
            if peer.wait_ms != 0
            and self.process(peer) == self.process(waiter)
            and overlaps_in_time(peer.asked, peer.returned or peer.died or sys.maxsize, waiter.asked, until)
        )

    def is_asleep_since(self, waiter, since):
        """
        From when on the waiter should ask: not while a thread of its own process holds the lock, or does not know yet
        that the lease is lost.
        """
        process = self.process(waiter)
        before = [hold for hold in self.granted if hold.returned <= since and self.process(hold) == process]
        return max([since] + [hold.told_lost or hold.left_end or hold.died for hold in before])

    def check_sleepers(self):
        self.moves = sorted(t for h in self.all if h.status == judge.OK for t in (h.returned, h.left_end) if t)
        waiters = sorted((h for h in self.all if h.wait_ms != 0), key=lambda h: h.asked)
        asked = [h.asked for h in waiters]
        for begin, end in self.free_times():
            if end - begin < 20 * MS:
                continue
            for waiter in waiters[: bisect.bisect_left(asked, end)]:
                till = min(end, waiter.returned or waiter.died or end)
                if till <= max(begin, waiter.asked):
                    continue
                since = self.is_asleep_since(waiter, max(begin, waiter.asked))
                for undisturbed in self.report.unhindered(waiter, since, till):
                    self.check_sleeper(waiter, *undisturbed)

    def check_sleeper(self, waiter, since, till):
        """The waiter has to ask again within a third of its lease, even if it is not told that the lock is free."""
        slept, usual = till - since, self.asks_every(waiter) * MS / 3
        self.report.count("ms of them beside a free lock", slept // MS)
        self.report.worst("a waiter slept beside a free lock for", slept, waiter, since, till)
        self.report.worst("... beyond a third of its lease", slept - usual, waiter, since, till)
        waited = max((self.report.waited(burst, since, till) for burst in self.about.bursts), default=self.report.stalled(since, till))
        if slept > usual + self.about.slack_ms * MS + waited:
            self.fail(5, f"a waiter slept beside a free lock for {slept / MS:.0f} ms", waiter)


class Report:
    """What was found in the phases so far."""

    def __init__(self):
        self.failures = collections.defaultdict(list)
        self.counts = collections.Counter(dict.fromkeys(COUNTED, 0))
        self.worsts = {}  # what: (ns, lines of text)
        self.about = None

    def fail(self, check, text):
        if text not in self.failures[check] and len(self.failures[check]) < FAILURES_KEPT:
            self.failures[check].append(text)

    def count(self, what, by=1):
        self.counts[what] += by

    def worst(self, what, ns, hold, begin, end):
        """Keeps the longest time of that kind, and what happened around it."""
        if ns > self.worsts.get(what, (0, []))[0]:
            lines = [f"phase {hold.phase} name {hold.name}, {text_of(hold)}"]
            lines += [f"slow machine for {self.stalled(begin, end) / MS:.0f} ms"] + self.acts_near(begin, end)
            self.worsts[what] = (ns, lines)

    def worst_time(self, what, ns, lines):
        """The same, of what is not a hold's."""
        if ns > self.worsts.get(what, (0, []))[0]:
            self.worsts[what] = (ns, lines)

    # ---------------------------------------------------------- circumstances

    def meeting(self, act):
        """
        How long clients may take to meet the server again after the fault. They notice it by a command that times out,
        and then try to connect after pauses of at most half a second, or what the fault lasted.
        """
        return (self.about.timeout_ms + self.about.slack_ms + min(500, (act.end - act.begin) // MS)) * MS

    def aftermath(self, act):
        """
        How long clients may take to recover from the fault. Where the server forgot, waiters leave the name to its holder
        until the end of the lease that they saw.
        """
        return self.meeting(act) + (self.about.lease_ms * MS if act.kind in FORGETTING else 0)

    def unhindered(self, hold, begin, end):
        """The parts of that time in which nothing disturbed, and the hold's process was not stopped."""
        process = hold.slot // self.about.threads
        hindered = [(act.begin, act.end + self.aftermath(act)) for act in self.about.acts if act.disturbs]
        hindered += [(b, e + STOP_GRACE) for p, b, e in self.about.stops if p == process]
        for b, e in sorted(hindered):
            if b >= end:
                break
            if begin < b:
                yield begin, b
            begin = max(begin, e)
        if begin < end:
            yield begin, end

    def waited(self, burst, begin, end):
        """How long at most the threads and the server that keep a lease alive had to wait for a processor then."""
        waits = sum(ns for b, e, ns in burst.waits if overlaps_in_time(b, e, begin, end))
        return waits + self.stalled(begin, end)

    def is_stopped(self, hold, begin, end=None):
        """Whether the hold's process was stopped then, or shortly before."""
        process, end = hold.slot // self.about.threads, end or hold.last_ok
        return any(p == process and overlaps_in_time(b, e + STOP_GRACE, begin, end) for p, b, e in self.about.stops)

    def stalled(self, begin, end):
        return sum(e - b for b, e in self.about.stalls if overlaps_in_time(b, e, begin, end))

    def acts_near(self, begin, end):
        near = [a for a in self.about.acts if overlaps_in_time(a.begin, a.end, begin - 1000 * MS, end)]
        return [f"{act.kind} {act.begin}..{act.end}" for act in near]

    # ----------------------------------------------------------- what is left

    def check_left(self, keys, step_ms):
        """
        At the end of the run: keys has the remaining time (ms) of each key. Only what outlives locks may be left, for two
        hours plus the step of the clock.
        """
        for key, left in keys.items():
            if not outlives_locks(key):
                self.fail(5, f"{key} is left, with {left} ms to live")
            elif left == -1 or left > 2 * 3600000 + step_ms:
                self.fail(5, f"{key} has {left} ms to live")

    def check_stretched(self, keys, passed_ms, step_ms, longest_ms):
        """
        Which keys live on because the server's clock was set back by step_ms within the last passed_ms. Any other key
        with longer to live than the longest lease, or than twice that for a queue, is a failure.
        """
        stretched = []
        for key, left in keys.items():
            usual_ms = longest_ms if key.startswith("lock:") else 2 * longest_ms
            if -1 < left <= usual_ms or left < -1:
                continue
            if step_ms - passed_ms <= left <= step_ms + usual_ms:
                stretched.append(key)
            else:
                self.fail(5, f"{key} has {left} ms to live, which no step of the clock explains")
        return stretched

    def check_ended(self, worker, asked, status, log):
        if not asked or status != 0:
            self.fail(6, f"worker {worker} ended with status {status}{'' if asked else ', unasked'}\n{log}")
        self.count("workers that ended when asked", 1 if asked else 0)

    # -------------------------------------------------------------- one phase

    def check_phase(self, phase, holds, circumstances):
        self.about = circumstances
        by_name = collections.defaultdict(list)
        for hold in holds:
            by_name[hold.name].append(hold)
            self.count_hold(hold)
        for name, some in sorted(by_name.items()):
            check = NameCheck(phase, name, some, circumstances, self)
            check.run()
            check.check_sleepers()
        self.count_handovers(by_name)
        self.count_watched(holds)
        for burst in circumstances.bursts:
            self.check_burst(burst, holds)

    def check_burst(self, burst, holds):
        """The locks that the burst's process holds beside the burst: nothing disturbs them, so none may be lost."""
        for hold in holds:
            own = hold.slot // self.about.threads == burst.process and burst.born <= hold.asked <= burst.died
            if not own or hold.status != judge.OK or hold.flags & judge.FIXED:
                continue
            if overlaps_in_time(hold.returned, claim_end(hold), burst.begin, burst.end):
                self.count("leases kept beside a burst")
            if hold.told_lost:
                ended = min(hold.told_lost, hold.sure_until or hold.told_lost)  # who is not let run is told late
                begin = ended - longest_lease(hold) * MS
                waited = self.waited(burst, begin, hold.told_lost)
                if waited > hold.lease_ms * MS / 2:
                    self.count("losses beside a burst while the machine was slow")
                else:
                    self.fail(7, f"lost beside a burst {burst.begin}..{burst.end}, waited for a processor for {waited / MS:.0f} ms: "
                                 f"{text_of(hold)}")

    def check_gone(self, keys, what):
        if keys:
            self.fail(7, f"{len(keys)} keys are left of {what}: {keys[0]} ...")

    def count_hold(self, hold):
        if hold.odd:
            self.fail(6, f"what must not be, bits {hold.odd:#x}: {hold}")
        if not hold.returned:
            self.count("asks cut short by a kill")
            return
        self.count("acquires " + judge.STATUS[hold.status])
        if hold.status not in EXPECTED:
            self.fail(6, f"an acquire said DIBS_{judge.STATUS[hold.status]}: {hold}")
        if hold.status == judge.OK:
            self.count_grant(hold)
        over = hold.returned - hold.asked - max(0, hold.wait_ms) * MS
        if hold.wait_ms >= 0 and not self.is_stopped(hold, hold.asked, hold.returned):
            what = "a try took" if hold.wait_ms == 0 else "a timed wait took too long by"
            self.worst(what, over, hold, hold.returned - over, hold.returned)

    def count_grant(self, hold):
        self.count("grants")
        self.count("grants, fair" if hold.flags & judge.FAIR else "grants, not fair")
        if hold.flags & judge.SHARED:
            self.count("grants, shared")
        if hold.flags & judge.FIXED:
            self.count("grants, fixed lease")
        if hold.extended_ms > hold.lease_ms:
            self.count("leases extended")
        if hold.fence & 1023:
            self.count("grants handed over in a process")
        if hold.told_lost:
            self.count("losses told")
        if hold.died:
            self.count("holders killed")
        if hold.left_end:
            self.count("unlocks " + judge.STATUS[hold.unlock_status])
            if not self.is_stopped(hold, hold.left, hold.left_end):
                self.worst("an unlock took", hold.left_end - hold.left, hold, hold.left, hold.left_end)

    def count_handovers(self, by_name):
        """Counts the grants to a process that had asked while another held: two could have been inside."""
        for some in by_name.values():
            granted = sorted((h for h in some if h.status == judge.OK and h.left_end), key=lambda h: h.returned)
            for before, after in zip(granted, granted[1:]):
                other = before.slot // self.about.threads != after.slot // self.about.threads
                if other and after.asked < before.left_end:
                    self.count("contended hand-overs between processes")

    def watched(self):
        """When it was known which keys are there."""
        run = None
        for begin, end, there in self.about.samples:
            if run and (there is None or begin - run[1] > 300 * MS):
                yield run
                run = None
            if there is not None:
                run = (run[0] if run else begin, end)
        if run:
            yield run

    def count_watched(self, holds):
        """How long check_sleepers would have seen that a waiter slept beside a free lock."""
        runs, ns = list(self.watched()), 0
        for hold in holds:
            if hold.wait_ms == 0:
                continue
            for begin, end in self.unhindered(hold, hold.asked, hold.returned or hold.died):
                ns += sum(max(0, min(end, e) - max(begin, b)) for b, e in runs)
        self.count("ms of waits that were watched", ns // MS)
