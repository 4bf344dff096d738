# Priority: low
"""Histories made by hand, in the judge's file as workers write it: what the checker must pass, and what it must not.

Prints TAP. Times are in ms; the clock of the servers is that of the log, so that a fence is the time of its grant.
"""

import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import checker  # noqa: E402
import judge as judges  # noqa: E402
from checker import MS, Act, Burst, Loss  # noqa: E402

THREADS = 2  # of each process: slots 0 and 1 are one process, 2 and 3 the next
LEASE, TIMEOUT, SLACK = 600, 300, 150
START = 1_000_000  # ms
CASES = []


def case(rule, *broken):
    """A case of a rule: a history, and the rules that it breaks; none: it is as it should be."""

    def add(build):
        CASES.append((rule, set(broken), build))
        return build

    return add


def fence_of(ms, handed_over=0):
    return int((START + ms) * 1000) << 10 | handed_over


class History:
    """What happened in a phase, to be checked."""

    def __init__(self):
        self.report = checker.Report()
        self.records, self.samples = [], []
        self.losses, self.acts, self.stops, self.stalls, self.bursts = [], [], [], [], []
        self.wall_ns = 0

    @staticmethod
    def ns(ms):
        return int((START + ms) * MS)

    def ask(self, slot, asked, returned, status=judges.TIMEOUT, **more):
        """An acquire that was not granted; returned None: its process was killed meanwhile."""
        fields = dict.fromkeys(judges.Hold._fields, 0)
        fields.update(state=judges.DONE, phase=1, lease_ms=LEASE, wait_ms=-1, status=status, asked=self.ns(asked))
        fields["returned"] = self.ns(returned) if returned is not None else 0
        fields.update(more, slot=slot)
        self.records.append(judges.Hold(**fields))

    def hold(self, slot, asked, returned, till, granted=None, fence=None, writes=True, **more):
        """A hold that checks OK and writes from its return on; granted: when the store granted the lease."""
        fields = {
            "fence": fence if fence is not None else fence_of(returned if granted is None else granted),
            "first_ok_end": self.ns(returned + 0.5),
            "last_ok": self.ns(till - 1),
            "left": self.ns(till),
            "left_end": self.ns(till + 1),
            "unlock_status": judges.OK,
        }
        if writes:
            fields.update(accepted=2, first_accept_end=self.ns(returned + 1), last_accept=self.ns(till - 0.5))
        self.ask(slot, asked, returned, judges.OK, **dict(fields, **more))

    def lose(self, kind, begin, end, name=None, certain=True, since=None):
        since = 0 if since is None else self.ns(since)
        self.losses.append(Loss(kind, self.ns(begin), self.ns(end), name, certain, since))

    def act(self, kind, begin, end):
        self.acts.append(Act(kind, self.ns(begin), self.ns(end), True))

    def sample(self, begin, end, there):
        """The key was looked at every 30 ms."""
        at = begin
        while at <= end:
            self.samples.append((self.ns(at - 1), self.ns(at), [there]))
            at += 30

    def written(self):
        """The records, from a judge's file that was written as a worker writes it."""
        folder = tempfile.mkdtemp(prefix="dibs-checker-")
        path = os.path.join(folder, "judge")
        try:
            judge = judges.Judge(path, 2, 1, 4, THREADS, capacity=64)
            for record in self.records:
                base = judge._slot(record.slot)
                at = 8 * (base + judges.SLOT_WORDS + judge.words[base] * judges.RECORD_WORDS)
                judges.RECORD.pack_into(judge.map, at, *record[: len(judges.Hold._fields) - 2])
                judge.words[base] += 1
            return judge.take()
        finally:
            os.remove(path)
            os.rmdir(folder)

    def broken(self):
        about = checker.Circumstances(
            losses=self.losses,
            acts=self.acts,
            stops=self.stops,
            stalls=self.stalls,
            samples=sorted(self.samples),
            threads=THREADS,
            lease_ms=LEASE * 3 // 2,
            timeout_ms=TIMEOUT,
            slack_ms=SLACK,
            wall_ns=self.wall_ns,
            bursts=self.bursts,
        )
        self.report.check_phase(1, self.written(), about)
        return {rule for rule, failures in self.report.failures.items() if failures}


