"""The test programs: a copy of the tree, two builds of it, which lines each program runs, and how a program is run."""

import ctypes
import glob
import hashlib
import json
import multiprocessing
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

COPIED = ("Makefile", "include", "src", "test", "demo", "bench", "doc")  # some tests read the documents
CHECKED = "-DDIBS_CHECKED -DLIMIT_MS=10000"  # preconditions; less patience with what does not happen
PLAIN = "-O1"
PATTERN = "-ftrivial-auto-var-init=pattern"  # what has no value yet has an odd one; gcc 12, clang 8
COUNTING = "-O0 --coverage -fprofile-update=atomic -DTEST_COUNTS_LINES"
NOT_FINAL = ("-DDIBS_CHECKED", PATTERN)  # is not in the library that is shipped
FAILED = re.compile(rb"\[  FAILED  \]|^not ok ", re.M)  # what cmocka, and what a script says at once
LEAKS = "LeakSanitizer: detected memory leaks"
PASSED, FAILS, CRASHED, STUCK = "passed", "failed", "crashed", "came to no end"


def die(why):
    print(f"mutants: {why}", file=sys.stderr)
    sys.exit(2)


def need_tools():
    if not sys.platform.startswith("linux"):
        die("runs on Linux only: what a test leaves behind is found in /proc")
    missing = [tool for tool in (os.environ.get("CC", "cc"), "make", "awk", "gcov", "pkg-config", "redis-server")
               if not shutil.which(tool)]
    missing += [name for name in ("hiredis", "cmocka")
                if shutil.which("pkg-config") and subprocess.run(["pkg-config", "--exists", name]).returncode]
    if missing:
        die(f'missing: {" ".join(missing)}; "sh test/run" installs what the tests need, gcov comes with gcc')


def compiles_with(flag):
    done = subprocess.run([os.environ.get("CC", "cc"), "-Werror", flag, "-fsyntax-only", "-x", "c", "-"],
                          input="int main(void) { return 0; }\n", text=True, capture_output=True)
    return done.returncode == 0


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = f"{path}.{os.getpid()}"  # two processes may write the same
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(new, path)


def digest(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


# ----------------------------------------------------------- many at a time


def spread(jobs, work, todo, tell):
    """Calls work(job, number of the process) for each job in one of several processes, and tell(result) here.

    Must not be called while there are other threads: a fork would copy the locks that they hold.
    """
    context = multiprocessing.get_context("fork")
    taken, results = context.Value("i", 0), context.SimpleQueue()

    def main(number):
        become_reaper()
        while True:
            with taken.get_lock():
                place = taken.value
                taken.value += 1
            if place >= len(todo):
                break
            results.put(work(todo[place], number))

    sys.stdout.flush()
    workers = [context.Process(target=main, args=(i,), daemon=True) for i in range(min(jobs, len(todo)))]
    for worker in workers:
        worker.start()
    for left in range(len(todo), 0, -1):
        while results.empty() and any(worker.is_alive() for worker in workers):
            time.sleep(0.05)
        if results.empty():
            die(f"the processes ended with {left} jobs left")
        tell(results.get())
    for worker in workers:
        worker.join()


# ---------------------------------------------------------- running a program


def end_in_order(*_):
    """On SIGTERM: through all the clean-up."""
    sys.exit(1)


def become_reaper():
    """Orphans of the programs that this process runs become children of this process, which ends with its parent."""
    signal.signal(signal.SIGTERM, end_in_order)
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def children_of(pid):
    out = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            out += [int(word) for word in read(path).split()]
        except OSError:
            pass
    return out


def end_children():
    """Ends, by their ids, all processes below this one, stopped ones too."""
    for _ in range(200):
        found = children_of(os.getpid())
        if not found:
            return
        for pid in found:
            for below in children_of(pid) + [pid]:
                try:
                    os.kill(below, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))


def limit_all():
    limit_files()
    resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))


