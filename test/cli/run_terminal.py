"""dibs run in a terminal: a shell with job control, typed at through a pty."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from support.command import *  # noqa: F403

SHELL = shutil.which("bash")
PROMPT = "ready> "
# Not a loop of the shell: dash can't be stopped while it starts a program (vfork), with dibs or without.
TICK = "python3 -c 'import itertools, time; [(print(f\"tick{i}\"), time.sleep(0.05)) for i in itertools.count()]'"


class Terminal:
    """bash in a terminal of its own."""

    def __init__(self):
        self.text = ""
        values = environment(PS1=PROMPT, TERM="dumb", HISTFILE=None, DIBS=DIBS)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(SHELL, [SHELL, "--norc", "--noprofile", "-i"], values)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.see(PROMPT)
        self.line("set +o history; bind 'set enable-bracketed-paste off'")
        self.see(PROMPT)

    def type(self, text):
        os.write(self.fd, text.encode())

    def line(self, text):
        self.type(text + "\n")

    def read_some(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.text += os.read(self.fd, 65536).decode("utf-8", "replace").replace("\r", "")
            except OSError:
                return

    def see(self, pattern, seconds=LIMIT):
        """Waits until the pattern was printed; what comes behind it is looked at by the next call."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < end, f"{pattern!r} is not in {self.text!r}"
            self.read_some(0.05)
        self.seen, self.text = self.text[: found.end()], self.text[found.end() :]
        return found

    def enter(self, command):
        """Types a command, and waits until its echo is over."""
        self.line(command)
        self.see(re.escape(command[-20:]) + "\n")

    def status(self, command="true"):
        self.line(f"{command}; echo status=$?.")
        return int(self.see(r"status=(\d+)\.").group(1))

    def foreground(self):
        return os.tcgetpgrp(self.fd)

    def await_program(self, name):
        """Waits until the program runs, and gets what is typed."""
        wait_for(lambda: name_of(self.foreground()) == name, f"{name} in the foreground")

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def terminal():
    shell = Terminal()
    try:
        yield shell
    finally:
        shell.close()


@test("COMMAND reads from the terminal and writes to it")
def reads():
    with terminal() as shell:
        shell.enter("$DIBS run n sh -c 'read x; echo got:$x; exit 3'; echo status=$?.")
        wait_for(lambda: server().owner("n"))
        shell.line("hello")
        shell.see("got:hello")
        shell.see(r"status=3\.")


@test("Ctrl-Z stops the job, fg and bg continue it; the lock stays dibs' own meanwhile")
def stops():
    with terminal() as shell:
        shell.enter(f"$DIBS run -t 6 n {TICK}")
        shell.see("tick3\n")
        shell.type("\x1a")
        shell.see("Stopped")
        shell.see(PROMPT)
        token = server().owner("n")
        server().await_renewal("n")
        equal(server().owner("n"), token)
        assert "tick" not in shell.text
        equal(shell.status("jobs"), 0)
        shell.enter("fg")
        shell.see(r"tick\d+\n")
        equal(server().owner("n"), token)
        shell.type("\x1a")
        shell.see("Stopped")
        shell.enter("bg")
        shell.see(r"tick\d+\n")
        # What is typed may be shown with ticks in it. It is not what is waited for.
        shell.line("kill %1; wait; echo o''ver")
        shell.see("over\n")
        wait_for(lambda: server().owner("n") is None)


@test("Ctrl-Z reaches a COMMAND that has the terminal, and fg gives it back")
def stops_reader():
    with terminal() as shell:
        shell.enter("$DIBS run n cat")
        wait_for(lambda: server().owner("n"))
        shell.line("one")
        shell.see("one\n(.|\n)*one\n")
        group = shell.foreground()
        shell.type("\x1a")
        shell.see("Stopped")
        assert shell.foreground() != group
        shell.line("fg")
        wait_for(lambda: shell.foreground() == group)
        shell.line("two")
        shell.see("two\n(.|\n)*two\n")
        shell.type("\x04")
        shell.see(PROMPT)
        equal(shell.foreground(), shell.pid)
        equal(shell.status(), 0)


@test("in the background, a COMMAND that reads is stopped, as any job is")
def background_reader():
    with terminal() as shell:
        shell.enter("$DIBS run n cat &")
        wait_for(lambda: server().owner("n"))
        wait_for(lambda: shell.status("jobs") == 0 and "Stopped" in shell.seen)
        shell.enter("fg")
        shell.await_program("cat")  # before that the shell may not have the terminal echo
        shell.line("text")
        shell.see("text\n(.|\n)*text\n")
        shell.type("\x04")
        shell.see(PROMPT)
        equal(shell.status(), 0)


