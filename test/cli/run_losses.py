"""dibs run: a lease that is lost. The old COMMAND is dead before the next one starts.

Each COMMAND writes lines "WHO TIME" to one file, every few milliseconds: they must not be interleaved.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

from support.command import *  # noqa: F403

MS = 1000000  # ns

# Ignores SIGTERM where it is told to, and writes from a grandchild in a session of its own as well. Its first line says
# that both are there: SIGTERM does not reach a process that is only just being forked, and Python would forget it there.
WRITER = """
import os, signal, sys, time
who, path, stubborn = sys.argv[1:4]
def told(number, frame):
    os.write(out, f"{who} TERM\\n".encode())
    if stubborn == "no":
        os._exit(0)
out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
signal.signal(signal.SIGTERM, told)
is_there, says_so = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    os.write(says_so, b".")
else:
    os.read(is_there, 1)
while True:
    os.write(out, f"{who} {time.monotonic_ns()}\\n".encode())
    time.sleep(0.003)
"""


# Goes on after SIGTERM. A shell that starts one process after the other would lose a SIGTERM now and then.
TOLD = """
import signal, sys, time
def told(number, frame):
    with open(sys.argv[1], "a") as log:
        log.write("TERM\\n")
signal.signal(signal.SIGTERM, told)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


class Pair:
    """Two dibs that want the same name: one has it, the other waits, and writes only a few lines."""

    def __init__(self, own, files, *options, stubborn="yes", lease):
        self.own, self.log, self.lost = own, files.file("log"), files.file("lost")
        self.mark, env = new_mark()
        command = ["n", sys.executable, "-c", WRITER, "old", self.log, stubborn]
        self.old = start("run", "-t", lease, "--on-lost", f"echo lost >>{self.lost}", *options, *command, env={"DIBS_URL": own.url, **env})
        wait_for(lambda: read(self.log).count("old") > 10)
        self.first = self.lines()
        script = f"echo new $(date +%s) >>{self.log}; sleep 0.3; echo new >>{self.log}"
        self.new = start("run", "-t", lease, "--outage", "60", "n", "sh", "-c", script, env={"DIBS_URL": own.url})
        if own.process and state_of(own.process.pid) != "T":
            wait_for(lambda: own.queued("n"))

    def lines(self):
        return [line.split() for line in read(self.log).splitlines()]

    def check_order(self):
        """After both have ended: not one line of the old COMMAND behind the first of the new one."""
        done = Done(self.new)
        equal(done.status, 0, done.err)
        owners = [line[0] for line in self.lines()]
        first = owners.index("new")
        assert "old" not in owners[first:], owners[first:]
        return owners

    def check_ended_by(self, end):
        """COMMAND wrote its last line before that, whenever the test, on a busy machine, finds out that it has ended."""
        last = max(int(line[1]) for line in self.lines() if line[0] == "old" and line[1] != "TERM")
        assert last <= end, f"{(last - end) / MS} ms too late"

    def check_old(self, status=76):
        done = Done(self.old)
        equal(done.status, status, done.err)
        equal(processes_with(self.mark), [])
        equal(read(self.lost), "lost\n" if status == 76 else "")
        assert "dibs: n: " in done.err or status != 76, done.err
        return done


@test("a lock that was deleted: COMMAND is ended at once, and uses its grace time while nobody has the lock")
def deleted():
    with folder() as files:
        pair = Pair(server(), files, "--grace", "20", stubborn="no", lease="90")
        began = time.monotonic()
        server().ask("DEL", "lock:n")
        done = pair.check_old()
        assert time.monotonic() - began < LIMIT  # not the 30 s until the next renewal
        assert ["old", "TERM"] in pair.lines()
        assert "the lease was lost: " in done.err, done.err  # and why
        pair.check_order()


