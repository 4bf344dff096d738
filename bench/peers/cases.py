"""What is measured. A function measures one round of a peer, and returns its measures by name."""

import datetime
import json
import pathlib
import random
import re
import statistics
import sys
import time

from process import WAIT_S, Failed, Server, Team, cpu_s

LEASE_MS, RENEWED_LEASE_MS, RENEWED = 30000, 6000, 1000


def shared_counter(team, name, shared):
    """The line for a crowd, and what reads the counter of its holders; without one, None."""
    if not shared:
        return name, None
    path = pathlib.Path(team.server.folder) / "counter"
    path.write_bytes(bytes(8))
    return f"{name} {path}", lambda: int.from_bytes(path.read_bytes(), "little")


def crowd(team, name, seconds, shared):
    line, count = shared_counter(team, name, shared)
    client, server = team.cpu_s(), cpu_s(team.server.process.pid)
    for program in team.programs:
        program.tell(line)
    time.sleep(seconds)
    client, server = team.cpu_s() - client, cpu_s(team.server.process.pid) - server
    answers = [json.loads(program.answer()) for program in team.programs]
    for program, answer in zip(team.programs, answers):
        if answer["stuck"]:
            program.process.wait(WAIT_S)  # it ends now
    acquires = [number for answer in answers for number in answer["acquires"]]
    total = sum(acquires) or 1
    found = {"us": max(answer["seconds"] for answer in answers) / total * 1e6,
             "client_cpu_us": client / total * 1e6, "server_cpu_us": server / total * 1e6}
    if shared:
        found |= {"least_over_most": min(acquires) / max(1, *acquires), "without": acquires.count(0),
                  "stuck": sum(answer["stuck"] for answer in answers),
                  "gave_up": sum(answer["gave_up"] for answer in answers), "wrong": abs(count() - sum(acquires))}
    return found


def pair(team, name, seconds):
    return crowd(team, name, seconds, shared=False)


def contend(team, name, seconds):
    return crowd(team, name, seconds, shared=True)


def nested(team, name, seconds):
    team.programs[0].tell(name)
    answer = json.loads(team.programs[0].answer())
    return {"us": answer["seconds"] / answer["pairs"] * 1e6}


def hand_over(team, name, seconds):
    """Of a waiter that asks from time to time, the release comes at any point between two asks."""
    holder, waiter = team.programs
    draw, times = random.Random(name.split(":")[-1]), []
    holder.tell(name)
    holder.answer()
    end = time.monotonic() + seconds
    while not times or time.monotonic() < end:
        waiter.tell(name)
        time.sleep((1 + draw.uniform(0, team.peer.asks_ms)) / 1000)
        holder.tell(name)
        released = int(holder.answer())
        times.append((int(waiter.answer()) - released) / 1e3)
        holder, waiter = waiter, holder
    holder.tell(name)
    holder.answer()
    return {"us": statistics.median(times), "wrong": sum(time < 0 for time in times)}


def renew(team, name, seconds):
    """All of these libraries renew with scripts. A lock that is not there at the end was lost."""
    scripts = ("eval", "evalsha", "fcall")
    program = team.programs[0]
    program.tell(name)
    program.answer()
    before = time.monotonic(), team.cpu_s(), cpu_s(team.server.process.pid), team.server.calls(scripts)
    time.sleep(seconds)
    after = time.monotonic(), team.cpu_s(), cpu_s(team.server.process.pid), team.server.calls(scripts)
    held = len(set(re.findall(rf"{name}:(\d+)", team.server.ask("EVAL \"return table.concat(redis.call('KEYS', '*'), "
                                                               "' ')\" 0"))))
    program.tell(name)
    program.answer()
    taken, client, server, commands = (late - early for early, late in zip(before, after))
    return {"commands_s": commands / taken, "client_cpu": client / taken * 100, "server_cpu": server / taken * 100,
            "wrong": RENEWED - held}


class Case:
    def __init__(self, name, title, measure, seconds, arguments, processes=1, fits=lambda peer: True,
                 one_round=False):
        self.name, self.title, self.measure, self.seconds, self.arguments = name, title, measure, seconds, arguments
        self.processes, self.fits, self.one_round = processes, fits, one_round


CASES = [
    Case("pair", "uncontended pair", pair, 0.8, ("crowd", LEASE_MS, 1)),
    Case("nested", "nested pair", nested, 0.8, ("nested", LEASE_MS, 1), fits=lambda peer: peer.nested),
    Case("handover", "hand-over between processes", hand_over, 1.2, ("hold", LEASE_MS, 1), processes=2),
    Case("names", "64 threads, 64 names", pair, 0.8, ("crowd", LEASE_MS, 64)),
    Case("contend", "64 threads, one name", contend, 1, ("crowd", LEASE_MS, 64)),
    Case("share", "4 x 8 threads, one name", contend, 1, ("crowd", LEASE_MS, 8), processes=4),
    Case("renew", "renewal of 1,000 leases", renew, 12, ("hold", RENEWED_LEASE_MS, RENEWED), one_round=True,
         fits=lambda peer: peer.renews),
]


def run_round(case, teams, number, seconds):
    """The measures of a round, a dictionary for each peer."""
    found = {}
    for peer, team in teams.items():
        try:
            team.gather()
            found[peer] = case.measure(team, f"{case.name}:{number}", seconds)
        except (Failed, OSError, ValueError) as error:
            print(f"{case.name}: {peer.name}: {error}", file=sys.stderr)
            found[peer] = {"failed": 1}
            team.stop()
        time.sleep(0.1)
    return found


def run_case(case, peers, build, rounds, seconds):
    """The rows of bench/out/peers.csv for this case. What a first round finds, before all is warm, is not kept."""
    today, server, teams, rows = datetime.date.today().isoformat(), Server(), {}, []
    seconds = seconds or case.seconds
    try:
        for peer in filter(case.fits, peers):
            teams[peer] = Team(server, build, peer, case.processes, *case.arguments, seconds)
        for number in range(1 if case.one_round else rounds + 1):
            for peer, found in run_round(case, teams, number, seconds).items():
                kept = found if number or case.one_round or "failed" in found else {}
                rows += [{"case": case.name, "peer": peer.name, "version": peer.version, "date": today, "round": number,
                          "measure": measure, "value": f"{value:.6g}"} for measure, value in kept.items()]
    finally:
        for team in teams.values():
            team.stop()
        server.stop()
    return rows
