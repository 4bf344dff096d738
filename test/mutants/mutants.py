"""How many small slips the tests notice: make mutants N=100 SEED=1

Each slip (slips.py) is put alone into a copy of the sources; then the programs run that reach its line, until one of
them fails: first the unit tests named after the file, then the other unit tests, then the integration tests, the
quickest first. N slips are drawn by the seed from all there are. Drawn again is what the compiler refuses or warns of
(the project takes no warnings), and what changes no object code at -O2 or the same as a slip before.

A slip is noticed where a program fails a test twice, crashes, needs five times its time and ten seconds, or loses
memory in a unit test; a program that also fails without the slip is left out. What survives is listed, and "not
reached" where no program runs its line. A survivor that no caller can tell from the original stands in equivalent.txt,
with the reason, and is not counted.

universalmutator was tried as the source of slips. Of what it makes of C sources here a third compiles, much of it lies
in strings and tables, and it knows no Lua.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import programs
import slips

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST = 90  # percent
LEAKS = "-fsanitize=leak"
NOTICED, SURVIVED, UNREACHED, EQUIVALENT = "noticed", "survived", "not reached", "equivalent"


def all_slips(tree, words):
    """Of all sources, or of those whose names contain one of the words: with the text that each is in."""
    out = []
    for path in tree.files("src", ".c", ".h", ".lua"):
        if not words or any(word in path for word in words):
            text = tree.text(path)
            out += [(slip, text) for slip in slips.slips_of(path, text)]
    return out


def equivalents():
    """The judged ones: (file and function, the original, the slip) of each entry. See the head of equivalent.txt."""
    out, path = {}, os.path.join(HERE, "equivalent.txt")
    for entry in re.split(r"\n\s*\n", programs.read(path)) if os.path.exists(path) else []:
        lines = [line for line in entry.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        if len(lines) < 4 or lines[1][:2] != "- " or lines[2][:2] != "+ ":
            programs.die(f"equivalent.txt: not an entry: {entry}")
        out[lines[0], lines[1][2:], lines[2][2:]] = " ".join(line.strip() for line in lines[3:])
    return out


def place_of(slip):
    return f"{slip.path} {slip.function}".rstrip()


# ----------------------------------------------------------------- compiling


class Lua:
    """Whether the scripts are right Lua: a server of our own loads them."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="dm-", dir="/tmp")
        path = os.path.join(self.folder, "s")
        self.server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--save", ""],
                                       cwd=self.folder, stdout=subprocess.DEVNULL)
        self.socket = self.connect(path, time.monotonic() + 30)

    @staticmethod
    def connect(path, deadline):
        """The server is there a moment after its socket: until then it refuses."""
        while True:
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(30)
            try:
                client.connect(path)
                return client
            except OSError:
                client.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def accepts(self, embedded):
        for array in re.findall(r"\[\] = \{\n(.*?)\n    0,\n\}", embedded, re.S):
            characters = re.findall(r"'(\\.|[^\\])',", array)
            code = "".join({"\\n": "\n", "\\t": "\t"}.get(c, c[-1]) for c in characters).encode()
            self.socket.sendall(b"*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%d\r\n%s\r\n" % (len(code), code))
            answer = b""
            while not answer.endswith(b"\r\n"):
                answer += self.socket.recv(4096)
            if not answer.startswith(b"$"):
                return False
            while answer.count(b"\r\n") < 2:
                answer += self.socket.recv(4096)
        return True

    def close(self):
        self.socket.close()
        self.server.terminate()
        self.server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Compiler:
    """Makes the objects of a slip, by the commands of the Makefile."""

    def __init__(self, tree, lua):
        self.tree, self.lua = tree, lua
        self.originals = {}
        self.lua_source = next(source for source in tree.compile if source.endswith("scripts_lua.c"))

    def run(self, source, text, target, final=False, more=()):
        """Compiles the text as if it were the source; returns the object's bytes, None where it is refused."""
        words, skip = [], False
        for word in self.tree.compile[source]:
            if skip or word in ("-MMD", "-MP", "-c", source) or (final and word in programs.NOT_FINAL):
                skip = False
            elif word in ("-o", "-MF", "-MT"):
                skip = True
            else:
                words.append("-O2" if final and word == "-O1" else word)
        words[1:1] = more
        # A slip inside && and || may want brackets for clarity; all else that gives a warning is refused.
        words += ["-Werror", "-Wno-parentheses", "-x", "c", "-c", "-o", target, "-"]
        done = subprocess.run(words, cwd=self.tree.path, input=f'#line 1 "{source}"\n{text}', text=True,
                              capture_output=True)
        if done.returncode:
            return None
        with open(target, "rb") as file:
            return file.read()

    def original(self, source, text, folder, final):
        if (source, final) not in self.originals:
            self.originals[source, final] = self.run(source, text, os.path.join(folder, "original.o"), final)
        return self.originals[source, final]

    def dependents(self, header):
        out = []
        for source in self.tree.compile:
            notes = f"{self.tree.plain}/obj/{source[:-2]}.d"
            if source.startswith("src/") and os.path.exists(os.path.join(self.tree.path, notes)):
                if header in self.tree.text(notes).replace("\\\n", " ").split():
                    out.append(source)
        return out

    def make(self, slip, text, folder):
        """The objects, {source: file}, and what they say; None where another must be drawn."""
        os.makedirs(folder, exist_ok=True)
        changed = slips.mutated(text, slip)
        if slip.path.endswith(".lua"):
            return self.make_lua(slip, changed, folder)
        if slip.path.endswith(".h"):
            return self.make_header(slip, changed, folder)
        made = self.make_one(slip.path, changed, folder)
        final = made and self.run(slip.path, changed, os.path.join(folder, "final.o"), final=True)
        if not made or final == self.original(slip.path, text, folder, True):
            return None
        return made, final or b""

    def make_one(self, source, text, folder, more=()):
        target = os.path.join(folder, source.replace("/", "-")[:-2] + ".o")
        return {source: target} if self.run(source, text, target, more=more) else None

    def make_header(self, slip, changed, folder):
        programs.write(os.path.join(folder, slip.path), changed)
        objects, said, differs = {}, b"", False
        for source in self.dependents(slip.path):
            text = self.tree.text(source)
            made = self.make_one(source, text, folder, ["-I" + os.path.join(folder, "src")])
            if not made:
                return None
            with open(made[source], "rb") as file:
                content = file.read()
            if content != self.original(source, text, folder, False):
                objects, said, differs = {**objects, **made}, said + content, True
        return (objects, said) if differs else None

    def make_lua(self, slip, changed, folder):
        scripts = os.path.join(folder, "scripts")
        shutil.copytree(os.path.join(self.tree.path, self.tree.script_folder()), scripts, dirs_exist_ok=True)
        programs.write(os.path.join(scripts, os.path.basename(slip.path)), changed)
        text = self.tree.embed(scripts)
        if not text or text == self.tree.embed(os.path.join(self.tree.path, self.tree.script_folder())):
            return None
        if not self.lua.accepts(text):
            return None
        made = self.make_one(self.lua_source, text, folder)
        return (made, text.encode()) if made else None


