# Needs: tmux
"""dibs watch: as lines through a pipe, and as a screen in a terminal, which is tmux's or a bare one."""

import atexit
import itertools
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import termios
import time

from support import looking
from support.looking import OK, dibs, expect, expect_status, put, token

server = looking.topology.Server()
URL = server.url
await_true = looking.topology.await_true


def fresh(*names, **how):
    server.call("FLUSHALL")
    for name in names:
        put(server, name, **how)


# --------------------------------------------------------------------- lines

def lines_through_a_pipe():
    fresh("a", held_s=5)
    words = [looking.DIBS, "watch", "-i", "0.1"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=looking.environment(URL), text=True)
    try:
        fields = process.stdout.readline().rstrip("\n").split("\t")
        expect(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", fields[0]), fields)
        expect(fields[1:4] == ["held", "a", "job@alpha:4711"] and 5 <= float(fields[4].rstrip("s")) < 25 and fields[6] == "0", fields)
        put(server, "b\tc")
        expect(process.stdout.readline().split("\t")[1:3] == ["held", r"b\x09c"])
        put(server, "a", owner=token(pid=9))
        expect(process.stdout.readline().split("\t")[1:4] == ["held", "a", "job@alpha:9/4711"])
        kept = token(sequence="7!")  # as a process leaves it that keeps the lease, and does not use the lock
        put(server, "a", owner=kept)
        server.call("SET", "dibs:kept:{lock:a}", kept, "PX", 30000)
        while (fields := process.stdout.readline().split("\t"))[1] == "held":  # it looked between the two
            expect(fields[2] == "a", fields)
        expect(fields[1:4] == ["kept", "a", "job@alpha:4711"], fields)
        server.call("DEL", "lock:a")
        expect(process.stdout.readline().rstrip("\n").split("\t")[1:] == ["free", "a"])
    finally:
        process.terminate()
    expect(process.wait(10) == -signal.SIGTERM)


def lines_end_after_so_many_looks():
    fresh("a", "sku:1")
    result = expect_status(dibs(URL, "watch", "-i", "0.1", "--count", "3", "sku:*"), OK)
    expect(result.text.count("\n") == 1 and "\tsku:1\t" in result.text, result)


def lines_end_where_nobody_reads():
    fresh("a")
    process = subprocess.Popen([looking.DIBS, "watch", "-i", "0.1"], stdout=subprocess.PIPE, env=looking.environment(URL))
    process.stdout.readline()
    process.stdout.close()
    pids = itertools.count()
    try:
        await_true(lambda: put(server, "b", owner=token(pid=next(pids))) or process.poll() is not None, "its end")
    finally:
        process.kill()
        process.wait()


def a_store_that_goes_away_is_told_of_once():
    own = looking.topology.Server()
    put(own, "a")
    words = [looking.DIBS, "watch", "-i", "0.1"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=looking.environment(own.url), text=True)
    try:
        process.stdout.readline()
        own.kill()
        expect(process.stderr.readline().startswith("dibs: "))
        time.sleep(0.5)
        own.start()
        put(own, "b")
        found = {tuple(process.stdout.readline().rstrip("\n").split("\t")[1:3]) for _ in range(2)}
        expect(found == {("free", "a"), ("held", "b")}, found)
    finally:
        process.terminate()
    expect(process.stderr.read() == "", "once")
    process.wait()


# -------------------------------------------------------------------- screen

class Terminal:
    """A shell in a terminal of tmux."""

    def __init__(self, columns=80, rows=12):
        self.socket = os.path.join(looking.topology.folder(), "t")
        variables = [f"{name}={shlex.quote(value)}" for name, value in (("DIBS_URL", URL), ("LC_ALL", "C.UTF-8"), ("PS1", "> "))]
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), f"env {' '.join(variables)} sh")
        atexit.register(self.close)
        self.await_text(">")

    def tmux(self, *words):
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm"}
        environment.pop("TMUX", None)
        words = ["tmux", "-S", self.socket, *words]
        return subprocess.run(words, capture_output=True, env=environment, timeout=20, check=True).stdout.decode()

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], stderr=subprocess.DEVNULL, check=False)

    def type(self, *keys):
        self.tmux("send-keys", *keys)

    def lines(self):
        return self.tmux("capture-pane", "-p").rstrip("\n").split("\n")

    def await_text(self, text):
        await_true(lambda: any(text in line for line in self.lines()), f"{text!r} in {self.lines()}")

    def names(self):
        """The first column, below the head, of a list."""
        lines = self.lines()
        head = next((i for i, line in enumerate(lines) if line.startswith("NAME")), len(lines))
        return [line.split()[0] for line in lines[head + 1:] if line and not line.startswith("q quit")]

    def await_names(self, names):
        await_true(lambda: self.names() == names, f"{names} in {self.lines()}")

    def watch(self, *words):
        self.type("clear; " + shlex.join([looking.DIBS, "watch", *words]), "Enter")
        self.await_text("NAME")