# ------------------------------------------------------------------ 1: one holder


@case(1)
def one_after_the_other(h):
    h.hold(0, 0, 1, 50)
    h.hold(2, 10, 51, 90)


@case(1, 1, 4)
def two_at_once(h):
    h.hold(0, 0, 1, 50)
    h.hold(2, 10, 30, 90)


@case(1, 1, 3, 4)
def two_with_one_fence(h):
    h.hold(0, 0, 1, 50)
    h.hold(1, 10, 30, 90, granted=1)


@case(1, 1)
def still_holds_after_the_judge_refused_it(h):
    h.hold(0, 0, 1, 50, writes=False, rejected=1, ok_after_rejected=h.ns(40))


SHARED = judges.SHARED
TWO_SHARE = SHARED | 2 << judges.LIMIT_SHIFT


@case(1)
def two_share_at_once(h):
    h.hold(0, 0, 1, 50, flags=SHARED)
    h.hold(2, 10, 30, 90, flags=SHARED)


@case(1, 1, 4)
def alone_beside_who_shares(h):
    h.hold(0, 0, 1, 50, flags=SHARED)
    h.hold(2, 10, 30, 90)


@case(1, 1, 4)
def shares_beside_who_is_alone(h):
    h.hold(0, 0, 1, 50)
    h.hold(2, 10, 30, 90, flags=SHARED)


@case(1)
def as_many_share_as_may(h):
    h.hold(0, 0, 1, 50, flags=TWO_SHARE)
    h.hold(1, 5, 6, 29, flags=TWO_SHARE)
    h.hold(2, 10, 30, 90, flags=TWO_SHARE)


@case(1, 1)
def more_share_than_may(h):
    h.hold(0, 0, 1, 50, flags=TWO_SHARE)
    h.hold(1, 5, 6, 40, flags=TWO_SHARE)
    h.hold(2, 10, 30, 90, flags=TWO_SHARE)


@case(2)
def more_share_than_may_after_a_loss(h):
    h.hold(0, 0, 1, 50, flags=TWO_SHARE)
    h.hold(1, 5, 6, 40, flags=TWO_SHARE)
    h.lose("flushall", 20, 21, certain=False)
    h.hold(2, 10, 30, 90, flags=TWO_SHARE)


@case(3)
def who_shares_reads_of_its_fence_late(h):
    """A sharer with a larger fence came and went before the first read of its own grant."""
    h.hold(0, 0, 40, 90, granted=5, flags=SHARED)
    h.hold(2, 6, 8, 30, flags=SHARED)


@case(3, 3)
def the_fence_of_who_shares_fell(h):
    h.hold(0, 0, 1, 20, flags=SHARED, granted=15)
    h.hold(2, 21, 22, 90, flags=SHARED, granted=9)


# --------------------------------------------------- 2: the server lost its state


def two_after_a_loss(h, kind="flushall", knows=400, **newer):
    h.hold(0, 0, 1, knows, told_lost=h.ns(knows), unlock_status=judges.LOST, last_accept=h.ns(55))
    h.lose(kind, 20, 21, certain=kind == "flushall")
    h.hold(2, 10, 60, 900, **newer)


@case(2)
def the_old_holder_knows_in_time(h):
    two_after_a_loss(h)


@case(2, 2)
def the_old_holder_knows_too_late(h):
    two_after_a_loss(h, knows=21 + LEASE / 3 + TIMEOUT + SLACK + 10)


@case(2, 2)
def who_held_on_to_a_key_that_ended_early(h):
    two_after_a_loss(h, kind="pexpire_key", knows=21 + LEASE / 3 + TIMEOUT + SLACK + 10)


