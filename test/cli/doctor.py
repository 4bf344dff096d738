"""dibs doctor: what it says of good and bad servers, and how it exits."""

import looking
from looking import FAILED, NOWHERE, OK, UNAVAILABLE, dibs, expect, expect_status

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
    expect(text.count("-> ") >= report["warn"] + report["bad"], text)
    expect(text.endswith(f"\n{report['ok']} ok, {report['warn']} warn, {report['bad']} bad\n"), text)
    return {(finding["server"], finding["subject"]): finding["verdict"] for finding in report["findings"]}


def by_subject(findings, subject):
    return [verdict for (_, about), verdict in findings.items() if about == subject]


def a_good_server():
    server = looking.topology.Server("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
    findings = examined(server)
    expect("bad" not in findings.values(), findings)
    expect(by_subject(findings, "connection") == ["ok"] and by_subject(findings, "lock") == ["ok"], findings)
    left = [key for key in server.call("KEYS", "*") if not key.startswith((b"dibs:fence:", b"dibs:probe:"))]
    expect(left == [], "nothing is left but what ends by itself", left)


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


def a_store_that_cannot_be_reached():
    result = expect_status(dibs(NOWHERE, "doctor"), UNAVAILABLE)
    expect("bad" in result.text and "Connection refused" in result.text and "-> " in result.text and not result.err, result)
    report = expect_status(dibs(NOWHERE, "doctor", "--json"), UNAVAILABLE).json
    expect([finding["subject"] for finding in report["findings"]] == ["connection"] and report["bad"] == 1, report)


def each_topology():
    for store in (looking.topology.Quorum(), looking.topology.Sentinel(), looking.topology.Cluster()):
        findings = examined(store)
        expect(by_subject(findings, "connection").count("ok") >= len(store.servers), store.url, findings)
        expect(by_subject(findings, "lock") == ["ok"], store.url, findings)
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


if __name__ == "__main__":
    looking.main(
        a_good_server, a_server_that_may_drop_locks, an_account_without_rights, a_server_that_refuses_writing,
        a_store_that_cannot_be_reached, each_topology, a_quorum_without_one_master,
    )
