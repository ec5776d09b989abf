"""Which names a kernel's text reads: indices that a loop nest declares and nothing reads are left out.

Invariant: only `const int` declarations of one name go, whose values are arithmetic on indices, so the text computes the
same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_DECLARED = re.compile(r"\s*const int (\w+) = ([^;{}]*);")
_BRACKETED = re.compile(r"[(\[][^()\[\]]*[)\]]")
_TOKEN = re.compile(r"[{}]|[A-Za-z_]\w*")


def code_of(line: str) -> str:
    """Return a line without its comment."""
    return line.partition("//")[0].rstrip()


def declares_more(value: str) -> bool:
    """Return whether a comma outside of brackets follows: what stands behind it is another declaration."""
    while value != (outside := _BRACKETED.sub("", value)):
        value = outside
    return "," in value


def without_unused(lines: Sequence[str]) -> list[str]:
    """Return the lines of a kernel without declarations of numbers that nothing reads in their scope.

    Read from the end: a name is read if it stands behind its declaration, in the same braces or in some inside them. A line
    that declares several names stays.
    """
    kept: list[str] = []
    scopes: list[set[str]] = [set()]
    for line in reversed(lines):
        code = code_of(line)
        declared = _DECLARED.fullmatch(code)
        if declared is not None and not declares_more(declared[2]):
            name, code = declared.groups()
            if name not in scopes[-1]:
                continue
            scopes[-1].discard(name)  # what stands before it means another one
        for token in reversed(_TOKEN.findall(code)):
            if token == "}":
                scopes.append(set())
            elif token == "{":
                inner = scopes.pop()
                scopes[-1] |= inner
            else:
                scopes[-1].add(token)
        kept.append(line)
    return kept[::-1]