@case(2, 2)
def nobody_else_was_granted_what_it_held_too_long(h):
    h.hold(0, 0, 1, 900)
    h.lose("del_key", 20, 21, name=0)


@case(2)
def a_fixed_lease_learns_of_nothing(h):
    h.hold(0, 0, 1, 580, flags=judges.FIXED)
    h.lose("del_key", 20, 21, name=0)


@case(2)
def a_step_back_had_let_it_live_longer(h):
    h.wall_ns = None
    h.hold(0, 0, 1, 900)
    h.lose("clock_forward", 20, 21, since=10)


@case(2, 2)
def a_step_back_was_before_it(h):
    h.wall_ns = None
    h.hold(0, 5, 6, 900)
    h.lose("clock_forward", 20, 21, since=3)


@case(2)
def another_name_was_lost(h):
    h.hold(0, 0, 1, 900)
    h.lose("del_key", 20, 21, name=1)


@case(2, 1, 4)
def lost_only_afterwards(h):
    h.hold(0, 0, 1, 100)
    h.hold(2, 10, 30, 90)
    h.lose("flushall", 200, 201)


@case(2, 2, 3)
def the_new_holder_is_refused(h):
    two_after_a_loss(h, fence=7 << 10, writes=False, rejected=3)


@case(2, 2, 3)
def the_new_holder_is_refused_where_the_clock_was_stepped(h):
    h.wall_ns = None
    h.hold(0, 0, 1, 400)
    h.lose("clock_back", 20, 21)
    h.hold(2, 30, 60, 900, fence=7 << 10, writes=False, rejected=3)


@case(2, 2, 3)
def writes_of_the_old_holder_are_taken_after_one_of_the_new(h):
    two_after_a_loss(h, fence=7 << 10, first_accept_end=h.ns(51))


@case(2)
def a_grant_that_was_read_late(h):
    """The lease is granted, lost and granted to another; only then does the first read of its grant."""
    h.hold(2, 0, 60, 200, granted=10, writes=False, rejected=2, told_lost=h.ns(200), unlock_status=judges.LOST)
    h.lose("flushall", 20, 21)
    h.hold(0, 5, 40, 300)


@case(2)
def a_lease_that_was_handed_over_after_its_loss(h):
    h.hold(0, 0, 1, 30)
    h.hold(1, 5, 60, 200, fence=fence_of(1, 1), writes=False, rejected=2, told_lost=h.ns(200))
    h.lose("flushall", 20, 21)
    h.hold(2, 22, 40, 300)


@case(2, 2)
def a_lease_that_was_handed_over_for_too_long_after_its_loss(h):
    h.hold(0, 0, 1, 30)
    h.hold(1, 5, 60, 800, fence=fence_of(1, 1), writes=False, rejected=2)
    h.lose("flushall", 20, 21)
    h.hold(2, 22, 40, 900)


@case(2)
def who_outlives_a_restart_that_forgets(h):
    h.hold(0, 0, 1, 900)
    h.lose("restart_lost", 100, 200, certain=False)
    h.hold(2, 300, 950, 990)
    h.expected = {"holders that outlived a restart_lost": 1, "holders that outlived a promotion": 0}


@case(2)
def what_is_deleted_before_the_holder_meets_a_new_master_is_restored(h):
    """The server is replaced and flushed at once; the holder restores what it believes the failover to have lost."""
    h.hold(0, 0, 1, 900)
    h.lose("promotion", 10, 100, certain=False)
    h.lose("flushall", 100.03, 100.5)
    h.expected = {"holders that may have restored what was lost": 1}


@case(2)
def who_was_granted_it_before_the_restorer_is_told(h):
    """The new master grants the lock, and is flushed before the old holder meets it."""
    h.hold(0, 0, 1, 1000, last_accept=h.ns(99))
    h.lose("promotion", 10, 100, certain=False)
    h.hold(2, 101, 102, 400, told_lost=h.ns(400), unlock_status=judges.LOST)
    h.lose("flushall", 150, 151)


