"""The test programs whose lines a file is: make check FILE=src/core/turn.c

Prints their names, one a line. The lines of a source are of the programs that are named after it. "make mutants" counts which
programs run which lines: of those that it counted last, also the unit tests that run any, and the quickest others, until
every line is run that any of them runs. Of programs that were not counted, those that include its header. A file of the
tests is of itself, or of the programs that include it.
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


UNIT, INTEGRATION, COMMAND = programs_in("unit", "_test.c"), programs_in("integration", "_test.c"), programs_in("cli", ".py")


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
    """{program: (the lines of the file that it runs, seconds)} of those that may test it and were counted."""
    if not os.path.exists(counts):
        return {}
    with open(counts, encoding="utf-8") as file:
        known = json.load(file)
    may = COMMAND if path.startswith("src/cli/") else UNIT + INTEGRATION
    return {program: (set(known[program]["lines"].get(path, [])), known[program]["seconds"])
            for program in may if program in known}


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
    if own in UNIT + INTEGRATION + COMMAND or (path.startswith("test/") and path.endswith(".sh")):
        return {own}, "the file itself"
    if path.startswith("test/cli/"):
        return set(COMMAND), "all of the command"
    known = counted(path, counts)
    reached = {program: one for program, one in known.items() if one[0]}
    unit = {program for program in reached if program.startswith("unit/")}
    found = named_after(path) | (set(reached) if every else enough(reached, unit | named_after(path)))
    if path.startswith("src/cli/"):
        found |= set(COMMAND) - set(known)
        return found, f"{len(found)} scripts of the command"
    found |= including(path) - (set(known) if reached else set())
    how = f"{len(found)} programs; {len(reached)} are known to run lines of it" if reached else "by names and headers"
    return found, how + ("" if known else '; "make mutants" counts which programs run which lines')


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
