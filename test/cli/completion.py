# Needs: bash
"""Completion of the command line, in bash, and in zsh and fish where they are installed."""

import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import time

from support import looking
from support.looking import OK, dibs, expect, expect_status, put

server = looking.topology.Server()
URL = server.url
SCRIPTS = os.path.join(os.environ["DIBS_TOP"], "src", "cli", "completion")
COMMANDS = ["run", "hold", "status", "list", "watch", "break", "doctor", "bench"]
FILE = os.path.join(looking.topology.folder(), "urls")
with open(FILE, "w", encoding="ascii") as file:
    file.write(URL + "\n")
NAMES = ["nightly", "sku:25", "two words", "été"]
for name in [*NAMES, b"\xff$(touch pwned)"]:
    put(server, name, lease_ms=600000)

ASK_BASH = f"""source {SCRIPTS}/dibs.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_dibs
((${{#COMPREPLY[@]}})) && printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def environment():
    return looking.environment(URL, PATH=os.path.dirname(looking.DIBS) + ":" + os.environ["PATH"])


def bash(*words):
    """What bash offers for the last of the words. Bash splits a word at each colon."""
    split = [part for word in words for part in (re.findall(r":|[^:]+", word) or [word])]
    done = subprocess.run(["bash", "-c", ASK_BASH, "bash", "dibs", *split], capture_output=True, env=environment(), timeout=20, check=False)
    expect(not done.stderr, words, done.stderr)
    return done.stdout.decode(errors="surrogateescape").splitlines()


def options_of(command):
    """All options that the help names."""
    text = expect_status(dibs(URL, command, "--help"), OK).text
    found = re.findall(r"^ +(-[^ ,]+)(?:, (-[^ ,]+))?", text, re.M)
    return {option for pair in found for option in pair if option}


def bash_completes_commands():
    expect(set(bash("")) == {*COMMANDS, "--help", "--version"}, bash(""))
    expect(bash("st") == ["status"] and bash("b") == ["break", "bench"], bash("b"))


def bash_completes_every_option_of_every_command():
    for command in COMMANDS:
        options = options_of(command)
        expect({"--help", "--url", "--quiet"} <= options and len(options) > 4, options)
        expect(set(bash(command, "-")) == options, command, bash(command, "-"), options)
    expect(bash("list", "--so") == ["--sort"] and bash("break", "--to") == ["--token"])


def bash_completes_the_names_of_locks():
    for command in ("status", "break", "list", "watch", "run", "hold"):
        expect(bash(command, "ni") == ["nightly"], command)
    expect(bash("status", "sku:") == ["25"] and bash("status", "nightly", "sku:2") == ["25"], bash("status", "sku:"))
    expect(r"two\ words" in bash("status", "") and len(bash("status", "")) == 5, bash("status", ""))
    expect(bash("status", "two\\ ") == [r"two\ words"], bash("status", "two\\ "))
    expect(bash("break", "nightly", "") == [] and bash("doctor", "") == [], "nothing to complete")
    expect(bash("status", "--url", "unix:///nowhere", "") == [], "another store")
    expect(bash("status", "--url", f"'{URL}'", "ni") == ["nightly"], "this store")
    expect(bash("status", "-q", "ni") == ["nightly"] == bash("run", "-n", "--shared", "ni"), "after an option")
    for option in ([f"--url={URL}"], ["--url-file", FILE], [f"--url-file='{FILE}'"]):
        expect(bash("status", "--url", "unix:///nowhere", *option, "ni") == ["nightly"], option)
    for option in ("--tls-ca", "--tls-name"):  # dibs wants no such option with this URL
        expect(bash("status", option, "x", "ni") == [] == bash("status", f"{option}=x", "ni"), option)
    expect(bash("status", "--url", "$(touch pwned)", "") == [] and not os.path.exists("pwned"), "nothing is expanded")


def bash_completes_arguments_of_options():
    expect(bash("list", "--sort", "") == ["name", "owner", "held", "left", "waiters", "sharers"] == bash("watch", "-s", ""))
    expect(bash("list", "-s", "h") == ["held"] and bash("bench", "-s", "") == [] == bash("run", "-w", ""))
    for words in (("run", "--also", "ni"), ("hold", "-n", "--also", "ni"), ("run", "--url-file", FILE, "--also", "ni")):
        expect(bash(*words) == ["nightly"], words, bash(*words))
    for option in ("--url-file", "--tls-ca", "--tls-cert", "--tls-key"):
        expect(bash("list", option, FILE[:-1]) == [FILE], option)
    expect(bash("help", "st") == ["status"] and set(bash("help", "")) == set(COMMANDS) and bash("help", "run", "") == [])
    expect("nightly" in bash("run", "-w", "5", "ni") and "nightly" in bash("list", "--sort", "held", "n"))


def bash_completes_the_command_that_runs():
    for words in (("run", "nightly", "pytho"), ("run", "-n", "nightly", "--", "pytho")):
        expect("python3" in bash(*words), words, bash(*words))
    expect(os.path.basename(SCRIPTS) + "/dibs.bash" in within(os.path.dirname(SCRIPTS), "run", "nightly", "cat", "completion/d"))


def within(folder, *words):
    before = os.getcwd()
    os.chdir(folder)
    try:
        return bash(*words)
    finally:
        os.chdir(before)


def type_at(shell, setup, *lines):
    """Types lines, in which \\t is the key, and expects what the shell then shows."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(shell[0], shell, dict(environment(), TERM="xterm", HOME="/nonexistent"))

    def await_shown(text, seconds=15):
        shown, end = "", time.monotonic() + seconds
        while text not in shown:
            expect(time.monotonic() < end, text, shown)
            if select.select([terminal], [], [], 0.1)[0]:
                shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(terminal, 65536).decode(errors="replace"))

    try:
        os.write(terminal, setup.encode() + b"; printf '<%s>' done\n")
        await_shown("<done>")
        for line, text in lines:
            os.write(terminal, line.encode())
            await_shown(text)
            os.write(terminal, b"\x15")  # clears the line
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(pid, 0)


