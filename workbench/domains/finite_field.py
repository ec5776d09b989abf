"""What a program computes in a pair of finite fields: values (x mod p, x mod q) and the arithmetic of them.

Invariant: exact arithmetic on both sides; a value without q part never gets one back; what has no meaning (a zero
denominator, the root of a non-square) is recorded as a fault, never silently mapped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import ModuleType
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape, broadcast_shapes
from workbench.domains.field_pairs import PRESETS, FieldPair, field_pair
from workbench.domains.modular_matmul import matmul
from workbench.domains.power_table import PowerTable
from workbench.domains.random_function import random_function
from workbench.domains.residues import Mask, Modulus, Residues, random_residues
from workbench.errors import DTypeError, FieldError, OutsideLaxError, ShapeError

__all__ = [
    "PRESETS",
    "Fault",
    "FieldArithmetic",
    "FieldPair",
    "FieldValue",
    "Mask",
    "Residues",
    "field_pair",
    "random_elements",
]

FaultKind = Literal["zero denominator", "not a square"]
Side = Literal["p", "q"]


@dataclass(frozen=True, slots=True, eq=False)
class FieldValue:
    """A tensor of pairs (x mod p, x mod q): two int64 arrays of one shape, of NumPy or CuPy.

    `q` is None where the value has no q part: after exp, and in whatever is computed from such a value.
    Raises: DTypeError for other element types (uint64 and int64 meet in float64), ShapeError for unequal shapes.
    """

    p: Residues
    q: Residues | None = None

    def __post_init__(self) -> None:
        """Check element type and shape; the values' range is the caller's word."""
        for side in (self.p, self.q):
            if side is None:
                continue
            if side.dtype != np.int64:
                raise DTypeError(f"field value: residues are {side.dtype}; convert to int64")
            if side.shape != self.p.shape:
                raise ShapeError(f"field value: p part {self.p.shape} and q part {side.shape} differ in shape")

    @property
    def shape(self) -> Shape:
        """The shape of the tensor."""
        return cast(Shape, self.p.shape)

    def map(self, movement: Callable[[Residues], Residues]) -> FieldValue:
        """Return the value with a movement of elements (transpose, reshape, slice, gather) applied to both parts."""
        return FieldValue(movement(self.p), None if self.q is None else movement(self.q))

    def without_q(self) -> FieldValue:
        """Return the value without its q part."""
        return FieldValue(self.p)

    @staticmethod
    def join(values: Sequence[FieldValue], movement: Callable[[list[Residues]], Residues]) -> FieldValue:
        """Return the value made of several by a movement such as concatenation; no q part if one has none."""
        q_parts = [value.q for value in values if value.q is not None]
        return FieldValue(
            movement([value.p for value in values]), movement(q_parts) if len(q_parts) == len(values) else None
        )


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """Elements for which an operation has no meaning on one side.

    Attributes: kind; side ("p" or "q": a fault on q matters only if an exp still follows); mask: True at the elements
    of the offending operand (the denominator, the radicand), in that operand's shape.
    """

    kind: FaultKind
    side: Side
    mask: Mask


@dataclass(slots=True, eq=False)
class FieldArithmetic:
    """The arithmetic of table 3 for one pair of fields and one root of unity.

    All operations are componentwise and broadcast as NumPy does; where an operand has no q part the result has none.
    Attributes: pair; omega, the root for exp; xp, the array module of constants; faults, in the order in which they
    were met: the one thing that changes (`take_faults` empties it).
    Raises: FieldError when omega is not a root of unity of order q modulo p.
    Source: Mirage OSDI'25, section 5, table 3.
    """

    pair: FieldPair
    omega: int
    xp: ModuleType = np
    faults: list[Fault] = field(default_factory=list)
    _p: Modulus = field(init=False, repr=False)
    _q: Modulus = field(init=False, repr=False)
    _powers: PowerTable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the root of unity."""
        self.pair.check_omega(self.omega)
        self._p, self._q = Modulus(self.pair.p), Modulus(self.pair.q)
        self._powers = PowerTable(self.omega, self.pair.q, self._p)

    # ------------------------------------------------------------------------------------------- making values
    def const(self, value: Fraction | int) -> FieldValue:
        """Return a rational constant as a value of shape ().

        Raises: FieldError when p or q divides the denominator.
        """
        fraction = Fraction(value)
        residues = []
        for side, m in (("p", self.pair.p), ("q", self.pair.q)):
            if fraction.denominator % m == 0:
                raise FieldError(
                    f"constant {fraction} does not exist modulo {side} = {m}, which divides its denominator; "
                    "use a larger field pair"
                )
            residues.append(fraction.numerator * pow(fraction.denominator, -1, m) % m)
        return FieldValue(*(self.xp.asarray(r, dtype=np.int64) for r in residues))

    def encode(self, integers: npt.ArrayLike) -> FieldValue:
        """Return integers (array, nested lists, Python integers of any size) as their residues, shape kept.

        Raises: DTypeError when an element is no integer.
        """
        exact = np.asarray(integers)
        if exact.dtype.kind not in "iuO":
            raise DTypeError(
                f"encode: elements are {exact.dtype}; only integers have residues, use `const` for fractions"
            )
        exact = exact.astype(object)
        if not all(isinstance(x, int) for x in exact.flat):
            raise DTypeError("encode: an element is no integer; use `const` for fractions")
        return FieldValue(*(self.xp.asarray(np.asarray(exact % m, dtype=np.int64)) for m in (self.pair.p, self.pair.q)))

    # --------------------------------------------------------------------------------------------- arithmetic
    def add(self, a: FieldValue, b: FieldValue) -> FieldValue:
        """Return a + b."""
        return self._both(a, b, lambda m, x, y: m.add(x, y))

    def sub(self, a: FieldValue, b: FieldValue) -> FieldValue:
        """Return a - b."""
        return self._both(a, b, lambda m, x, y: m.subtract(x, y))

    def mul(self, a: FieldValue, b: FieldValue) -> FieldValue:
        """Return a * b."""
        return self._both(a, b, lambda m, x, y: m.multiply(x, y))

    def neg(self, a: FieldValue) -> FieldValue:
        """Return -a."""
        return self._each(a, lambda m, x: m.negate(x))

    def inverse(self, a: FieldValue) -> FieldValue:
        """Return 1/a; 0 where a is 0, with a fault "zero denominator" for each side that has such elements."""
        p, zero = self._p.inverse(a.p)
        self._report("zero denominator", "p", zero)
        if a.q is None:
            return FieldValue(p)
        q, zero = self._q.inverse(a.q)
        self._report("zero denominator", "q", zero)
        return FieldValue(p, q)

    def div(self, a: FieldValue, b: FieldValue) -> FieldValue:
        """Return a / b; 0 where b is 0, with a fault as in `inverse`, masked in the shape of b."""
        return self.mul(a, self.inverse(b if a.q is not None else b.without_q()))

    def exp(self, a: FieldValue) -> FieldValue:
        """Return omega^(a mod q) modulo p, which has no q part.

        Raises: OutsideLaxError when the operand has no q part: at most one exp on any path (definition 5.1).
        """
        if a.q is None:
            root = "" if self.pair.root_on_q else ", or a sqrt, which leaves none in this pair (q = 1 mod 4)"
            raise OutsideLaxError(
                f"exp: the operand has no q part in field pair {self.pair.name!r}: an exp came before it on the "
                f"path{root}; split the program there (`split_lax`) or treat the second exp as opaque"
            )
        return FieldValue(self._powers(a.q))

    def sqrt(self, a: FieldValue) -> FieldValue:
        """Return the componentwise square root x^((m+1)/4), with a fault "not a square" where it is no root.

        On squares it is the root that is itself a square; everywhere sqrt(a) sqrt(b) = sqrt(ab). On a non-square its
        square is -a. 0 is its own root. Without q part where q = 1 mod 4, which has no multiplicative root.
        Raises: FieldError when p = 1 mod 4.
        """
        p, bad = self._p.square_root(a.p)
        self._report("not a square", "p", bad)
        if a.q is None or not self.pair.root_on_q:
            return FieldValue(p)
        q, bad = self._q.square_root(a.q)
        self._report("not a square", "q", bad)
        return FieldValue(p, q)

    def power(self, a: FieldValue, exponent: Fraction | int) -> FieldValue:
        """Return a to an integer or half-integer power: sqrt first, then the inverse if negative; 0^0 = 1.

        Faults as in `sqrt` and `inverse`. Raises: OutsideLaxError for other exponents.
        """
        fraction = Fraction(exponent)
        if fraction.denominator not in (1, 2):
            raise OutsideLaxError(
                f"power: exponent {fraction} has no meaning in a finite field; integers and half-integers have, "
                "treat the operator as opaque"
            )
        base = self.sqrt(a) if fraction.denominator == 2 else a
        if fraction < 0:
            base = self.inverse(base)
        return self._each(base, lambda m, x: m.power(x, abs(fraction.numerator)))

    def matmul(self, a: FieldValue, b: FieldValue) -> FieldValue:
        """Return the matrix product, a (..., m, k) by b (..., k, n), leading axes broadcast.

        Raises: ShapeError for operands that do not fit.
        """
        return self._both(a, b, lambda m, x, y: matmul(x, y, m))

    def sum(self, a: FieldValue, axis: int | tuple[int, ...] = -1, *, keepdims: bool = True) -> FieldValue:
        """Return the sum over an axis or several, kept with size 1 unless `keepdims` is False."""
        return self._each(a, lambda m, x: m.sum(x, axis, keepdims=keepdims))

    def where(self, mask: Mask, a: FieldValue, b: FieldValue) -> FieldValue:
        """Return a where the mask is True and b elsewhere: the chosen branch of a piecewise operator."""
        return self._both(a, b, lambda m, x, y: cast(Residues, array_namespace(x).where(mask, x, y)))

    def opaque(self, operands: Sequence[FieldValue], key: int) -> FieldValue:
        """Return a random function of the operands, named by the key, for an operator without meaning in a field.

        It looks at p parts only (arguments that are equal need not both have a q part) and its result has both parts.
        Equal results where the arguments differ are as rare as for random values: acceptance is sound, a mismatch
        proves nothing.
        """
        arguments = [operand.p for operand in operands]
        return FieldValue(*(random_function(arguments, 2 * key + i, m) for i, m in enumerate((self._p, self._q))))

    # ---------------------------------------------------------------------------------------- faults, comparison
    def take_faults(self) -> tuple[Fault, ...]:
        """Return the faults met so far and forget them."""
        taken = tuple(self.faults)
        self.faults.clear()
        return taken

    def differs(self, a: FieldValue, b: FieldValue) -> Mask:
        """Return where two values differ on a side that both have, in their broadcast shape."""
        xp = array_namespace(a.p)
        shape = broadcast_shapes([a.shape, b.shape], where="differs")
        mask = xp.asarray(a.p != b.p)
        if a.q is not None and b.q is not None:
            mask = mask | (a.q != b.q)
        return cast(Mask, mask.reshape(shape))

    def _report(self, kind: FaultKind, side: Side, mask: Mask) -> None:
        if bool(mask.any()):
            self.faults.append(Fault(kind, side, mask))

    # ------------------------------------------------------------------------------------------------ sides
    def _each(self, a: FieldValue, rule: Callable[[Modulus, Residues], Residues]) -> FieldValue:
        return FieldValue(rule(self._p, a.p), None if a.q is None else rule(self._q, a.q))

    def _both(
        self, a: FieldValue, b: FieldValue, rule: Callable[[Modulus, Residues, Residues], Residues]
    ) -> FieldValue:
        q = None if a.q is None or b.q is None else rule(self._q, a.q, b.q)
        return FieldValue(rule(self._p, a.p, b.p), q)


def random_elements(
    rng: np.random.Generator, shape: Shape, pair: FieldPair, *, with_q: bool = True, xp: ModuleType = np
) -> FieldValue:
    """Return independent elements, uniform on Z_p and, independently, on Z_q.

    By the Chinese remainder theorem that is a uniform integer modulo pq. `with_q=False` leaves the q part out, which
    halves the work of programs without exp.
    """
    p = random_residues(rng, shape, pair.p, xp)
    return FieldValue(p, random_residues(rng, shape, pair.q, xp) if with_q else None)
