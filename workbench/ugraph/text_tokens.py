"""Words of the text form. Invariant: every token knows its line and column, counted from 1."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from workbench.errors import FormatError

_PATTERN = re.compile(
    r"""(?P<space>[ \t\r]+|\#[^\n]*)
      | (?P<newline>\n|;)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:/\d+)?)
      | (?P<name>[^\W\d]\w*)
      | (?P<mark>[:,=()\[\]{}/])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """One word: its kind (name, string, number, mark, newline, end), its text (of a string, the decoded text), its place."""

    kind: str
    text: str
    line: int
    column: int

    @property
    def place(self) -> str:
        """Return `line L, column C`."""
        return f"line {self.line}, column {self.column}"

    def __str__(self) -> str:
        match self.kind:
            case "end":
                return "the end of the text"
            case "newline":
                return "the end of the line"
            case "string":
                return json.dumps(self.text)
            case _:
                return repr(self.text)


def expected(token: Token, what: str) -> FormatError:
    """Return the error that at this token something else was expected."""
    return FormatError(f"{token.place}: expected {what}, found {token}")


def tokens(text: str) -> Iterator[Token]:
    """Yield the words of a text, an end token last; line ends inside ( ) and [ ] do not count.

    Raises: FormatError at a character that starts no word.
    """
    position, line, start, depth = 0, 1, 0, 0
    while position < len(text):
        match = _PATTERN.match(text, position)
        if match is None:
            found = "a string without its closing quote" if text[position] == '"' else repr(text[position])
            raise FormatError(
                f"line {line}, column {position - start + 1}: expected a name, number, quoted name or one of "
                f"':,=()[]{{}}', found {found}"
            )
        word, column = match.group(), position - start + 1
        position = match.end()
        kind = match.lastgroup or ""
        if kind == "mark":
            depth = max(0, depth + (word in "([") - (word in ")]"))
        if kind == "string":
            yield Token(kind, _decoded(word, line, column), line, column)
        elif kind != "space" and not (kind == "newline" and depth):
            yield Token(kind, word, line, column)
        if word == "\n":
            line, start = line + 1, position
    yield Token("end", "", line, position - start + 1)


def _decoded(word: str, line: int, column: int) -> str:
    try:
        return str(json.loads(word, strict=False))
    except ValueError as error:
        raise FormatError(f"line {line}, column {column}: expected a quoted name as in JSON, found {word}") from error
