"""The values of a structure: operators on constants times values, hashed by content, and how they are printed.

Invariant: a vertex's digest is that of its label, its place and its terms; numbers and names do not enter it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from workbench.ugraph.scalars import ONE, Scalar

Exponent = Fraction | int
"""Whole ones are integers: products of fractions take ten times as long."""

Powers = tuple[tuple[int, Exponent], ...]


def exponent_of(degree: Fraction) -> Exponent:
    """Return a degree as an exponent."""
    return degree.numerator if degree.denominator == 1 else degree


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A constant factor.

    Attributes: number; counts: powers of the number of elements that a vertex folds, by vertex; pending: powers of the
    magnitudes of constants of the program, by step, which are counts or numbers depending on how far they are carried.
    """

    number: Scalar = ONE
    counts: Powers = ()
    pending: Powers = ()

    def times(self, other: Coefficient, degree: Exponent = 1) -> Coefficient:
        """Return this times a power of another."""
        if other is UNIT or (not other.counts and not other.pending and other.number.is_one):
            return self
        if self is UNIT and degree == 1:
            return other
        return Coefficient(
            self.number * other.number.power(degree),
            _added(self.counts, other.counts, degree),
            _added(self.pending, other.pending, degree),
        )

    def text(self, name: Callable[[int], str]) -> str:
        """Return it, nothing pending, as a prefix of a product, empty for 1."""
        if self is UNIT:
            return ""
        parts = sorted(f"n({name(vertex)})" + ("" if e == 1 else f"^{e}") for vertex, e in self.counts)
        if not self.number.is_one:
            parts.insert(0, str(self.number))
        return "".join(f"{part} * " for part in parts)


def _added(left: Powers, right: Powers, degree: Exponent) -> Powers:
    if not right:
        return left
    powers = dict(left)
    for base, exponent in right:
        more = degree * exponent
        powers[base] = powers[base] + more if base in powers else more
    return tuple(sorted((base, exponent) for base, exponent in powers.items() if exponent))


UNIT = Coefficient()
MINUS = Coefficient(Scalar(-1))


@dataclass(slots=True, eq=False)
class Term:
    """A constant times a result of a vertex. Attributes: note: how an operator sees it (stretched dimensions).

    Never changed; not frozen, which would make it several times as slow to make, and hashing makes little else.
    """

    vertex: int
    coefficient: Coefficient = UNIT
    port: int = 0
    note: str = ""

    def scaled(self, factor: Coefficient) -> Term:
        """Return it times a constant, as the operator sees it."""
        return Term(self.vertex, self.coefficient.times(factor), self.port, self.note)

    def text(self, name: Callable[[int], str]) -> str:
        """Return it as text, vertices under the names given."""
        port = f".{self.port}" if self.port else ""
        factor, value = self.coefficient.text(name), name(self.vertex)
        if value == "1" and factor:
            return factor.removesuffix(" * ") + self.note
        return f"{factor}{value}{port}{self.note}"


@dataclass(frozen=True, slots=True)
class Vertex:
    """An operator on terms.

    Attributes: label; terms; place; launch: the block graph it is in, None at the kernel level; digest; below: the
    vertices it rests on and itself, as bits.
    """

    label: str
    terms: tuple[Term, ...]
    place: str
    launch: int | None
    digest: str
    below: int


class Printer:
    """Numbers the vertices in the order in which the outputs need them."""

    def __init__(self, vertices: Sequence[Vertex]) -> None:
        self.vertices = vertices
        self.names: dict[int, str] = {}
        self.letters: dict[int, str] = {}
        self.lines: list[str] = []

    def text(self, outputs: Sequence[Term]) -> str:
        """Return a line per vertex that the outputs need, then one per output."""
        for number, term in enumerate(outputs):
            self._visit(term.vertex)
            self.lines.append(f"output {number} = {term.text(self._name)}")
        return "\n".join(self.lines)

    def _name(self, vertex: int) -> str:
        if (
            vertex not in self.names
        ):  # a count of a sum that a constant was carried out of, and which an operator dropped
            self._visit(vertex)
        return self.names[vertex]

    def _visit(self, root: int) -> None:
        stack = [root]
        while stack:
            vertex = stack[-1]
            terms = self.vertices[vertex].terms
            waiting = [term.vertex for term in terms if term.vertex not in self.names]
            if vertex in self.names:
                stack.pop()
            elif waiting:
                stack.append(waiting[0])
            else:
                stack.pop()
                self._line(vertex)

    def _line(self, vertex: int) -> None:
        found = self.vertices[vertex]
        if found.label == "1":
            self.names[vertex] = "1"
            return
        words = (
            f"{found.label} ({', '.join(term.text(self._name) for term in found.terms)})"
            if found.terms
            else found.label
        )
        where = ""
        if found.launch is not None:
            letter = self.letters.setdefault(found.launch, _letter(len(self.letters)))
            where = f" [{found.place} of {letter}]" if found.place != "block" else f" [{letter}]"
        self.names[vertex] = f"t{len(self.names) - ('1' in self.names.values())}"
        self.lines.append(f"{self.names[vertex]} = {words}{where}")


def _letter(number: int) -> str:
    """Return A, B, ..., Z, A1, B1, ..."""
    return chr(ord("A") + number % 26) + (str(number // 26) if number >= 26 else "")
