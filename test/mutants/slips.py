"""Small slips of a programmer, made in C and Lua sources: each is a piece of the text and its replacement.

Mutated is what runs: the bodies of functions in C, the statements in Lua. Comments, strings, preprocessor lines, tables
of constants, declarations without a value and preconditions (DIBS__REQUIRE, _Static_assert) are left alone. No slip
changes the number of lines.
"""

import re
from typing import NamedTuple

STATUS = ["DIBS_" + name for name in ("OK BUSY TIMEOUT NOT_HELD LOST UNAVAILABLE DENIED STORE_ERROR INVALID NO_MEMORY "
                                      "CLOSED OVERFLOW").split()]


class Slip(NamedTuple):
    """text[start:end] becomes new. first and last are the lines of the statement, which the tests must run."""

    path: str
    start: int
    end: int
    new: str
    kind: str
    function: str
    first: int
    last: int


class Token(NamedTuple):
    kind: str  # word, number, text (a string or a character), op
    text: str
    start: int
    end: int


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def line_range(text, start, end):
    """The offsets of the whole lines that hold [start, end)."""
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", max(start, end - 1))
    return begin, len(text) if stop < 0 else stop


def mutated(text, slip):
    return text[:slip.start] + slip.new + text[slip.end:]


def shown(text):
    """A piece of source as one line, to be read and to be compared."""
    return " ".join(text.split())


def before_and_after(text, slip):
    begin, stop = line_range(text, slip.start, slip.end)
    changed = text[begin:slip.start] + slip.new + text[slip.end:stop]
    return shown(text[begin:stop]), shown(changed)


def tokens_of(text, pattern):
    out = []
    for match in pattern.finditer(text):
        kind = match.lastgroup
        if kind in ("word", "number", "text", "op"):
            out.append(Token(kind, match.group(), match.start(), match.end()))
    return out


def matching(tokens, opening):
    """For each bracket's place, the place of its partner."""
    pairs, stack = {}, []
    for i, token in enumerate(tokens):
        if token.kind != "op":
            continue
        if token.text in opening:
            stack.append(i)
        elif token.text in opening.values() and stack:
            partner = stack.pop()
            pairs[partner], pairs[i] = i, partner
    return pairs


def split_at_commas(tokens, pairs, first, last):
    """The ranges [from, to] of tokens between commas that stand in no bracket, of the range [first, last]."""
    parts, begin, i = [], first, first
    while i <= last:
        if tokens[i].text == "," and tokens[i].kind == "op":
            parts.append((begin, i - 1))
            begin = i + 1
        elif i in pairs and pairs[i] > i:
            i = pairs[i]
        i += 1
    parts.append((begin, last))
    return [part for part in parts if part[0] <= part[1]]


class Maker:
    """What C and Lua share: it collects the slips of one file."""

    def __init__(self, path, text, pattern, opening):
        self.path, self.text = path, text
        self.tokens = tokens_of(text, pattern)
        self.pairs = matching(self.tokens, opening)
        self.slips = []
        self.function = ""
        self.statement = (0, 0)  # of tokens

    def add(self, start, end, new, kind):
        first, last = self.statement
        self.slips.append(Slip(self.path, start, end, new, kind, self.function,
                               line_of(self.text, self.tokens[first].start),
                               line_of(self.text, self.tokens[last].end - 1)))

    def add_token(self, i, new, kind):
        self.add(self.tokens[i].start, self.tokens[i].end, new, kind)

    def piece(self, first, last):
        return self.text[self.tokens[first].start:self.tokens[last].end]

    def add_number(self, i):
        match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)", self.tokens[i].text)
        if not match:
            return
        digits = match.group(1)
        value = int(digits, 16 if digits[:2].lower() == "0x" else 10)
        self.add_token(i, f"{value + 1}{match.group(2)}", "one more")
        if value > 0:
            self.add_token(i, f"{value - 1}{match.group(2)}", "one less")

    def is_constant_text(self, first, last):
        return first == last and self.tokens[first].kind == "text" and self.path.endswith(".c")

    def add_swaps(self, i):
        """The arguments of the call whose bracket opens at i, each pair of neighbours changed for one another."""
        if self.pairs.get(i, i) <= i + 1:
            return
        parts = split_at_commas(self.tokens, self.pairs, i + 1, self.pairs[i] - 1)
        name = self.tokens[i - 1].text
        if name in ("call", "pcall"):
            parts = parts[1:]  # the name of a command among its arguments is no small slip
        elif name in ("strcmp", "strncmp", "memcmp"):
            parts = parts[1:] if len(parts) > 2 else []  # equal is equal
        elif name == "calloc":
            parts = []  # so many bytes, either way
        for (a, b), (c, d) in zip(parts, parts[1:]):
            left, right = self.piece(a, b), self.piece(c, d)
            if shown(left) != shown(right) and self.is_constant_text(a, b) == self.is_constant_text(c, d):
                between = self.text[self.tokens[b].end:self.tokens[c].start]
                self.add(self.tokens[a].start, self.tokens[d].end, right + between + left, "arguments swapped")


