"""Which faults, when, on what: all of it drawn from the seed, so that the same seed plans the same faults.

A run is a row of phases, each with names of its own. In a phase of class 1 the server keeps its state whatever happens;
in a phase of class 2 the server loses some of its state. Processes are stopped, killed and restarted in both. In a
phase of bursts nothing is harmed: processes release very many locks at once. In a phase of extensions many leases are
extended, and what is sent for them is held back.
"""

import math
import random
from typing import NamedTuple

MASTERS = 5  # of a quorum
CALM = 2.5  # seconds at the end of a phase in which no fault begins, so that all waiters get the lock
KEPT, LOST = 1, 2
STRETCHES = 2  # percent of the holds that are extended to a short and then to a long lease: few, as such holds are long
EXTENSION_STRETCHES = 12
EXTENSION_SECONDS = 8.0
BURST_SECONDS = 2.0  # at least: the phase lasts until its bursts are over
# ms, as words of commands: worker/hold.c extends a lease to one of the short and then to one of the long; "stuck"
# recognizes extensions by them.
SHORT_LEASES = ("211", "307", "401")
LONG_LEASES = ("2411", "2707", "2903")


class Kind(NamedTuple):
    track: str  # faults of one track come one after the other
    loses: bool = False  # the server loses locks
    # While such a fault acts, and shortly after, asks fail: then a waiter may be asleep beside a free lock. Pushes that
    # are lost are no reason for that.
    disturbs: bool = False


KINDS = {
    # the network
    "cut": Kind("network", disturbs=True),
    "refuse": Kind("network", disturbs=True),
    "stall": Kind("network", disturbs=True),
    "delay": Kind("network", disturbs=True),
    "throttle": Kind("network", disturbs=True),
    "half_close": Kind("network", disturbs=True),
    "drop_up": Kind("network", disturbs=True),
    "drop_down": Kind("network", disturbs=True),
    "cut_after": Kind("network", disturbs=True),
    "stuck": Kind("network", disturbs=True),
    # the server, its state kept
    "server_stop": Kind("server", disturbs=True),
    "restart_kept": Kind("server", disturbs=True),
    "script_flush": Kind("server"),
    "kill_normal": Kind("server", disturbs=True),
    "kill_pubsub": Kind("server"),
    "client_pause": Kind("server", disturbs=True),
    "debug_sleep": Kind("server", disturbs=True),
    "maxmemory": Kind("server", disturbs=True),
    "maxclients": Kind("server", disturbs=True),
    "min_replicas": Kind("server", disturbs=True),
    # the server, state lost
    "flushall": Kind("loss", loses=True),
    "del_key": Kind("loss", loses=True),
    "pexpire_key": Kind("loss", loses=True),
    "restart_lost": Kind("loss", loses=True, disturbs=True),
    "promotion": Kind("loss", loses=True, disturbs=True),
    "clock_forward": Kind("clock", loses=True, disturbs=True),
    "clock_back": Kind("clock", loses=True, disturbs=True),
    # the workers
    "worker_stop": Kind("process"),
    "worker_kill": Kind("process"),
    "worker_exit": Kind("process"),
    # what the server tells of locks that changed
    "messages": Kind("messages"),
    # nothing is harmed, but there is much work
    "burst": Kind("burst"),
    # one master of a quorum; never more than a minority of them at a time
    "master_stop": Kind("master"),
    "master_restart_kept": Kind("master"),
    "master_restart_lost": Kind("master"),
    "master_wipe": Kind("master"),
    "master_snapshot": Kind("master"),
    "master_del_vote": Kind("master"),
    "master_del_key": Kind("master"),
    "master_partition": Kind("master"),
    "master_network": Kind("master"),
    "master_clock_forward": Kind("master"),
    "master_clock_back": Kind("master"),
    # a master with replicas and sentinels
    "failover_kill": Kind("failover", loses=True, disturbs=True),
    "failover_stop": Kind("failover", loses=True, disturbs=True),
    "failover_order": Kind("failover", loses=True, disturbs=True),
    "sentinel_stop": Kind("failover"),
    # a cluster
    "slot_move": Kind("cluster"),
    "slot_split": Kind("cluster", disturbs=True),
    "node_kill": Kind("cluster", loses=True, disturbs=True),
    "node_stop": Kind("cluster", loses=True, disturbs=True),
    "node_order": Kind("cluster", loses=True, disturbs=True),
}
TRACKS_OF = {
    "one": ("network", "server", "loss", "clock", "process", "messages", "burst"),
    "quorum": ("master", "process"),
    "sentinel": ("failover", "process"),
    "cluster": ("cluster", "process"),
}
# Where a clock is stepped, processes are only stopped: one that is opened after a step does not know of it
# (doc/GUARANTEES.md).
STEPS = ("master_clock_forward", "master_clock_back")
NEW_PROCESS = ("worker_kill", "worker_exit")


