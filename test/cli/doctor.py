"""dibs doctor: what it says of good and bad servers, and how it exits."""

import itertools

from support import looking
from support.looking import FAILED, NOWHERE, OK, UNAVAILABLE, USAGE, dibs, expect, expect_status

VERDICTS = {"ok", "warn", "bad"}


def examined(store, *words):
    """The findings, as (server, subject): verdict. The text says the same as JSON, and the exit status fits."""
    result = dibs(store.url, "doctor", *words, "--json")
    report = result.json
    expect(set(report) == {"findings", "ok", "warn", "bad"}, report)
    for finding in report["findings"]:
        expect(set(finding) == {"server", "subject", "verdict", "text", "remedy"}, finding)
        expect(finding["verdict"] in VERDICTS and finding["text"].strip() and "\n" not in finding["text"], finding)
        expect((finding["remedy"] is None) == (finding["verdict"] == "ok"), "what is not ok has a remedy", finding)
    for verdict in VERDICTS:
        expect(report[verdict] == sum(finding["verdict"] == verdict for finding in report["findings"]), report)
    expect_status(result, FAILED if report["bad"] else OK)
    text = expect_status(dibs(store.url, "doctor", *words), result.status).text
    lines = [line.split(None, 1) for line in text.splitlines() if line.startswith("  ") and not line.lstrip().startswith("->")]
    expect([line[0] for line in lines] == [finding["verdict"] for finding in report["findings"]], text, report)
    servers = [finding["server"] for finding in report["findings"]]
    paragraphs = [part.splitlines() for part in text.rstrip().split("\n\n")[:-1]]
    expect([part[0] for part in paragraphs] == [server for server, _ in itertools.groupby(servers)], text, report)
    expect(all(line.startswith(" ") for part in paragraphs for line in part[1:]), text)
    expect(text.count("-> ") >= report["warn"] + report["bad"], text)
    expect(text.endswith(f"\n{report['ok']} ok, {report['warn']} warn, {report['bad']} bad\n"), text)
    return {(finding["server"], finding["subject"]): finding["verdict"] for finding in report["findings"]}


def by_subject(findings, subject):
    return [verdict for (_, about), verdict in findings.items() if about == subject]


def expect_nothing_left(server):
    """But for the votes, which are of the quorum and not of a lock. A probe lives for 100 ms."""
    def left():
        return [key for key in server.call("KEYS", "*") if key != b"dibs:vote"]

    looking.topology.await_true(lambda: not any(key.startswith(b"dibs:probe:") for key in left()), "the end of the probes")
    expect(left() == [], "nothing is left", left())