@case(2, 2)
def who_was_granted_it_by_the_new_master_restores_nothing(h):
    h.lose("promotion", 10, 100, certain=False)
    h.hold(2, 101, 102, 900)
    h.lose("flushall", 150, 151)


@case(2, 2)
def what_is_deleted_after_the_holder_met_it_is_not(h):
    h.hold(0, 0, 1, 1900)
    h.lose("promotion", 10, 100, certain=False)
    met = 100 + TIMEOUT + SLACK + 90
    h.lose("flushall", met + 1, met + 2)


@case(2, 2)
def what_was_deleted_before_a_flush_explains_nothing(h):
    h.hold(0, 0, 1, 900)
    h.lose("del_key", 19, 20, name=0)
    h.lose("flushall", 20.03, 21)


# -------------------------------------------------------------------- 3: fences


@case(3)
def fences_rise(h):
    h.hold(0, 0, 1, 50)
    h.hold(1, 10, 60, 70, fence=fence_of(1, 1))
    h.hold(2, 20, 80, 90)


@case(3, 3)
def the_fence_falls(h):
    h.hold(0, 0, 1, 50)
    h.hold(2, 60, 61, 90, fence=fence_of(-5000))


@case(3, 3)
def the_fence_falls_in_a_process(h):
    h.hold(0, 0, 1, 50, fence=fence_of(1, 2))
    h.hold(1, 55, 60, 70, fence=fence_of(1, 1))


@case(3, 3)
def the_fence_falls_after_a_loss(h):
    """The second asked after the first had been granted, so no grant that was read late explains the fall."""
    h.hold(0, 0, 1, 50)
    h.lose("flushall", 52, 53)
    h.hold(2, 60, 61, 90, fence=fence_of(-5000))


@case(3, 3)
def a_fence_that_is_older_than_the_loss_but_no_time_of_its_ask(h):
    h.hold(2, 30, 80, 90, fence=fence_of(-5000))
    h.lose("flushall", 35, 36)
    h.hold(0, 40, 41, 70)


@case(3, 3, 4)
def the_loss_came_after_both_grants(h):
    h.hold(2, 0, 60, 90, granted=10)
    h.hold(0, 5, 40, 50)
    h.lose("flushall", 55, 56)


# ------------------------------------------------------------ 4: told before


@case(4)
def told_before_the_next_grant(h):
    h.hold(0, 0, 1, 50, told_lost=h.ns(50), unlock_status=judges.LOST)
    h.hold(2, 10, 90, 120, granted=60)


@case(4, 4)
def told_after_the_next_grant_though_before_its_news(h):
    h.hold(0, 0, 1, 80, told_lost=h.ns(80), unlock_status=judges.LOST)
    h.hold(2, 10, 90, 120, granted=60)


def stopped_before_it_read_its_grant(h, **more):
    """Its lease was granted at 3 and had ended before the other's was granted at 480."""
    h.hold(0, 400, 482, 520, granted=480)
    h.hold(2, 0, 500, 510, granted=3, **more)


NEVER_VALID = {"writes": False, "first_ok_end": 0, "last_ok": 0, "unlock_status": judges.LOST}


@case(4)
def stopped_before_it_read_its_grant_and_lost_it_meanwhile(h):
    stopped_before_it_read_its_grant(h, told_lost=h.ns(500.1), **NEVER_VALID)


@case(4, 1, 4)
def stopped_before_it_read_its_grant_and_believes_it(h):
    stopped_before_it_read_its_grant(h)


@case(4, 1, 3, 4)
def stopped_before_it_read_its_grant_but_had_not_asked_then(h):
    h.hold(0, 400, 482, 520, granted=480)
    h.hold(2, 490, 500, 510, granted=3)


@case(4)
def its_key_is_there(h):
    h.sample(0, 60, False)
    h.sample(90, 180, True)
    h.hold(0, 70, 75, 200)


@case(4, 4)
def says_that_it_holds_what_is_not_there(h):
    h.hold(0, 0, 1, 200)
    h.sample(100, 150, False)