class Fault(NamedTuple):
    at: float  # seconds since the phase began
    kind: str
    length: float  # seconds it acts; 0: it is an instant
    params: dict

    def __str__(self):
        params = " ".join(f"{key}={value}" for key, value in sorted(self.params.items()))
        return f"{self.at:7.2f} s  {self.kind:<14}{self.length * 1000:5.0f} ms  {params}".rstrip()


class Phase(NamedTuple):
    number: int
    loses: bool
    seconds: float
    faults: list
    stretches: int = STRETCHES

    def __str__(self):
        title = "loses state" if self.loses else "keeps state"
        return "\n".join([f"phase {self.number}, {title}, {self.seconds:.0f} s", *map(str, self.faults)])


def draw_length(rng, kind):
    if kind in ("cut", "half_close", "script_flush", "kill_normal", "kill_pubsub", "flushall", "del_key", "master_wipe",
                "master_del_vote", "master_del_key"):
        return 0.0
    if kind == "cut_after":
        return round(rng.uniform(0.1, 0.4), 3)
    if kind == "stuck":
        return round(rng.uniform(0.8, 1.6), 3)  # not every worker extends a lease
    if kind in ("worker_kill", "worker_exit", "pexpire_key", "restart_kept", "master_restart_kept"):
        return round(rng.uniform(0.0, 0.3), 3)
    if kind in ("promotion", "restart_lost", "master_restart_lost"):
        return round(rng.uniform(0.05, 0.5), 3)
    if kind in ("clock_forward", "clock_back", "master_clock_forward", "master_clock_back"):
        return round(rng.uniform(0.8, 1.5), 3)
    # Some faults are shorter than a command's timeout, some longer than a lease.
    return round(rng.choice([rng.uniform(0.05, 0.4), rng.uniform(0.3, 1.0), rng.uniform(0.9, 1.8)]), 3)


def draw_params(rng, kind, size):
    if kind in ("worker_stop", "worker_kill", "worker_exit"):
        return {"worker": rng.randrange(size.processes), "role": rng.choice(["holder", "holder", "waiter", "any"])}
    if kind.startswith("master_"):
        return dict(draw_master(rng, kind, size), master=rng.randrange(MASTERS))
    if kind.startswith("slot_"):
        return {"name": rng.randrange(size.names), "to": rng.randrange(2)}
    if kind == "node_order":
        return {"node": rng.randrange(3), "how": rng.choice(["", "FORCE", "TAKEOVER"])}
    if kind == "node_kill":
        return {"node": rng.randrange(3), "behind": rng.choice([0, 100, 300])}
    if kind == "node_stop":
        return {"node": rng.randrange(3)}
    if kind == "sentinel_stop":
        return {"sentinel": rng.randrange(3)}
    if kind in ("del_key", "pexpire_key"):
        return {"name": rng.randrange(size.names)}
    if kind == "messages":
        return {"how": rng.choice(["lost", "late", "doubled", "again"]), "ms": rng.choice([1, 5, 30, 100, 400])}
    if kind not in KINDS or KINDS[kind].track != "network" or kind == "refuse":
        return {"writes_only": rng.random() < 0.5} if kind == "client_pause" else {}
    if kind == "stuck":
        # What is held back arrives after what is sent again, and still within a command's timeout.
        named = rng.random() < 0.8  # only workers that can't end an old connection
        until = LONG_LEASES if rng.random() < 0.8 else ()
        ms = rng.choice([100, 150, 200, 250, 280])
        return {"share": 1, "salt": 0, "ms": 280 if until else ms, "words": SHORT_LEASES, "named": named, "until": until}
    params = {"share": rng.choice([1, 1, 0.5, 0.2]), "salt": rng.randrange(1000)}
    if kind in ("stall", "half_close", "delay"):
        params["way"] = rng.choice(["up", "down", None]) if kind != "half_close" else rng.choice(["up", "down"])
    if kind == "delay":
        params["ms"] = rng.choice([5, 50, 150, 280, 400])
    elif kind == "throttle":
        params["rate"] = rng.choice([2000, 10000, 50000])
    elif kind == "cut_after":
        params["bytes"] = rng.randrange(1, 40)
        params["share"] = max(params["share"], 0.5)  # only a few connections receive something in that time
    elif kind == "cut":
        params["reset"] = rng.random() < 0.5
    return params