def a_screen_that_sorts_by_each_column():
    fresh()
    put(server, "a", owner=token(host="c"), held_s=20, lease_ms=500000)
    put(server, "b", owner=token(host="a"), held_s=30, lease_ms=400000)
    put(server, "c", owner=token(host="b"), held_s=10, lease_ms=600000)
    terminal = Terminal()
    terminal.watch("-i", "0.2")
    for key, order in (("", "bac"), ("n", "abc"), ("n", "cba"), ("o", "bca"), ("l", "bac"), ("r", "cab"), ("h", "bac"), ("w", "abc")):
        if key:
            terminal.type(key)
        terminal.await_names(list(order))
    expect(terminal.lines()[0].startswith("dibs  2") and "3 locks held, 0 waiting" in terminal.lines()[0], terminal.lines())
    put(server, "d", owner="foreign", lease_ms=None)
    terminal.await_names(list("abcd"))
    terminal.type("q")
    terminal.await_text(">")
    expect(not any("NAME" in line for line in terminal.lines()), "the screen is gone", terminal.lines())
    terminal.watch("--sort", "owner", "--reverse", "[abc]")
    terminal.await_names(list("acb"))
    terminal.close()


def a_screen_that_follows_the_window():
    fresh(*(f"name{i:02}" for i in range(30)), "long" * 30)
    terminal = Terminal(80, 12)
    terminal.watch("-i", "5", "-s", "name")
    terminal.await_text("1-9 of 31")  # the last line
    expect(terminal.lines()[1].endswith("SHARERS") and terminal.lines()[2].endswith(" 0"), terminal.lines())
    expect(len(terminal.names()) == 9 and "1-9 of 31" in terminal.lines()[-1], terminal.lines())
    expect(terminal.names()[0].endswith("+") and all(len(line) <= 80 for line in terminal.lines()), terminal.lines())
    expect(terminal.lines()[1].index("OWNER") == len(terminal.names()[0]) + 2, "a name is cut to fill its column", terminal.lines())
    for columns, rows in ((120, 20), (40, 6), (200, 40)):
        terminal.tmux("resize-window", "-x", str(columns), "-y", str(rows))
        await_true(lambda count=min(rows - 3, 31): len(terminal.names()) == count, f"{columns} {rows}")
        expect(all(len(line) <= columns for line in terminal.lines()), terminal.lines())
    expect("long" * 30 in terminal.names(), "nothing is cut", terminal.lines())
    terminal.tmux("resize-window", "-x", "80", "-y", "12")
    await_true(lambda: len(terminal.names()) == 9, "80 12")
    for key, first in (("Down", "name00"), ("PageDown", "name09"), ("End", "name21"), ("PageUp", "name12"), ("Up", "name11")):
        terminal.type(key)
        await_true(lambda name=first: terminal.names()[:1] == [name], f"{key} {first}")
    terminal.type("Home")
    await_true(lambda: (terminal.names() or [""])[0].startswith("long"), "Home")
    terminal.close()


def ctrl_z_and_back():
    fresh("a")
    terminal = Terminal()
    terminal.watch()
    terminal.type("C-z")
    terminal.await_text("Stopped")
    terminal.type("stty -a | grep -c -w -e -icanon -e -echo; echo done", "Enter")
    await_true(lambda: "done" in terminal.lines(), "the answer")
    expect("0" in terminal.lines(), "the terminal's modes are those of the shell", terminal.lines())
    terminal.type("fg", "Enter")
    terminal.await_names(["a"])
    terminal.type("q")
    terminal.await_text("Stopped")
    terminal.close()


def a_terminal_that_does_not_tell_its_size_has_24_lines():
    fresh(*(f"name{i:02}" for i in range(60)))
    for size, told in (((0, 0), b"1-21 of 60"), ((0, 120), b"1-21 of 60"), ((50, 0), b"1-21 of 60"), ((50, 120), b"1-47 of 60")):
        terminal = looking.Terminal(URL, "watch", "-c", "1", "-i", "0.1", size=size)
        shown = terminal.read(b"\x1b[?1049l")
        expect(told in shown, size, shown)
        terminal.status()