def bash_at_a_terminal():
    setup = f"PS1='> '; source {shlex.quote(SCRIPTS)}/dibs.bash"
    type_at(["bash", "--norc", "--noprofile"], setup, ("dibs st\tsk\t", "dibs status sku:25"), ("dibs list --js\t", "dibs list --json"))


def zsh_at_a_terminal():
    subprocess.run(["zsh", "-n", os.path.join(SCRIPTS, "_dibs")], check=True, timeout=20)
    setup = f"PS1='> '; fpath=({shlex.quote(SCRIPTS)} $fpath); autoload -U compinit; compinit -u -D"
    type_at(["zsh", "-f"], setup, ("dibs status sk\t", "u:25"), ("dibs list --js\t", "on"), ("dibs help sta\t", "tus"),
            ("dibs run --also sk\t", "u:25"), (f"dibs list --url-file {FILE[:-1]}\t", "s"), ("dibs list -s wai\t", "ters"),
            (f"dibs status --url unix:///nowhere --url-file {FILE} nigh\t", "tly"))


def fish_offers(line):
    words = ["fish", "--no-config", "-c", f"source {shlex.quote(SCRIPTS)}/dibs.fish; complete -C {shlex.quote(line)}"]
    done = subprocess.run(words, capture_output=True, env=environment(), timeout=20, check=True)
    return [offer.split("\t")[0] for offer in done.stdout.decode(errors="replace").splitlines()]


def fish_completes():
    subprocess.run(["fish", "-n", os.path.join(SCRIPTS, "dibs.fish")], check=True, timeout=20)
    expect(set(fish_offers("dibs ")) == set(COMMANDS), fish_offers("dibs "))
    for command in COMMANDS:
        expect(set(fish_offers(f"dibs {command} -")) == options_of(command), command, fish_offers(f"dibs {command} -"))
    for line in ("dibs status ", "dibs run --also ", f"dibs status --url unix:///nowhere --url-file {FILE} ", f"dibs status --url={URL} "):
        expect({"nightly", "sku:25", "été"} <= set(fish_offers(line)), line, fish_offers(line))
    expect(set(fish_offers("dibs help ")) == set(COMMANDS), fish_offers("dibs help "))
    expect(FILE in fish_offers(f"dibs list --url-file {FILE[:-1]}"), fish_offers(f"dibs list --url-file {FILE[:-1]}"))
    for option in ("-s", "--sort"):
        expect("waiters" in fish_offers(f"dibs list {option} "), option, fish_offers(f"dibs list {option} "))


def where_installed(shell, test):
    if shutil.which(shell):
        return [test]
    print(f"# NOT RUN: completion for {shell}, which is not installed")
    return []


if __name__ == "__main__":
    looking.main(
        bash_completes_commands, bash_completes_every_option_of_every_command, bash_completes_the_names_of_locks,
        bash_completes_arguments_of_options, bash_completes_the_command_that_runs, bash_at_a_terminal,
        *where_installed("zsh", zsh_at_a_terminal), *where_installed("fish", fish_completes),
    )