def draw_master(rng, kind, size):
    """What a fault of one master does, where there are several ways."""
    if kind == "master_partition":
        return {"how": rng.choice(["stall", "drop_up", "drop_down", "refuse"])}
    if kind == "master_network":
        how = rng.choice(["cut", "delay", "throttle", "half_close", "cut_after"])
        return dict(draw_params(rng, how, size), how=how)
    if kind in STEPS:
        return {"seconds": round(10 ** rng.uniform(-1, math.log10(60)), 3)}
    if kind == "master_del_key":
        return {"name": rng.randrange(size.names)}
    return {}


class Bag:
    """All kinds of a track come once, in any order, before any comes again."""

    def __init__(self, rng, kinds):
        self.rng, self.kinds, self.left = rng, kinds, []

    def draw(self):
        if not self.left:
            self.left = list(self.kinds)
            self.rng.shuffle(self.left)
        return self.left.pop()


PACE = {"network": (0.05, 0.5), "server": (0.05, 0.5), "loss": (0.7, 1.5), "clock": (0.5, 1.0), "process": (0.02, 0.5),
        "messages": (0.05, 0.3), "master": (0.05, 0.4), "failover": (0.3, 1.0), "cluster": (0.1, 0.5)}
# seconds that the rig takes for such a fault, beside the fault's length
OVERHEAD = {"restart_kept": 0.6, "promotion": 0.4, "restart_lost": 0.2}
# the same for masters of a quorum: until their leases are over, or until they vote again
OVERHEAD.update({kind: 0.9 for kind in KINDS if kind.startswith("master_")}, master_restart_lost=2.5, master_wipe=2.5,
                master_snapshot=2.5, master_del_vote=2.5)
OVERHEAD.update(failover_kill=2.0, failover_stop=2.0, failover_order=1.5, node_kill=2.5, node_stop=2.5, node_order=0.5)

KEPT_TRACKS = (("network", "server", "process"), ("network", "process"), ("server", "process"))


def plan_track(rng, bag, track, seconds, size, slower=1):
    least, most = (slower * pause for pause in PACE[track])
    faults, at = [], 0.3 + rng.uniform(least, most)
    while at < seconds - CALM:
        kind = bag.draw()
        length = min(draw_length(rng, kind), max(0.1, seconds - CALM + 0.5 - at))
        faults.append(Fault(round(at, 3), kind, length, draw_params(rng, kind, size)))
        # Several processes are harmed at a time.
        at += (0 if track == "process" else length + OVERHEAD.get(kind, 0)) + rng.uniform(least, most)
    return faults


def make(seed, seconds, size, only=None):
    """
    The phases of a run of about so many seconds, and for each minute one more of extensions and one of bursts. only: the
    kinds of faults to choose from, and then each of them comes, however short the run is; None: all kinds.
    """
    tracks = TRACKS_OF[size.topology]
    kinds = [kind for kind in KINDS if KINDS[kind].track in tracks and (only is None or kind in only)]
    if size.topology == "quorum":
        return make_quorum(seed, seconds, size, kinds)
    if size.topology == "cluster":
        return make_rows(seed, seconds, size, kinds, (("cluster", 1), ("process", 1)), [KEPT, LOST])
    if size.topology == "sentinel":
        return make_rows(seed, seconds, size, kinds, (("failover", 1), ("process", 1)), [LOST])
    phases = make_harmful(seed, seconds, size, kinds) if kinds != ["burst"] else []
    rng = random.Random(f"{seed} more")
    for _ in range(max(int(seconds / 60 + 0.5), only is not None)):
        if "stuck" in kinds:
            phases.append(make_extensions(rng, len(phases) + 1, size))
        if "burst" in kinds:
            phases.append(make_bursts(rng, len(phases) + 1, size))
    return phases


