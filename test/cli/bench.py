"""dibs bench: its figures, as text and as JSON, and that it leaves no lock behind."""

import re
import signal
import subprocess
import time

import looking
from looking import OK, UNAVAILABLE, dibs, expect, expect_status

server = looking.topology.Server()
PARTS = ("acquire", "release", "handover")
TIMES = ("min_us", "p50_us", "p90_us", "p99_us", "p99_9_us", "max_us")


def left(store=server):
    """Keys, but for that of the votes, which is of the quorum and not of a lock. A probe lives for 100 ms."""
    def keys():
        return [key for key in store.call("KEYS", "*") if key != b"dibs:vote"]

    looking.topology.await_true(lambda: not any(key.startswith(b"dibs:probe:") for key in keys()), "the end of the probes")
    return keys()


def figures_as_json():
    report = expect_status(dibs(server.url, "bench", "-s", "1", "--json"), OK).json
    expect(set(report) == {"interrupted", *PARTS} and report["interrupted"] is False, report)
    for name in PARTS:
        part = report[name]
        times = [part[key] for key in TIMES]
        expect(part["count"] > 0 and times == sorted(times) and times[0] > 0, name, part)
        expect(sum(bar["count"] for bar in part["histogram"]) == part["count"], name, part)
        expect(all(bar["from_us"] < bar["to_us"] for bar in part["histogram"]), name, part)
        first, last = part["histogram"][0], part["histogram"][-1]
        expect(first["from_us"] <= part["min_us"] * 1.04 and last["to_us"] >= part["max_us"] * 0.96, name, part)
    expect(left() == [])


def figures_as_text():
    text = expect_status(dibs(server.url, "bench", "-s", "0.5"), OK).text
    expect("p99.9" in text and re.search(r"^hand-over +\d+", text, re.M) and "###" in text, text)
    expect(max(map(len, text.splitlines())) <= 100, text)
    expect(left() == [])


def an_interrupted_one_leaves_nothing():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for seconds in (0.05, 0.4, 1.2):
            words = [looking.DIBS, "bench", "-s", "2"]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, env=looking.environment(server.url), text=True)
            time.sleep(seconds)
            process.send_signal(number)
            text = process.communicate(timeout=20)[0]
            expect(process.returncode == -number, number, seconds, process.returncode, text)
            expect(left() == [], number, seconds, left())


def a_store_that_fails_meanwhile():
    own = looking.topology.Server()
    process = subprocess.Popen([looking.DIBS, "bench", "-s", "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=looking.environment(own.url))
    time.sleep(0.3)
    own.kill()
    out, err = process.communicate(timeout=30)
    expect(process.returncode == UNAVAILABLE and err.startswith(b"dibs: ") and not out, process.returncode, out, err)


def each_topology():
    for store in (looking.topology.Quorum(), looking.topology.Sentinel(), looking.topology.Cluster()):
        report = expect_status(dibs(store.url, "bench", "-s", "1", "--json"), OK).json
        expect(all(report[name]["count"] > 0 for name in PARTS), store.url, report)
        expect(all(left(node) == [] for node in store.servers), store.url)


if __name__ == "__main__":
    looking.main(figures_as_json, figures_as_text, an_interrupted_one_leaves_nothing, a_store_that_fails_meanwhile, each_topology)
