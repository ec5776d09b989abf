"""Normal forms seen with some axes of extent 1, and others under another name: from one algebra into another.

Invariant: setting an axis to a single element turns sums and maxima over it into their operand and keeps every axiom of
A_eq, so the image of a value is the normal form of the image of any term that the value stands for. A graph whose loops
have one iteration is the graph without loops: what no graph makes without them, no graph makes with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from workbench.domains.abstract_expr import Axis
from workbench.domains.abstract_normal_form import ONE, Algebra, Value
from workbench.domains.abstract_tables import UNIT, Atom, UndecidedError, bits_of


class Projection:
    """The map of one algebra's values to another's. Images are remembered."""

    def __init__(self, source: Algebra, target: Algebra, axes: Mapping[Axis, Axis | None]) -> None:
        """Keep the algebras. axes: new names of axes, None for one of extent 1; axes that are not named stay."""
        self.source, self.target = source, target
        self._axes = dict(axes)
        self._polynomials: dict[int, Value | None] = {UNIT: ONE}
        self._monomials: dict[int, Value] = {UNIT: ONE}
        self._atoms: dict[int, Value] = {}

    def image(self, value: Value) -> Value | None:
        """Return the image of a value, None where a normal form is undecided."""
        if value not in self._polynomials:
            try:
                image: Value | None = self._polynomial(value)
            except UndecidedError:
                image = None
            self._polynomials[value] = None if image is None or self.target.frozen[image] else image
        return self._polynomials[value]

    def monomials(self, monomial: int) -> tuple[int, ...]:
        """Return the monomials of a monomial's image, none where a normal form is undecided."""
        try:
            return self.target.polynomials[self._monomial(monomial)]
        except UndecidedError:
            return ()

    def _polynomial(self, p: int) -> Value:
        target = self.target
        parts = [n for m in self.source.polynomials[p] for n in target.polynomials[self._monomial(m)]]
        return Value(target.polynomial(parts))

    def _inner(self, p: int) -> Value:
        """Return the image of an argument. Raises: UndecidedError, as the whole then is."""
        image = self.image(Value(p))
        if image is None:
            raise UndecidedError("the image of an argument")
        return image

    def _monomial(self, m: int) -> Value:
        found = self._monomials.get(m)
        if found is None:
            a, target = self.source.monomials[m], self.target
            found = ONE
            for atom in a.num:
                found = target.mul(found, self._atom(atom))
            if a.root != UNIT:
                found = target.mul(found, target.sqrt(self._inner(a.root)))
            below = self._inner(a.quotient)
            for atom in a.den:
                below = target.mul(below, self._atom(atom))
            found = self._monomials[m] = target.div(found, below) if below != ONE else found
        return found

    def _atom(self, number: int) -> Value:
        found = self._atoms.get(number)
        if found is None:
            found = self._atoms[number] = self._image_of(self.source.atoms[number])
        return found

    def _image_of(self, atom: Atom) -> Value:
        target = self.target
        match atom.kind:
            case "symbol":
                return Value(target.atom_polynomial(target.atom(atom._replace(refs=self._bits(atom.refs)))))
            case "extent":
                refs = self._bits(atom.refs)
                return Value(target.atom_polynomial(target.atom(atom._replace(refs=refs)))) if refs else ONE
            case "exp":
                return target.exp(self._monomial(atom.ref))
            case "sqrt":
                return target.sqrt(self._atom(atom.ref))
            case "apply":
                return target.apply(atom.name, *map(self._inner, atom.refs))
            case "sum":
                return target.sum_mask(self._mask(atom.bound), self._monomial(atom.ref))
            case "max":
                largest: Value | None = None
                for bound, p in atom.elements:
                    one = target.max_mask(self._mask(bound), self._inner(p))
                    largest = one if largest is None else target.maximum(largest, one)
                assert largest is not None
                return largest
            case "frozen":
                raise UndecidedError("a part is undecided")
        return Value(target.atom_polynomial(target.atom(atom)))  # a constant, a size or a peak: no axes

    def _bits(self, bits: tuple[int, ...]) -> tuple[int, ...]:
        """Return the images of axes, copies as copies, without those of extent 1."""
        images = []
        for bit in bits:
            axis, copy = self.source.bit_axis[bit.bit_length() - 1]
            new = self._axes.get(axis, axis)
            if new is not None:
                images.append(self.target.axis_bit(new, copy))
        return tuple(images)

    def _mask(self, mask: int) -> int:
        return sum(self._bits(tuple(bits_of(mask))))