@test("a lock that was deleted, where the server does not tell, is known at the release: 76, and a message")
def deleted_untold():
    own = Server()
    own.ask("ACL", "SETUSER", "default", "-client|tracking")
    with folder() as files:
        go = files.file("go")
        wait = f"echo runs; while [ ! -e {go} ]; do sleep 0.02; done"
        process = start("run", "-t", "60", "n", "sh", "-c", wait, env={"DIBS_URL": own.url})
        equal(process.stdout.readline(), "runs\n")
        equal(own.ask("DEL", "lock:n"), 1)
        open(go, "w").close()
        done = Done(process)
        equal(done.status, 76)
        assert done.err.startswith("dibs: n: the lease was lost"), done.err


@test("a lock that was deleted, and a COMMAND that ignores SIGTERM")
def deleted_stubborn():
    with folder() as files:
        pair = Pair(server(), files, "--grace", "0.3", lease="30")
        server().ask("DEL", "lock:n")
        pair.check_old()
        pair.check_order()


@test("a lock that another client has got: COMMAND is killed at once")
def given_away():
    with folder() as files:
        pair = Pair(server(), files, "--grace", "40", lease="120")
        pair.new.terminate()
        pair.new.communicate()
        began = time.monotonic()
        server().ask("SET", "lock:n", "somebody", "PX", "60000")  # longer than dibs may take to see who has it
        pair.check_old()
        assert time.monotonic() - began < LIMIT  # not the 40 s until a renewal, and not the grace time
        server().ask("DEL", "lock:n")


@test("where /proc is that of another PID namespace, COMMAND's group is killed at once, and nothing else is signalled")
def foreign_proc():
    enter = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--pid", "--fork", "--kill-child"]
    if subprocess.run([*enter, "true"], stderr=subprocess.DEVNULL).returncode:
        print("# NOT RUN: a PID namespace, which this system does not allow")
        return
    with folder() as files:
        log = files.file("log")
        script = f"trap 'echo TERM >>{log}' TERM; echo ready; while :; do sleep 60 & wait $!; done"
        process = subprocess.Popen([*enter, DIBS, "run", "-t", "6", "--grace", "1", "n", "sh", "-c", script], env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        ready(process)
        server().ask("DEL", "lock:n")
        done = Done(process)
        equal((done.status, read(log)), (76, "TERM\n"))
        assert "can't be killed" not in done.err, done.err


@test("dibs stopped by SIGSTOP for longer than its lease")
def front_stopped():
    with folder() as files:
        pair = Pair(server(), files, lease="10")  # the margin, for a busy machine as well, is 500 ms
        pair.old.send_signal(signal.SIGSTOP)
        pair.check_order()
        pair.old.send_signal(signal.SIGCONT)
        pair.check_old()


@test("the process with the lock stopped by SIGSTOP")
def holder_stopped():
    with folder() as files:
        pair = Pair(server(), files, lease="10")  # as above: the front takes over when half of the margin is left
        os.kill(holder_of(pair.old), signal.SIGSTOP)
        pair.check_old()
        pair.check_order()


@test("the process with the lock stopped before dibs has heard more of it than that COMMAND runs")
def holder_stopped_at_once():
    with folder() as files:
        own, log = server(), files.file("log")
        mark, env = new_mark()
        own.ask("SET", "lock:n", "another client")
        script = f"sleep 0.3; kill -STOP $PPID; echo stopped >>{log}; exec sleep 60"
        process = start("run", "-t", "4", "n", "sh", "-c", script, env=env)
        wait_for(lambda: own.queued("n"))
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: state_of(process.pid) == "T")
        own.ask("DEL", "lock:n")
        wait_for(lambda: read(log))
        process.send_signal(signal.SIGCONT)
        done = Done(process)
        equal(done.status, 76, done.err)
        equal(processes_with(mark), [])