def draw(tree, args, jobs):
    """N slips that compile and differ: [(index, slip, text, objects)]."""
    found = all_slips(tree, args.only)
    random.Random(args.seed).shuffle(found)
    lua = Lua()
    compiler, drawn, seen, refused = Compiler(tree, lua), [], set(), 0
    base = os.path.join(tree.work, "slips")
    shutil.rmtree(base, ignore_errors=True)
    try:
        with ThreadPoolExecutor(jobs) as pool:
            step = max(1, min(args.number, 2 * jobs))
            for begin in range(0, len(found), step):
                if len(drawn) >= args.number:
                    break
                some = list(enumerate(found[begin:begin + step], begin))
                c_only = pool.map(lambda it: it[1][0].path.endswith(".lua") or
                                  compiler.make(*it[1], os.path.join(base, str(it[0]))), some)
                for (i, (slip, text)), made in zip(some, c_only):
                    if made is True:
                        made = compiler.make(slip, text, os.path.join(base, str(i)))
                    if not made or made[1] in seen or len(drawn) >= args.number:
                        refused += len(drawn) < args.number
                        shutil.rmtree(os.path.join(base, str(i)), ignore_errors=True)
                        continue
                    seen.add(made[1])
                    drawn.append((len(drawn) + 1, slip, text, made[0]))
    finally:
        lua.close()
    if not drawn:
        programs.die("no slip can be made: is there a source of such a name?")
    print(f"{len(found)} slips can be made; {len(drawn)} drawn, {refused} refused by the compiler or without effect",
          flush=True)
    return drawn


def again(tree, args, results):
    """The survivors of the last run with this seed, as the sources are now."""
    wanted = {(r["path"], r["function"], r["before"], r["after"]): r["number"] for r in results
              if r["verdict"] in (SURVIVED, UNREACHED)}
    lua = Lua()
    compiler, out = Compiler(tree, lua), []
    try:
        for slip, text in all_slips(tree, args.only):
            before, after = slips.before_and_after(text, slip)
            number = wanted.pop((slip.path, slip.function, before, after), None)
            made = number and compiler.make(slip, text, os.path.join(tree.work, "slips", f"again-{number}"))
            if made:
                out.append((number, slip, text, made[0]))
    finally:
        lua.close()
    return sorted(out)


