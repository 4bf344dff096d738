"""dibs bench: its figures, as text and as JSON, and that it leaves no lock behind."""

import re
import signal
import subprocess
import time

from support import looking
from support.looking import OK, UNAVAILABLE, dibs, expect, expect_status

server = looking.topology.Server()
PARTS = ("acquire", "release", "handover")
SHARES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p99_9_us": 0.999}
TIMES = ("min_us", *SHARES, "max_us")


def left(store=server):
    """Keys, but for that of the votes, which is of the quorum and not of a lock. A probe lives for 100 ms."""
    def keys():
        return [key for key in store.call("KEYS", "*") if key != b"dibs:vote"]

    looking.topology.await_true(lambda: not any(key.startswith(b"dibs:probe:") for key in keys()), "the end of the probes")
    return keys()


def measured(url):
    """A report with figures of each part: all of the half second that one has may pass while this machine stands still."""
    reports = []

    def is_whole():
        reports.append(expect_status(dibs(url, "bench", "-s", "1", "--json"), OK).json)
        return all(reports[-1][name]["count"] > 0 for name in PARTS)

    looking.topology.await_true(is_whole, "figures of each part")
    return reports[-1]


def bar_of(part, share):
    """The bar of the histogram with the time that this share of all times does not exceed."""
    seen = 0
    for bar in part["histogram"]:
        seen += bar["count"]
        if seen >= share * part["count"]:
            return bar


def figures_as_json():
    report = measured(server.url)
    expect(set(report) == {"interrupted", *PARTS} and report["interrupted"] is False, report)
    for name in PARTS:
        part = report[name]
        times = [part[key] for key in TIMES]
        expect(times == sorted(times) and times[0] > 0, name, part)
        expect(sum(bar["count"] for bar in part["histogram"]) == part["count"], name, part)
        expect(all(bar["from_us"] < bar["to_us"] for bar in part["histogram"]), name, part)
        first, last = part["histogram"][0], part["histogram"][-1]
        expect(first["from_us"] <= part["min_us"] * 1.04 and last["to_us"] >= part["max_us"] * 0.96, name, part)
        for key, share in SHARES.items():
            bar = bar_of(part, share)
            expect(bar["from_us"] * 0.96 <= part[key] <= bar["to_us"] * 1.04, name, key, part)
    expect(left() == [])


def what_was_not_measured_is_null():
    def has_none():
        report = expect_status(dibs(server.url, "bench", "-s", "0.001", "--json"), OK).json
        for name in PARTS:
            expect(all((report[name][key] is None) == (report[name]["count"] == 0) for key in TIMES), name, report[name])
        return any(report[name]["count"] == 0 for name in PARTS)

    looking.topology.await_true(has_none, "a part without figures")


def figures_as_text():
    def has_bars():
        text = expect_status(dibs(server.url, "bench", "-s", "0.5"), OK).text
        expect("p99.9" in text and re.search(r"^hand-over +\d+", text, re.M), text)
        expect(max(map(len, text.splitlines())) <= 100, text)
        return "###" in text

    looking.topology.await_true(has_bars, "bars")  # there are none where the machine stood still all the while
    expect(left() == [])


def is_interrupted(number, seconds):
    """False: it had ended by itself before the signal came, because this machine stood still."""
    words = [looking.DIBS, "bench", "-s", "2"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=looking.environment(server.url), text=True)
    time.sleep(seconds)
    process.send_signal(number)
    text = process.communicate(timeout=20)[0]
    expect(process.returncode in (OK, -number), number, seconds, process.returncode, text)
    expect(left() == [], number, seconds, left())
    return process.returncode != OK


def an_interrupted_one_leaves_nothing():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for seconds in (0.05, 0.4, 1.2):
            looking.topology.await_true(lambda: is_interrupted(number, seconds), "an interruption")


def a_signal_that_comes_twice_in_a_row_leaves_nothing():
    for milliseconds in 20 * (0, 0.3, 1):
        words = [looking.DIBS, "bench", "-v", "-s", "60", "--json"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=looking.environment(server.url), text=True)
        expect("measuring" in process.stderr.readline())
        time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=20)[0]
        expect(process.returncode == -signal.SIGTERM and '"interrupted":true' in text, milliseconds, process.returncode, text)
        expect(left() == [], milliseconds, left())


def a_store_that_fails_meanwhile():
    own = looking.topology.Server()
    process = subprocess.Popen([looking.DIBS, "bench", "-s", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=looking.environment(own.url))
    time.sleep(0.3)
    own.kill()
    out, err = process.communicate(timeout=30)
    expect(process.returncode == UNAVAILABLE and err.startswith(b"dibs: ") and not out, process.returncode, out, err)


def each_topology():
    for store in (looking.topology.Quorum(), looking.topology.Sentinel(), looking.topology.Cluster()):
        measured(store.url)
        expect(all(left(node) == [] for node in store.servers), store.url)


if __name__ == "__main__":
    looking.main(figures_as_json, what_was_not_measured_is_null, figures_as_text, an_interrupted_one_leaves_nothing, a_signal_that_comes_twice_in_a_row_leaves_nothing, a_store_that_fails_meanwhile, each_topology)