@case(4)
def its_key_was_deleted(h):
    h.hold(0, 0, 1, 200)
    h.lose("del_key", 90, 91, name=0)
    h.sample(100, 150, False)


# An extension that was stuck comes after a longer one: the key ends early.


def extended(h, till, **more):
    h.hold(0, 0, 1, till, sure_until=h.ns(1500), extended_ms=1600, **more)


@case(4)
def sure_of_it_until_it_is_let_go_of(h):
    extended(h, 400)
    h.hold(2, 10, 405, 420)
    h.expected = {"holds whose end was foretold": 1, "leases extended": 1}


@case(4, 1, 4)
def another_is_let_in_while_it_checks(h):
    extended(h, 700)
    h.hold(2, 10, 400, 420)


@case(4, 4)
def another_is_let_in_while_it_is_sure_but_does_not_look(h):
    extended(h, 700, last_ok=h.ns(300), writes=False, unlock_status=judges.LOST)
    h.hold(2, 10, 400, 420)


@case(4, 4)
def another_is_let_in_though_its_dead_holder_was_sure(h):
    extended(h, 300, left=0, left_end=0, unlock_status=0)
    h.hold(2, 10, 400, 420)


@case(4)
def the_lease_of_a_dead_holder_is_over(h):
    extended(h, 300, left=0, left_end=0, unlock_status=0)
    h.hold(2, 10, 1501, 1520)


@case(4, 4)
def it_is_lost_before_it_was_sure_to_be(h):
    extended(h, 700, told_lost=h.ns(700.5), left=h.ns(701), left_end=h.ns(702), unlock_status=judges.LOST)


@case(4)
def it_is_lost_when_it_was_sure_to_be(h):
    extended(h, 1500, told_lost=h.ns(1502), left=h.ns(1503), left_end=h.ns(1504), unlock_status=judges.LOST)


@case(4)
def it_was_sure_but_the_server_lost_it(h):
    extended(h, 300, told_lost=h.ns(300), last_ok=h.ns(299), left=h.ns(301), unlock_status=judges.LOST)
    h.lose("del_key", 90, 91, name=0)
    h.hold(2, 10, 400, 420)


@case(4)
def who_is_handed_the_lease_is_the_same(h):
    extended(h, 300)
    h.hold(1, 10, 302, 420, fence=fence_of(1, 1), sure_until=h.ns(1500))


@case(4)
def the_server_lost_what_its_dead_holder_was_sure_of(h):
    extended(h, 300, left=0, left_end=0, unlock_status=0)
    h.lose("del_key", 290, 291, name=0)
    h.hold(2, 10, 400, 420)


@case(2)
def an_extended_lease_is_looked_after_less_often(h):
    two_after_a_loss(h)
    h.hold(0, 1000, 1001, 2400, extended_ms=3000)
    h.lose("del_key", 1020, 1021, name=0)


@case(2, 2)
def an_extended_lease_is_lost_for_too_long(h):
    h.hold(0, 1000, 1001, 2600, extended_ms=3000)
    h.lose("del_key", 1020, 1021, name=0)


# --------------------------------------------------- 5: sleepers, what is left


def sleeper(h, till, slot=2, **more):
    h.ask(slot, 0, till, **more)
    h.sample(10, till + 100, False)


@case(5)
def asks_again_in_time(h):
    sleeper(h, 10 + LEASE / 3 + SLACK - 10)
    h.expected = {"ms of waits that were watched": 341, "ms of them beside a free lock": 340}


@case(5, 5)
def sleeps_beside_a_free_lock(h):
    sleeper(h, 10 + LEASE / 3 + SLACK + 40)


