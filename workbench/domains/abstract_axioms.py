"""The axioms, as data: table 2 of the paper (A_eq), A_sub, and the laws of max. One list for everything that needs them.

Invariant: the normal form and the subexpression test are tested against this list, and the solvers that serve as
baselines are given this list, so there is no second one to disagree with.

A pattern is a variable or a tuple (operator, patterns...); the first operand of `sum` and `max` is an index: a
variable, ("times", i, j), or "1". In the paper's form an index is a number and `times` their product; in the axes form
it is a set of axes and `times` their disjoint union, and an axiom may ask that a variable does not vary along an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_expr import Axis, Kind, Term

Pattern = str | tuple["Pattern", ...]
Index = int | frozenset[Axis]
Bindings = dict[str, "Term | Index"]


@dataclass(frozen=True, slots=True)
class Axiom:
    """left = right for all values of the variables.

    Attributes: group: "table 2", "max" (where a program has a max) or "unit" (x * 1 = x); independent: pairs (variable,
    index): in the axes form the variable does not vary along the index.
    """

    name: str
    left: Pattern
    right: Pattern
    independent: tuple[tuple[str, str], ...] = ()
    group: str = "table 2"

    def __str__(self) -> str:
        """Return `left = right` in prefix form."""
        return f"{show(self.left)} = {show(self.right)}"


AXIOMS: tuple[Axiom, ...] = (
    Axiom("add commutes", ("add", "x", "y"), ("add", "y", "x")),
    Axiom("mul commutes", ("mul", "x", "y"), ("mul", "y", "x")),
    Axiom("add associates", ("add", "x", ("add", "y", "z")), ("add", ("add", "x", "y"), "z")),
    Axiom("mul associates", ("mul", "x", ("mul", "y", "z")), ("mul", ("mul", "x", "y"), "z")),
    Axiom("mul distributes", ("add", ("mul", "x", "z"), ("mul", "y", "z")), ("mul", ("add", "x", "y"), "z")),
    Axiom("div distributes", ("add", ("div", "x", "z"), ("div", "y", "z")), ("div", ("add", "x", "y"), "z")),
    Axiom("mul by a quotient", ("mul", "x", ("div", "y", "z")), ("div", ("mul", "x", "y"), "z")),
    Axiom("div of a quotient", ("div", ("div", "x", "y"), "z"), ("div", "x", ("mul", "y", "z"))),
    Axiom("sum of one", "x", ("sum", "1", "x")),
    Axiom("sum of a sum", ("sum", "i", ("sum", "j", "x")), ("sum", ("times", "i", "j"), "x")),
    Axiom("sum of add", ("sum", "i", ("add", "x", "y")), ("add", ("sum", "i", "x"), ("sum", "i", "y"))),
    Axiom("sum of mul", ("sum", "i", ("mul", "x", "y")), ("mul", ("sum", "i", "x"), "y"), (("y", "i"),)),
    Axiom("sum of div", ("sum", "i", ("div", "x", "y")), ("div", ("sum", "i", "x"), "y"), (("y", "i"),)),
    Axiom("product of exps", ("mul", ("exp", "x"), ("exp", "y")), ("exp", ("add", "x", "y"))),
    Axiom("product of roots", ("mul", ("sqrt", "x"), ("sqrt", "y")), ("sqrt", ("mul", "x", "y"))),
    Axiom("maximum commutes", ("maximum", "x", "y"), ("maximum", "y", "x"), group="max"),
    Axiom(
        "maximum associates",
        ("maximum", "x", ("maximum", "y", "z")),
        ("maximum", ("maximum", "x", "y"), "z"),
        group="max",
    ),
    Axiom("maximum of equals", ("maximum", "x", "x"), "x", group="max"),
    Axiom("max of a max", ("max", "i", ("max", "j", "x")), ("max", ("times", "i", "j"), "x"), group="max"),
    Axiom(
        "max of maximum",
        ("max", "i", ("maximum", "x", "y")),
        ("maximum", ("max", "i", "x"), ("max", "i", "y")),
        group="max",
    ),
    Axiom(
        "maximum of shifted",
        ("maximum", ("add", "x", "z"), ("add", "y", "z")),
        ("add", ("maximum", "x", "y"), "z"),
        group="max",
    ),
    Axiom("max of shifted", ("max", "i", ("add", "x", "y")), ("add", ("max", "i", "x"), "y"), (("y", "i"),), "max"),
    Axiom("product with one", ("mul", "x", ("constant", "1")), "x", group="unit"),
)

# A_sub: operand number `position` of `kind` is a subexpression; reflexive and transitive. None: every operand.
SUBEXPRESSIONS: tuple[tuple[Kind, int | None], ...] = (
    (Kind.ADD, None),
    (Kind.MUL, None),
    (Kind.DIV, 0),
    (Kind.DIV, 1),
    (Kind.EXP, 0),
    (Kind.SQRT, 0),
    (Kind.SUM, 0),
    (Kind.APPLY, None),
    (Kind.MAX, 0),
    (Kind.MAXIMUM, None),
)


def axioms_of(*groups: str) -> tuple[Axiom, ...]:
    """Return the axioms of the named groups."""
    return tuple(axiom for axiom in AXIOMS if axiom.group in groups)


def direct_subterms(term: Term) -> tuple[Term, ...]:
    """Return the operands that A_sub makes subexpressions of the term in one step."""
    places = [position for kind, position in SUBEXPRESSIONS if kind is term.kind]
    return term.args if None in places else tuple(term.args[p] for p in places if p is not None)


def show(pattern: Pattern) -> str:
    """Return a pattern in prefix form: `sum(i, mul(x, y))`, `i*j`."""
    if isinstance(pattern, str):
        return pattern
    operands = [show(part) for part in pattern[1:]]
    if pattern[0] == "times":
        return "*".join(operands)
    return operands[0] if pattern[0] == "constant" else f"{pattern[0]}({', '.join(operands)})"


# --------------------------------------------------------------------------------------------------------- rewriting
def rewrites(term: Term, axioms: Sequence[Axiom] = AXIOMS) -> Iterator[Term]:
    """Return every term that one axiom, used once at one place in either direction, makes of the term.

    x = sum(1, x) is used only from right to left: the other way it applies everywhere and changes nothing else.
    """
    yield from rewrites_at_root(term, axioms)
    for position, arg in enumerate(term.args):
        for new in rewrites(arg, axioms):
            yield expr.rebuild(term, (*term.args[:position], new, *term.args[position + 1 :]))


def rewrites_at_root(term: Term, axioms: Sequence[Axiom] = AXIOMS) -> Iterator[Term]:
    """Return every term that one axiom, used once on the whole term in either direction, makes of it."""
    for axiom in axioms:
        yield from _at_root(axiom.left, axiom.right, axiom, term)
        yield from _at_root(axiom.right, axiom.left, axiom, term)


def _at_root(source: Pattern, target: Pattern, axiom: Axiom, term: Term) -> Iterator[Term]:
    if isinstance(source, str):
        return
    for bindings in _match(source, term, {}):
        new = _build(target, bindings)
        if new is not None and new is not term and _is_independent(axiom, bindings):
            yield new


def _is_independent(axiom: Axiom, bindings: Bindings) -> bool:
    for variable, index in axiom.independent:
        value, over = bindings[variable], bindings[index]
        if isinstance(value, Term) and isinstance(over, frozenset) and expr.free_axes(value) & over:
            return False
    return True


def _match(pattern: Pattern, term: Term, bindings: Bindings) -> Iterator[Bindings]:
    if isinstance(pattern, str):
        known = bindings.get(pattern)
        if known is None:
            yield {**bindings, pattern: term}
        elif known is term:
            yield bindings
        return
    kind, *parts = pattern
    if kind == "constant":
        if term.kind is Kind.CONSTANT and str(term.number) == parts[0]:
            yield bindings
        return
    if term.kind.value != kind:
        return
    if kind in ("sum", "max"):
        for partial in _match_index(parts[0], term.size or frozenset(term.axes), bindings):
            yield from _match(parts[1], term.args[0], partial)
        return
    for partial in _match(parts[0], term.args[0], bindings):
        if len(parts) == 1:
            yield partial
        else:
            yield from _match(parts[1], term.args[1], partial)


def _match_index(pattern: Pattern, index: Index, bindings: Bindings) -> Iterator[Bindings]:
    if pattern == "1":
        if index == 1:
            yield bindings
    elif isinstance(pattern, str):
        if bindings.get(pattern, index) == index:
            yield {**bindings, pattern: index}
    else:
        for left, right in _splits(index):
            for partial in _match_index(pattern[1], left, bindings):
                yield from _match_index(pattern[2], right, partial)


def _splits(index: Index) -> Iterator[tuple[Index, Index]]:
    """Return the ways to write an index as `times` of two that are not 1."""
    if isinstance(index, int):
        yield from ((n, index // n) for n in range(2, index) if index % n == 0)
        return
    axes = sorted(index, key=str)
    for size in range(1, len(axes)):
        yield from ((frozenset(part), index - frozenset(part)) for part in combinations(axes, size))


def _build(pattern: Pattern, bindings: Bindings) -> Term | None:
    if isinstance(pattern, str):
        value = bindings.get(pattern)
        return value if isinstance(value, Term) else None
    kind, *parts = pattern
    if kind == "constant":
        return expr.constant(str(parts[0]))
    if kind in ("sum", "max"):
        index, argument = _build_index(parts[0], bindings), _build(parts[1], bindings)
        if argument is None or index is None:
            return None
        return expr.sum_over(index, argument) if kind == "sum" else expr.max_over(index, argument)
    args = [_build(part, bindings) for part in parts]
    known = [arg for arg in args if arg is not None]
    return BUILDERS[str(kind)](*known) if len(known) == len(args) else None


BUILDERS: dict[str, Callable[..., Term]] = {
    "add": expr.add,
    "mul": expr.mul,
    "div": expr.div,
    "exp": expr.exp,
    "sqrt": expr.sqrt,
    "maximum": expr.maximum,
}


def _build_index(pattern: Pattern, bindings: Bindings) -> Index | None:
    if pattern == "1":
        return 1
    if isinstance(pattern, str):
        index = bindings[pattern]
        return None if isinstance(index, Term) else index
    left, right = _build_index(pattern[1], bindings), _build_index(pattern[2], bindings)
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if isinstance(left, frozenset) and isinstance(right, frozenset):
        return None if left & right else left | right
    return None