@test("the process with the lock stopped right after it made the lease shorter, because the time of --at-least is over")
def holder_stopped_after_at_least():
    process = holder("n", "-t", "2", "--at-least", "6")
    with_lock = holder_of(process)
    time.sleep(5.6)  # the first process may be stopped for 1.4 s
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: server().left_pttl("n") <= 2000, "the shorter lease")
    os.kill(with_lock, signal.SIGSTOP)
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: server().owner("n") is None, "the end of the lease")
    assert not alive(process.command)
    equal(Done(process).status, 76)


@test("the same where the lease, which could not be renewed any more, was about to end before the shorter one would")
def holder_stopped_after_at_least_without_a_server():
    own = Server()
    with folder() as files:
        log = files.file("log")
        command = [sys.executable, "-c", WRITER, "old", log, "no"]
        process = start("run", "-t", "8", "--grace", "0.1", "--at-least", "9", "n", *command, env={"DIBS_URL": own.url})
        wait_for(lambda: "old" in read(log))
        own.await_renewal("n")
        own.process.send_signal(signal.SIGSTOP)
        end = time.monotonic_ns() + 9000 * MS
        time.sleep(6.5)  # the renewal came after 3 s
        os.kill(holder_of(process), signal.SIGSTOP)
        equal(Done(process).status, 76)
        assert max(int(line.split()[1]) for line in read(log).splitlines() if "TERM" not in line) <= end


@test("the lease becomes shorter once the time of --at-least is over, also where the server does not answer at that moment")
def shortened_after_an_outage():
    with contextlib.closing(Server()) as own:
        process = holder("n", "-t", "4", "--at-least", "8", env={"DIBS_URL": own.url})
        time.sleep(7)
        own.process.send_signal(signal.SIGSTOP)
        time.sleep(2.2)  # the lease was renewed after 5.3 s, and COMMAND is ended after 12 s
        own.process.send_signal(signal.SIGCONT)
        time.sleep(1.5)  # the server may hear of it late, and is then told that the lease is as long as before

        def is_short():
            own.await_renewal("n")
            return own.left_pttl("n") <= 4000

        wait_for(is_short, "the shorter lease")
        end(process)


@test("the process with the lock stopped for a third of the lease, while more signals come than it has room for: none is forgotten")
def signals_for_a_stopped_holder():
    for last, status in ((signal.SIGTERM, 128 + 15), (signal.SIGUSR1, 0)):
        process = ready(start("run", "-t", "10", "n", "sh", "-c", "trap '' USR1; echo ready; exec sleep 10"))
        with_lock = holder_of(process)
        os.kill(with_lock, signal.SIGSTOP)
        enough = time.monotonic() + 0.8  # the first process would end COMMAND 3.8 s after the other was stopped
        while time.monotonic() < enough:
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.0005)
        process.send_signal(last)
        time.sleep(1.4)  # the first process looks each 1.25 s whether the other one answers
        os.kill(with_lock, signal.SIGCONT)
        done = Done(process)
        equal((done.status, done.err), (status, ""))


@test("the process with the lock stopped, while the first one is continued again and again: COMMAND is ended in time")
def holder_stopped_while_the_front_is_continued():
    with folder() as files:
        pair = Pair(server(), files, lease="4")
        with_lock = holder_of(pair.old)
        os.kill(with_lock, signal.SIGSTOP)
        while pair.new.poll() is None:
            pair.old.send_signal(signal.SIGCONT)
            time.sleep(0.005)
        pair.check_old()
        pair.check_order()


@test("the lease does not become shorter after --at-least while the first process can't be told: it is stopped, and has no room")
def shorter_lease_without_room():
    with folder() as files:
        pair = Pair(server(), files, "--at-least", "9", lease="3")
        with_lock, long = holder_of(pair.old), server().left_pttl("n")
        command = children(with_lock)[0]
        time.sleep(max(0, 7.3 - (9 - long / 1000)))
        pair.old.send_signal(signal.SIGSTOP)
        end = time.monotonic() + 2  # after 2.1 s the one with the lock ends COMMAND, because the first one is silent
        while time.monotonic() < end and server().left_pttl("n") > 3000:
            with contextlib.suppress(ProcessLookupError):
                for number in (signal.SIGSTOP, signal.SIGCONT):  # the first process is told of each stop
                    os.kill(command, number)
                    time.sleep(0.001)
        with contextlib.suppress(ProcessLookupError):
            os.kill(with_lock, signal.SIGSTOP)
        pair.old.send_signal(signal.SIGCONT)
        pair.check_order()
        pair.check_old()


