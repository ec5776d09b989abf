"""The exact solver of layout problems that needs no Z3: variables are eliminated one by one along a tree decomposition.

Invariant: the result is optimal. Eliminating a variable joins all tables that mention it and keeps, for every choice of
their other variables, its best option; where the joined table would be too large, one variable is fixed to each of its
options in turn instead (branch and bound on a cutset), and the rest is eliminated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from workbench.optimize.layout_problem import LayoutProblem, Solution, smallest_conflict

MAX_TABLE = 2_000_000
"""Entries of the largest table that is made."""

Table = tuple[tuple[int, ...], npt.NDArray[np.float64]]
"""Variables, and a cost for each choice of theirs; infinite where a rule forbids it. Costs below 2^53 are exact."""


def solve_by_elimination(problem: LayoutProblem, *, max_table: int = MAX_TABLE) -> Solution:
    """Return an optimal choice. Raises: LayoutConflictError naming the rules that exclude each other."""
    sizes = [len(variable.options) for variable in problem.variables]
    tables: list[Table] = [(rule.scope, np.where(rule.allowed, 0.0, np.inf)) for rule in problem.rules]
    tables += [(price.scope, price.costs.astype(np.float64)) for price in problem.prices]
    found = _solve(_merged(tables), sizes, max_table, np.inf)
    if found is None:
        raise smallest_conflict(problem, lambda part: is_feasible(part, max_table=max_table))
    choice, _ = found
    return Solution(choice=choice, cost=problem.cost(choice), is_optimal=True, solver="elimination")


def is_feasible(problem: LayoutProblem, *, max_table: int = MAX_TABLE) -> bool:
    """Return True when some choice breaks no rule."""
    sizes = [len(variable.options) for variable in problem.variables]
    tables: list[Table] = [(rule.scope, np.where(rule.allowed, 0.0, np.inf)) for rule in problem.rules]
    return _solve(_merged(tables), sizes, max_table, np.inf) is not None


def _merged(tables: Iterable[Table]) -> list[Table]:
    """Return tables of which no two have the same variables."""
    found: dict[tuple[int, ...], npt.NDArray[np.float64]] = {}
    for scope, costs in tables:
        order = sorted(range(len(scope)), key=lambda place: scope[place])
        key, moved = tuple(scope[place] for place in order), costs.transpose(order)
        found[key] = found[key] + moved if key in found else moved
    return list(found.items())


def _joined(tables: Sequence[Table], scope: tuple[int, ...], sizes: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the sum of tables over the variables of a scope (in rising order, like those of every table)."""
    total = np.zeros([sizes[number] for number in scope])
    for own, costs in tables:
        total += costs.reshape([sizes[number] if number in own else 1 for number in scope])
    return total


def _solve(
    tables: list[Table], sizes: Sequence[int], max_table: int, limit: float
) -> tuple[tuple[int, ...], float] | None:
    """Return a best choice that costs less than `limit`, and its cost; None if there is none."""
    left = set(range(len(sizes)))
    decided: list[tuple[int, tuple[int, ...], npt.NDArray[np.intp]]] = []
    constant = 0.0
    while left:
        touching = {number: [table for table in tables if number in table[0]] for number in left}
        scopes = {n: tuple(sorted({m for scope, _ in touching[n] for m in scope} | {n})) for n in left}
        number = min(left, key=lambda n: (prod(sizes[m] for m in scopes[n]), n))
        scope = scopes[number]
        if prod(sizes[m] for m in scope) > max_table:
            return _branch(tables, sizes, max_table, limit, left, decided, constant)
        costs = _joined(touching[number], scope, sizes)
        axis = scope.index(number)
        rest = tuple(m for m in scope if m != number)
        decided.append((number, rest, costs.argmin(axis=axis)))
        least = costs.min(axis=axis)
        tables = [table for table in tables if number not in table[0]]
        if rest:
            tables = _merged([*tables, (rest, least)])
        else:
            constant += float(least)
        left.remove(number)
    constant += sum(float(costs) for scope, costs in tables if not scope)
    if not constant < limit:
        return None
    return _read_back(decided, {}, len(sizes)), constant


def _branch(
    tables: list[Table],
    sizes: Sequence[int],
    max_table: int,
    limit: float,
    left: set[int],
    decided: list[tuple[int, tuple[int, ...], npt.NDArray[np.intp]]],
    constant: float,
) -> tuple[tuple[int, ...], float] | None:
    """Fix the variable that meets most others to each option in turn; what is left falls apart sooner."""
    meets = {n: {m for scope, _ in tables if n in scope for m in scope} for n in left}
    pivot = max((n for n in left if sizes[n] > 1), key=lambda n: (len(meets[n]), sizes[n], -n))
    best: tuple[dict[int, int], float] | None = None
    fixed_sizes = [1 if n == pivot or n not in left else sizes[n] for n in range(len(sizes))]
    for option in range(sizes[pivot]):
        inner: list[Table] = []
        for scope, costs in tables:
            rest = tuple(n for n in scope if n != pivot)
            taken = costs.take([option], axis=scope.index(pivot)) if pivot in scope else costs
            inner.append((rest, taken.reshape([sizes[n] for n in rest])))
        found = _solve(_merged(inner), fixed_sizes, max_table, limit - constant)
        if found is not None:
            choice, cost = found
            best = ({n: option if n == pivot else choice[n] for n in left}, cost + constant)
            limit = cost + constant
    if best is None:
        return None
    return _read_back(decided, best[0], len(sizes)), best[1]


def _read_back(
    decided: Sequence[tuple[int, tuple[int, ...], npt.NDArray[np.intp]]], known: dict[int, int], count: int
) -> tuple[int, ...]:
    """Return the option of every variable, the one eliminated last first."""
    choice = dict(known)
    for number, rest, best in reversed(decided):
        choice[number] = int(best[tuple(choice[m] for m in rest)])
    return tuple(choice[number] for number in range(count))