# ------------------------------------------------------------------------ C

C_TOKENS = re.compile(r"""
    (?P<comment>/\*.*?\*/|//[^\n]*)
  | (?P<directive>^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
  | (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\.?\d[\w.]*)
  | (?P<op>\.\.\.|<<=|>>=|->|\+\+|--|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||[-+*/%&|^~!<>=?:;,.(){}\[\]])
""", re.X | re.S | re.M)
C_BRACKETS = {"(": ")", "[": "]", "{": "}"}
C_OPERATORS = {
    "==": [("!=", "comparison")], "!=": [("==", "comparison")],
    "<": [("<=", "comparison"), (">=", "comparison")], "<=": [("<", "comparison"), (">", "comparison")],
    ">": [(">=", "comparison"), ("<=", "comparison")], ">=": [(">", "comparison"), ("<", "comparison")],
    "&&": [("||", "and, or")], "||": [("&&", "and, or")],
    "+": [("-", "plus, minus")], "-": [("+", "plus, minus")], "+=": [("-=", "plus, minus")],
    "-=": [("+=", "plus, minus")], "++": [("--", "plus, minus")], "--": [("++", "plus, minus")],
    "*": [("/", "times, by")], "/": [("*", "times, by")],
    "|": [("&", "bits")], "&": [("|", "bits")], "|=": [("&=", "bits")], "&=": [("|=", "bits")],
    "<<": [(">>", "bits")], ">>": [("<<", "bits")],
}
BINARY_ONLY = {"+", "-", "*", "&"}
C_TYPES = set("struct union enum const static extern volatile register void bool char short int long float double "
              "unsigned signed _Atomic _Thread_local va_list FILE".split())
C_KEYWORDS = C_TYPES | set("if else while for do switch case default return break continue goto sizeof _Alignof "
                           "_Static_assert __attribute__".split())
C_LEFT_ALONE = {"DIBS__REQUIRE", "_Static_assert"}
VALUES = {"true": "false", "false": "true"}


