"""What a tensor is, forgetting which element is which: the abstract expressions of the paper's table 1.

Invariant: terms are hash-consed, so two terms are equal exactly when they are the same object; they carry no meaning of
their own (`abstract_normal_form` decides A_eq, `abstract_distance` the subexpressions of a goal).

Two forms share one kind of term. In the paper's form a sum carries a number, `sum_over(64, x)`. In the axes form a
symbol carries its axes and a sum names those it binds, `sum_over(h, X[b, h])`; an axis that is split has a grid, a loop
and a tile part, which are axes of their own. `to_sizes` maps the second form to the first.

Parts laid along an axis (`concat`) stay side by side: every operator is pushed into the parts, and the sum over that
axis is the sum of the parts' sums: [W | B] times [X ; A X] is sum_h W X + sum_r B A X.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from weakref import WeakValueDictionary

from workbench.errors import UsageError


class Part(Enum):
    """Which part of a split axis this is; `WHOLE` for an axis that is not split."""

    WHOLE = ""
    GRID = "g"  # one block each; a sum over it needs a second kernel
    LOOP = "l"  # iterations of the block's loop; a sum over it is an accumulator
    TILE = "t"  # what one block holds in one iteration


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a program, or one part of it. `str` gives `h`, `h.g`, `h.l`, `h.t`."""

    name: str
    part: Part = Part.WHOLE

    def __str__(self) -> str:
        """Return the name and, after a dot, the part."""
        return f"{self.name}.{self.part.value}" if self.part.value else self.name

    def split(self) -> tuple[Axis, Axis, Axis]:
        """Return the grid, loop and tile parts."""
        return Axis(self.name, Part.GRID), Axis(self.name, Part.LOOP), Axis(self.name, Part.TILE)


class Kind(Enum):
    """What stands at the root of a term."""

    SYMBOL = "symbol"  # an input: name, axes
    CONSTANT = "constant"  # number
    ADD = "add"
    MUL = "mul"
    DIV = "div"
    EXP = "exp"
    SQRT = "sqrt"
    SUM = "sum"  # axes, or size
    MAX = "max"  # axes, or size
    MAXIMUM = "maximum"
    APPLY = "apply"  # an opaque function: name
    CONCAT = "concat"  # parts along one axis: axes are the parts' axes, name the axis they make
    MARK = "mark"  # no meaning: printed highlighted