def a_good_server():
    server = looking.topology.Server("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
    findings = examined(server)
    expect("bad" not in findings.values(), findings)
    expect(by_subject(findings, "connection") == ["ok"] and by_subject(findings, "lock") == ["ok"], findings)
    expect_nothing_left(server)


def a_server_that_may_drop_locks():
    server = looking.topology.Server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    findings = examined(server)
    expect(by_subject(findings, "eviction") == ["bad"], findings)
    expect(by_subject(findings, "lock") == ["ok"], findings)


def an_account_without_rights():
    server = looking.topology.Server()
    server.call("ACL", "SETUSER", "poor", "on", ">p", "~nothing:*", "+@all")
    store = type("Store", (), {"url": server.url.replace("unix://", "unix://poor:p@")})
    findings = examined(store)
    expect(by_subject(findings, "lock") == ["bad"], findings)
    expect(not any("poor:p@" in str(key) for key in findings), "no password is shown", findings)


def a_server_that_refuses_writing():
    master = looking.topology.Server("--repl-diskless-sync-delay", "0")
    replica = looking.topology.Server("--replicaof", f"127.0.0.1 {master.port}")
    looking.topology.await_true(lambda: replica.info("replication").get("master_link_status") == "up", "the replica")
    findings = examined(replica)
    expect(by_subject(findings, "lock") == ["bad"], findings)


def a_grant_that_waits_for_replicas():
    """The store does not show whether programs wait for them, so the operator says it."""
    master = looking.topology.Server("--repl-diskless-sync-delay", "0")
    replica = looking.topology.Server("--replicaof", f"127.0.0.1 {master.port}")
    looking.topology.await_true(lambda: replica.info("replication").get("master_link_status") == "up", "the replica")
    looking.topology.await_true(lambda: master.call("SET", "a", "b") and master.call("WAIT", 1, 100) == 1, "its acknowledgements")
    expect(by_subject(examined(master), "replicas") == ["warn"])
    expect(by_subject(examined(master, "--min-replicas", "1"), "replicas") == ["ok"])
    expect(by_subject(examined(master, "--min-replicas", "2"), "replicas") == ["bad"])


def a_store_that_cannot_be_reached():
    result = expect_status(dibs(NOWHERE, "doctor"), UNAVAILABLE)
    expect("bad" in result.text and "Connection refused" in result.text and "-> " in result.text and not result.err, result)
    report = expect_status(dibs(NOWHERE, "doctor", "--json"), UNAVAILABLE).json
    expect([finding["subject"] for finding in report["findings"]] == ["connection"] and report["bad"] == 1, report)
    for url, more in (("redis://me:SECRET@127.0.0.1:1", {}), (NOWHERE, {"DIBS_URL": "redis://me:SECRET@127.0.0.1:1\n"})):
        words = () if more else ("--url", url)
        result = expect_status(dibs(NOWHERE, "doctor", "--json", *words, **more), UNAVAILABLE)
        server = result.json["findings"][0]["server"]
        expect(server.startswith("redis://me:*") and server.endswith("*@127.0.0.1:1") and b"SECRET" not in result.out, result)


def each_topology():
    for store in (looking.topology.Quorum(), looking.topology.Sentinel(), looking.topology.Cluster()):
        findings = examined(store)
        expect(by_subject(findings, "connection").count("ok") >= len(store.servers), store.url, findings)
        expect(by_subject(findings, "lock") == ["ok"], store.url, findings)
        for server in store.servers:
            expect_nothing_left(server)
    expect(by_subject(examined(type("Store", (), {"url": "mem:"})), "lock") == ["ok"])


def a_quorum_without_one_master():
    quorum = looking.topology.Quorum()
    expect(by_subject(examined(quorum), "connection").count("ok") == 3)
    quorum.servers[1].kill()
    findings = examined(quorum)
    expect(by_subject(findings, "connection").count("ok") == 2 and by_subject(findings, "lock") == ["ok"], findings)
    expect(set(by_subject(findings, "connection")) & {"warn", "bad"}, findings)
    quorum.servers[2].kill()
    expect_status(dibs(quorum.url, "doctor"), UNAVAILABLE)


def begin(quorum):
    """All masters vote, and know which quorum they belong to: a program that runs for a moment tells them."""
    def all_vote():
        expect_status(dibs(quorum.url, "run", "--lease", "2", "job", "--", "sleep", "0.5"), OK)
        notes = [(server.call("GET", "dibs:vote") or b"").split() for server in quorum.servers]
        return all(len(note) == 7 and note[0] == b"0" and note[6] != b"0" for note in notes)
    looking.topology.await_true(all_vote, "all masters vote")


def admitted(quorum, *words, status=OK):
    """What is said of the masters, in their order; the text says the same as JSON."""
    text = expect_status(dibs(quorum.url, "doctor", "--admit", *words), status)
    result = expect_status(dibs(quorum.url, "doctor", "--json", "--admit", *words), status)
    said = [(finding["verdict"], finding["text"]) for finding in result.json["findings"]]
    expect(text.text.startswith("the quorum\n") and not text.err and not result.err, text, result)
    expect(text.text.count("  quorum  ") == len(said), text, said)
    expect(text.text.endswith(f"\n{result.json['ok']} ok, {result.json['warn']} warn, {result.json['bad']} bad\n"), text)
    return said


def one_wiped_and_one_away_of_three_go_on_after_the_operators_word():
    quorum = looking.topology.Quorum()
    begin(quorum)
    quorum.servers[0].call("FLUSHALL")
    quorum.servers[2].kill()
    expect_status(dibs(quorum.url, "run", "--lease", "2", "--outage", "3", "job", "--", "true"), UNAVAILABLE)
    remedies = " ".join(finding["remedy"] or "" for finding in dibs(quorum.url, "doctor", "--json").json["findings"])
    expect("Start the masters that are missing" in remedies and "doctor --admit" in remedies, remedies)
    said = admitted(quorum, "6s")
    expect([verdict for verdict, _ in said] == ["ok", "ok", "warn"], said)
    expect("Number 1 of the URLs may vote in" in said[0][1] and "votes." in said[1][1], said)
    expect("Number 3 of the URLs did not answer" in said[2][1], said)
    result = dibs(quorum.url, "run", "--lease", "2", "--outage", "60", "job", "--", "echo", "done", seconds=90)
    expect(expect_status(result, OK).out == b"done\n", result)
    expect(admitted(quorum, "2")[0] == ("ok", "Number 1 of the URLs votes."), said)


def where_there_is_nobody_to_admit():
    for store in (looking.topology.Server(), type("Store", (), {"url": "mem:"})):
        result = expect_status(dibs(store.url, "doctor", "--admit", "30", "--json"), USAGE)
        expect(result.out == b"" and b"only masters of a quorum" in result.err, result)
    quorum = looking.topology.Quorum()
    for time in ("", "0", "0.001", "25h", "x"):
        result = expect_status(dibs(quorum.url, "doctor", "--admit", time), USAGE)
        expect(result.out == b"" and b"--admit" in result.err, result)
    said = admitted(quorum, "30")
    expect(all(verdict == "ok" for verdict, _ in said), said)
    quorum.servers[1].kill()
    quorum.servers[2].kill()
    result = expect_status(dibs(quorum.url, "doctor", "--admit", "30"), UNAVAILABLE)
    expect(result.out == b"" and b"Connection refused" in result.err, result)


def masters_of_another_quorum_are_not_admitted():
    one, other = looking.topology.Quorum(), looking.topology.Quorum()
    for quorum in (one, other):
        begin(quorum)
    mixed = type("Store", (), {"url": " ".join(server.url for server in (*one.servers[:2], other.servers[0]))})
    said = admitted(mixed, "2", status=FAILED)
    expect([verdict for verdict, _ in said] == ["ok", "ok", "bad"] and "another quorum" in said[2][1], said)


if __name__ == "__main__":
    looking.main(
        a_good_server, a_server_that_may_drop_locks, an_account_without_rights, a_server_that_refuses_writing,
        a_grant_that_waits_for_replicas,
        a_store_that_cannot_be_reached, each_topology, a_quorum_without_one_master,
        one_wiped_and_one_away_of_three_go_on_after_the_operators_word, where_there_is_nobody_to_admit,
        masters_of_another_quorum_are_not_admitted,
    )