@test("the process with the lock stopped, and COMMAND as well: COMMAND goes on, and has its grace time")
def holder_and_command_stopped():
    with folder() as files:
        pair = Pair(server(), files, "--grace", "2", stubborn="no", lease="10")
        # The one that COMMAND forked first leads a group as well, but is no child of the holder.
        command = [pid for pid in children(holder_of(pair.old)) if os.getpgid(pid) == pid]
        equal(len(command), 1)
        os.kill(command[0], signal.SIGSTOP)
        wait_for(lambda: state_of(command[0]) == "T")
        os.kill(holder_of(pair.old), signal.SIGSTOP)
        pair.check_old()
        assert ["old", "TERM"] in pair.lines()
        pair.check_order()


def stop_holder(process):
    """Stops the process with the lock, which has told the first process of the lease once it sleeps."""
    with_lock = holder_of(process)
    wait_for(lambda: state_of(with_lock) == "S", "the holder at rest")
    os.kill(with_lock, signal.SIGSTOP)
    return with_lock


@test("the process with the lock stopped until COMMAND has SIGTERM: it sends no second one")
def one_term():
    own = Server()
    with folder() as files:
        log = files.file("log")
        process = start(
            "run", "-t", "10", "--grace", "4", "n", sys.executable, "-c", TOLD, log,
            env={"DIBS_URL": own.url},
        )
        ready(process)
        with_lock = stop_holder(process)
        own.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: read(log) == "TERM\n")
        os.kill(with_lock, signal.SIGCONT)
        equal(Done(process).status, 76)
        equal(read(log), "TERM\n")


@test("the process with the lock stopped until COMMAND has ended by SIGTERM: that end is dibs' doing, so the status is 76")
def ended_by_term():
    own = Server()
    process = holder("n", "-t", "10", "--grace", "4", env={"DIBS_URL": own.url})
    with_lock = stop_holder(process)
    own.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: state_of(process.command) == "Z", "the end of COMMAND")
    os.kill(with_lock, signal.SIGCONT)
    done = Done(process)
    equal(done.status, 76)
    assert "n: the lease can't be renewed, and is about to end\n" in done.err, done.err


@test("the process with the lock stopped while COMMAND ends by itself: its status counts")
def ended_by_itself():
    own = Server()
    process = start("run", "-t", "10", "--grace", "4", "n", "sh", "-c", "echo ready; sleep 1; exit 3", env={"DIBS_URL": own.url})
    with_lock = stop_holder(ready(process))
    command = children(with_lock)[0]
    own.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: state_of(command) == "Z", "the end of COMMAND")
    time.sleep(6)  # the first process has found the other one silent, and nothing to send SIGTERM to
    os.kill(with_lock, signal.SIGCONT)
    own.process.send_signal(signal.SIGCONT)
    done = Done(process)
    equal(done.status, 3)
    assert "n: SIGTERM was sent to sh, because the process that holds the lock did not answer in time\n" in done.err, done.err