class Term:
    """One abstract expression. Build it with the functions below; equal terms are one object.

    Attributes: kind; args (operands); name (of a symbol or function); axes (of a symbol, of a reduction, of the parts of
    a concatenation); size (extent of a reduction in the paper's form, 0 in the axes form); number (a constant's value).
    """

    __slots__ = ("__weakref__", "args", "axes", "kind", "name", "number", "size")

    kind: Kind
    args: tuple[Term, ...]
    name: str
    axes: tuple[Axis, ...]
    size: int
    number: Fraction

    def __setattr__(self, key: str, value: object) -> None:
        """Terms do not change."""
        raise AttributeError(f"a term is immutable; build a new one instead of setting {key!r}")

    def __reduce__(self) -> tuple[Callable[..., Term], tuple[object, ...]]:
        """Pickle by value; unpickling finds or makes the one object."""
        return _make, (self.kind, self.args, self.name, self.axes, self.size, self.number)

    def __copy__(self) -> Term:
        """Return the term itself: there is one object per value."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Term:
        """Return the term itself: there is one object per value."""
        return self

    def __repr__(self) -> str:
        """Return the prefix form of the paper: `sum(64, mul(X, W))`."""
        return to_prefix(self)

    def subterms(self) -> Iterator[Term]:
        """Return every distinct subterm, operands before what uses them, the term itself last."""
        seen: set[int] = set()
        stack: list[tuple[Term, bool]] = [(self, False)]
        while stack:
            term, ready = stack.pop()
            if ready:
                yield term
            elif id(term) not in seen:
                seen.add(id(term))
                stack.append((term, True))
                stack.extend((arg, False) for arg in reversed(term.args))


# A cache of what exists, dropped with it: nothing can be observed through it but identity.
_TERMS: WeakValueDictionary[tuple[object, ...], Term] = WeakValueDictionary()
_ZERO = Fraction(0)


def _make(
    kind: Kind,
    args: tuple[Term, ...] = (),
    name: str = "",
    axes: tuple[Axis, ...] = (),
    size: int = 0,
    number: Fraction = _ZERO,
) -> Term:
    key = (kind, args, name, axes, size, number)
    term = _TERMS.get(key)
    if term is None:
        term = object.__new__(Term)
        for slot, value in zip(("kind", "args", "name", "axes", "size", "number"), key, strict=True):
            object.__setattr__(term, slot, value)
        term = _TERMS.setdefault(key, term)
    return term


# ---------------------------------------------------------------------------------------------------- constructors
def symbol(name: str, axes: Iterable[Axis | str] = ()) -> Term:
    """Return an input tensor; `axes` in the order of its dimensions (a split axis gives its parts), none in the paper's form.

    Raises: UsageError when an axis occurs twice: two dimensions that run together are one axis.
    """
    listed = tuple(_as_axis(axis) for axis in axes)
    if len(set(listed)) != len(listed):
        raise UsageError(
            f"symbol {name}: axis listed twice in {[str(a) for a in listed]}; give each dimension its own axis"
        )
    return _make(Kind.SYMBOL, name=name, axes=listed)


def constant(value: Fraction | int | str) -> Term:
    """Return a rational constant."""
    return _make(Kind.CONSTANT, number=Fraction(value))


def add(left: Term, *rest: Term) -> Term:
    """Return the sum of the operands, added from the left."""
    for right in rest:
        left = _make(Kind.ADD, (left, right))
    return left


def mul(left: Term, *rest: Term) -> Term:
    """Return the product of the operands, multiplied from the left."""
    for right in rest:
        left = _make(Kind.MUL, (left, right))
    return left


def div(left: Term, right: Term) -> Term:
    """Return the quotient."""
    return _make(Kind.DIV, (left, right))


def exp(argument: Term) -> Term:
    """Return the exponential."""
    return _make(Kind.EXP, (argument,))


def sqrt(argument: Term) -> Term:
    """Return the square root."""
    return _make(Kind.SQRT, (argument,))


def square(argument: Term) -> Term:
    """Return mul(x, x), as table 1 has it."""
    return _make(Kind.MUL, (argument, argument))


def silu(argument: Term) -> Term:
    """Return the opaque function silu, as table 1 has it."""
    return apply("silu", argument)


def apply(name: str, *arguments: Term) -> Term:
    """Return an opaque function of the arguments; `maximum` is the lattice operation of that name.

    Raises: UsageError without arguments.
    """
    if not arguments:
        raise UsageError(f"function {name}: needs at least one argument; use `symbol` for a value without any")
    if name == "maximum":
        return maximum(*arguments)
    return _make(Kind.APPLY, arguments, name)


def maximum(left: Term, *rest: Term) -> Term:
    """Return the larger operand, element by element."""
    for right in rest:
        left = _make(Kind.MAXIMUM, (left, right))
    return left


def sum_over(extent: int | Axis | Iterable[Axis], argument: Term) -> Term:
    """Return the sum over a number of elements (paper's form) or over axes (axes form).

    Raises: UsageError for an extent below 1 or an axis listed twice.
    """
    return _reduce(Kind.SUM, extent, argument)


def max_over(extent: int | Axis | Iterable[Axis], argument: Term) -> Term:
    """Return the largest of a number of elements (paper's form) or along axes (axes form). Raises: as `sum_over`."""
    return _reduce(Kind.MAX, extent, argument)


def concat(axis: str, parts: Mapping[Axis, Term] | Iterable[tuple[Axis, Term]]) -> Term:
    """Return the parts laid one after the other along `axis`, each along its own part axis.

    Raises: UsageError without parts, or when a part axis occurs twice.
    """
    pairs = list(parts.items() if isinstance(parts, Mapping) else parts)
    axes = tuple(pair[0] for pair in pairs)
    if not pairs or len(set(axes)) != len(axes):
        raise UsageError(
            f"concatenation along {axis}: needs parts with axes of their own, got {[str(a) for a in axes]}"
        )
    return _make(Kind.CONCAT, tuple(pair[1] for pair in pairs), axis, axes)


def mark(argument: Term) -> Term:
    """Return the term, to be printed highlighted."""
    return _make(Kind.MARK, (argument,))


def _as_axis(axis: Axis | str) -> Axis:
    return axis if isinstance(axis, Axis) else Axis(axis)


def _reduce(kind: Kind, extent: int | Axis | Iterable[Axis], argument: Term) -> Term:
    if isinstance(extent, int):
        if extent < 1:
            raise UsageError(f"{kind.value} over {extent} elements; give at least 1")
        return _make(kind, (argument,), size=extent)
    axes = (extent,) if isinstance(extent, Axis) else tuple(extent)
    if len(set(axes)) != len(axes):
        raise UsageError(f"{kind.value}: axis listed twice in {[str(a) for a in axes]}")
    return _make(kind, (argument,), axes=tuple(sorted(axes, key=str))) if axes else argument


# -------------------------------------------------------------------------------------------------------- questions
def free_axes(term: Term) -> frozenset[Axis]:
    """Return the axes along which the value still varies."""
    known: dict[int, frozenset[Axis]] = {}
    for sub in term.subterms():
        axes = frozenset(sub.axes) if sub.kind is Kind.SYMBOL else frozenset().union(*(known[id(a)] for a in sub.args))
        known[id(sub)] = axes - frozenset(sub.axes) if sub.kind in (Kind.SUM, Kind.MAX) else axes
    return known[id(term)]


def is_in_loop(term: Term) -> bool:
    """Return whether the value changes from one iteration to the next: the loop part of an axis is free in it."""
    return any(axis.part is Part.LOOP for axis in free_axes(term))


def to_prefix(term: Term) -> str:
    """Return the paper's prefix form, `div(sum(64, mul(X, W)), sqrt(...))`, with axes where the term has them."""
    text: dict[int, str] = {}
    for sub in term.subterms():
        args = [text[id(arg)] for arg in sub.args]
        match sub.kind:
            case Kind.SYMBOL:
                text[id(sub)] = sub.name + (f"[{', '.join(map(str, sub.axes))}]" if sub.axes else "")
            case Kind.CONSTANT:
                text[id(sub)] = str(sub.number)
            case Kind.SUM | Kind.MAX:
                over = str(sub.size) if sub.size else " ".join(map(str, sub.axes))
                text[id(sub)] = f"{sub.kind.value}({over}, {args[0]})"
            case Kind.CONCAT:
                parts = ", ".join(f"{axis}: {arg}" for axis, arg in zip(sub.axes, args, strict=True))
                text[id(sub)] = f"concat({sub.name}; {parts})"
            case _:
                text[id(sub)] = f"{sub.name or sub.kind.value}({', '.join(args)})"
    return text[id(term)]


# ---------------------------------------------------------------------------------------------------------- rewriting
def rebuild(term: Term, args: tuple[Term, ...]) -> Term:
    """Return the same operator on other operands."""
    return term if args == term.args else _make(term.kind, args, term.name, term.axes, term.size, term.number)


def map_terms(term: Term, change: Callable[[Term], Term]) -> Term:
    """Return the term with `change` applied to every subterm, operands first."""
    done: dict[int, Term] = {}
    for sub in term.subterms():
        done[id(sub)] = change(rebuild(sub, tuple(done[id(arg)] for arg in sub.args)))
    return done[id(term)]


def rename_axes(term: Term, names: Mapping[Axis, Axis]) -> Term:
    """Return the term with axes renamed, bound ones too. Raises: UsageError when two axes of a symbol become one."""

    def change(sub: Term) -> Term:
        axes = tuple(names.get(axis, axis) for axis in sub.axes)
        if axes == sub.axes:
            return sub
        if len(set(axes)) != len(axes):
            raise UsageError(f"renaming makes two axes of {to_prefix(sub)} one: {[str(a) for a in axes]}")
        ordered = tuple(sorted(axes, key=str)) if sub.kind in (Kind.SUM, Kind.MAX) else axes
        return _make(sub.kind, sub.args, sub.name, ordered, sub.size, sub.number)

    return map_terms(term, change)


def to_sizes(term: Term, extents: Mapping[Axis, int]) -> Term:
    """Return the paper's form: symbols lose their axes, a reduction keeps only how many elements it folds.

    Raises: UsageError when the extent of a reduced axis is not given, or parts are still concatenated.
    """

    def change(sub: Term) -> Term:
        if sub.kind is Kind.CONCAT:
            raise UsageError(f"parts along {sub.name} are still concatenated; sum over the axis or take `pieces` first")
        if not sub.axes:
            return sub
        if sub.kind is Kind.SYMBOL:
            return _make(Kind.SYMBOL, name=sub.name)
        missing = [str(axis) for axis in sub.axes if axis not in extents]
        if missing:
            raise UsageError(f"extent of {', '.join(missing)} is not given; known: {sorted(map(str, extents))}")
        return _make(sub.kind, sub.args, size=math.prod(extents[axis] for axis in sub.axes))

    return map_terms(close_concats(term), change)


def close_concats(term: Term) -> Term:
    """Return the term with operators pushed into concatenated parts and reductions over such an axis taken apart.

    sum_c concat(c; h: x, r: y) = sum_h x + sum_r y; max likewise with maximum; f(concat(x, y)) = concat(f(x), f(y)).
    Raises: UsageError when operands are cut differently along one axis.
    """

    def change(sub: Term) -> Term:
        cut = [arg for arg in sub.args if arg.kind is Kind.CONCAT]
        if not cut:
            return sub
        first = cut[0]
        if sub.kind in (Kind.SUM, Kind.MAX):
            outer = [axis for axis in sub.axes if str(axis) == first.name]
            rest = [axis for axis in sub.axes if str(axis) != first.name]
            if not outer:
                return concat(
                    first.name, [(a, change(_reduce(sub.kind, sub.size or sub.axes, p))) for a, p in _parts(first)]
                )
            folded = [change(_reduce(sub.kind, [axis, *rest], part)) for axis, part in _parts(first)]
            return add(*folded) if sub.kind is Kind.SUM else maximum(*folded)
        if sub.kind is Kind.CONCAT:  # another axis: the parts' own cuts stay inside
            return sub
        if any(arg.name == first.name and arg.axes != first.axes for arg in cut):
            raise UsageError(
                f"operands are cut differently along {first.name}: {[list(map(str, a.axes)) for a in cut]}"
            )
        parts = []
        for index, axis in enumerate(first.axes):
            same = [a.args[index] if a.kind is Kind.CONCAT and a.name == first.name else a for a in sub.args]
            parts.append((axis, change(rebuild(sub, tuple(same)))))
        return concat(first.name, parts)

    return map_terms(term, change)


def pieces(term: Term) -> tuple[Term, ...]:
    """Return what the value is on each part of its concatenated axes, the value itself alone if it has none."""
    closed = close_concats(term)
    return tuple(p for part in closed.args for p in pieces(part)) if closed.kind is Kind.CONCAT else (closed,)


def _parts(term: Term) -> list[tuple[Axis, Term]]:
    return list(zip(term.axes, term.args, strict=True))
