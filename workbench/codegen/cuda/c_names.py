"""C identifiers for the names of a µGraph, and C text for its numbers.

Invariant: no identifier given out hides one of the device header, of C++, or one given out before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from functools import cache

import numpy as np

from workbench.codegen.cuda.header import device_header

KEYWORDS = """
alignas alignof and asm auto bool break case catch char class compl concept const constexpr continue decltype default
delete do double else enum explicit export extern false float for friend goto if inline int long mutable namespace new
noexcept not nullptr operator or private protected public register requires return short signed sizeof static struct
switch template this throw true try typedef typeid typename union unsigned using virtual void volatile while xor main
NULL INFINITY NAN unix linux
"""
LOCALS = """
memory thread warp lane rank worker first last step ahead slot row col bx by bz e mt nt half rr cc matrix left right low
left_low right_low depth load valid valid_row largest scale shrink quad
"""
"""Names that every kernel uses for its own coordinates."""

HOST = "add load store load_peer store_peer meet self copy_async copy_commit copy_wait bulk_copy fail_index main"
"""Functions of the host runtime."""

MATH = "exp log sqrt pow tanh erf sin cos floor ceil fabs abs min max div rint round y0 y1 j0 j1 gamma"
"""Functions of the C library, which a local variable should not hide."""


@cache
def reserved_names() -> frozenset[str]:
    """Return every identifier that the device header defines, C++ keywords and the kernels' own locals."""
    text = re.sub(r"//[^\n]*", "", device_header())
    functions = re.findall(r"WB_DEVICE[^;{(=]*?\b(\w+)\s*\(", text)
    types = re.findall(r"(?:struct|class|typedef [\w ]+?)\s+(?:alignas\([^)]*\)\s*)?(\w+)\s*[;:{]", text)
    macros = re.findall(r"#define (\w+)", text)
    return frozenset(
        [*functions, *types, *macros, "wb", "Cache", *KEYWORDS.split(), *LOCALS.split(), *MATH.split(), *HOST.split()]
    )


class CNames:
    """Gives out C identifiers, each once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken) | reserved_names()

    def claim(self, name: str) -> str:
        """Return an identifier like `name`: letters, digits and underscores kept, a number appended where it is taken."""
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", name)
        plain = re.sub(r"__+", "_", plain).strip("_") or "t"
        if plain[0].isdigit():
            plain = f"t{plain}"
        found, count = plain, 2
        while found in self._taken:
            found, count = f"{plain}_{count}", count + 1
        self._taken.add(found)
        return found


def c_float(value: Fraction) -> str:
    """Return a number as a C literal of type float that reads back as the nearest float32 of the exact number.

    What float32 cannot hold becomes an infinity or, below its subnormals, zero.
    """
    rounded = float(value) if abs(value) < Fraction(2) ** 1000 else np.inf
    with np.errstate(over="ignore"):
        nearest = np.float32(rounded)
    if np.isinf(nearest):
        return "infinity()" if value > 0 else "(-infinity())"
    digits = f"{float(nearest):.9g}"
    literal = digits + ("f" if any(mark in digits for mark in ".e") else ".0f")
    return f"({literal})" if literal.startswith("-") else literal