def slow_path(files, seconds):
    """A PATH in which it takes about so long to find a program, and 5 to 10 s at most."""
    for i in range(39):  # a path that the kernel needs milliseconds to follow, to nothing
        os.symlink("./" * 2000 + str(i + 1), files.file(str(i)))
    slow = files.file("0")
    begin = time.monotonic()
    for _ in range(10):
        os.path.exists(slow)
    each = (time.monotonic() - begin) / 10
    count = min(int(seconds / each), 100000 // len(slow))  # no string of an environment may have more than 128 KiB
    return ":".join([slow] * count + [os.environ["PATH"]])


@test("a COMMAND whose exec takes longer than the lease: the lease is renewed meanwhile")
def slow_exec():
    with folder() as files:
        process = start("run", "-t", "4", "n", "sleep", "1", env={"PATH": slow_path(files, 10)})
        command = wait_for(lambda: children(holder_of(process)), "COMMAND's process")[0]
        equal(name_of(command), "dibs-holder")
        done = Done(process)
        equal((done.status, done.err), (0, ""))


@test("the process with the lock stopped while it starts COMMAND: the first process ends COMMAND before the lease ends")
def stopped_in_exec():
    own = Server()
    with folder() as files:
        ran = files.file("ran")
        process = start("run", "-t", "4", "--grace", "1.5", "n", "touch", ran, env={"DIBS_URL": own.url, "PATH": slow_path(files, 20)})
        with_lock = holder_of(process)
        command = wait_for(lambda: children(with_lock), "COMMAND's process")[0]
        os.kill(with_lock, signal.SIGSTOP)
        equal(name_of(command), "dibs-holder")
        wait_for(lambda: own.ask("SET", "lock:n", "next", "NX"), "the end of the lease")
        assert not alive(command)
        done = Done(process)
        equal(done.status, 76)
        assert not os.path.exists(ran)


@test("a COMMAND that is not found, and standard error takes no more for longer than the lease: no loss")
def stalled_not_found():
    with folder() as files:
        lost = files.file("lost")
        err, full = full_pipe()
        process = start("run", "-t", "1", "--on-lost", f"echo lost >{lost}", "n", "no-such-command", stderr=full)
        os.close(full)
        holder_of(process)
        time.sleep(2)
        with open(err, "rb") as reader:
            said = reader.read()
        equal(process.wait(LIMIT), 127)
        assert said.endswith(b"\0dibs: no-such-command: No such file or directory\n"), said[-200:]
        assert not os.path.exists(lost)


@test("a lock that was deleted while COMMAND's exec takes long: COMMAND does not begin")
def deleted_in_exec():
    own = Server()
    with folder() as files:
        ran = files.file("ran")
        process = start("run", "-t", "60", "n", "touch", ran, env={"DIBS_URL": own.url, "PATH": slow_path(files, 20)})
        command = wait_for(lambda: children(holder_of(process)), "COMMAND's process")[0]
        own.ask("DEL", "lock:n")
        done = Done(process)
        equal(done.status, 76)
        assert "n: the lease was lost: " in done.err, done.err
        assert not alive(command)
        assert not os.path.exists(ran)


@test("dibs stopped for less than its lease goes on")
def stopped_briefly():
    with folder() as files:
        pair = Pair(server(), files, stubborn="no", lease="10")
        for process in (pair.old.pid, holder_of(pair.old)):
            os.kill(process, signal.SIGSTOP)
            time.sleep(0.5)
            os.kill(process, signal.SIGCONT)
        server().await_renewal("n")
        pair.old.terminate()
        pair.check_old(0)
        pair.check_order()


@test("a server that was stopped by SIGSTOP")
def server_stopped():
    own = Server()
    with folder() as files:
        pair = Pair(own, files, "--grace", "0.3", lease="10")  # the margin, for a busy machine as well, is 500 ms
        dibs = processes_of_dibs(pair)
        own.process.send_signal(signal.SIGSTOP)
        began = time.monotonic_ns()
        wait_for(lambda: not is_alive_beside(pair, dibs), "the end of COMMAND")
        pair.check_ended_by(began + 10000 * MS)
        own.process.send_signal(signal.SIGCONT)
        pair.check_old()
        pair.check_order()


def processes_of_dibs(pair):
    """Those of the older dibs run, which must be alive."""
    return (pair.old.pid, *children(pair.old.pid), holder_of(pair.old))


def is_alive_beside(pair, own):
    """Whether a process with the mark lives that is not dibs."""
    return any(pid not in own for pid in processes_with(pair.mark))


@test("a standard error that takes no more does not keep dibs from killing COMMAND")
def stalled_error():
    own = Server()
    out, into = full_pipe()
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    process = start("run", "-t", "4", "n", "sh", "-c", script, env={"DIBS_URL": own.url}, stderr=into)
    os.close(into)
    command = children(holder_of(ready(process)))[0]
    own.process.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: not alive(command), "the end of COMMAND")
    finally:
        os.close(out)
    equal(Done(process).status, 76)


