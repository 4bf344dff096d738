"""The test programs whose lines a file is: make check FILE=src/core/turn.c

Prints their names, one a line. What "make mutants" has counted last says which programs run which lines of a source: the
unit tests that run any, the programs named after the file, and the quickest others that together run all lines that are run
by any. A source that was not counted is of the programs that are named after it or include its header. A file of the tests
is of itself, or of the programs that include it; so is what belongs to the command, of all scripts of the command.
"""

import argparse
import json
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def programs_in(folder, ending):
    return sorted(f"{folder}/{os.path.splitext(name)[0]}" for name in os.listdir(os.path.join(TOP, "test", folder))
                  if name.endswith(ending))


UNIT, INTEGRATION, COMMAND = programs_in("unit", "_test.c"), programs_in("integration", "_test.c"), programs_in("cli", ".sh")


def named_after(path):
    """turn_test and turn_crowd_test are named after turn.c."""
    name = os.path.splitext(os.path.basename(path))[0]
    return {program for program in UNIT + INTEGRATION if re.fullmatch(rf"\w+/{name}(_\w+)?_test", program)}


def included(path, seen):
    """What a file of the tests includes, also through their own headers."""
    with open(os.path.join(TOP, path), encoding="utf-8") as file:
        for name in re.findall(r'^#include "(.+?)"', file.read(), re.M):
            if name not in seen:
                seen.add(name)
                for own in (f"test/{name}", os.path.join(os.path.dirname(path), name)):
                    if os.path.exists(os.path.join(TOP, own)):
                        included(own, seen)
                        break
    return seen


def including(path):
    """The programs that include the file, or the header of its name."""
    header = re.sub(r"^(src|test|include)/", "", os.path.splitext(path)[0] + ".h")
    wanted = {header, os.path.basename(header)} if path.startswith("test/") else {header}
    return {program for program in UNIT + INTEGRATION if wanted & included(f"test/{program}.c", set())}


def counted(path, counts):
    """{program: the lines of the file that it runs}, as far as programs were counted."""
    if not os.path.exists(counts):
        return {}
    with open(counts, encoding="utf-8") as file:
        known = json.load(file)
    there = set(UNIT + INTEGRATION + COMMAND)
    return {program: (set(one["lines"][path]), one["seconds"]) for program, one in known.items()
            if program in there and one["lines"].get(path)}


def enough(reached, chosen):
    """Adds the programs that run the most of what is left, for the time that they take, until nothing is left."""
    left = set().union(*(lines for lines, _ in reached.values()))
    for program in chosen & set(reached):
        left -= reached[program][0]
    while left:
        best = max(sorted(set(reached) - chosen), key=lambda it: len(reached[it][0] & left) / (1 + reached[it][1]))
        chosen.add(best)
        left -= reached[best][0]
    return chosen


def programs_of(path, counts, every):
    """The programs, and in words how they were found."""
    own = re.sub(r"^test/|\.\w+$", "", path)
    if own in UNIT + INTEGRATION or (path.startswith("test/") and path.endswith(".sh")):
        return {own}, "the file itself"
    if path.startswith("test/cli/"):
        return set(COMMAND), "all of the command"
    reached = counted(path, counts)
    if every:
        return set(reached) | named_after(path), "all that run a line of it"
    if reached:
        unit = {program for program in reached if program.startswith("unit/")}
        return enough(reached, unit | named_after(path)), f"enough for every line that is run, of {len(reached)} programs"
    if path.startswith("src/cli/"):
        return set(COMMAND), "all of the command"
    return named_after(path) | including(path), 'by names and headers; "make mutants" counts lines'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--counts", default=os.path.join(TOP, "build/mutants/counted.json"))
    parser.add_argument("--every", action="store_true", help="all programs that run a line of the file")
    parser.add_argument("file")
    args = parser.parse_args()
    path = os.path.relpath(os.path.abspath(args.file), TOP)
    if not os.path.isfile(os.path.join(TOP, path)):
        sys.exit(f"there is no file {args.file}")
    found, how = programs_of(path, args.counts, args.every)
    if not found:
        sys.exit(f"no program is known to run a line of {path}")
    print(f"{path}: {how}", file=sys.stderr)
    print("\n".join(sorted(found)))


if __name__ == "__main__":
    main()