def a_signal_leaves_the_terminal_as_it_was():
    fresh("a")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        terminal = looking.Terminal(URL, "watch", "-i", "60")
        shown = terminal.read(b"q quit")
        expect(b"\x1b[?1049h" in shown, shown)
        inside = termios.tcgetattr(terminal.fd)[3]
        expect(not inside & termios.ICANON and not inside & termios.ECHO)
        os.kill(terminal.pid, number)
        shown = terminal.read(b"\x1b[?1049l")
        expect(b"\x1b[?25h" in shown and b"\x1b[?7h" in shown, shown)
        await_true(lambda: termios.tcgetattr(terminal.fd)[3] & (termios.ICANON | termios.ECHO) == termios.ICANON | termios.ECHO, "modes")
        expect(terminal.status() == -number, number)


def ctrl_c_ends_it_though_the_store_hangs():
    own = looking.topology.Server()
    put(own, "a")
    terminal = looking.Terminal(own.url, "watch", "-i", "0.1")
    terminal.read(b"q quit")
    own.pause()
    try:
        time.sleep(0.3)
        terminal.type(b"\x03")
        terminal.read(b"\x1b[?1049l")
        expect(terminal.status() == -signal.SIGINT)
    finally:
        own.resume()


def the_screen_tells_of_a_store_that_is_away():
    own = looking.topology.Server()
    put(own, "a")
    terminal = looking.Terminal(own.url, "watch", "-i", "0.1")
    terminal.read(b"q quit")
    own.kill()
    shown = terminal.read(b"connect")
    # of the screen whose last line says that: a part of the next one may have been read as well
    expect(b"job@alpha:4711" in shown.split(b"connect")[0].split(b"\x1b[H")[-1], "the last list stays", shown)
    own.start()
    terminal.read(b"0 locks held")
    terminal.read(b"q quit")
    terminal.type(b"q")
    terminal.read(b"\x1b[?1049l")
    expect(terminal.status() == OK)


def a_server_that_refuses_at_the_start_gets_no_screen():
    server.call("ACL", "SETUSER", "unlisted", "on", ">p", "~*", "+@all", "-scan", *(("&*",) if server.version >= (6, 2) else ()))
    terminal = looking.Terminal(URL.replace("unix://", "unix://unlisted:p@"), "watch", "-i", "0.1")
    shown = terminal.read(b"\n")
    expect(b"NOPERM" in shown and b"\x1b" not in shown, shown)
    expect(terminal.status() == looking.UNAVAILABLE)


def names_cannot_drive_the_screen():
    fresh(b"\x1b]0;title\x07", b"\x1b[2J", b"\x9b31m", b"\xc2\x9b31m", owner="\x1b[31mforeign", lease_ms=None)
    terminal = looking.Terminal(URL, "watch", "-c", "1", "-i", "0.1")
    shown = terminal.read(b"\x1b[?1049l")
    found = set(re.findall(rb"\x1b\[?[^a-zA-Z]*.", shown))
    allowed = {b"\x1b[" + end for end in (b"?1049h", b"?25l", b"?7l", b"H", b"K", b"7m", b"0m", b"?7h", b"?25h", b"?1049l")}
    expect(found <= allowed and b"\x9b" not in shown and b"\x07" not in shown, found - allowed, shown)
    terminal.status()


def a_terminal_that_takes_no_more_costs_no_processor_time():
    fresh("a")
    terminal, end = pty.openpty()
    os.set_blocking(end, False)  # as another program may have left it
    environment = looking.environment(URL, TERM="xterm")
    process = subprocess.Popen([looking.DIBS, "watch", "-i", "0.1"], stdin=end, stdout=end, env=environment)

    def ticks():
        return sum(int(value) for value in looking.command.fields_of(process.pid)[11:13])

    try:
        await_true(lambda: not select.select([], [end], [], 0)[1], "a terminal that takes no more")
        before = ticks()
        time.sleep(1)
        expect(ticks() - before < 20, ticks() - before)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
        os.close(end)


def a_dumb_terminal_gets_lines():
    fresh("a")
    terminal = looking.Terminal(URL, "watch", "-c", "1", "-i", "0.1", TERM="dumb")
    shown = terminal.read(b"\n")
    expect(b"\x1b" not in shown and b"\theld\ta\t" in shown.expandtabs(0) or b"held" in shown, shown)
    expect(terminal.status() == OK)


if __name__ == "__main__":
    looking.main(
        lines_through_a_pipe, lines_end_after_so_many_looks, lines_end_where_nobody_reads, a_store_that_goes_away_is_told_of_once,
        a_screen_that_sorts_by_each_column, a_screen_that_follows_the_window, ctrl_z_and_back,
        a_terminal_that_does_not_tell_its_size_has_24_lines, a_signal_leaves_the_terminal_as_it_was,
        ctrl_c_ends_it_though_the_store_hangs, the_screen_tells_of_a_store_that_is_away,
        a_server_that_refuses_at_the_start_gets_no_screen, names_cannot_drive_the_screen, a_dumb_terminal_gets_lines,
        a_terminal_that_takes_no_more_costs_no_processor_time,
    )
