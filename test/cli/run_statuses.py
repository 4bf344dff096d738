"""dibs run: exit statuses, options, and what COMMAND gets and leaves."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time

from support.command import *  # noqa: F403


@test("the exit status is COMMAND's")
def status_of_command():
    for status in (0, 1, 7, 64, 69, 76, 126, 127, 255):
        equal(dibs("run", "n", "sh", "-c", f"exit {status}").status, status)


@test("the exit status is 128 and the signal that ended COMMAND")
def status_of_signal():
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT):
        equal(dibs("run", "n", "sh", "-c", f"kill -{int(number)} $$").status, 128 + number)


@test("the exit status is 1, or that of -E, where the lock is taken")
def status_taken():
    with_lock = holder("taken")
    for options, status in (
        (["-n"], 1),
        (["-n", "-E", "42"], 42),
        (["-n", "-E", "0"], 0),
        (["-w", "0"], 1),
        (["-w", "0.05"], 1),
        (["--wait=.05", "--conflict-exit-code=255"], 255),
    ):
        done = dibs("run", *options, "taken", "echo", "ran")
        equal((done.status, done.out, done.err), (status, "", ""))
    equal(end(with_lock).status, 128 + signal.SIGTERM)


@test("-w waits for the lock, with decimals")
def waits():
    with_lock = start("run", "n", "sleep", "0.5")
    wait_for(lambda: server().owner("n"))
    equal(dibs("run", "-w", "10.5", "n", "true").status, 0)
    equal(Done(with_lock).status, 0)
    with_lock = holder("n")
    began = time.monotonic()
    equal(dibs("run", "-w", "0.4", "n", "true").status, 1)
    assert 0.4 <= time.monotonic() - began < LIMIT  # not the 60 s of the holder
    end(with_lock)


@test("the exit status is 69 where the store can't be reached, or refuses")
def status_unreachable():
    for url in ("unix:///nonexistent/socket", "redis://127.0.0.1:1", server().url.replace("unix://", "unix://u:p@")):
        done = dibs("run", "-w", "0.3", "n", "true", env={"DIBS_URL": url})
        equal(done.status, 69, done.err)
        assert done.err.startswith("dibs: ") and "p@" not in done.err, done.err
        equal(dibs("run", "-qn", "--url", url, "n", "true").err, "")


@test("the exit status is 69 where the store stops answering during the wait")
def status_silent_store():
    own = Server()
    with_lock = start("run", "-t", "60", "n", "sleep", "60", env={"DIBS_URL": own.url})
    wait_for(lambda: own.owner("n"))
    waiting = start("run", "-w", "3", "n", "true", env={"DIBS_URL": own.url})
    wait_for(lambda: own.queued("n"))
    own.process.send_signal(signal.SIGSTOP)
    equal(Done(waiting).status, 69)
    with_lock.kill()
    with_lock.communicate()


@test("the exit status arrives though the front was stopped for long, and messages were lost")
def status_of_a_stopped_front():
    with folder() as at:
        pid, go, lost = at.file("pid"), at.file("go"), at.file("lost")
        text = f"echo $$ >{pid}; sleep 3600 & while [ ! -e {go} ]; do sleep 0.1; done; kill $!; exit 7"
        front = start("run", "-t", "600", "--on-lost", f"touch {lost}", "stopped", "sh", "-c", text)
        wait_for(lambda: read(pid).strip())
        command = int(read(pid))
        front.send_signal(signal.SIGSTOP)
        for _ in range(400):
            os.kill(command, signal.SIGSTOP)
            time.sleep(0.01)
            os.kill(command, signal.SIGCONT)
            time.sleep(0.005)
        open(go, "w", encoding="utf-8").close()
        wait_for(lambda: not alive(command))
        front.send_signal(signal.SIGCONT)
        equal(Done(front).status, 7)
        assert not os.path.exists(lost)


@test("the exit status is 64 for wrong usage, with a message that names it")
def status_usage():
    for arguments, word in (
        ([], "NAME is missing"),
        (["n"], "COMMAND is missing"),
        (["n", "--"], "COMMAND is missing"),
        (["", "true"], "NAME is empty"),
        (["--also", "", "n", "true"], "NAME is empty"),
        (["n" * 513, "true"], "513 bytes"),
        (["-w", "soon", "n", "true"], '-w: "soon"'),
        (["--wait", "soon", "n", "true"], '--wait: "soon"'),
        (["--timeout", "1", "n", "true"], "no option --timeout"),
        (["-w", "-1", "n", "true"], "-1"),
        (["-w", "1e3", "n", "true"], "1e3"),
        (["-w", "", "n", "true"], "seconds"),
        (["-w", "nan", "n", "true"], "nan"),
        (["-w", "30m1h", "n", "true"], "30m1h"),
        (["-w", "5x", "n", "true"], "5x"),
        (["-w", "1.5h", "n", "true"], "1.5h"),
        (["-t", "25h", "n", "true"], "25h"),
        (["-t", "99999999999999999999d", "n", "true"], "86400"),
        (["--url-file", "/nonexistent", "n", "true"], "No such file"),
        (["--url-file", "/dev/null", "n", "true"], "--url-file"),
        (["-w", "0x10", "n", "true"], "0x10"),
        (["-w"], "-w"),
        (["--lease"], "--lease needs an argument"),
        (["-n", "-w", "1", "n", "true"], "exclude"),
        (["-t", "0", "n", "true"], "0.1"),
        (["-t", "86401", "n", "true"], "86400"),
        (["-t", "99999999999999999999999", "n", "true"], "86400"),
        (["-t", "2", "--grace", "1.5", "n", "true"], "does not fit"),
        (["--grace", "12h", "n", "true"], "does not fit into a lease (-t) of 86400 s: at most 43199.5"),
        (["--grace", "13h", "n", "true"], "43200"),
        (["-E", "256", "n", "true"], "256"),
        (["-E", "x", "n", "true"], "x"),
        (["--at-least", "86401", "n", "true"], "86400"),
        (["--outage", "x", "n", "true"], "--outage"),
        (["--min-replicas", "1001", "n", "true"], "1001"),
        (["-x", "n", "true"], "-x"),
        (["--nonsense", "n", "true"], "--nonsense"),
        (["--fair=1", "n", "true"], "--fair"),
        (["n", "-n", "true"], "-n is in the wrong place: options come before NAME"),
        (["n", "-c"], "-c needs an argument"),
        (["n", "--command"], "--command needs an argument"),
        (["n", "-c", "true", "more"], 'unexpected argument "more"'),
        (["-c", "true", "n", "more"], 'unexpected argument "more"'),
        (["--url", "http://x", "n", "true"], "scheme"),
        (["--url", " ", "n", "true"], "--url"),
        (["--url", "mem: mem:", "n", "true"], "2 URLs"),
    ):
        done = dibs("run", *arguments)
        equal((done.status, done.out), (64, ""), arguments)
        assert done.err.startswith("dibs: ") and word in done.err and done.err.count("\n") == 1, (arguments, done.err)


@test("a time may have units")
def units():
    equal(dibs("run", "-w", "1h30m", "-t", "2m", "--grace", "1s", "--at-least", "0", "n", "echo", "ran").out, "ran\n")
    equal(dibs("run", "-t", "1m", "--at-least", "1d", "n", "true").status, 0)
    assert server().left_pttl("n") > 80000000
    server().ask("DEL", "lock:n")


@test("without -t the lease has room for the grace time, and no more")
def lease_for_grace():
    for grace, least, most in (("0", 1, 30000), ("14", 1, 30000), ("20", 30001, 41000)):
        process = holder("n", "--grace", grace)
        left = server().left_pttl("n")
        assert least <= left <= most, (grace, left)
        end(process)


@test("the password of --url is in no process list, and not in that of COMMAND either")
def password_is_hidden():
    own = Server()
    own.ask("ACL", "SETUSER", "worker", "on", ">ge:h@eim/1", "~*", "&*", "+@all")
    url = own.url.replace("unix://", "unix://worker:ge:h@eim%2f1@")
    mark, env = new_mark()
    for options in (["--url", f"{url} "], [f"--url={url}"], ["--url", own.url, "--url", url]):
        script = 'echo "$DIBS_URL"; exec sleep 60'
        process = start("run", *options, "n", "sh", "-c", script, env={**env, "DIBS_URL": None})
        equal(process.stdout.readline(), "\n")
        # A process that becomes another program, as the sleep, shows nothing of itself for a moment.
        pids = wait_for(lambda: len(found := processes_with(mark)) >= 4 and found, "four processes")
        lines = [read(f"/proc/{pid}/cmdline") for pid in pids]
        assert not any("eim" in line or "ge:" in line for line in lines), lines
        assert "worker:****" in read(f"/proc/{process.pid}/cmdline")
        # The guard may get there after COMMAND.
        wait_for(lambda: read(f"/proc/{guard_of(process)}/cmdline").startswith("lock-guard\0"), "the guard's own words")
        end(process)
    with folder() as files:
        with open(files.file("url"), "w") as file:
            file.write(f"{url}\n")
        nowhere = {"DIBS_URL": "unix:///nonexistent"}
        equal(dibs("run", "--url-file", files.file("url"), "n", "echo", "ran", env=nowhere).out, "ran\n")
        equal(dibs("list", "--url-file", files.file("url"), env=nowhere).status, 0)


@test("--no-inherit keeps the way to the store from COMMAND and --on-lost")
def no_inherit():
    show = 'echo "${DIBS_URL-none} ${DIBS_SENTINEL_USER-none} ${DIBS_SENTINEL_PASSWORD-none} $DIBS_NAME"'
    env = {"DIBS_SENTINEL_USER": "user", "DIBS_SENTINEL_PASSWORD": "secret"}
    equal(dibs("run", "n", "sh", "-c", show, env=env).out, f"{server().url} user secret n\n")
    process = start("run", "--no-inherit", "--on-lost", show, "n", "sh", "-c", f"{show}; exec sleep 60", env=env)
    equal(process.stdout.readline(), "none none none n\n")
    server().ask("DEL", "lock:n")
    equal(Done(process).out, "none none none n\n")


@test("the exit status is 126 where COMMAND can't be run, 127 where there is none; the lock is free then")
def status_exec():
    with folder() as files:
        path = files.file("plain")
        open(path, "w").close()
        for command, status in (("/", 126), (path, 126), ("/nonexistent/x", 127), ("no-such-command", 127)):
            done = dibs("run", "--at-least", "60", "n", command)
            equal(done.status, status)
            assert command in done.err, done.err
            equal(server().owner("n"), None)


@test("the exit status is 71 where there is no descriptor left to start COMMAND; the lock is free then")
def status_exec_without_descriptors():
    outer = holder("n")
    waiting = start("run", "n", "true")
    wait_for(lambda: server().queued("n"), "a waiter")
    resource.prlimit(holder_of(waiting), resource.RLIMIT_NOFILE, (3, 3))
    end(outer)
    done = Done(waiting)
    equal(done.status, 71)
    assert "true: " in done.err, done.err
    equal(server().owner("n"), None)


@test("with few descriptors dibs does its whole work, or none")
def few_descriptors():
    begun = 0
    for most in range(6, 24):
        mark, env = new_mark()
        script = f"ulimit -n {most}; exec {DIBS} run --grace 0.2 n sh -c 'setsid sleep 60 >/dev/null 2>&1 & exit 3'"
        done = subprocess.run(["sh", "-c", script], env=environment(**env), stderr=subprocess.PIPE, text=True, timeout=60)
        equal(processes_with(mark), [], most)
        equal(server().owner("n"), None, most)
        assert done.returncode in (3, 71), (most, done.returncode, done.stderr)
        begun += done.returncode == 3
    assert begun, "no number of descriptors was enough"


@test("a message that can't grow a full file is lost, and nothing else")
def full_file():
    script = f"ulimit -f 0; exec {DIBS} run -v n sh -c 'exit 3'"
    with folder() as files, open(files.file("messages"), "w") as messages:
        done = subprocess.run(["sh", "-c", script], env=environment(), stderr=messages, timeout=60)
    equal(done.returncode, 3)
    equal(server().owner("n"), None)


@test("-c before and behind NAME runs a shell's command; SHELL is the shell")
def shell_command():
    equal(dibs("run", "-c", "echo a b | tr a-z A-Z", "n").out, "A B\n")
    equal(dibs("run", "n", "-c", "exit 5").status, 5)
    equal(dibs("run", "n", "--command", "echo $0 $DIBS_NAME", env={"SHELL": "/bin/sh"}).out, "/bin/sh n\n")
    equal(dibs("run", "n", "--command=exit 6").status, 6)
    equal(dibs("run", "n", "-cexit 7").status, 7)
    equal(dibs("run", "n", "--", "echo", "-c").out, "-c\n")
    equal(dibs("run", "--", "n", "--", "echo", "--").out, "--\n")
    equal(dibs("run", "-c", "echo no SHELL", "n", env={"SHELL": None}).out, "no SHELL\n")


@test("COMMAND finds the name, the fence and the token in its environment")
def environment_of_command():
    name = "a name: with 'all' sorts of\tbytes"
    fences = []
    for _ in range(2):
        done = dibs("run", name, sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))")
        found = json.loads(done.out)
        equal(found["DIBS_NAME"], name)
        assert found["DIBS_TOKEN"].startswith("dibs:python3"), found["DIBS_TOKEN"]
        fences.append(int(found["DIBS_FENCE"]))
        assert int(server().ask("GET", f"dibs:fence:{{lock:{name}}}")) == fences[-1] >> 10
    assert 0 < fences[0] < fences[1]
    process = start("run", "n", "-c", 'echo "$DIBS_TOKEN"; exec sleep 60')
    equal(process.stdout.readline().strip(), server().owner("n"))
    end(process)


@test("standard input, output and error are COMMAND's, in pipes as well")
def pipes():
    done = subprocess.run(
        f"seq 100000 | {DIBS} run p cat | tail -n 1; {DIBS} run p sh -c 'echo out; echo err >&2' 2>&1 >/dev/null",
        shell=True, env=environment(), capture_output=True, text=True,
    )
    equal(done.stdout, "100000\nerr\n")
    # Who reads sees the end, and who writes the broken pipe, when COMMAND has closed its own.
    process = start("run", "p", "sh", "-c", "exec >&- <&-; exec sleep 60", stdin=subprocess.PIPE)
    equal(process.stdout.read(), "")
    try:
        wait_for(lambda: process.stdin.write("x" * 10000) and process.stdin.flush())
        raise AssertionError("the pipe is not broken")
    except BrokenPipeError:
        process.stdin = None
    equal(end(process).status, 128 + signal.SIGTERM)


@test("COMMAND gets no descriptor but those that dibs got")
def descriptors():
    listing = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1])"
    equal(dibs("run", "n", sys.executable, "-c", listing).out, "[0, 1, 2]\n")
    reading, writing = os.pipe()
    equal(dibs("run", "n", sys.executable, "-c", listing, pass_fds=(reading,)).out, f"[0, 1, 2, {reading}]\n")
    os.close(reading)
    os.close(writing)


@test("standard files that dibs found closed are closed for COMMAND")
def closed_files():
    with folder() as files:
        script, log = files.file("script"), files.file("log")
        with open(script, "w") as file:
            file.write(f"import os\nopen_files = [f for f in range(3) if os.path.exists(f'/proc/self/fd/{{f}}')]\n"
                       f"open({log!r}, 'w').write(str(open_files))\n")
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            seen = []
            for command in ("", f"{DIBS} run -v n "):
                line = f"{command}{sys.executable} {script} {closed}"
                subprocess.run(line, shell=True, env=environment(), check=True)
                seen.append(read(log))
            equal(seen[1], seen[0], closed)
            assert seen[0], closed


@test("COMMAND finds its signals as dibs found them")
def dispositions():
    show = "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status"
    for prepare in ("", "trap '' HUP USR1 PIPE TSTP; ", "trap '' CHLD; "):
        plain = subprocess.run(["sh", "-c", f"{prepare}{show}"], capture_output=True, text=True).stdout
        done = subprocess.run(
            ["sh", "-c", f"{prepare}{DIBS} run n {show}"], capture_output=True, text=True, env=environment()
        )
        equal(done.stdout, plain)


@test("the six signals go to COMMAND's whole group")
def signals_are_passed():
    for number in PASSED:
        script = "trap 'echo got; exit 3' INT TERM HUP QUIT USR1 USR2; (sleep 60)& echo ready; wait"
        process = ready(start("run", "n", "sh", "-c", script))
        process.send_signal(number)
        done = Done(process)
        equal((done.status, done.out), (3, "got\n"), number)
    for number in PASSED:
        process = holder("n")
        process.send_signal(number)
        equal(Done(process).status, 128 + number)


@test("a stopped COMMAND goes on to obey a signal that asks it to end")
def signals_to_what_is_stopped():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        process = start("run", "n", "sh", "-c", "trap 'exit 7' TERM HUP INT QUIT; sleep 60 & echo $$; wait")
        command = int(process.stdout.readline())
        os.kill(command, signal.SIGSTOP)
        wait_for(lambda: state_of(command) == "T")
        process.send_signal(number)
        equal(Done(process).status, 7)


@test("a signal ends the wait at once, and leaves no entry in the queue")
def signals_end_the_wait():
    for options in ((), ("--fair",), ("-w", "60")):
        with_lock = holder("n")
        for number in PASSED:
            process = start("run", *options, "n", "echo", "ran")
            wait_for(lambda: server().queued("n"))
            began = time.monotonic()
            process.send_signal(number)
            done = Done(process)
            equal((done.status, done.out), (128 + number, ""))
            assert time.monotonic() - began < LIMIT  # not the 60 s of the holder
            assert not server().queued("n")
        end(with_lock)


@test("where the front is killed, COMMAND and its descendants are, and the lock is free")
def front_killed():
    mark, env = new_mark()
    script = "trap '' TERM HUP INT; setsid sh -c 'setsid sleep 60 & sleep 60' & echo ready; sleep 60"
    process = ready(start("run", "n", "sh", "-c", script, env=env))
    wait_for(lambda: len(processes_with(mark)) >= 7)
    process.kill()
    process.wait()
    wait_for(lambda: not processes_with(mark))  # long before they would end by themselves
    wait_for(lambda: server().owner("n") is None)  # and before the lease does


@test("where the process with the lock is killed, so are COMMAND and its descendants")
def holder_killed():
    mark, env = new_mark()
    script = "trap '' TERM HUP INT; setsid sh -c 'setsid sleep 60 & sleep 60' & echo ready; sleep 60"
    process = ready(start("run", "-t", "1", "n", "sh", "-c", script, env=env))
    wait_for(lambda: len(processes_with(mark)) >= 7)
    os.kill(holder_of(process), signal.SIGKILL)
    done = Done(process)
    equal(done.status, 76, done.err)
    equal(processes_with(mark), [])
    wait_for(lambda: server().owner("n") is None)


@test("what COMMAND leaves running is ended before the lock is free")
def left_behind():
    mark, env = new_mark()
    began = time.monotonic()
    script = "setsid sh -c 'trap \"\" TERM; sleep 60' >/dev/null 2>&1 & sleep 60 >/dev/null 2>&1 & exit 4"
    done = dibs("run", "--grace", "0.2", "n", "sh", "-c", script, env=env)
    equal(done.status, 4)
    equal(processes_with(mark), [])
    assert time.monotonic() - began < LIMIT  # not the 60 s of what is left running
    # What ends by itself soon may do so.
    with folder() as files:
        dibs("run", "n", "sh", "-c", f"(sleep 0.3; echo done >{files.file('log')}) & exit 0")
        equal(read(files.file("log")), "done\n")


@test("--at-least keeps the name locked though dibs has ended, and -n elsewhere fails")
def at_least():
    # So long that it is not over before the last line that looks at it, however busy the machine is.
    equal(dibs("run", "--at-least", "100", "cron", "true").status, 0)
    for _ in range(3):
        equal(dibs("run", "-n", "--at-least", "100", "cron", "echo", "again").out, "")
    assert 50000 < server().left_pttl("cron") <= 100000
    server().ask("DEL", "lock:cron")
    began = time.monotonic()
    equal(dibs("run", "--at-least", "2.5", "cron", "true").status, 0)
    equal(dibs("run", "-w", str(LIMIT), "cron", "true").status, 0)
    assert 2.5 <= time.monotonic() - began
    # A COMMAND that takes longer releases the lock at its end.
    equal(dibs("run", "--at-least", "0.2", "cron", "sleep", "0.4").status, 0)
    equal(server().owner("cron"), None)


@test("--at-least holds from the grant on, whatever becomes of dibs")
def at_least_killed():
    # The usual lease ends after 30 s: a busy machine has 50 s to get here, and a lease of 50 s is one of --at-least.
    process = holder("cron", "-t", "1", "--at-least", "100")
    assert 50000 < server().left_pttl("cron") <= 100000
    process.kill()
    process.communicate()
    assert 50000 < server().left_pttl("cron") <= 100000
    server().ask("DEL", "lock:cron")
    process = holder("cron", "--at-least", "100")  # a signal that came before COMMAND runs would release the lock
    equal(end(process).status, 128 + signal.SIGTERM)
    assert 50000 < server().left_pttl("cron") <= 100000
    server().ask("DEL", "lock:cron")


@test("-q is silent, -v tells what happens, --help goes to standard output")
def messages():
    equal(dibs("run", "n", "true").err, "")
    told = dibs("run", "-v", "n", "true").err
    for word in ("acquired", "fence", "started", "status 0", "released"):
        assert word in told, told
    equal(dibs("run", "-qn", "--url", "unix:///nonexistent", "n", "true").err, "")
    for command in ("run", "hold", "status", "list", "watch", "break", "doctor", "bench"):
        done = dibs(command, "--help")
        equal((done.status, done.err), (0, ""))
        assert done.out.startswith(f"Usage: dibs {command} "), done.out
        assert all(len(line) <= 80 for line in done.out.splitlines()), done.out
        equal((dibs(command, "-h").out, dibs("help", command).out), (done.out, done.out))
    equal(dibs("help").out, dibs("--help").out)
    done = dibs("help", "nonsense")
    equal((done.status, done.out), (64, ""))
    assert "nonsense" in done.err, done.err
    equal(dibs("-V").out, dibs("--version").out)
    with open("/dev/full", "w") as full:
        for arguments in (["--help"], ["--version"], ["run", "--help"]):
            done = dibs(*arguments, stdout=full)
            equal(done.status, 74)
            assert "standard output" in done.err, done.err


@test("a long name that is all escaped, and what the message says of it, are shown whole")
def long_names():
    name, shown = "\x01" * 512, "\\x01" * 512
    other = hold(name)
    equal(dibs("run", "-vn", name, "true").err, f"dibs: {shown}: somebody else holds the lock\n")
    end(other)


@test("of --url and --url-file the last one counts")
def last_url():
    with folder() as files:
        path, nowhere = files.file("urls"), "unix:///nonexistent"
        with open(path, "w") as file:
            file.write(server().url)
        equal(dibs("run", "-n", "--url", nowhere, "--url-file", path, "n", "true").status, 0)
        equal(dibs("run", "-n", "--url-file", path, "--url", nowhere, "n", "true").status, 69)


@test("a name, a program or a word can't drive the terminal, wherever it is printed")
def names_are_escaped():
    name, shown = "\x1b[31mred\u009b\\", "\\x1b[31mred\\xc2\\x9b\\\\"
    other = hold(name, env={"LC_ALL": "C.UTF-8"})
    assert other.line.startswith(f"{shown} held, fence "), other.line
    told = dibs("run", "-vn", name, "true", env={"LC_ALL": "C.UTF-8"}).err
    assert f"dibs: {shown}: somebody else holds the lock\n" in told, told
    waiting = start("run", "-v", name, "true", env={"LC_ALL": "C.UTF-8"})
    for line in iter(waiting.stderr.readline, ""):
        if "waits" in line:
            break
    assert line.startswith(f"dibs: {shown}: waits for the lock"), line
    other.terminate()
    told = line + Done(waiting).err + Done(other).err
    told += dibs("run", "-v", name, "sh", "-c", "setsid sleep 60 & exit", env={"LC_ALL": "C.UTF-8"}).err
    assert f"{shown}: ends 1 process that sh left running" in told, told
    told += dibs("run", name, name).err + dibs(name).err + dibs("run", name, name, name).err + dibs("list", name, name).err
    told += dibs("run", "-w", name, name).err + dibs("run", "--url-file", name, name).err + dibs("list", "--sort", name).err
    assert told.count("\n") > 10 and not [c for c in told if c != "\n" and (c < " " or "\x7f" <= c < "\xa0")], repr(told)


def ends_before_its_try():
    """A signal comes while a server does not greet: whether dibs ended before its try to connect would have, after 1 s."""
    with folder() as files, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(files.file("s"))
        silent.listen()
        process = start("run", "--url", f"unix://{files.file('s')}", "n", "true")
        with silent.accept()[0]:
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            equal(Done(process).status, 128 + signal.SIGTERM)
            return time.monotonic() - began < 0.7


@test("a signal ends dibs at once while a server does not greet")
def signal_while_connecting():
    # A busy machine may keep any process from running for so long, but not each of twenty.
    assert any(ends_before_its_try() for _ in range(20))


@test("--fair: first come, first served")
def fair():
    with folder() as files:
        log = files.file("log")
        with_lock = holder("n")
        waiting = []
        for number in range(4):
            waiting.append(start("run", "--fair", "n", "sh", "-c", f"echo {number} >>{log}"))
            wait_for(lambda: server().waiters("n") == number + 1)
        end(with_lock)
        for process in waiting:
            equal(Done(process).status, 0)
        equal(read(log), "0\n1\n2\n3\n")


@test("a store inside the process, and a quorum")
def other_stores():
    equal(dibs("run", "--url", "mem:", "n", "echo", "ran").out, "ran\n")
    others = [Server(), Server()]
    urls = " ".join(each.url for each in (server(), *others))
    equal(dibs("run", "--url", urls, "quorum", "echo", "ran").out, "ran\n")
    equal(dibs("run", "--fair", "--url", urls, "quorum", "true").status, 64)


run_tests()