class Outcome(NamedTuple):
    said: str
    seconds: float
    failed: str  # the first test that failed, or what was said last


def watch(program, output, deadline, patient):
    while time.monotonic() < deadline:
        try:
            status = program.wait(0.02)
            return PASSED if status == 0 else CRASHED if status < 0 else FAILS
        except subprocess.TimeoutExpired:
            if not patient and FAILED.search(os.pread(output.fileno(), 1 << 22, 0)):
                return FAILS
    return STUCK


def run_program(argv, cwd, environment, limit, patient=False, sanitized=False):
    """Runs it until it ends, a test of it fails (unless patient), or limit seconds are over.

    A sanitizer reserves more addresses than a program without one may have here.
    """
    home = tempfile.mkdtemp(prefix="dm-", dir="/tmp")
    begin = time.monotonic()
    try:
        with open(os.path.join(home, "output"), "w+b") as output:
            program = subprocess.Popen(argv, cwd=cwd, env={**environment, "TMPDIR": home}, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=output, start_new_session=True,
                                       preexec_fn=limit_files if sanitized else limit_all)
            said = watch(program, output, begin + limit, patient)
            text = os.pread(output.fileno(), 1 << 22, 0).decode(errors="replace")
    finally:
        end_children()
        shutil.rmtree(home, ignore_errors=True)
    first = (re.search(r"^(?:\[  FAILED  \]|not ok \d+ -) (.+)$", text, re.M) or
             re.search(r"^(\S+:\d+: \w+ requires .*)$", text, re.M))
    last = (text.split("\n")[-2:] or [""])[0][:100]
    words = LEAKS if LEAKS in text else first.group(1) if first else last
    return Outcome(said, time.monotonic() - begin, "" if said == PASSED else words)


def environment_of(tree, folder, **more):
    ours = ("DIBS_", "MAKE", "MFLAGS", "CMOCKA")
    out = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**out, "DIBS_TOP": tree, "DIBS_BUILD": folder, "DIBS_VARIANT": "plain", **more}


# ------------------------------------------------------------------ the copy