def make_quorum(seed, seconds, size, kinds):
    """
    In every second phase clocks are stepped. Nothing is extended to a long lease: a master that lost its data grants
    nothing until the longest is over.
    """
    rows = (("master", 1), ("master", 1), ("process", 2))
    parts = [[kind for kind in kinds if kind not in without] for without in (STEPS, NEW_PROCESS)]
    rows_of = [make_rows(f"{seed} {i}", seconds, size, part, rows, [KEPT], stretches=0) for i, part in enumerate(parts)]
    return [rows_of[i % 2][i] for i in range(len(rows_of[0]))]


def make_rows(seed, seconds, size, kinds, rows, classes, stretches=STRETCHES):
    """
    Phases of these classes, in turn. rows: tracks, each with how much slower it is; a track that comes twice has two
    faults at a time. Where data is lost, processes are harmed less often, so that holders live long enough to notice.
    """
    rng = random.Random(f"{seed} {size.topology}")
    length = max(5.0, min(10.0, seconds / len(classes)))

    def kinds_of(track, one):
        return [kind for kind in kinds if KINDS[kind].track == track and (one == LOST or not KINDS[kind].loses)]

    bags = {(track, one): Bag(rng, kinds_of(track, one)) for track, _ in rows for one in classes}
    phases = []
    for number in range(1, max(len(classes), round(seconds / length)) + 1):
        one, faults = classes[(number - 1) % len(classes)], []
        for track, slower in rows:
            slower *= 4 if track == "process" and one == LOST else 1
            if bags[track, one].kinds:
                faults += plan_track(rng, bags[track, one], track, length, size, slower)
        phases.append(Phase(number, one == LOST, length, sorted(faults, key=lambda f: f.at), stretches))
    return phases


def make_extensions(rng, number, size):
    faults = plan_track(rng, Bag(rng, ["stuck"]), "network", EXTENSION_SECONDS, size)
    return Phase(number, False, EXTENSION_SECONDS, faults, EXTENSION_STRETCHES)


def make_bursts(rng, number, size):
    """Two bursts: the locks are released because their threads end, or because their runtime is closed."""
    ways = ["threads", "close"]
    rng.shuffle(ways)
    faults = [Fault(0.3, "burst", 0.0, {"how": how, "holds": size.holds}) for how in ways]
    return Phase(number, False, BURST_SECONDS, faults, 0)


def make_harmful(seed, seconds, size, kinds):
    rng = random.Random(seed)
    kinds = [kind for kind in kinds if kind != "burst"]
    bags = {track: Bag(rng, [kind for kind in kinds if KINDS[kind].track == track]) for track in PACE}
    classes = [KEPT] if any(not KINDS[k].loses for k in kinds) else []
    if any(KINDS[k].loses for k in kinds):
        classes.append(LOST)
    loss_tracks = [track for track in ("loss", "clock") if bags[track].kinds]
    length = max(5.0, min(10.0, seconds / max(1, len(classes))))
    phases, kept, lossy = [], 0, 0
    for number in range(1, max(len(classes), round(seconds / length)) + 1):
        loses = classes[(number - 1) % len(classes)] == LOST if classes else False
        if not loses:
            tracks = KEPT_TRACKS[kept % len(KEPT_TRACKS)]
            kept += 1
        else:
            # The clock is stepped in phases without other losses: after a step back, a store that forgot its fences
            # gives smaller ones, which nobody promises to survive.
            tracks = ["process", loss_tracks[lossy % len(loss_tracks)]]
            lossy += 1
        faults = []
        for track in tracks:
            # Processes are harmed less often, so that holders live long enough to notice the loss.
            slower = 4 if loses and track == "process" else 1
            if bags[track].kinds:
                faults += plan_track(rng, bags[track], track, length, size, slower)
        # Messages are harmed in every phase, beside the other faults.
        if bags["messages"].kinds:
            faults += plan_track(random.Random(f"{seed} messages {number}"), bags["messages"], "messages", length, size)
        phases.append(Phase(number, loses, length, sorted(faults, key=lambda f: f.at)))
    return phases
