"""What an operator is: one frozen record with everything the passes must agree on.

Invariant: a rule is a required field, so a hole fails `mypy` and import, never a run (STYLE 2.2).
Long because the record and the closed types of its fields are read together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from workbench.core.shapes import Shape
from workbench.domains.work import Work
from workbench.errors import AttributeValueError, MissingRuleError, ShapeError

if TYPE_CHECKING:
    from workbench.domains.finite_field import FieldArithmetic, FieldValue

Array = npt.NDArray[Any]
AttributeValue = int | Fraction | str | tuple[int, ...]
Attributes = Mapping[str, AttributeValue]
T = TypeVar("T")


class OpKind(Enum):
    """What an operator does to the elements; the emitter and the thread-graph rule go by it."""

    ELEMENTWISE = "elementwise"  # result element i depends on operand elements i only (after broadcasting)
    REDUCTION = "reduction"  # folds an axis
    CONTRACTION = "contraction"  # matmul
    MOVEMENT = "movement"  # moves or copies elements, computes nothing
    CONSTANT = "constant"  # no operand


# ---------------------------------------------------------------------------------------------------- attributes
@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an operator.

    Attributes:
        name: its name.
        convert: normalises a given value without knowing shapes, or raises ValueError/TypeError.
        default: None means required.
        help: what to give.
        normalize: value, operand shapes -> the stored value (axis counted from the end, -1 in a shape resolved); None
            when the shapes do not matter. Raises ShapeError.
    """

    name: str
    convert: Callable[[object], AttributeValue]
    default: AttributeValue | None = None
    help: str = ""
    normalize: Callable[[AttributeValue, tuple[Shape, ...]], AttributeValue] | None = None


# ------------------------------------------------------------------------------------------------------------ axes
@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension of an operand: operand number, axis counted from the end."""

    operand: int
    axis: int


@dataclass(frozen=True, slots=True)
class Same:
    """The result dimension is the same axis as all these operand dimensions.

    Empty: a fresh axis along which all elements are equal; its extent is 1 but for `broadcast`.
    """

    dims: tuple[Dim, ...] = ()


@dataclass(frozen=True, slots=True)
class Product:
    """The result dimension enumerates operand dimensions, the first outermost (reshape that joins)."""

    dims: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Factor:
    """The result dimension is the `position`-th factor of an operand dimension split as `extents` (reshape)."""

    dim: Dim
    position: int
    extents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Concatenated:
    """The result dimension lays operand dimensions one after the other."""

    dims: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """The result dimension is the piece `start .. start + extent` of an operand dimension."""

    dim: Dim
    start: int
    extent: int


@dataclass(frozen=True, slots=True)
class Regrouped:
    """The `position`-th factor of the joint enumeration of several operand dimensions split as `extents`.

    Only for a reshape that neither joins nor splits whole dimensions, such as (6, 4) to (8, 3).
    """

    dims: tuple[Dim, ...]
    position: int
    extents: tuple[int, ...]


DimSource = Same | Product | Factor | Concatenated | Piece | Regrouped


@dataclass(frozen=True, slots=True)
class AxisMap:
    """Which operand and result dimensions are the same axis, and which axes the operator reduces.

    Attributes: results: per result, per dimension (first to last) its source; reduced: groups of operand dimensions
    that run together and are folded (matmul: one group of two dims; a `Factor` where only a part of a dimension is
    folded, as `sum_to_columns` does). A dimension that a result keeps although every element of it depends on the whole
    axis (softmax, rms_norm) is in both.
    """

    results: tuple[tuple[DimSource, ...], ...]
    reduced: tuple[tuple[Dim | Factor, ...], ...] = ()


# ------------------------------------------------------------------------------------------------ meaning in a field
@dataclass(frozen=True, slots=True)
class Exact:
    """Meaning in Z_p x Z_q by `rule(field, operands, attributes)`; true identities hold exactly."""

    rule: Callable[[FieldArithmetic, tuple[FieldValue, ...], Attributes], FieldValue]


@dataclass(frozen=True, slots=True)
class Opaque:
    """No algebraic meaning: a random function of the operands' fingerprints. Acceptance is sound, mismatch unknown."""

    why: str


class Guards(Protocol):
    """Return the values that are >= 0 exactly where a branch of a piecewise operator is taken."""

    def __call__(
        self, b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes, branch: int
    ) -> tuple[T, ...]:
        """Build the guards of one branch with `b`; a reduction sees its operand as one value per reduced element."""
        ...