class MakerOfC(Maker):
    def __init__(self, path, text):
        super().__init__(path, text, C_TOKENS, C_BRACKETS)
        self.find_functions()

    def is_op(self, i, text):
        return i < len(self.tokens) and self.tokens[i].kind == "op" and self.tokens[i].text == text

    def is_word(self, i, *texts):
        return i < len(self.tokens) and self.tokens[i].kind == "word" and self.tokens[i].text in texts

    def find_functions(self):
        begin, i = 0, 0
        while i < len(self.tokens):
            if self.is_op(i, "{"):
                if i and self.is_op(i - 1, ")"):
                    self.function = self.name_of_function(begin, i)
                    self.block(i)
                i = self.pairs[i]
                begin = i + 1
            elif self.is_op(i, ";"):
                begin = i + 1
            i += 1

    def name_of_function(self, begin, end):
        for i in range(begin, end - 1):
            if self.tokens[i].kind == "word" and self.is_op(i + 1, "(") and self.tokens[i].text != "__attribute__":
                return self.tokens[i].text
        return ""

    def block(self, opening):
        i = opening + 1
        while i < self.pairs[opening]:
            i = self.stmt(i)

    def control(self, i, kind):
        """The condition in brackets at i; the place behind it."""
        end = self.pairs[i]
        self.statement = (i - 1, end)
        if kind in ("if", "while"):
            self.add(self.tokens[i + 1].start, self.tokens[end - 1].end, f"!({self.piece(i + 1, end - 1)})",
                     "condition negated")
        self.expression(i + 1, end - 1)
        return end + 1

    def stmt(self, i):
        """Takes the statement that begins at i; the place behind it."""
        word = self.tokens[i].text if self.tokens[i].kind == "word" else ""
        if self.is_op(i, "{"):
            self.block(i)
            return self.pairs[i] + 1
        if self.is_op(i, ";"):
            return i + 1
        if word in ("if", "while", "for", "switch"):
            i = self.stmt(self.control(i + 1, word))
            return self.stmt(i + 1) if word == "if" and self.is_word(i, "else") else i
        if word == "do":
            i = self.stmt(i + 1)
            return self.control(i + 1, "while") + 1
        if word in ("case", "default") or (word and self.is_op(i + 1, ":")):
            while not self.is_op(i, ":"):
                i += 1
            return i + 1
        return self.simple(i, word)

    def simple(self, i, word):
        end = i
        while not self.is_op(end, ";"):
            end = max(end, self.pairs.get(end, end)) + 1
        self.statement = (i, end)
        if word in C_LEFT_ALONE or word == "static":
            return end + 1
        if self.is_declaration(i):
            while i < end and not self.is_op(i, "="):
                i = max(i, self.pairs.get(i, i)) + 1
            self.expression(i + 1, end - 1)
            return end + 1
        lines = self.text.count("\n", self.tokens[i].start, self.tokens[end].end)
        self.add(self.tokens[i].start, self.tokens[end].end, "{}" + "\n" * lines, "statement removed")
        if word not in ("break", "continue", "goto"):
            self.expression(i + (word == "return"), end - 1)
        return end + 1

    def is_declaration(self, i):
        word = self.tokens[i]
        if word.kind != "word" or (word.text in C_KEYWORDS and word.text not in C_TYPES):
            return False
        if word.text in C_TYPES:
            return True
        i += 1
        while self.is_op(i, "*"):
            i += 1
        return self.tokens[i].kind == "word" and not self.is_op(i - 1, "(")

    def follows_operand(self, i):
        token = self.tokens[i - 1]
        if token.kind == "word":
            return token.text not in C_KEYWORDS
        return token.kind in ("number", "text") or token.text in (")", "]")

    def expression(self, first, last):
        for i in range(first, last + 1):
            token = self.tokens[i]
            if token.kind == "number":
                self.add_number(i)
            elif token.kind == "word":
                self.word(i)
            elif token.kind == "op":
                self.operator(i, last)

    def word(self, i):
        text = self.tokens[i].text
        if text in VALUES:
            self.add_token(i, VALUES[text], "constant")
        elif text in STATUS:
            self.add_token(i, STATUS[(STATUS.index(text) + 1) % len(STATUS)], "constant")
        elif text not in C_KEYWORDS and self.is_op(i + 1, "("):
            self.add_swaps(i + 1)

    def operator(self, i, last):
        text = self.tokens[i].text
        if text == "!":
            self.add_token(i, "", "negation dropped")
        elif text == "?":
            self.branches(i, last)
        elif text not in BINARY_ONLY or self.follows_operand(i):
            for new, kind in C_OPERATORS.get(text, []):
                self.add_token(i, new, kind)

    def branches(self, i, last):
        """The two sides of a ?: are changed for one another."""
        depth, colon, end = 0, 0, i + 1
        while end <= last:
            text = self.tokens[end].text if self.tokens[end].kind == "op" else ""
            if text == "?" and not colon:
                depth += 1
            elif text == ":" and not colon:
                colon, depth = (end, depth) if depth == 0 else (0, depth - 1)
            elif text in (",", ";", ")", "]", "}") or (text == ":" and colon):
                break
            end = max(end, self.pairs.get(end, end)) + 1
        if colon and end > colon + 1:
            yes, no = self.piece(i + 1, colon - 1), self.piece(colon + 1, end - 1)
            between = self.text[self.tokens[colon - 1].end:self.tokens[colon + 1].start]
            self.add(self.tokens[i + 1].start, self.tokens[end - 1].end, no + between + yes, "branches swapped")


