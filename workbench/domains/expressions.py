"""Abstract expressions as a reader writes them: built, compared, printed. `wb.expressions`.

Invariant: nothing is decided here; terms come from `abstract_expr`, A_eq is `abstract_normal_form`'s, A_sub
`abstract_distance`'s, and the solvers beside them are `abstract_solvers`'.
"""

from __future__ import annotations

from workbench.domains.abstract_axioms import Axiom, axioms_of, rewrites
from workbench.domains.abstract_distance import FAR, WHOLE, DistanceTables
from workbench.domains.abstract_expr import (
    Axis,
    Term,
    add,
    apply,
    constant,
    div,
    exp,
    maximum,
    mul,
    silu,
    sqrt,
    square,
    sum_over,
    symbol,
)
from workbench.domains.abstract_normal_form import Algebra
from workbench.domains.abstract_print import to_latex, to_text
from workbench.domains.abstract_solvers import TABLE_2, Z3Solver

__all__ = [
    "FAR",
    "TABLE_2",
    "Axiom",
    "Axis",
    "Term",
    "Z3Solver",
    "add",
    "apply",
    "are_equal",
    "axioms_of",
    "constant",
    "distance",
    "div",
    "exp",
    "is_part",
    "maximum",
    "mul",
    "rewrites",
    "silu",
    "sqrt",
    "square",
    "sum_over",
    "symbol",
    "to_latex",
    "to_text",
]


def are_equal(left: Term, right: Term) -> bool:
    """Return whether two expressions are equal under A_eq (the paper's table 2)."""
    algebra = Algebra()
    return algebra.normalize(left) == algebra.normalize(right)


def distance(part: Term, goal: Term) -> int:
    """Return how many operators lie between an expression and a goal at least; 0 if equal, FAR if it is no part of it."""
    algebra = Algebra()
    tables = DistanceTables(algebra)
    return tables.distances(tables.region(algebra.normalize(goal)), algebra.normalize(part))[WHOLE]


def is_part(part: Term, goal: Term) -> bool:
    """Return whether A_eq and A_sub make an expression a subexpression of a goal: such prefixes are kept."""
    return distance(part, goal) < FAR
