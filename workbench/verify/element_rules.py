"""What each operator makes of forms: the primitives; composites are expanded. Invariant: as in the field arithmetic.

The tables are total over the registry: every operator is opaque, stands in one of them, or has an expansion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from math import prod
from typing import TypeVar

from workbench.core.shapes import Shape, broadcast_shapes
from workbench.core.tensors import RaggedSplit
from workbench.errors import NotApplicableError
from workbench.ops.attributes import complete_attributes, extents, fraction, integer
from workbench.ops.registry import operator
from workbench.ops.spec import Attributes, AttributeValue, Opaque
from workbench.verify.form_atoms import Form, Limits
from workbench.verify.forms import Forms
from workbench.verify.indices import Index, Var, combine, constant, divide, shift, variable

T = TypeVar("T")
Cell = tuple[Index, ...]  # grid x, y, z and the loop; () at the kernel level
At = Callable[[Cell, tuple[Index, ...]], Form]


@dataclass(eq=False)
class Tensor:
    """A tensor or a tile: what its element at an index is.

    Attributes: shape; rule: cell, index -> form; has_q: whether the field arithmetic keeps a part modulo q; ragged: per
    axis how a tile may be shorter (empty: nowhere).
    """

    shape: Shape
    rule: At
    has_q: bool
    ragged: tuple[RaggedSplit | None, ...] = ()
    _known: dict[tuple[Cell, tuple[Index, ...]], Form] = field(default_factory=dict)

    def at(self, cell: Cell, index: tuple[Index, ...]) -> Form:
        """Return the element at an index, in a cell of the grid and an iteration of the loop."""
        key = (cell, index)
        if key not in self._known:
            self._known[key] = self.rule(cell, index)
        return self._known[key]

    def split(self, axis: int) -> RaggedSplit | None:
        """Return how the tile is ragged along an axis counted from the end."""
        return self.ragged[axis] if self.ragged else None


Tensors = tuple[Tensor, ...]


class ElementRules:
    """The operators on `Tensor`s, and what they leave behind.

    Attributes: forms; root_on_q: whether a root keeps the part modulo q; counts: of the block graph being walked;
    divisors, radicands: every tensor divided by or rooted, with the counts of its block graph; opaque: names of operators
    taken as random functions; piecewise: whether some operator is.
    """

    def __init__(self, forms: Forms, root_on_q: bool) -> None:
        self.forms, self.root_on_q = forms, root_on_q
        self.counts: tuple[int, ...] = ()
        self.divisors: list[tuple[Tensor, tuple[int, ...]]] = []
        self.radicands: list[tuple[Tensor, tuple[int, ...]]] = []
        self.opaque: list[str] = []
        self.piecewise = False
        self._depth = 0

    @contextmanager
    def open(self, extent: int) -> Iterator[Var]:
        """Give a variable that no enclosing sum uses."""
        self._depth += 1
        try:
            yield Var("open", self._depth, extent)
        finally:
            self._depth -= 1

    def call_by_name(self, name: str, *operands: Tensor, **attributes: AttributeValue) -> Tensor:
        """Return the only result of an operator; attributes are completed."""
        complete = complete_attributes(operator(name), attributes, tuple(o.shape for o in operands))
        return self.apply(name, complete, operands)[0]

    def apply(self, name: str, attributes: Attributes, operands: Tensors) -> Tensors:
        """Return the results of an operator. Raises: NotApplicableError for one without a rule."""
        spec = operator(name)
        if isinstance(spec.field, Opaque):
            return (self.random_function(name, attributes, operands),)
        if name in RULES:
            return RULES[name](self, attributes, operands)
        if name in ELEMENTWISE:
            return (self.elementwise(operands, ELEMENTWISE[name](self.forms, attributes)),)
        if spec.expand is None:
            raise NotApplicableError(f"operator {name} has no rule for the error bound")
        return (spec.expand(self.call_by_name, operands, tuple(o.shape for o in operands), attributes),)

    def elementwise(self, operands: Tensors, made_of: Callable[..., Form]) -> Tensor:
        """Return an operator on each element, operands broadcast over trailing axes."""
        shape = broadcast_shapes([operand.shape for operand in operands])
        rank = len(shape)
        ragged = tuple(
            next((o.ragged[axis] for o in operands if len(o.ragged) >= -axis and o.ragged[axis] is not None), None)
            for axis in range(-rank, 0)
        )

        def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
            return made_of(*(o.at(cell, stretched(index, o.shape)) for o in operands))

        return Tensor(shape, rule, all(operand.has_q for operand in operands), ragged)

    def random_function(self, name: str, attributes: Attributes, operands: Tensors) -> Tensor:
        """Return an operator as a random function of its operands; its result has both parts."""
        if name not in self.opaque:
            self.opaque.append(name)
        label = f"{name} {sorted((key, str(value)) for key, value in attributes.items())}"
        made = self.elementwise(operands, lambda *arguments: self.forms.call(label, arguments))
        made.has_q = True
        return made

    def over_count(self, total: Tensor, name: str) -> Tensor:
        """Return the total over a number of elements that differs from cell to cell."""

        def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
            return self.forms.div(total.at(cell, index), self.forms.unknown(name, cell))

        return Tensor(total.shape, rule, total.has_q, total.ragged)

    def limits(self, split: RaggedSplit | None, cell: Cell, index: Index) -> Limits:
        """Return where a slot of a ragged tile exists: below the end of every part that it lies in."""
        if split is None:
            return ()
        lengths = part_lengths(split.extent, [count for _, count in split.parts])
        found = []
        for level, whole in enumerate((split.extent, *lengths[:-1])):
            inner = zip(split.parts[level:], lengths[level:], strict=True)
            found.append((combine([*((length, cell[axis]) for (axis, _), length in inner), (1, index)]), whole))
        return tuple(found)


def part_lengths(extent: int, counts: list[int]) -> list[int]:
    """Return the length of a part after each cut."""
    lengths = []
    for count in counts:
        extent = -(-extent // count)
        lengths.append(extent)
    return lengths


def stretched(index: tuple[Index, ...], shape: Shape) -> tuple[Index, ...]:
    """Return an operand's index for a result's index under broadcasting."""
    own = index[len(index) - len(shape) :]
    return tuple(constant(0) if extent == 1 else place for extent, place in zip(shape, own, strict=True))


def _put(values: tuple[T, ...], axis: int, value: T) -> tuple[T, ...]:
    """Return the values with one replaced; the axis counts from the end."""
    changed = list(values)
    changed[axis] = value
    return tuple(changed)


def _folded(x: Tensor, axis: int, rule: At) -> Tensor:
    """Return a tensor with an axis folded to extent 1."""
    return Tensor(_put(x.shape, axis, 1), rule, x.has_q, _put(x.ragged, axis, None) if x.ragged else ())


Rule = Callable[[ElementRules, Attributes, Tensors], Tensors]


# ----------------------------------------------------------------------------------------------- elementwise, no faults
ELEMENTWISE: Mapping[str, Callable[[Forms, Attributes], Callable[..., Form]]] = {
    "constant": lambda f, a: lambda: f.number(fraction(a, "value")),
    "add": lambda f, a: f.add,
    "sub": lambda f, a: f.sub,
    "mul": lambda f, a: f.mul,
    "neg": lambda f, a: lambda x: f.scale(x, Fraction(-1)),
    "scale": lambda f, a: lambda x: f.scale(x, fraction(a, "factor")),
    "square": lambda f, a: lambda x: f.power(x, 2),
}


# ------------------------------------------------------------------------------------------- quotients, roots, exponentials
def _div(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    d.divisors.append((operands[1], d.counts))
    return (d.elementwise(operands, d.forms.div),)


def _power(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    exponent = integer(attributes, "exponent")
    if exponent < 0:
        d.divisors.append((operands[0], d.counts))
    return (d.elementwise(operands, lambda x: d.forms.power(x, exponent)),)


def _sqrt(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    d.radicands.append((operands[0], d.counts))
    made = d.elementwise(operands, d.forms.sqrt)
    made.has_q = made.has_q and d.root_on_q
    return (made,)


def _exp(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    if not operands[0].has_q:  # a second exp on a path
        return (d.random_function("exp", attributes, operands),)
    made = d.elementwise(operands, d.forms.exp)
    made.has_q = False
    return (made,)


# ----------------------------------------------------------------------------------------------------------- piecewise
def _pieces(name: str) -> Rule:
    def rule(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
        d.piecewise = True
        f = d.forms

        def choose(*x: Form) -> Form:
            match name:
                case "relu":
                    pieces: tuple[Form, ...] = (f.zero, x[0])
                case "abs":
                    pieces = (f.sub(f.zero, x[0]), x[0])
                case "clamp":
                    low, high = (f.number(fraction(attributes, bound)) for bound in ("lo", "hi"))
                    pieces = (low, x[0], high)
                case _:
                    pieces = x
            return f.choice(name, pieces)

        return (d.elementwise(operands, choose),)

    return rule


def _max(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    d.piecewise = True
    (x,), axis = operands, integer(attributes, "axis")

    def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
        with d.open(x.shape[axis]) as var:
            place = variable(var)
            return d.forms.largest(
                "max", var, x.at(cell, _put(index, axis, place)), d.limits(x.split(axis), cell, place)
            )

    return (_folded(x, axis, rule),)


# ---------------------------------------------------------------------------------------------------------------- folds
def _sum(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    (x,), axis = operands, integer(attributes, "axis")

    def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
        with d.open(x.shape[axis]) as var:
            place = variable(var)
            return d.forms.sum_over(var, x.at(cell, _put(index, axis, place)), d.limits(x.split(axis), cell, place))

    return (_folded(x, axis, rule),)


def _mean(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    (x,), axis = operands, integer(attributes, "axis")
    (total,) = _sum(d, attributes, operands)
    split = x.split(axis)
    if split is not None:
        return (d.over_count(total, f"length of {split}"),)
    share = Fraction(1, x.shape[axis])
    return (d.elementwise((total,), lambda form: d.forms.scale(form, share)),)


def _sum_to_columns(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    (x,), columns = operands, integer(attributes, "columns")

    def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
        with d.open(x.shape[-1] // columns) as var:
            place = combine([(columns, variable(var)), (1, index[-1])])
            return d.forms.sum_over(var, x.at(cell, (*index[:-1], place)))

    return (Tensor((*x.shape[:-1], columns), rule, x.has_q, _put(x.ragged, -1, None) if x.ragged else ()),)


def _matmul(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    left, right = operands
    (shape,) = operator("matmul").infer_shapes((left.shape, right.shape), attributes)
    split = left.split(-1) or right.split(-2)

    def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
        with d.open(left.shape[-1]) as var:
            k = variable(var)
            a = left.at(cell, (*stretched(index[:-2], left.shape[:-2]), index[-2], k))
            b = right.at(cell, (*stretched(index[:-2], right.shape[:-2]), k, index[-1]))
            return d.forms.sum_over(var, d.forms.mul(a, b), d.limits(split, cell, k))

    leading = [x.ragged[:-2] for x in operands]
    ragged = tuple(
        next((r[axis] for r in leading if len(r) >= -axis and r[axis] is not None), None)
        for axis in range(2 - len(shape), 0)
    )
    return (Tensor(shape, rule, left.has_q and right.has_q, (*ragged, left.split(-2), right.split(-1))),)


# ------------------------------------------------------------------------------------------------------------- movement
def _transpose(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    (x,) = operands
    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    ragged = (*x.ragged[:-2], x.ragged[-1], x.ragged[-2]) if x.ragged else ()
    return (Tensor(shape, lambda cell, index: x.at(cell, (*index[:-2], index[-1], index[-2])), x.has_q, ragged),)


def _reshape(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    (x,), new = operands, extents(attributes, "shape")

    def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
        flat = combine([(prod(new[axis + 1 :]), place) for axis, place in enumerate(index)])
        places: list[Index] = []
        for axis, extent in enumerate(x.shape):
            place, flat = divide(flat, prod(x.shape[axis + 1 :]), extent) if axis + 1 < len(x.shape) else (flat, flat)
            places.append(place if extent > 1 else constant(0))
        return x.at(cell, tuple(places))

    return (Tensor(new, rule, x.has_q),)


def _concat(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    axis = integer(attributes, "axis")
    lengths = [x.shape[axis] for x in operands]
    starts = (0, *accumulate(lengths[:-1]))

    def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
        parts = tuple(
            x.at(cell, _put(index, axis, shift(index[axis], -start))) for x, start in zip(operands, starts, strict=True)
        )
        return d.forms.choice("concat", parts, index[axis], starts)

    first = operands[0]
    return (Tensor(_put(first.shape, axis, sum(lengths)), rule, all(x.has_q for x in operands), first.ragged),)


def _split(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    (x,), axis = operands, integer(attributes, "axis")
    shapes = operator("split").infer_shapes((x.shape,), attributes)
    starts = (0, *accumulate(shape[axis] for shape in shapes[:-1]))

    def part(start: int) -> Callable[[Cell, tuple[Index, ...]], Form]:
        return lambda cell, index: x.at(cell, _put(index, axis, shift(index[axis], start)))

    return tuple(Tensor(s, part(start), x.has_q, x.ragged) for s, start in zip(shapes, starts, strict=True))


def _broadcast(d: ElementRules, attributes: Attributes, operands: Tensors) -> Tensors:
    (x,), new = operands, extents(attributes, "shape")
    missing = len(new) - len(x.shape)

    def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
        inner = zip(x.shape, index[missing:], strict=True)
        return x.at(cell, tuple(constant(0) if extent == 1 else place for extent, place in inner))

    return (Tensor(new, rule, x.has_q, (*(None,) * missing, *x.ragged) if x.ragged else ()),)


RULES: Mapping[str, Rule] = {
    "div": _div,
    "power": _power,
    "sqrt": _sqrt,
    "exp": _exp,
    **{name: _pieces(name) for name in ("relu", "abs", "clamp", "maximum", "minimum")},
    "max": _max,
    "sum": _sum,
    "mean": _mean,
    "sum_to_columns": _sum_to_columns,
    "matmul": _matmul,
    "transpose": _transpose,
    "reshape": _reshape,
    "concat": _concat,
    "split": _split,
    "broadcast": _broadcast,
}