@dataclass(frozen=True, slots=True)
class Branch:
    """Piecewise (ReLU, max, clamp, abs): which piece holds is decided by the float64 coordinate, or by a given choice.

    Attributes:
        count: operand shapes, attributes -> number of pieces of one result element.
        select: float operands, attributes -> integer array, per result element the piece that holds.
        rule: field, operands, attributes, choice (integer array shaped as the result) -> the chosen piece's value.
        guards: the inequalities of one piece.
    """

    count: Callable[[tuple[Shape, ...], Attributes], int]
    select: Callable[[tuple[Array, ...], Attributes], Array]
    rule: Callable[[FieldArithmetic, tuple[FieldValue, ...], Attributes, Array], FieldValue]
    guards: Guards


@dataclass(frozen=True, slots=True)
class Movement:
    """The operator moves elements: its field meaning is its movement on every coordinate."""


@dataclass(frozen=True, slots=True)
class Expanded:
    """The meaning is that of the expansion into other operators."""


@dataclass(frozen=True, slots=True)
class OutsideLax:
    """No meaning in the finite field; the verdict names the operator and the reason."""

    why: str


FieldMeaning = Exact | Opaque | Branch | Movement | Expanded | OutsideLax


# --------------------------------------------------------------------------------------------- abstract expressions
class TermAlgebra(Protocol[T]):
    """What abstract expressions are built with (paper, table 1); each domain of terms implements it.

    `sum` and `max` get the number of the reduced group in the operator's `AxisMap` and the group's extent, so that both
    the paper's form (extents) and the axes form (which axis) can be built from one rule. `concat` gets the axis (from
    the end) and each part's extent along it: a later sum over that axis is the sum of the parts' sums. The other
    operators that only move elements leave the term as it is (paper: Repeat, Reshape).
    """

    def constant(self, value: Fraction) -> T:
        """Return the term of an exact number."""
        ...

    def add(self, left: T, right: T) -> T:
        """Return left + right."""
        ...

    def mul(self, left: T, right: T) -> T:
        """Return left * right."""
        ...

    def div(self, left: T, right: T) -> T:
        """Return left / right."""
        ...

    def exp(self, argument: T) -> T:
        """Return e^argument."""
        ...

    def sqrt(self, argument: T) -> T:
        """Return the square root."""
        ...

    def apply(self, name: str, *arguments: T) -> T:
        """Return an uninterpreted function of the arguments."""
        ...

    def sum(self, group: int, extent: int, argument: T) -> T:
        """Return the sum of `extent` values of the argument over a reduced group."""
        ...

    def max(self, group: int, extent: int, argument: T) -> T:
        """Return the largest of `extent` values of the argument over a reduced group."""
        ...

    def concat(self, axis: int, extents: tuple[int, ...], arguments: tuple[T, ...]) -> T:
        """Return the arguments laid one after the other along an axis."""
        ...