# ------------------------------------------------------------------- running


def programs_for(slip, known):
    """The names of the programs that run the slip's statement, in the order in which to run them."""
    name = re.sub(r"\.\w+$", "", os.path.basename(slip.path))

    def reaches(lines):
        mine = lines.get(slip.path, [])
        if any(slip.first <= line <= slip.last for line in mine):
            return True
        return slip.path.endswith(".lua") and slip.first not in countable and bool(mine)

    countable = {line for one in known.values() for line in one.lines.get(slip.path, [])}
    # The scripts are slow, and see the library from afar: they are for the sources of the command.
    of_the_command = slip.path.startswith("src/cli/")
    may = [program for program in known if program.startswith("cli/") == of_the_command]
    chosen = [program for program in may if reaches(known[program].lines)]
    if of_the_command:
        chosen = chosen or may  # where a signal has ended the command, nothing tells which lines it ran
    return sorted(chosen, key=lambda program: (
        not re.match(rf"unit/{name}(_\w+)?_test$", program), not program.startswith("unit/"), known[program].seconds))


class Worker:
    """Tries one slip after the other."""

    def __init__(self, tree, known, number):
        self.tree, self.known = tree, known
        self.folder = os.path.join(tree.work, f"w{number}")

    def linked(self, program, objects, folder, *flags):
        return self.link(self.tree.made_of(program), objects, folder, *flags)

    def link(self, made, objects, folder, *flags):
        """Links it into the folder, with the objects of the slip in their places, or in front of the library."""
        words = self.tree.link[made]
        at = words.index("-o")
        places = {f"{self.tree.plain}/obj/{source[:-2]}.o": file for source, file in objects.items()}
        in_front = [file for place, file in places.items() if place not in words]
        out = []
        for word in words[:at] + words[at + 2:]:
            out += [*in_front, word] if word.endswith(".a") else [places.get(word, word)]
        target = os.path.join(folder, made)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        done = subprocess.run([*out, *flags, "-o", target], cwd=self.tree.path, capture_output=True, text=True)
        return done.returncode == 0

    def run(self, program, folder, sanitized=False):
        environment = programs.environment_of(self.tree.path, folder)
        limit = 5 * self.known[program].seconds + 10
        argv = self.tree.argv_of(program, folder)
        return programs.run_program(argv, self.tree.path, environment, limit, sanitized=sanitized)

    def is_sound(self, program, *flags):
        """Whether it passes without a slip: found out when it first notices something; one failure is forgiven."""
        note = os.path.join(self.tree.work, "sound", program + "".join(flags))
        if not os.path.exists(note):
            folder = os.path.join(self.tree.path, self.tree.plain)
            if flags:
                folder = os.path.join(self.folder, "sound")
                self.linked(program, {}, folder, *flags)
            tries = (self.run(program, folder, bool(flags)) for _ in range(2))
            good = any(outcome.said == programs.PASSED for outcome in tries)
            programs.write(note, "yes" if good else "no")
        return programs.read(note) == "yes"

    def notices(self, program):
        """How the program notices the slip; None where it does not."""
        first = self.run(program, self.folder)
        if first.said == programs.PASSED or not self.is_sound(program):
            return None
        if first.said == programs.FAILS:
            second = self.run(program, self.folder)
            if second.said == programs.PASSED:
                second = self.run(program, self.folder)
            if second.said == programs.PASSED:
                return None
        return f"{first.said} {first.failed}".strip()

    def leaks(self, program, objects):
        """Whether memory is lost in a unit test that passes: AddressSanitizer would notice that."""
        return (self.linked(program, objects, self.folder, LEAKS) and
                self.run(program, self.folder, True).failed == programs.LEAKS and self.is_sound(program, LEAKS))

    def try_slip(self, slip, objects):
        """(verdict, the program that noticed it, how, how many were run)"""
        shutil.rmtree(self.folder, ignore_errors=True)
        chosen = programs_for(slip, self.known)
        unit = [program for program in chosen if program.startswith("unit/")]
        found = self.first_that_notices(unit, objects)
        if not found:
            found = next(((program, "lost memory") for program in unit if self.leaks(program, objects)), None)
        if not found and len(chosen) > len(unit):
            self.make_helpers(objects)
            found = self.first_that_notices(chosen[len(unit):], objects)
        verdict = NOTICED if found else SURVIVED if chosen else UNREACHED
        return (verdict, *(found or ("", "")), len(chosen))

    def make_helpers(self, objects):
        """What integration tests start or load, where they look for it: a test that misses it fails with any slip."""
        for helper in (name for name in self.tree.link if name.startswith("test/prog/")):
            self.link(helper, objects, self.folder)
        for shim in self.tree.files(f"{self.tree.plain}/test", ".so"):
            target = os.path.join(self.folder, os.path.relpath(shim, self.tree.plain))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(os.path.join(self.tree.path, shim), target)

    def first_that_notices(self, chosen, objects):
        """(the program, how), or None."""
        for program in chosen:
            if not self.linked(program, objects, self.folder):
                return program, "does not link"
            how = self.notices(program)
            if how:
                return program, how
        return None