@test("a standard error that takes no more does not keep dibs from ending COMMAND after a loss")
def stalled_error_of_a_loss():
    out, into = full_pipe()
    process = holder("n", "-t", "600", stderr=into)
    os.close(into)
    server().ask("DEL", "lock:n")
    try:
        wait_for(lambda: not alive(process.command), "the end of COMMAND")
    finally:
        os.close(out)
    equal(Done(process).status, 76)


@test("a server that was killed, and restarted without its data")
def server_killed():
    own = Server()
    with folder() as files:
        pair = Pair(own, files, "--grace", "0.3", lease="10")  # as above
        dibs = processes_of_dibs(pair)
        own.kill()
        began = time.monotonic_ns()
        wait_for(lambda: not is_alive_beside(pair, dibs), "the end of COMMAND")
        pair.check_ended_by(began + 10000 * MS)
        own.start()
        pair.check_old()
        pair.check_order()


@test("a server that comes back in time: nothing is lost")
def server_back():
    own = Server()
    with folder() as files:
        pair = Pair(own, files, stubborn="no", lease="10")
        own.process.send_signal(signal.SIGSTOP)
        time.sleep(0.7)
        own.process.send_signal(signal.SIGCONT)
        own.await_renewal("n")
        pair.old.terminate()
        pair.check_old(0)
        pair.check_order()


@test("SIGTERM comes as early as the grace time needs")
def early_enough():
    own = Server()
    with folder() as files:
        process = start(
            "run", "-t", "9", "--grace", "4", "n", "sh", "-c",
            f"trap 'date +%s%N >>{files.file('log')}; sleep 2.5; date +%s%N >>{files.file('log')}; exit' TERM; "
            "sleep 60 & echo ready; wait",
            env={"DIBS_URL": own.url},
        )
        ready(process)
        own.process.send_signal(signal.SIGSTOP)
        equal(Done(process).status, 76)
        times = [int(word) for word in read(files.file("log")).split()]
        equal(len(times), 2)  # COMMAND had its time


@test("a COMMAND that exits with 76 has not lost anything")
def status_76():
    with folder() as files:
        done = dibs("run", "--on-lost", f"echo lost >{files.file('lost')}", "n", "sh", "-c", "exit 76")
        equal((done.status, read(files.file("lost"))), (76, ""))


@test("--on-lost: a signal also ends what was stopped, as by its wish to read from the terminal")
def on_lost_stopped():
    process = holder("n", "--on-lost", "kill -STOP $$")
    equal(dibs("break", "-y", "n").status, 0)
    wait_for(lambda: "T" in [state_of(pid) for pid in children(process.pid)], "a stopped process")
    equal(end(process).status, 76)


@test("--on-lost: its environment, its output, and signals to it")
def on_lost():
    process = start("run", "--on-lost", 'echo $DIBS_NAME $DIBS_FENCE; sleep 60', "n", "sh", "-c", "echo $DIBS_FENCE; sleep 60")
    fence = process.stdout.readline().strip()
    server().ask("DEL", "lock:n")
    equal(process.stdout.readline(), f"n {fence}\n")
    process.terminate()
    equal(Done(process).status, 76)


run_tests()