@test("Ctrl-C ends COMMAND, with status 130; a loop of the shell ends with it")
def interrupts():
    with terminal() as shell:
        shell.enter("$DIBS run n sleep 60")
        shell.await_program("sleep")
        shell.type("\x03")
        shell.see(PROMPT)
        equal(shell.status('(exit $?)'), 130)
        shell.enter("for i in 1 2 3; do echo round=$i; $DIBS run n sleep 60; done")
        shell.see("round=1\n")
        shell.await_program("sleep")
        shell.type("\x03")
        shell.see(PROMPT)
        assert "round=2" not in shell.text
        shell.enter("sh -c 'for i in 1 2 3; do echo round=$i; $DIBS run n sh -c \"echo up; exec sleep 60\"; done'")
        shell.see("round=1\n(.|\n)*up\n")
        shell.type("\x03")
        shell.see(PROMPT)
        assert "round=2" not in shell.text
        wait_for(lambda: server().owner("n") is None)


@test("Ctrl-C and Ctrl-Z while dibs waits for the lock: the wait ends, or goes on after fg")
def waiting():
    with terminal() as shell:
        other = start("run", "n", "sleep", "60")
        wait_for(lambda: server().owner("n"))
        shell.enter("$DIBS run n echo ran; echo status=$?.")
        wait_for(lambda: server().queued("n"))
        shell.type("\x03")
        shell.see(PROMPT)
        wait_for(lambda: not server().queued("n"))
        shell.enter("$DIBS run n sh -c 'echo it ran'")
        wait_for(lambda: server().queued("n"))
        shell.type("\x1a")
        shell.see("Stopped")
        wait_for(lambda: not server().queued("n"))
        shell.enter("fg")
        wait_for(lambda: server().queued("n"))
        end(other)
        shell.see("it ran\n")
        equal(shell.status(), 0)


@test("in a pipeline, the other programs of the job have the terminal as well")
def pipeline():
    with terminal() as shell:
        shell.enter("$DIBS run n seq 3 | (cat; read x </dev/tty; echo got:$x)")
        shell.see("3\n")
        shell.line("typed")
        shell.see("got:typed\n")
        shell.enter("(echo from pipe; sleep 60) | $DIBS run n sh -c 'read x; echo $x; read y </dev/tty; echo tty:$y'")
        shell.see("from pipe\n")
        shell.line("hello")
        shell.see("tty:hello\n")
        wait_for(lambda: server().owner("n") is None)
        wait_for(lambda: group_lives(shell.foreground()), "the terminal back from COMMAND")
        shell.type("\x03")
        shell.see(PROMPT)
        shell.enter("$DIBS run n sh -c 'echo up; exec sleep 60' | cat")
        shell.see("up\n")
        shell.type("\x1a")
        shell.see("Stopped")
        shell.enter("fg")
        wait_for(lambda: shell.foreground() != shell.pid)
        shell.type("\x03")
        shell.see(PROMPT)
        wait_for(lambda: server().owner("n") is None)


@test("a shell with job control as COMMAND")
def nested_shell():
    with terminal() as shell:
        shell.line(f"$DIBS run n {SHELL} --norc --noprofile -i")
        shell.see(PROMPT)
        shell.line("sleep 60")
        shell.await_program("sleep")
        shell.type("\x1a")
        shell.see("Stopped")
        # fg waits for its end: a shell does not exit at once while it knows of a stopped job
        shell.line("kill %1; fg; echo in-${DIBS_NAME}")
        shell.see("in-n\n")
        shell.line("exit 7")
        shell.see("exit")
        equal(shell.status("(exit $?)"), 7)
        equal(shell.foreground(), shell.pid)
        wait_for(lambda: server().owner("n") is None)


@test("the terminal goes away: COMMAND is ended, and the lock is free")
def hangup():
    shell = Terminal()
    mark, _ = new_mark()
    shell.enter(f"{mark} $DIBS run n sleep 60")
    wait_for(lambda: server().owner("n"))
    os.close(shell.fd)
    os.waitpid(shell.pid, 0)
    wait_for(lambda: server().owner("n") is None)
    wait_for(lambda: not processes_with(mark))


@test("a COMMAND that wants the terminal where no shell can stop dibs takes no processor time")
def can_not_be_stopped():
    with terminal() as shell:
        shell.enter("( (sleep 0.5; exec $DIBS run n cat) </dev/tty & )")
        shell.see(PROMPT)
        holder = int(wait_for(lambda: server().owner("n")).split(":")[-4])
        wait_for(lambda: [each for each in children(holder) if name_of(each) == "cat"], "cat")
        processes = [parent_of(parent_of(holder)), parent_of(holder), holder, *children(holder)]

        def ticks():
            return sum(int(value) for pid in processes for value in fields_of(pid)[11:13])

        before = ticks()
        time.sleep(1)
        assert ticks() - before < 20, f"{ticks() - before} ticks"
        os.kill(processes[0], signal.SIGTERM)
        wait_for(lambda: server().owner("n") is None)


@test("the size of the window is known to COMMAND, and its change is told")
def window():
    with terminal() as shell:
        for tail in ("", " | cat"):
            shell.enter(f"$DIBS run n sh -c 'trap \"stty size </dev/tty\" WINCH; echo up; while :; do sleep 0.02; done'{tail}")
            shell.see("up\n")
            fcntl.ioctl(shell.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99 + len(tail), 0, 0))
            shell.see(f"33 {99 + len(tail)}\n")
            shell.type("\x03")
            shell.see(PROMPT)


run_tests()