class AbstractRule(Protocol):
    """Return the result's term from the operands' terms, the operands' shapes and the attributes."""

    def __call__(self, b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
        """Build with `b` only, so that the rule works for every domain of terms."""
        ...


# ---------------------------------------------------------------------------------------------------------- expansion
class Apply(Protocol[T]):
    """Apply an operator by name to values of one domain: `b("div", x, y)`, `b("sum", x, axis=-1)`."""

    def __call__(self, name: str, *operands: T, **attributes: AttributeValue) -> T:
        """Return the operator's only result. Raises: UnknownNameError, ShapeError, AttributeValueError."""
        ...


class Expansion(Protocol):
    """Rewrite a composite into other operators; `shapes` are the operands' (trailing) shapes."""

    def __call__(self, b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
        """Return the value of the composite, built by `b` only."""
        ...


@dataclass(frozen=True, slots=True)
class Law:
    """An identity the operator obeys, over the reals; tests hold it exactly in the field and closely in float.

    Attributes: name; statement (readable); variables (how many); left, right: builders from an `Apply` and variables;
    positive: True when the law needs every variable positive; false_law: True for a tempting identity that must FAIL.
    """

    name: str
    statement: str
    variables: int
    left: Callable[..., Any]
    right: Callable[..., Any]
    positive: bool = False
    false_law: bool = False


@dataclass(frozen=True, slots=True)
class Homogeneity:
    """f with c*x for the operands in `operands` equals c^degree * f, for every c (for c > 0 only if `positive`).

    `operands` empty means all operands at once (a variadic operator).
    """

    operands: tuple[int, ...]
    degree: Fraction
    positive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSpec:
    """One operator: what every pass must agree on. Lowering that depends on layouts lives in `codegen`.

    Rules see arrays whose leading `prefix` axes are batch axes of the interpreter (grid cells, loop iterations); axes
    in attributes are counted from the end, so most rules need not look at `prefix`.

    Attributes:
        name: the operator's one name at all three levels.
        arity: number of operands, None for any number above zero.
        kind: what it does to the elements.
        attributes: its attributes, in printing order.
        shape: operand shapes, attributes -> result shapes; raises ShapeError.
        axes: operand shapes, attributes -> AxisMap.
        on_float: the reference meaning on float64 arrays (any array namespace): arrays, attributes, prefix -> results.
        field: meaning in Z_p x Z_q.
        abstract: abstract expression (paper, table 1).
        work: operand shapes, attributes -> flops and elements.
        scalar_c: C expression of one element ("expf({0})", attributes as {name}), or a function of the attributes that
            returns it; None when it is not elementwise. Read it through `scalar_expression`.
        expand: rewriting of a composite, None for a primitive.
        laws: identities it obeys or tempts to.
        commutative: operands may be exchanged.
        homogeneous: attributes -> how constant factors pass through.
        levels: levels that may contain it ("kernel", "block", "thread").
        num_results: number of results given the attributes.
        source: where its definition is taken from.
    """

    name: str
    arity: int | None
    kind: OpKind
    attributes: tuple[Attribute, ...]
    shape: Callable[[tuple[Shape, ...], Attributes], tuple[Shape, ...]]
    axes: Callable[[tuple[Shape, ...], Attributes], AxisMap]
    on_float: Callable[[tuple[Array, ...], Attributes, int], tuple[Array, ...]]
    field: FieldMeaning
    abstract: AbstractRule
    work: Callable[[tuple[Shape, ...], Attributes], Work]
    scalar_c: str | Callable[[Attributes], str] | None
    expand: Expansion | None
    laws: tuple[Law, ...]
    commutative: bool
    homogeneous: Callable[[Attributes], tuple[Homogeneity, ...]]
    levels: frozenset[str]
    num_results: Callable[[Attributes], int]
    source: str

    def check_attributes(self, given: Mapping[str, object]) -> dict[str, AttributeValue]:
        """Return every attribute converted, defaults filled in. Raises: AttributeValueError naming what is wrong."""
        known = {attribute.name for attribute in self.attributes}
        for name in given:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                raise AttributeValueError(f"operator {self.name}: unknown attribute {name!r}; it takes: {listed}")
        result: dict[str, AttributeValue] = {}
        for attribute in self.attributes:
            if attribute.name in given:
                try:
                    result[attribute.name] = attribute.convert(given[attribute.name])
                except (TypeError, ValueError) as error:
                    raise AttributeValueError(
                        f"operator {self.name}: attribute {attribute.name} = {given[attribute.name]!r}: {error}"
                    ) from error
            elif attribute.default is not None:
                result[attribute.name] = attribute.default
            else:
                raise AttributeValueError(
                    f"operator {self.name}: attribute {attribute.name!r} is missing; {attribute.help}"
                )
        return result

    def check_arity(self, count: int) -> None:
        """Raises: ShapeError when the operator does not take `count` operands."""
        if self.arity is None:
            if count < 1:
                raise ShapeError(f"operator {self.name}: needs at least one operand, got none")
        elif count != self.arity:
            raise ShapeError(f"operator {self.name}: takes {self.arity} operands, got {count}")

    def infer_shapes(self, shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
        """Return the result shapes. Raises: ShapeError for a wrong number of operands or shapes that do not fit."""
        self.check_arity(len(shapes))
        try:
            return self.shape(shapes, attributes)
        except (ShapeError, AttributeValueError) as error:
            raise type(error)(f"operator {self.name}: {error}") from error

    def scalar_expression(self, operands: Sequence[str], attributes: Attributes) -> str:
        """Return the float32 C expression of one result element; `operands` are C names, used more than once.

        Raises: MissingRuleError when the operator has none.
        """
        if self.scalar_c is None:
            raise MissingRuleError(f"operator {self.name} has no one-element C expression; it is a {self.kind.value}")
        template = self.scalar_c if isinstance(self.scalar_c, str) else self.scalar_c(attributes)
        numbers = {name: c_literal(value) for name, value in attributes.items() if isinstance(value, (int, Fraction))}
        return template.format(*operands, **numbers)


def c_literal(value: int | Fraction) -> str:
    """Return a number as a C literal of type float, with the nine digits that identify a float32."""
    digits = f"{float(value):.9g}"
    literal = digits + ("f" if any(mark in digits for mark in ".e") else ".0f")
    return f"({literal})" if literal.startswith("-") else literal


def as_fraction(value: object) -> Fraction:
    """Return a number as an exact fraction; a float means the decimal that `repr` prints.

    Raises: TypeError for what is no number, ValueError for NaN and infinities.
    """
    if isinstance(value, bool):
        raise TypeError("a truth value is not a number")
    if isinstance(value, (int, Fraction)):
        return Fraction(value)
    if isinstance(value, (float, np.floating)):
        if not np.isfinite(value):
            raise ValueError("a constant must be finite")
        return Fraction(repr(float(value)))
    if isinstance(value, (np.integer, str)):
        return Fraction(str(value))
    raise TypeError(f"{type(value).__name__} is not a number")
