"""dibs status, list and break: what they print, how they exit, and JSON whatever the names are."""

import os
import re
import subprocess
import time

from support import looking
from support.looking import FAILED, NOWHERE, OK, OUTPUT, UNAVAILABLE, USAGE, dibs, expect, expect_status, put, token

server = looking.topology.Server()
URL = server.url
ODD_NAMES = [b"plain", b"sku:25", b"two words", b"tab\there", b"line\nend", b"\x1b[31mred", b'quote"back\\slash',
             "été".encode(), "漢字".encode(), "\u202eturned".encode(), "😀".encode(), b"\xff\xfe", b"half\xc3", b"\xed\xa0\x80",
             b"\x7f", b"*?[x]", b"n" * 512, "\u009b31mred".encode(), "\u200fturned".encode(), "\U000e0041tag".encode()]


def fresh(*names, **how):
    server.call("FLUSHALL")
    for name in names:
        put(server, name, **how)


# -------------------------------------------------------------------- status

def status_of_a_lock_that_is_held():
    fresh("nightly", owner=token(label="my:job", thread=4712), held_s=192)
    lines = expect_status(dibs(URL, "status", "nightly"), OK).text.splitlines()
    expect(lines[0] == "nightly: held", lines)
    fields = dict(line.strip().split(None, 1) for line in lines[1:])
    expect(fields["owner"] == "my:job on alpha, process 4711, thread 4712", fields)
    expect(fields["token"] == token(label="my:job", thread=4712), fields)
    expect(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(3m[12]\ds\)", fields["since"]), fields)
    expect(10 < float(fields["left"].rstrip("s")) <= 30 and fields["entries"] == "0", fields)
    expect(int(fields["fence"]) > 2**53, fields)


def status_tells_by_its_exit_whether_all_are_held():
    fresh("a", "b")
    expect_status(dibs(URL, "status", "a", "b"), OK)
    result = expect_status(dibs(URL, "status", "a", "free", "b"), FAILED)
    expect(result.text.count(": held\n") == 2 and "\nfree: free\n" in result.text, result)
    for words in (("-q", "a"), ("a", "--quiet")):
        expect(expect_status(dibs(URL, "status", *words), OK).out == b"", words)
        expect(expect_status(dibs(URL, "status", "--json", *words), OK).out == b"", words)
    for words in (("-q",), ("-q", "--json"), ("--json", "-q")):
        expect(expect_status(dibs(URL, "status", *words, "free"), FAILED).out == b"", words)


def status_of_a_foreign_client():
    fresh()
    put(server, "a", owner="by \x1b[31mhand", lease_ms=None)
    result = expect_status(dibs(URL, "status", "a"), OK)
    expect("a client without dibs" in result.text and r"by \x1b[31mhand" in result.text, result)
    expect(r'"by \x1b[31mhand"' in dibs(URL, "list").text, "list shows the owner as the library escapes it")
    expect("never expires" in result.text and "not known" in result.text and b"\x1b" not in result.out, result)


def a_token_is_shown_as_break_takes_it():
    for owner in (r"dibs:back\slash:host:1:2:0123456789abcdef0123456789abcdef:7".encode(), rb"by \hand", b"\xff\x1b"):
        fresh()
        put(server, "a", owner=owner, lease_ms=None)
        text = expect_status(dibs(URL, "status", "a"), OK).text
        shown = next(line.split(None, 1)[1] for line in text.splitlines() if line.split()[0] == "token")
        expect_status(dibs(URL, "break", "-y", "--token", shown, "a"), OK)
        expect(server.call("EXISTS", "lock:a") == 0, owner)


def status_of_those_whose_list_is_lost():
    fresh()
    put(server, "a", owner="dibs:shared", lease_ms=60000)
    result = expect_status(dibs(URL, "status", "a"), OK)
    expect("those who share it; the list of them is lost" in result.text and "without dibs" not in result.text, result)


def share(name):
    """As if two processes shared the lock: 101, and 102, which came last."""
    fresh()
    put(server, name, owner="dibs:shared", lease_ms=60000)
    ends = -int(time.time() * 1000) - 60000
    key = "dibs:share:{lock:%s}" % name
    for number, pid in ((1, 101), (2, 102)):
        sharer = token(label="reader", pid=pid) + "~0"
        server.call("ZADD", key, "0", "<", "2", ">", str(ends), "+" + sharer, str(number), "-" + sharer)


def status_of_those_who_share():
    share("a")
    result = expect_status(dibs(URL, "status", "a"), OK)
    expect("reader on alpha, process 102" in result.text and "  sharers  2, of whom" in result.text, result)
    expect(expect_status(dibs(URL, "status", "--json", "a"), OK).json["locks"][0]["sharers"] == 2)
    fresh("a")
    expect("sharers" not in expect_status(dibs(URL, "status", "a"), OK).text)
    expect(expect_status(dibs(URL, "status", "--json", "a"), OK).json["locks"][0]["sharers"] == 0)


def status_as_json():
    fresh("nightly", owner=token(label="my:job", pid=12, thread=34), held_s=60)
    put(server, "foreign", owner="abc", lease_ms=None)
    held, foreign, free = expect_status(dibs(URL, "status", "--json", "nightly", "foreign", "free"), FAILED).json["locks"]
    expect(held["name"] == "nightly" and held["held"] is True and held["waiters"] == 0, held)
    expect(held["owner"] == {"label": "my:job", "host": "alpha", "pid": 12, "thread": 34, "runtime": looking.RUNTIME}, held)
    expect(60000 <= held["held_ms"] < 80000 and 10000 < held["left_ms"] <= 30000, held)
    then = time.mktime(time.strptime(held["since"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    expect(abs(time.time() - then - 60) < 20 and held["since"].endswith("Z"), held)
    expect(isinstance(held["fence"], str) and int(held["fence"]) > 2**53, held)
    expect(foreign["owner"] is None and foreign["token"] == "abc" and foreign["left_ms"] is None, foreign)
    expect(foreign["held_ms"] is None and foreign["since"] is None and foreign["fence"] is None, foreign)
    expect(free["held"] is False and free["token"] is None and free["owner"] is None, free)
    expect(set(held) == set(foreign) == set(free), held, foreign, free)


# ---------------------------------------------------------------------- list

def table(result):
    lines = result.text.splitlines()
    return lines[0].split(), [line.split() for line in lines[1:]]


def list_as_a_table():
    fresh()
    expect(table(expect_status(dibs(URL, "list"), OK))[1] == [], "nothing is held")
    put(server, "b", owner=token(host="beta", thread=4712), held_s=5)
    put(server, "long-name", held_s=86377)
    put(server, "a", owner="foreign", lease_ms=None)
    result = expect_status(dibs(URL, "list"), OK)
    head, rows = table(result)
    expect(head == ["NAME", "OWNER", "HELD", "LEFT", "WAITERS", "SHARERS"], head)
    expect([row[0] for row in rows] == ["a", "b", "long-name"], rows)
    expect(rows[0][1:4] == ['"foreign"', "-", "-"] and rows[1][1] == "job@beta:4711/4712", rows)
    expect(rows[2][1] == "job@alpha:4711" and rows[2][2] == "23h59m", rows)
    expect(len({len(line) for line in result.text.splitlines()}) == 1, "the columns are aligned", result)


def a_kept_lock_is_shown_as_kept():
    fresh()
    kept = token(sequence="7!")  # as a process leaves it that keeps the lease, and does not use the lock
    put(server, "used", owner=token(sequence="8!"), held_s=30)
    expect([finding for finding in doctor_finds() if finding["subject"] == "kept"] == [], "no lock is kept")
    put(server, "k", owner=kept, held_s=30)
    server.call("SET", "dibs:kept:{lock:k}", kept, "PX", 30000)
    text = expect_status(dibs(URL, "status", "k"), OK).text
    expect("  kept     by its process" in text and "not a lock of dibs" not in text and "alpha" in text, text)
    rows = table(expect_status(dibs(URL, "list"), OK))[1]
    expect([(row[0], row[1], row[2] == "kept") for row in rows] ==
           [("k", "job@alpha:4711", True), ("used", "job@alpha:4711", False)], rows)
    locks = expect_status(dibs(URL, "list", "--json"), OK).json["locks"]
    expect([lock["kept"] for lock in locks] == [True, False], locks)
    found = [finding for finding in doctor_finds() if finding["subject"] == "kept"]
    expect([finding["verdict"] for finding in found] == ["ok"] and "1 lock is kept" in found[0]["text"], found)


def doctor_finds():
    return dibs(URL, "doctor", "--json").json["findings"]


def list_sorts_by_each_column():
    fresh()
    put(server, "a", owner=token(host="c"), held_s=20, lease_ms=50000)
    put(server, "b", owner=token(host="a"), held_s=30, lease_ms=40000)
    put(server, "c", owner=token(host="b"), held_s=10, lease_ms=60000)
    for column, order in (("name", "abc"), ("owner", "bca"), ("held", "bac"), ("left", "bac"), ("waiters", "abc"), ("sharers", "abc")):
        result = expect_status(dibs(URL, "list", "--names", "--sort", column), OK)
        expect(result.text.split() == list(order), column, result)
        result = expect_status(dibs(URL, "list", "-n", "-r", "-s", column), OK)
        expect(result.text.split() == list(reversed(order)), column, result)


def list_chooses_by_pattern_and_age():
    fresh("sku:1", "sku:2", "other", held_s=1000)
    put(server, "sku:3", held_s=0)
    expect(dibs(URL, "list", "-n", "sku:*").text.split() == ["sku:1", "sku:2", "sku:3"])
    expect(dibs(URL, "list", "-n", "sku:*", "--older-than", "500").text.split() == ["sku:1", "sku:2"])
    expect(dibs(URL, "list", "-n", "--older-than", "2.5e3").status == USAGE)
    for option in ("--names", "--null"):
        result = expect_status(dibs(URL, "list", "--json", option), USAGE)
        expect(f"--json and {option} exclude each other".encode() in result.err)
    expect(dibs(URL, "list", "-n", "--older-than", "2000").text == "")


def list_leaves_no_lock_out_and_uses_no_keys():
    fresh()
    for i in range(3000):
        server.admin.send("SET", f"lock:n{i}", token(sequence=f"{i:x}"), "PX", 60000)
        server.admin.send("SET", f"else:n{i}", "x")
    for i in range(6000):
        server.admin.receive()
    server.call("CONFIG", "RESETSTAT")
    result = expect_status(dibs(URL, "list", "--names"), OK)
    expect(sorted(result.text.split()) == sorted(f"n{i}" for i in range(3000)), len(result.text.split()))
    stats = server.info("commandstats")
    expect("cmdstat_keys" not in stats and "cmdstat_scan" in stats, stats)


def names_of_any_bytes_cannot_drive_the_terminal():
    fresh(*ODD_NAMES)
    for command in (("list",), ("status", *ODD_NAMES), ("list", "-n")):
        out = expect_status(dibs(URL, *command), OK).out
        expect(all(byte >= 0x20 or byte == 0x0a for byte in out) and b"\x7f" not in out, out)
        out.decode()  # in this locale, all that is printed is UTF-8
    lines = dibs(URL, "list", "-n").text.splitlines()
    for shown in (r"tab\x09here", r"line\x0aend", r"\x1b[31mred", 'quote"back\\\\slash', "été", "漢字", r"\xe2\x80\xaeturned",
                  "😀", r"\xff\xfe", r"half\xc3", r"\xed\xa0\x80", r"\x7f", "*?[x]", r"\xc2\x9b31mred"):
        expect(shown in lines, shown, lines)
    out = dibs(URL, "list", "-n", LC_ALL="C").out
    expect(all(0x20 <= byte < 0x7f or byte == 0x0a for byte in out), out)
    rows = dibs(URL, "list", "[!n]*").text.splitlines()
    widths = {len(line) - line.count("漢") - line.count("字") - line.count("😀") + 2 * ("漢" in line) + ("😀" in line) for line in rows}
    expect(len(widths) == 1, "the columns are aligned", rows)


def names_for_xargs_are_as_they_are():
    fresh(*ODD_NAMES)
    names = expect_status(dibs(URL, "list", "--null"), OK).out.split(b"\0")
    expect(names.pop() == b"" and sorted(names) == sorted(ODD_NAMES), names)


def json_is_valid_whatever_the_names_are():
    fresh(*ODD_NAMES)
    for command in (("list",), ("status", *ODD_NAMES)):
        result = expect_status(dibs(URL, *command, "--json"), OK)
        drives = re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\U000e0041]", result.text)
        expect(not drives, drives, result)
        locks = result.json["locks"]
        found = [bytes.fromhex(lock["name_hex"]) if "name_hex" in lock else lock["name"].encode() for lock in locks]
        expect(sorted(found) == sorted(ODD_NAMES), found)
        expect(sum("name_hex" in lock for lock in locks) == 3, "only the names that are not UTF-8", locks)


def characters_that_mislead_are_escaped_and_their_neighbours_are_not():
    ranges = ((0x61C, 0x61C), (0x180E, 0x180E), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB),
              (0xE0000, 0xE007F))
    mislead = {chr(c) for ends in ranges for c in ends}
    neighbours = {chr(c) for first, last in ranges for c in (first - 1, last + 1)}
    fresh(*(f"n{c}" for c in mislead | neighbours))
    result = expect_status(dibs(URL, "list", "--json"), OK)
    expect({lock["name"][1:] for lock in result.json["locks"]} == mislead | neighbours, result)
    expect(set(result.text) & mislead == set(), result)
    expect(neighbours <= set(result.text), neighbours - set(result.text), result)


def list_is_cut_to_the_width_of_a_terminal():
    fresh("n" * 200, owner=token(label="l" * 40, host="h" * 60))
    put(server, "short")
    for columns in (60, 100):
        terminal = looking.Terminal(URL, "list", size=(24, columns))
        shown = terminal.read().decode().splitlines()
        expect(terminal.status() == OK, shown)
        expect(len(shown) == 3 and {len(line) for line in shown} == {columns}, columns, shown)
        expect("n+ " in shown[1] and "+ " in shown[1].split(None, 1)[1], shown)
    expect("n" * 200 in dibs(URL, "list").text, "a pipe gets all")


# --------------------------------------------------------------------- break

def break_takes_the_lock_away():
    fresh("a", held_s=9)
    result = expect_status(dibs(URL, "break", "-y", "a"), OK)
    expect("job on alpha, process 4711" in result.text and result.text.endswith("a: taken away\n"), result)
    expect(server.call("EXISTS", "lock:a") == 0)
    expect("there is no owner" in expect_status(dibs(URL, "break", "-y", "a"), OK).text)


def break_takes_a_shared_lock_from_the_last_sharer():
    share("a")
    result = expect_status(dibs(URL, "break", "-y", "a"), OK)
    expect(result.text.endswith("a: taken away; others still share it\n"), result)
    result = expect_status(dibs(URL, "break", "-y", "a"), OK)
    expect("process 101" in result.text and result.text.endswith("a: taken away\n"), result)
    expect_status(dibs(URL, "status", "a"), FAILED)


def break_takes_a_shared_lock_from_all():
    share("a")
    result = expect_status(dibs(URL, "break", "-y", "--all", "a"), OK)
    expect(result.text.endswith("a: taken away\n") and server.call("EXISTS", "lock:a") == 0, result)
    fresh("b")
    expect("b: taken away" in expect_status(dibs(URL, "break", "-y", "-a", "b"), OK).text)
    expect("--token" in expect_status(dibs(URL, "break", "-y", "-a", "--token", token(), "b"), USAGE).err.decode())
    share("a")
    terminal = looking.Terminal(URL, "break", "--all", "a")
    expect("from all who share it" in terminal.read(b"[y/N]").decode())
    terminal.type(b"n\n")
    terminal.read()
    expect(terminal.status() == FAILED and server.call("EXISTS", "lock:a") == 1)
    terminal = looking.Terminal(URL, "break", "--all", "a")
    terminal.read(b"[y/N]")
    fresh("a")
    terminal.type(b"y\n")
    shown = terminal.read()
    expect(terminal.status() == FAILED and b"left alone" in shown, shown)
    expect(server.call("GET", "lock:a").decode() == token())


def break_takes_only_from_the_token_that_is_meant():
    fresh("a")
    result = expect_status(dibs(URL, "break", "--yes", "--token", token(pid=1), "a"), FAILED)
    expect("left alone" in result.text and server.call("GET", "lock:a").decode() == token(), result)
    expect_status(dibs(URL, "break", "--yes", "--token", token(), "a"), OK)
    expect(server.call("EXISTS", "lock:a") == 0)


def break_takes_from_foreign_clients():
    for owner in (b"by hand", b"\x00\x1b\xff", b"x" * 300, b"back\\slash"):
        fresh()
        put(server, "a", owner=owner, lease_ms=None)
        expect_status(dibs(URL, "break", "-y", "a"), OK)
        expect(server.call("EXISTS", "lock:a") == 0, owner)


def watch_takes_keys_that_come_together():
    fresh("a")
    terminal = looking.Terminal(URL, "watch", "-i", "60")
    terminal.read(b"a")
    terminal.type(b"h\x1b[Bq")
    terminal.read()
    expect(terminal.status() == OK)


def real_owners_and_waiters():
    """The next that waits gets what is taken away; who had the lock ends."""
    fresh()
    holder = subprocess.Popen([looking.DIBS, "hold", "real"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=looking.environment(URL))
    holder.stdout.readline()
    waiter = subprocess.Popen([looking.DIBS, "run", "-t", "600", "real", "--", "echo", "inside"], stdout=subprocess.PIPE, env=looking.environment(URL))
    looking.topology.await_true(lambda: "entries  1\n" in dibs(URL, "status", "real").text, "a waiter")
    lock = expect_status(dibs(URL, "status", "--json", "real"), OK).json["locks"][0]
    expect(lock["owner"]["label"] == "dibs" and lock["waiters"] == 1 and 0 <= lock["held_ms"] < 20000, lock)
    expect(len(lock["queue"]) == 1 and lock["queue"][0]["waiter"]["label"] == "echo" and lock["queue"][0]["asked_ms"] >= 0, lock)
    who = lock["queue"][0]["waiter"]
    line = dibs(URL, "status", "real").text.splitlines()[-1]
    expect(re.fullmatch(rf" +1\. echo on {re.escape(who['host'])}, process {who['pid']}, asked [0-9.]+s ago", line), line)
    expect("queue" not in expect_status(dibs(URL, "list", "--json"), OK).json["locks"][0])
    expect(table(dibs(URL, "list"))[1][0][-2] == "1")
    began = time.monotonic()
    expect_status(dibs(URL, "break", "--yes", "real"), OK)
    expect(waiter.communicate(timeout=60)[0] == b"inside\n" and waiter.returncode == OK)
    expect(time.monotonic() - began < 60)  # not the 200 s until it asks again
    expect(holder.wait(20) == 76)


def break_asks_first():
    for answer, status, left in ((b"y\n", OK, 0), (b"n\n", FAILED, 1), (b"\n", FAILED, 1), (b"\x04", FAILED, 1)):
        fresh("a")
        terminal = looking.Terminal(URL, "break", "a")
        shown = terminal.read(b"[y/N]").decode()
        terminal.type(answer)
        terminal.read()
        found = terminal.status()
        expect(found == status and server.call("EXISTS", "lock:a") == left, answer, found, shown)
        expect("process 4711" in shown, shown)


def break_refuses_where_there_is_nobody_to_ask():
    fresh("a")
    expect("--yes" in expect_status(dibs(URL, "break", "a", stdin=b"y\n"), USAGE).err.decode())
    expect(server.call("EXISTS", "lock:a") == 1)


def break_leaves_a_new_owner_alone():
    fresh("a")
    terminal = looking.Terminal(URL, "break", "a")
    terminal.read(b"[y/N]")
    put(server, "a", owner=token(pid=9))
    terminal.type(b"y\n")
    shown = terminal.read()
    expect(terminal.status() == FAILED, shown)
    expect(server.call("GET", "lock:a").decode() == token(pid=9))


# ---------------------------------------------------------------- bad input

def what_is_wrong_usage():
    for words in (
        ("status",), ("status", "--no-such-option", "a"), ("status", "-x", "a"), ("status", ""), ("status", "n" * 513),
        ("status", "--url"), ("status", "--url", "", "a"), ("status", "--url", "foo://x", "a"), ("status", "--prefix"),
        ("status", "--url", "redis://127.0.0.1:99999", "a"), ("status", "--url", "mem:1 mem:2", "a"),
        ("status", "--prefix", "dibs:x", "a"), ("status", "--json=yes", "a"),
        ("list", "a", "b"), ("list", "--older-than", "soon"), ("list", "--older-than", "-1"), ("list", "--sort", "size"),
        ("list", "p" * 1025), ("list", "--bogus"),
        ("break",), ("break", "-y"), ("break", "-y", ""), ("break", "-y", "a", "b"), ("break", "-y", "n" * 513), ("break", "--token"),
        ("watch", "a", "b"), ("watch", "-i", "0"), ("watch", "-i", "x"), ("watch", "--count", "0"), ("watch", "--sort", "x"),
        ("doctor", "x"), ("doctor", "--url", "foo://x"), ("doctor", "--json", "--url", "foo://x"),
        ("status", "--json", "--url", "foo://x", "a"), ("list", "--json", "--url", "foo://x"), ("bench", "--json", "--url", "foo://x"),
        ("bench", "x"), ("bench", "-s", "0"), ("bench", "-s", "x"), ("bench", "-s"),
    ):
        result = expect_status(dibs(URL, *words), USAGE)
        expect(result.err.startswith(b"dibs: ") and result.err.count(b"\n") == 1 and not result.out, result)


def what_is_wrong_with_an_option_is_said():
    for words, message in (
        (("bench", "-s"), "-s needs an argument"), (("list", "--prefix"), "--prefix needs an argument"),
        (("list", "--pre"), "--prefix needs an argument"), (("hold", "-+"), "there is no option -+"),
        (("list", "-Z"), "there is no option -Z"), (("list", "--json=yes"), "--json takes no argument"),
        (("list", "--no-such"), "there is no option --no-such ("), (("list", "--n=x"), "--n is short for several options"),
        (("list", "--json", "-Zq"), "there is no option -Z"), (("list", "-Zq"), "there is no option -Z"), (("list", "-:"), "there is no option -:"),
        (("list", "--older-than", "soon"), '--older-than: "soon" is not a time'), (("watch", "-i", "0"), '-i: "0" is not a time'),
        (("watch", "--interval=0"), '--interval: "0" is not a time'), (("watch", "--count", "x"), '--count: "x" is not a number'),
        (("bench", "--sec", "x"), '--seconds: "x" is not a time'), (("doctor", "--admit", "25h"), '--admit: "25h" is not a time'),
        (("list", "-s", "size"), '-s: there is no column "size"'), (("list", "a", "b"), 'unexpected argument "b"'),
        (("status", "a", ""), "NAME is empty"), (("break", "-y", ""), "NAME is empty"), (("break", "a", "b"), 'unexpected argument "b"'),
        (("status",), "NAME is missing"), (("break", "-y"), "NAME is missing"),
        (("list", "--url", "mem: mem:"), "--url or --url-file has 2 URLs: one store has one URL, a quorum an odd number"),
        (("list", "-\N{LATIN SMALL LETTER E WITH ACUTE}"), "there is no option -\\xc3"), (("list", "--quiet=yes"), "--quiet takes no argument"),
        (("--json", "list"), "--json is in the wrong place: options come after the command"),
    ):
        result = expect_status(dibs(URL, *words), USAGE)
        expect(message in result.err.decode(), message, result)


def no_message_tells_a_secret_of_the_command_line():
    """Neither what comes after the = of an option that is wrong here, nor a password of a URL, wherever that is."""
    url = "redis://user:SECRET@127.0.0.1:1"
    for command in ("run", "hold", "status", "list", "watch", "break", "doctor", "bench", "help", "no-such"):
        once = ("-n",) if command in ("run", "hold") else ()
        for words in (
            (f"--url={url}", command, "a", "true"), ("--url", url, command, "a", "true"), ("--password=SECRET", command, "a", "true"), (url, command, "a"),
        ):
            expect(b"SECRET" not in expect_status(dibs(NOWHERE, *words), USAGE).err)
        for words in (
            (url,), (url, "true"), (url, "true", "more"), ("a", url), ("a", "true", url), ("-q", url, "true", "more"),
            (f"--url={url}",), ("--url", url), (f"--url={url}", "a", "true"), ("--url", f"{url} {url}", "a", "true"), ("--url", f"foo{url}", "a", "true"),
            (f"--urll={url}", "a", "true"), (f"--u={url}", "a", "true"), ("--password=SECRET", "a", "true"), ("--quiet=SECRET", "a", "true"), (f"--json={url}", "a"),
            ("a", f"--url={url}", "true"), ("a", "--url", url, "true"), ("a", "true", f"--url={url}"), ("a", f"--urll={url}"), ("a", "--password=SECRET"),
            ("--", f"--url={url}", "a"), ("--", "a", f"--url={url}"), ("--", "--password=SECRET"), ("--url", url, f"--urll={url}"),
            (f"-u{url}", "a", "true"), (f"-t{url}", "a", "true"), ("-w", url, "a", "true"), (f"-w--url={url}", "a", "true"), ("-E", url), ("-s", url), ("-i", url),
            ("-c", url), ("--older-than", url), ("--admit", url), ("--slots", url), ("--token", url, "a"), ("--url-file", url, "a"), ("--tls-ca", url, "a"),
        ):
            result = dibs(NOWHERE, command, *once, *words)
            expect(result.status != OK and b"SECRET" not in result.err + result.out, result)


def a_store_that_cannot_be_reached():
    for words in (("status", "a"), ("list",), ("break", "-y", "a"), ("watch",), ("bench", "-s", "1")):
        for json_too in ((), ("--json",))[: 1 + (words[0] in ("status", "list", "bench"))]:
            result = expect_status(dibs(NOWHERE, *words, *json_too), UNAVAILABLE)
            expect(b"Connection refused" in result.err and not result.out, result)
    expect(dibs(NOWHERE, "status", "-q", "a").err == b"")


def what_one_may_not_do_is_no_answer():
    fresh("a")
    server.call("ACL", "SETUSER", "reader", "on", ">p", "~nothing", "+@all", *(("&*",) if server.version >= (6, 2) else ()))
    for words in (("status", "a"), ("break", "-y", "a")):
        expect_status(dibs(URL.replace("unix://", "unix://reader:p@"), *words), UNAVAILABLE)
    server.call("ACL", "SETUSER", "reader", "-scan")
    for words in (("list",), ("watch", "-c", "1"), ("watch", "-i", "0.1")):
        result = expect_status(dibs(URL.replace("unix://", "unix://reader:p@"), *words), UNAVAILABLE)
        expect(b"scan" in result.err.lower() and not result.out, result)


def other_prefixes_are_other_locks():
    fresh("a", prefix=b"mine:")
    expect_status(dibs(URL, "status", "a"), FAILED)
    expect_status(dibs(URL, "status", "--prefix", "mine:", "a"), OK)
    expect_status(dibs(URL, "run", "-n", "--prefix", "mine:", "a", "true"), FAILED)
    expect(dibs(URL, "list", "-n", "--prefix", "mine:").text == "a\n")
    expect_status(dibs(URL, "break", "-y", "--prefix", "mine:", "a"), OK)
    expect(server.call("EXISTS", "mine:a") == 0)


def options_that_tell_how_to_reach_the_store():
    for option in ("--tls-ca", "--tls-cert", "--tls-key", "--tls-name"):
        result = expect_status(dibs(URL, "list", option, "x"), USAGE)
        expect(result.err == f"dibs: {option} is set, but there is no URL with TLS\n".encode(), result)
    result = expect_status(dibs(URL, "list", "--prefix", "dibs:"), USAGE)
    expect(result.err.startswith(b'dibs: --prefix begins with "dibs:", '), result)
    sentinel = looking.topology.Sentinel()
    expect_status(dibs(sentinel.url, "list", DIBS_SENTINEL_USER="", DIBS_SENTINEL_PASSWORD=""), OK)
    sentinel.call("ACL", "SETUSER", "default", "resetpass", ">secret")
    expect_status(dibs(sentinel.url, "list"), UNAVAILABLE)
    expect_status(dibs(sentinel.url, "list", DIBS_SENTINEL_PASSWORD="secret"), OK)
    expect_status(dibs(sentinel.url, "run", "a", "true", DIBS_SENTINEL_PASSWORD="secret"), OK)
    expect_status(dibs(URL, "list", DIBS_SENTINEL_PASSWORD="secret"), OK)


def what_the_library_refuses_is_told_in_the_words_of_the_command():
    quorum = looking.topology.Quorum()
    first = quorum.servers[0].url
    for url, options, begin in (
        (quorum.url, ["--slots", "2"], b"dibs: --slots is 2: "), (quorum.url, ["--fair"], b"dibs: --fair: "),
        ("mem:", ["--min-replicas", "1"], b"dibs: --min-replicas: "), ("mem:", ["--durable"], b"dibs: --durable: "),
        (f"{first} {first} {quorum.servers[1].url}", [], b"dibs: URL 1 and URL 2 are the same master"),
        (f"{first} {quorum.servers[1].url} foo://x", [], b"dibs: URL 3: "),
        ("mem:", ["--prefix", "di", "--also", "bs:x"], b"dibs: a NAME makes a key that begins with"),
    ):
        result = expect_status(dibs(url, "run", "-n", *options, "a", "true"), USAGE)
        expect(result.err.startswith(begin), result)


def the_url_option_goes_before_the_environment():
    fresh("a")
    expect_status(dibs(NOWHERE, "status", "--url", URL, "a"), OK)


def each_command_has_a_help():
    for command in ("status", "list", "watch", "break", "doctor", "bench"):
        result = expect_status(dibs(NOWHERE, command, "--help"), OK)
        expect(result.text.startswith(f"Usage: dibs {command} ") and "Exit status: 0" in result.text and not result.err, result)
        expect(max(map(len, result.text.splitlines())) <= 80, "short lines", result)


def what_cannot_be_written_is_a_failure():
    if not os.path.exists("/dev/full"):
        return
    fresh("a")
    helps = [(command, "--help") for command in ("run", "hold", "status", "list", "watch", "break", "doctor", "bench")]
    for words in (
        *helps, ("--help",), ("--version",), ("help", "run"), ("status", "a"), ("status", "free"), ("status", "--json", "a"), ("list",),
        ("list", "--json"), ("list", "-n"), ("list", "-0"), ("watch", "-c", "1"), ("watch",), ("doctor",), ("doctor", "--json"),
        ("bench", "-s", "0.1"), ("bench", "-s", "0.1", "--json"), ("break", "-y", "free"), ("break", "-y", "a"),
    ):
        with open("/dev/full", "wb") as full:
            process = subprocess.run([looking.DIBS, *words], stdout=full, stderr=subprocess.PIPE, env=looking.environment(URL), timeout=20)
        expect(process.returncode == OUTPUT and b"standard output" in process.stderr, words, process)


def a_closed_standard_output_is_a_failure_where_something_is_written():
    fresh("a")
    for status, words in ((OUTPUT, ("list",)), (OUTPUT, ("status", "a")), (OUTPUT, ("--help",)), (OK, ("run", "b", "true"))):
        process = subprocess.run([looking.DIBS, *words], stderr=subprocess.PIPE, env=looking.environment(URL), timeout=20, preexec_fn=lambda: os.close(1))
        expect(process.returncode == status, words, process)


# ---------------------------------------------------------------- topologies

def status_and_list_on_each_topology():
    for store in (looking.topology.Quorum(), looking.topology.Sentinel(), looking.topology.Cluster()):
        where = store.servers if isinstance(store, looking.topology.Quorum) else store.servers[:1]
        names = ["a", "b", "c", "d", "e", "f"]
        for name in names:
            owners = [node for node in store.servers if has_slot(node, name)] if len(where) < len(store.servers) else where
            for node in owners:
                put(node, name, lease_ms=60000)
        result = expect_status(dibs(store.url, "list", "--names"), OK)
        expect(result.text.split() == names, store.url, result)
        locks = expect_status(dibs(store.url, "status", "--json", *names), OK).json["locks"]
        expect([lock["owner"]["pid"] for lock in locks] == [4711] * 6, store.url, locks)
        status_of_waiters(store.url, in_order=not isinstance(store, looking.topology.Quorum))
        expect_status(dibs(store.url, "break", "-y", "c"), OK)
        expect("c" not in dibs(store.url, "list", "--names").text.split(), store.url)


def status_of_waiters(url, in_order):
    """
    Two processes wait: both are shown, the first one first. Each master of a quorum has a queue of its own, which who was
    first may have joined later, because that master was slow to answer it.
    """
    waiting = []
    for label in ("true", "false"):
        waiting.append(subprocess.Popen([looking.DIBS, "run", "d", label], env=looking.environment(url)))
        looking.topology.await_true(lambda: status_of(url)["waiters"] == len(waiting), "a waiter")
    looking.topology.await_true(lambda: labels_of(url, in_order) == ["true", "false"], "both waiters in the queue")
    expect_status(dibs(url, "break", "-y", "d"), OK)
    expect([process.wait(20) for process in waiting] == [0, 1], url)


def status_of(url):
    """On a busy machine the store may not answer in time; then nothing is known."""
    result = dibs(url, "status", "--json", "d")
    return result.json["locks"][0] if result.out else {"waiters": None, "queue": []}


def labels_of(url, in_order):
    labels = [entry["waiter"]["label"] for entry in status_of(url)["queue"]]
    return labels if in_order else sorted(labels, reverse=True)


def has_slot(node, name):
    try:
        node.call("GET", f"lock:{name}")
        return True
    except looking.topology.rig.ServerError:
        return False


if __name__ == "__main__":
    looking.main(
        status_of_a_lock_that_is_held, status_tells_by_its_exit_whether_all_are_held, status_of_a_foreign_client, status_of_those_who_share, status_as_json,
        status_of_those_whose_list_is_lost, a_token_is_shown_as_break_takes_it,
        list_as_a_table, a_kept_lock_is_shown_as_kept, list_sorts_by_each_column, list_chooses_by_pattern_and_age, list_leaves_no_lock_out_and_uses_no_keys,
        names_of_any_bytes_cannot_drive_the_terminal, names_for_xargs_are_as_they_are, json_is_valid_whatever_the_names_are,
        characters_that_mislead_are_escaped_and_their_neighbours_are_not, list_is_cut_to_the_width_of_a_terminal,
        break_takes_the_lock_away, break_takes_a_shared_lock_from_the_last_sharer, break_takes_a_shared_lock_from_all, break_takes_only_from_the_token_that_is_meant, break_takes_from_foreign_clients,
        watch_takes_keys_that_come_together, real_owners_and_waiters, break_asks_first, break_refuses_where_there_is_nobody_to_ask, break_leaves_a_new_owner_alone,
        what_is_wrong_usage, what_is_wrong_with_an_option_is_said, no_message_tells_a_secret_of_the_command_line, a_store_that_cannot_be_reached, what_one_may_not_do_is_no_answer, other_prefixes_are_other_locks,
        options_that_tell_how_to_reach_the_store, what_the_library_refuses_is_told_in_the_words_of_the_command, the_url_option_goes_before_the_environment, each_command_has_a_help, what_cannot_be_written_is_a_failure,
        a_closed_standard_output_is_a_failure_where_something_is_written,
        status_and_list_on_each_topology,
    )
