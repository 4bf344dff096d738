"""Writes each piece of C and C++ in a document to a file of its own, which compiles if the piece is right.

    snippets.py FOLDER DOCUMENT...    writes FOLDER/NUMBER.c or NUMBER.cpp, prints "FILE DOCUMENT LINE" for each

A piece is
  - in *.md: a block that begins with ```c or ```cpp;
  - in a manual page of section 3: a display (.Bd -literal) of the section EXAMPLES;
  - in a header: a part of a comment that is indented by three blanks or more and has a line that ends in ; or {.

A piece with a function main is a whole program, and written as it stands. Any other is preceded by snippet.h beside this
file, which declares what documents may take for granted. A piece that defines a function, with the { on a line of its
own, stands outside of functions; any other is the body of a function with a parameter rt, the runtime. A line with ...
alone, a // comment aside, stands for any statement.
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def of_markdown(lines):
    start = language = None
    for number, line in enumerate(lines, 1):
        if start is None and re.fullmatch(r"```(c|cpp)", line):
            start, language = number, line[3:]
        elif start is not None and line == "```":
            yield start + 1, language, lines[start : number - 1]
            start = None


def of_manual(lines):
    section, start = "", None
    for number, line in enumerate(lines, 1):
        if line.startswith(".Sh "):
            section = line[4:]
        elif line.startswith(".Bd -literal") and section == "EXAMPLES":
            start = number
        elif line == ".Ed" and start is not None:
            text = [re.sub(r"\\&", "", one).replace(r"\(dq", '"').replace(r"\-", "-") for one in lines[start : number - 1]]
            yield start + 1, "c", [one.replace(r"\e", "\\") for one in text]
            start = None


def is_code(text):
    return any(re.search(r"[;{]\s*(//.*)?$", line) for line in text)


def of_header(lines, language):
    start, text = None, []
    for number, line in enumerate(lines + [""], 1):
        indented = re.match(r" *\*   ( *\S.*)$", line)
        if indented and start is None:
            start, text = number, [indented[1]]
        elif indented:
            text.append(indented[1])
        elif start is not None and re.fullmatch(r" *\*", line):
            text.append("")
        elif start is not None:
            if is_code(text):
                yield start, language, text
            start = None


def pieces_of(document):
    with open(document, encoding="utf-8") as file:
        lines = file.read().split("\n")
    if document.endswith(".md"):
        return of_markdown(lines)
    if document.endswith(".3"):
        return of_manual(lines)
    return of_header(lines, "cpp" if document.endswith(".hpp") else "c")


def whole(text, language):
    """The text of a file that compiles if the piece is right."""
    if any(re.search(r"\bmain\(", line) for line in text):
        return text
    text = [re.sub(r"^(\s*)\.\.\.(?=\s*(//.*)?$)", r"\1anything();", line) for line in text]
    includes = [line for line in text if line.startswith("#include")]
    body = [line for line in text if not line.startswith("#include")]
    prologue = ['#include "%s/snippet.h"' % HERE] + includes
    if any(re.match(r"\w.*\)$", head) and brace == "{" for head, brace in zip(body, body[1:])):
        return prologue + body
    return prologue + ["static inline void snippet(dibs_runtime *rt)", "{", "(void)rt;", "{"] + body + ["}", "}"]


def main(folder, documents):
    count = 0
    for document in documents:
        for line, language, text in pieces_of(document):
            count += 1
            path = os.path.join(folder, "%d.%s" % (count, language))
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(whole(text, language)) + "\n")
            print(path, document, line)


main(sys.argv[1], sys.argv[2:])