@case(5, 5)
def sleeps_though_its_lease_is_short(h):
    sleeper(h, 10 + LEASE / 6 + SLACK + 40, lease_ms=LEASE // 2)


@case(5)
def sleeps_behind_one_of_its_process_with_a_long_lease(h):
    sleeper(h, 10 + LEASE / 6 + SLACK + 40, lease_ms=LEASE // 2)
    h.ask(3, -10, 5)


@case(5)
def slept_on_a_slow_machine(h):
    sleeper(h, 10 + LEASE / 3 + SLACK + 140)
    h.stalls.append((h.ns(50), h.ns(200)))


@case(5)
def slept_while_a_burst_kept_the_processors(h):
    sleeper(h, 10 + LEASE / 3 + SLACK + 140)
    h.bursts.append(Burst(0, h.ns(-900), h.ns(0), h.ns(300), h.ns(900), [(h.ns(50), h.ns(200), 150 * MS)]))


@case(5)
def slept_while_its_process_was_stopped(h):
    sleeper(h, 10 + LEASE / 3 + SLACK + 140)
    h.stops.append((1, h.ns(50), h.ns(200)))


@case(5, 5)
def slept_while_another_process_was_stopped(h):
    sleeper(h, 10 + LEASE / 3 + SLACK + 140)
    h.stops.append((0, h.ns(50), h.ns(200)))


@case(5)
def slept_while_the_network_was_down(h):
    sleeper(h, 10 + LEASE / 3 + SLACK + 40)
    h.act("stall", 50, 200)


@case(5, 5)
def slept_long_after_the_network_was_down(h):
    sleeper(h, 1500)
    h.act("stall", -500, -200)


@case(5)
def waits_for_one_of_its_own_process_that_does_not_know_yet(h):
    h.hold(3, -50, -40, 350, told_lost=h.ns(350), unlock_status=judges.LOST)
    h.lose("del_key", 5, 6, name=0)
    sleeper(h, 350 + LEASE / 3 + SLACK - 20)


def left(h, keys):
    h.report.check_left({key: ms for key, ms in keys.items()}, 60000)


@case(5)
def fences_are_left(h):
    left(h, {"dibs:fence:{lock:p1:n0}": 3599000})


@case(5, 5)
def a_fence_for_ever(h):
    left(h, {"dibs:fence:{lock:p1:n0}": -1})


@case(5, 5)
def a_fence_for_a_day(h):
    left(h, {"dibs:fence:{lock:p1:n0}": 86400000})


@case(5, 5)
def a_lock_is_left(h):
    left(h, {"lock:p1:n0": 400})


def stretched(h, keys, expected):
    found = h.report.check_stretched(keys, 9000, 60000, LEASE)
    assert sorted(found) == sorted(expected), found


@case(5)
def keys_that_a_step_of_the_clock_stretched(h):
    keys = {"lock:p1:n0": 60000 + LEASE, "lock:p1:n1": 52000, "dibs:queue:{lock:p1:n0}": 60000 + 2 * LEASE}
    stretched(h, dict(keys, **{"lock:p1:n2": LEASE, "dibs:queue:{lock:p1:n2}": 2 * LEASE}), keys)


@case(5, 5)
def a_key_that_lives_longer_than_the_step(h):
    stretched(h, {"lock:p1:n0": 60000 + LEASE + 10}, [])


@case(5, 5)
def a_key_that_lives_longer_than_a_lease_but_was_not_stretched(h):
    stretched(h, {"lock:p1:n0": 30000}, [])


@case(5, 5)
def a_key_for_ever(h):
    stretched(h, {"lock:p1:n0": -1}, [])


# ------------------------------------------------------------------- 6: the rest


@case(6)
def statuses_that_faults_explain(h):
    for status in (judges.BUSY, judges.TIMEOUT, judges.UNAVAILABLE, judges.STORE_ERROR, judges.CLOSED,
                   judges.CANCELLED):
        h.ask(0, 0, 1, status)


@case(6, 6)
def a_status_that_no_fault_explains(h):
    h.ask(0, 0, 1, judges.DENIED)


@case(6, 6)
def held_again_after_a_loss(h):
    h.hold(0, 0, 1, 50, odd=2)


@case(6)
def ends_when_asked(h):
    h.report.check_ended(0, True, 0, "")
    h.expected = {"workers that ended when asked": 1}


@case(6, 6)
def ends_with_a_leak(h):
    h.report.check_ended(0, True, 99, "LeakSanitizer: detected memory leaks")


@case(6, 6)
def ends_unasked(h):
    h.report.check_ended(0, False, 0, "")


# ------------------------------------------------------------------- 7: bursts


def lost_beside_a_burst(h, waits=(), **more):
    """Process 1 releases very many locks from 300 to 800; another lease of its own is lost at 700."""
    waits = [(h.ns(b), h.ns(e), ms * MS) for b, e, ms in waits]
    h.bursts.append(Burst(1, h.ns(0), h.ns(300), h.ns(800), h.ns(2000), waits))
    slot, asked = more.pop("slot", 2), more.pop("asked", 100)
    h.hold(slot, asked, asked + 1, 700, told_lost=h.ns(700), last_ok=h.ns(690), unlock_status=judges.LOST, **more)


@case(7)
def a_lease_is_kept_beside_a_burst(h):
    h.bursts.append(Burst(1, h.ns(0), h.ns(300), h.ns(800), h.ns(2000), []))
    h.hold(2, 100, 101, 900)
    h.expected = {"leases kept beside a burst": 1}


@case(7, 7)
def a_lease_is_lost_beside_a_burst(h):
    lost_beside_a_burst(h)


@case(7, 7)
def a_lease_is_lost_beside_a_burst_and_a_short_wait_for_a_processor(h):
    lost_beside_a_burst(h, waits=[(400, 500, 90), (500, 600, 90), (600, 700, 90), (0, 90, 90)])


@case(7)
def a_lease_is_lost_since_nobody_was_let_run(h):
    lost_beside_a_burst(h, waits=[(300, 400, 90), (400, 500, 90), (500, 600, 90), (600, 700, 40)])
    h.expected = {"losses beside a burst while the machine was slow": 1}


@case(7)
def a_lease_that_ended_since_nobody_was_let_run_is_told_late(h):
    lost_beside_a_burst(h, waits=[(-100, 0, 90), (0, 100, 90), (100, 200, 90), (200, 300, 40)], sure_until=h.ns(300))
    h.expected = {"losses beside a burst while the machine was slow": 1}


@case(7)
def a_lease_is_lost_while_the_machine_was_slow(h):
    lost_beside_a_burst(h)
    h.stalls.append((h.ns(300), h.ns(610)))


@case(7)
def a_fixed_lease_ends(h):
    lost_beside_a_burst(h, flags=judges.FIXED)


@case(7)
def another_process_loses_a_lease(h):
    lost_beside_a_burst(h, slot=0)


@case(7)
def the_process_before_it_lost_a_lease(h):
    lost_beside_a_burst(h, asked=-5)


@case(7)
def nothing_is_left_of_a_burst(h):
    h.report.check_gone([], "a burst")


@case(7, 7)
def a_lock_is_left_of_a_burst(h):
    h.report.check_gone(["lock:b8:1"], "a burst")


def run(build, broken):
    """Returns lines about what is not as it should be."""
    history = History()
    history.expected = {}
    build(history)
    found = history.broken()
    lines = [f"breaks {sorted(found)}, not {sorted(broken)}"] if found != broken else []
    for what, count in history.expected.items():
        if history.report.counts[what] != count:
            lines.append(f"{what}: {history.report.counts[what]}, not {count}")
    if lines:
        for failures in history.report.failures.values():
            lines += "\n".join(failures).splitlines()
    return lines


def main():
    failed = False
    print(f"1..{len(CASES)}")
    for number, (rule, broken, build) in enumerate(CASES, 1):
        lines = run(build, broken)
        failed = failed or bool(lines)
        title = build.__name__.replace("_", " ")
        print(f"{'not ok' if lines else 'ok'} {number} - ({rule}) {title}{', which is told' if broken else ''}")
        for line in lines:
            print("# " + line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