class Tree:
    """A copy of the sources under build/mutants, so that the work tree is never touched; built by its own Makefile."""

    def __init__(self, top, work, jobs, words=()):
        self.work, self.jobs, self.words = os.path.abspath(work), jobs, words
        self.path = os.path.join(self.work, "tree")
        self.copy(top)
        self.plain, self.counting = "build/plain", "build/counting"
        self.flags = f"{PLAIN} {PATTERN}" if compiles_with(PATTERN) else PLAIN
        self.compile, self.link = {}, {}  # of each source, each program: the command

    def copy(self, top):
        """What has not changed keeps its times, so that make builds only what it has to."""
        wanted = set()
        for entry in COPIED:
            path = os.path.join(top, entry)
            files = [path] if os.path.isfile(path) else [os.path.join(folder, name) for folder, _, names in
                                                          os.walk(path) for name in names]
            wanted |= {os.path.relpath(file, top) for file in files if "__pycache__" not in file}
        for name in wanted:
            source, copy = os.path.join(top, name), os.path.join(self.path, name)
            with open(source, "rb") as file:
                content = file.read()
            if os.path.exists(copy):
                with open(copy, "rb") as file:
                    if file.read() == content:
                        continue
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            with open(copy, "wb") as file:
                file.write(content)
        for name in self.files(""):
            if name not in wanted and not name.startswith("build/"):
                os.remove(os.path.join(self.path, name))

    def files(self, below, *endings):
        out = []
        for folder, _, names in os.walk(os.path.join(self.path, below)):
            out += [os.path.relpath(os.path.join(folder, name), self.path) for name in names
                    if not endings or name.endswith(endings)]
        return sorted(out)

    def text(self, name):
        return read(os.path.join(self.path, name))

    def make(self, build, flags, ldflags, *arguments):
        environment = environment_of(self.path, "")
        command = ["make", "--no-print-directory", f"-j{self.jobs}", f"BUILD={build}", "SANITIZE=", f"CFLAGS={flags}",
                   f"CPPFLAGS={CHECKED}", f"LDFLAGS={ldflags}", *arguments]
        done = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True)
        if done.returncode:
            die(f"the build failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout

    def build(self):
        self.make(self.plain, self.flags, "", "-s", *self.targets(self.plain))
        self.count_lines_of_lua()
        self.make(self.counting, COUNTING, "--coverage", "-s", *self.targets(self.counting))
        self.read_commands(self.make(self.plain, self.flags, "", "-n", "-B", *self.targets(self.plain)))

    def programs(self):
        """The test programs whose names contain one of the words, or all. Those of the command are scripts."""
        found = [os.path.splitext(name)[0][len("test/"):] for folder, ending in
                 (("test/unit", "_test.c"), ("test/integration", "_test.c"), ("test/cli", ".py"))
                 for name in self.files(folder, ending) if os.path.dirname(name) == folder]
        return [name for name in found if not self.words or any(word in name for word in self.words)]

    def targets(self, build):
        return ["lib", "helpers", *sorted({f"{build}/{self.made_of(program)}" for program in self.programs()})]

    @staticmethod
    def made_of(program):
        """What is linked for a program, in the build folder."""
        return "dibs" if program.startswith("cli/") else f"test/{program}"

    def argv_of(self, program, folder):
        """How a program is run that was built into the folder."""
        if program.startswith("cli/"):
            return ["python3", "-B", os.path.join(self.path, "test", program + ".py")]
        return [os.path.join(folder, self.made_of(program))]

    def read_commands(self, said):
        """The commands that compile a source, and those that link a test program."""
        for line in said.replace("\\\n", " ").splitlines():
            words = shlex.split(line) if " -o " in line else []
            target = words[words.index("-o") + 1] if "-o" in words else ""
            sources = [word for word in words if word.endswith(".c")]
            if "-c" in words and len(sources) == 1:
                self.compile[sources[0]] = words
            elif target.startswith((self.plain + "/test/", self.plain + "/dibs")) and not sources:
                self.link[os.path.relpath(target, self.plain)] = words
        missing = [program for program in self.programs() if self.made_of(program) not in self.link]
        if missing:
            die(f"the Makefile's commands were not understood: how is {missing[0]} linked?")

    # Lua says which lines it runs in the log of the server, whose name a redis-server of ours in front of the true one
    # sets. Only the beginning of a statement can say so.

    def script_folder(self):
        return os.path.dirname(next(name for name in self.files("src") if name.endswith("embed.awk")))

    def embed(self, folder):
        """The C text of the scripts in a folder."""
        scripts = sorted(glob.glob(os.path.join(folder, "*.lua")))
        awk = os.path.join(self.path, self.script_folder(), "embed.awk")
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(["awk", "-f", awk, *scripts], env=environment, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None

    def count_lines_of_lua(self):
        folder = tempfile.mkdtemp(dir=self.work)
        for name in self.files(self.script_folder(), ".lua"):
            write(os.path.join(folder, os.path.basename(name)), counting_lua(name, self.text(name)))
        text, path = self.embed(folder), os.path.join(self.path, self.counting, "scripts_lua.c")
        shutil.rmtree(folder)
        if text is None:
            die("the scripts that count lines are refused")
        self.make(self.counting, COUNTING, "--coverage", "-s", self.counting + "/scripts_lua.c")
        if read(path) != text:
            write(path, text)

    def true_server(self):
        folder = os.path.join(self.work, "bin")
        path = os.path.join(folder, "redis-server")
        write(path, f'#!/bin/sh\nexec {shutil.which("redis-server")} "$@" --logfile "$MUTANTS_LOG"\n')
        os.chmod(path, 0o755)
        return folder

    def key(self, program):
        """Changes whenever what is known of a program may have changed."""
        folders = [self.files(folder) for folder in ("src", "include", "test/support")]
        own = self.files("test/cli") if program.startswith("cli/") else [f"test/{program}.c"]
        names = [*sum(folders, []), "Makefile", *own]
        return digest(*[name + self.text(name) for name in names])


def counting_lua(name, text):
    out, depth, goes_on = [], 0, False
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r"--.*", "", line).strip()
        if code and depth == 0 and not goes_on and not re.match(r"(else|elseif|end|until)\b|[)}\]]", code):
            indent = line[:len(line) - len(line.lstrip())]
            line = f"{indent}redis.log(redis.LOG_WARNING, 'mutants {name}:{number} ') {line.lstrip()}"
        if code:
            bare = re.sub(r"'[^']*'", "", code)
            depth += sum(bare.count(c) for c in "([{") - sum(bare.count(c) for c in ")]}")
            goes_on = bool(re.search(r"(\b(and|or|not)|\.\.|[=+\-*/,<>])$", bare))
        out.append(line)
    return "\n".join(out) + "\n"


# ----------------------------------------------------- which lines a program runs


class Known(NamedTuple):
    """What is known of a program without a slip."""

    key: str
    seconds: float
    lines: dict  # file: the lines that it runs


def count_one(tree, bin_folder, program):
    """Runs one program of the build that counts, with a redis-server of that folder."""
    folder = tempfile.mkdtemp(dir=tree.work)
    depth = len([part for part in tree.path.split("/") if part])
    log, build = os.path.join(folder, "log"), os.path.join(tree.path, tree.counting)
    environment = environment_of(tree.path, build, GCOV_PREFIX=folder, GCOV_PREFIX_STRIP=str(depth), MUTANTS_LOG=log,
                                 PATH=f'{bin_folder}:{os.environ["PATH"]}')
    outcome = run_program(tree.argv_of(program, build), tree.path, environment, 300, patient=True)
    lines = lines_of_c(tree.path, folder)
    if os.path.exists(log):
        with open(log, errors="replace") as file:
            for name, number in set(re.findall(r"mutants (\S+):(\d+) ", file.read())):
                lines.setdefault(name, set()).add(int(number))
    shutil.rmtree(folder)
    return program, outcome, {name: sorted(numbers) for name, numbers in lines.items()}


def lines_of_c(tree, folder):
    counts = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names
              if name.endswith(".gcda") and "/obj/src/" in where + "/"]
    for path in counts:
        notes = os.path.relpath(path, folder)[:-len("gcda")] + "gcno"
        os.symlink(os.path.join(tree, notes), path[:-len("gcda")] + "gcno")
    lines = {}
    if not counts:
        return lines
    gcov = [os.environ.get("GCOV", "gcov"), "--json-format", "--stdout"]
    said = subprocess.run([*gcov, *counts], cwd=tree, capture_output=True, text=True)
    for text in said.stdout.splitlines():
        for file in json.loads(text)["files"]:
            lines.setdefault(file["file"], set()).update(
                line["line_number"] for line in file["lines"] if line["count"] > 0)
    return {name: numbers for name, numbers in lines.items() if name.startswith("src/")}


def count_lines(tree, jobs):
    """What each program runs, by its name: kept in a file, and measured again only where something changed."""
    path = os.path.join(tree.work, "counted.json")
    known = {name: Known(**value) for name, value in json.loads(read(path)).items()} if os.path.exists(path) else {}
    keys = {program: tree.key(program) for program in tree.programs()}
    wanted = [program for program in keys if program not in known or known[program].key != keys[program]]
    bin_folder = tree.true_server()

    def tell(result):
        program, outcome, lines = result
        print(f"  lines of {program}: {outcome.said} in {outcome.seconds:.1f} s {outcome.failed}", flush=True)
        known[program] = Known(keys[program], outcome.seconds, lines)
        write(path, json.dumps({name: value._asdict() for name, value in known.items()}))

    spread(jobs, lambda program, _: count_one(tree, bin_folder, program), wanted, tell)
    return {program: known[program] for program in keys}