def try_all(tree, known, drawn, jobs, tell):
    """Calls tell for each as it is known."""
    notes = os.path.join(tree.work, "sound")
    shutil.rmtree(notes, ignore_errors=True)

    def work(one, number):
        index, slip, _, objects = one
        begin = time.monotonic()
        return (index, *Worker(tree, known, number).try_slip(slip, objects), time.monotonic() - begin)

    programs.spread(jobs, work, drawn, lambda result: tell(*result))
    unsound = [name for folder, _, names in os.walk(notes) for name in names
               if programs.read(os.path.join(folder, name)) == "no"]
    if unsound:
        print(f'left out, because they fail without a slip: {" ".join(sorted(unsound))}')


# -------------------------------------------------------------------- report


def describe(result):
    return (f'{result["path"]}:{result["line"]} in {result["function"] or "the script"}: {result["kind"]}\n'
            f'    - {result["before"]}\n    + {result["after"]}')


def report(args, results):
    out = [f"Slips drawn by seed {args.seed}" + (f' in {" ".join(args.only)}' if args.only else "")]
    count = {verdict: sum(r["verdict"] == verdict for r in results)
             for verdict in (NOTICED, SURVIVED, UNREACHED, EQUIVALENT)}
    for verdict in (SURVIVED, UNREACHED, EQUIVALENT):
        if count[verdict]:
            out += ["", verdict.upper()] + [describe(r) for r in results if r["verdict"] == verdict]
    counted = len(results) - count[EQUIVALENT]
    percent = 100 * count[NOTICED] / counted if counted else 100
    out += ["", f"{count[NOTICED]} of {counted} noticed: {percent:.1f} %; survived: {count[SURVIVED]}, not reached: "
            f"{count[UNREACHED]}, equivalent and not counted: {count[EQUIVALENT]}"]
    return "\n".join(out) + "\n", percent


def options():
    parser = argparse.ArgumentParser(description="How many small slips the tests notice")
    parser.add_argument("--number", type=int, default=100, help="how many slips")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="how many programs at once")
    parser.add_argument("--work", default="build/mutants", help="the folder for all that is made")
    parser.add_argument("--again", action="store_true", help="only what survived the last run with this seed")
    parser.add_argument("--programs", default="", help="only test programs whose names contain one of these words")
    parser.add_argument("only", nargs="*", help="only sources whose names contain one of these words")
    return parser.parse_args()


def main():
    args = options()
    signal.signal(signal.SIGTERM, programs.end_in_order)
    os.nice(10)
    programs.need_tools()
    top = os.path.dirname(os.path.dirname(HERE))
    os.makedirs(args.work, exist_ok=True)
    tree = programs.Tree(top, args.work, args.jobs, args.programs.split())
    print("building", flush=True)
    tree.build()
    known = programs.count_lines(tree, args.jobs)
    saved = os.path.join(tree.work, f"results-{args.seed}.json")
    results = json.loads(programs.read(saved)) if args.again else []
    drawn = again(tree, args, results) if args.again else draw(tree, args, args.jobs)
    judged, rows = equivalents(), {r["number"]: r for r in results}
    for index, slip, text, _ in drawn:
        before, after = slips.before_and_after(text, slip)
        rows[index] = {"number": index, "path": slip.path, "line": slips.line_of(text, slip.start),
                       "function": slip.function, "kind": slip.kind, "before": before, "after": after,
                       "verdict": EQUIVALENT if (place_of(slip), before, after) in judged else ""}

    def tell(index, verdict, program, how, count, seconds):
        row = rows[index]
        row.update(verdict=verdict, program=program, how=how)
        of_what = f"by {program}: {how}" if program else f"all {count} programs"
        print(f"{index:4} {verdict} {of_what}, {seconds:.1f} s\n     {describe(row)}", flush=True)
        programs.write(saved, json.dumps([rows[i] for i in sorted(rows)]))

    try_all(tree, known, [one for one in drawn if rows[one[0]]["verdict"] != EQUIVALENT], args.jobs, tell)
    text, percent = report(args, [rows[i] for i in sorted(rows)])
    programs.write(os.path.join(tree.work, f"report-{args.seed}.txt"), text)
    print(text, end="")
    return 0 if percent >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
