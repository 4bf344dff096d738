"""The rows of peers.csv as a table in Markdown."""

import re
import statistics

from cases import CASES
from library import PEERS


class Results:
    """What the rows say."""

    def __init__(self, rows):
        self.values = {}
        for row in rows:
            key = row["case"], row["peer"], row["measure"]
            self.values.setdefault(key, {})[row["round"]] = float(row["value"])
        self.dates = sorted({row["date"] for row in rows})

    def has(self, case, peer, measure):
        return (case.name, peer.name, measure) in self.values

    def of(self, case, peer, measure, over=statistics.median):
        return over(self.values[case.name, peer.name, measure].values())

    def ratio(self, case, peer, measure):
        mine, dibs = self.values[case.name, peer.name, measure], self.values[case.name, "dibs", measure]
        ratios = [mine[number] / dibs[number] for number in mine if dibs.get(number)]
        return f"{short(statistics.median(ratios))}x" if ratios else "-"


def short(value):
    """With two digits, or three from 100."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def absolute(case, peer, results):
    if case.name == "renew":
        return (f"{short(results.of(case, peer, 'commands_s'))} commands/s, "
                f"{results.of(case, peer, 'client_cpu'):.2g} % + {results.of(case, peer, 'server_cpu'):.2g} % CPU")
    us = results.of(case, peer, "us")
    return f"{us * 1000:.0f} ns" if us < 1 else f"{short(us)} us"


def relative(case, peer, results):
    if case.name == "renew":
        return (f"{results.ratio(case, peer, 'commands_s')} commands, {results.ratio(case, peer, 'client_cpu')} + "
                f"{results.ratio(case, peer, 'server_cpu')} CPU")
    return results.ratio(case, peer, "us")


def cell(case, peer, results):
    failed = results.of(case, peer, "failed", sum) if results.has(case, peer, "failed") else 0
    if not (results.has(case, peer, "us") or results.has(case, peer, "commands_s")):
        return "failed" if failed else "-"
    if results.has(case, peer, "wrong") and results.of(case, peer, "wrong", max) > 0:
        return "**wrong**"
    text = (absolute if peer.name == "dibs" else relative)(case, peer, results)
    if results.has(case, peer, "least_over_most"):
        text += f", {results.of(case, peer, 'least_over_most'):.2f}"
        for measure in ("without", "stuck"):
            most = results.of(case, peer, measure, max)
            text += f", {most:.0f} {measure}" if most else ""
    text += f", {failed:.0f} failed" if failed else ""
    return text


def table(rows):
    results = Results(rows)
    cases = [case for case in CASES if any(row["case"] == case.name for row in rows)]
    lines = ["| lock | " + " | ".join(case.title for case in cases) + " |", "|---" * (len(cases) + 1) + "|"]
    for peer in PEERS:
        if any(row["peer"] == peer.name for row in rows):
            lines.append(f"| {peer.name} {peer.version} ({peer.language}) | "
                         + " | ".join(cell(case, peer, results) for case in cases) + " |")
    return "\n".join(lines) + f"\n\nMeasured on {' and '.join(results.dates)}.\n"


def put_into(path, text):
    """Replaces a table of an earlier run."""
    before, after = re.compile(r"^\| lock \|.*?^Measured on .*?\n", re.M | re.S).split(path.read_text("utf-8"))
    path.write_text(before + text + after, "utf-8")
