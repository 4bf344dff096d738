"""
paths.py PROGRAM ENTERED: prints a table of what test/build/paths.c told, as rows of Markdown.
paths.py --check TABLE DOCUMENT: whether the document has these rows, give or take a tenth.
"""

import re
import statistics
import subprocess
import sys

NAMES = ["nested lock", "uncontended lock", "lock by push", "last unlock", "renewal"]


def places(program, addresses):
    """The name and the file of each function."""
    told = subprocess.run(["addr2line", "-f", "-e", program], input="\n".join(addresses), text=True,
                          capture_output=True, check=True).stdout.split("\n")
    return {address: (told[2 * i], told[2 * i + 1].split(":")[0]) for i, address in enumerate(addresses)}


def table(program, entered):
    calls = [line.split() for line in open(entered, encoding="ascii")]
    place = places(program, sorted({address for call in calls for address in call[1:]}))
    for name in NAMES:
        rows = []
        for call in calls:
            if call[0].replace("-", " ") == name:
                functions = [place[address] for address in call[1:]]
                locks = sum(function == "dibs__mutex_lock" for function, _ in functions)
                rows.append((len(set(functions)), len({file for _, file in functions}), locks))
        print("|", name, "|", " | ".join(str(statistics.median_low(column)) for column in zip(*rows)), "|")


def rows_of(path):
    rows = (re.fullmatch(r"\| ([a-z ]+) \| (\d+) \| (\d+) \| (\d+) \|\n", line) for line in open(path, encoding="utf-8"))
    return {row[1]: [int(figure) for figure in row.groups()[1:]] for row in rows if row and row[1] in NAMES}


def check(counted, document):
    says = rows_of(document)
    wrong = 0
    for name, figures in rows_of(counted).items():
        if name not in says or any(abs(a - b) > max(3, b // 10) for a, b in zip(figures, says[name])):
            print(name, "is", figures, "and the document says", says.get(name))
            wrong += 1
    return wrong == 0 and sorted(says) == sorted(NAMES)


if sys.argv[1] == "--check":
    sys.exit(0 if check(sys.argv[2], sys.argv[3]) else 1)
table(sys.argv[1], sys.argv[2])