# ---------------------------------------------------------------------- Lua

LUA_TOKENS = re.compile(r"""
    (?P<comment>--[^\n]*)
  | (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\d[\w.]*)
  | (?P<op>\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^\#<>=:;,.(){}\[\]])
""", re.X)
LUA_BRACKETS = C_BRACKETS
LUA_OPERATORS = {**{op: C_OPERATORS[op] for op in ("<", "<=", ">", ">=", "+", "-", "*", "/")},
                 "==": [("~=", "comparison")], "~=": [("==", "comparison")]}
LUA_KEYWORDS = set("and break do else elseif end false for function if in local nil not or repeat return then true "
                   "until while".split())


class MakerOfLua(Maker):
    """Line by line: a statement that goes on over lines is not removed, but its operators are changed."""

    def __init__(self, path, text):
        super().__init__(path, text, LUA_TOKENS, LUA_BRACKETS)
        line, i = 0, 0
        while i < len(self.tokens):
            line, first = line_of(self.text, self.tokens[i].start), i
            while i < len(self.tokens) and line_of(self.text, self.tokens[i].start) == line:
                i += 1
            self.line(first, i - 1)

    def line(self, first, last):
        self.statement = (first, last)
        words = [token.text for token in self.tokens[first:last + 1]]
        if "function" in words:
            self.function = next((words[i + 1] for i, word in enumerate(words[:-1]) if word == "function"), "")
            return
        if words[0] in ("if", "elseif", "while") and words[-1] in ("then", "do"):
            self.add(self.tokens[first + 1].start, self.tokens[last - 1].end,
                     f"not ({self.piece(first + 1, last - 1)})", "condition negated")
        if self.is_removable(first, last, words):
            self.add(self.tokens[first].start, self.tokens[last].end, "do end", "statement removed")
        for i in range(first, last + 1):
            self.token(i)

    def is_removable(self, first, last, words):
        whole = all(first <= self.pairs[i] <= last for i in range(first, last + 1) if i in self.pairs)
        return whole and (words[0] == "return" or self.tokens[first].kind == "word" and words[0] not in LUA_KEYWORDS) \
            and not set(words) & {"then", "do", "end"} and words[-1] not in ("=", "and", "or", "..", ",", "(", "{") \
            and (words[0] == "return" or "=" in words or ")" in words)

    def token(self, i):
        token = self.tokens[i]
        if token.kind == "number":
            self.add_number(i)
        elif token.kind == "word":
            self.word(i)
        elif token.kind == "op" and (token.text != "-" or self.follows_operand(i)):
            for new, kind in LUA_OPERATORS.get(token.text, []):
                self.add_token(i, new, kind)

    def follows_operand(self, i):
        token = self.tokens[i - 1]
        return token.text in (")", "]") or token.kind == "number" or (token.kind == "word" and
                                                                      token.text not in LUA_KEYWORDS)

    def word(self, i):
        text = self.tokens[i].text
        if text in VALUES:
            self.add_token(i, VALUES[text], "constant")
        elif text in ("and", "or"):
            self.add_token(i, "or" if text == "and" else "and", "and, or")
        elif text == "not":
            self.add_token(i, "", "negation dropped")
        elif text not in LUA_KEYWORDS and i + 1 < len(self.tokens) and self.tokens[i + 1].text == "(":
            self.add_swaps(i + 1)


def slips_of(path, text):
    return (MakerOfLua if path.endswith(".lua") else MakerOfC)(path, text).slips
