"""Layout problems in Z3, one Boolean per variable and option, with a time limit and the best choice so far.

Invariant: whatever is returned breaks no rule; `is_optimal` only where Z3 proved that nothing costs less. Each better
choice tightens a pseudo-Boolean bound on the cost, so the best so far is at hand whenever time runs out.
"""

from __future__ import annotations

import time
from itertools import product
from math import gcd
from typing import Any

from workbench.errors import BudgetError
from workbench.optimize.layout_elimination import is_feasible
from workbench.optimize.layout_problem import LayoutProblem, Solution, smallest_conflict


def solve_by_z3(problem: LayoutProblem, *, seconds: float = 10.0) -> Solution:
    """Return the best choice found in the time given.

    Raises: LayoutConflictError when no choice satisfies the rules; BudgetError when time ran out before the first one.
    """
    import z3

    end = time.monotonic() + seconds
    context = z3.Context()  # of its own, so that other solvers of the process are not disturbed
    solver = z3.SolverFor("QF_FD", ctx=context)
    chosen = [
        [z3.Bool(f"B[{number},{option}]", ctx=context) for option in range(len(variable.options))]
        for number, variable in enumerate(problem.variables)
    ]
    for options in chosen:
        solver.add(z3.PbEq([(option, 1) for option in options], 1))
    for rule in problem.rules:
        for case in product(*(range(extent) for extent in rule.allowed.shape)):
            if not rule.allowed[case]:
                solver.add(z3.Or([z3.Not(chosen[n][option]) for n, option in zip(rule.scope, case, strict=True)]))
    paid = _paid(z3, context, solver, problem, chosen)
    unit = gcd(*(cost for _, cost in paid)) if paid else 1
    best: Solution | None = None
    while True:
        left = end - time.monotonic()
        if left <= 0:
            break
        solver.set("timeout", max(1, int(1000 * left)))
        answer = solver.check()
        if answer == z3.unsat:
            if best is None:
                raise smallest_conflict(problem, is_feasible)
            return Solution(choice=best.choice, cost=best.cost, is_optimal=True, solver="z3")
        if answer != z3.sat:
            break
        model = solver.model()
        choice = tuple(
            next(option for option, flag in enumerate(options) if z3.is_true(model.eval(flag, model_completion=True)))
            for options in chosen
        )
        best = Solution(choice=choice, cost=problem.cost(choice), is_optimal=False, solver="z3")
        if best.cost == 0:
            return Solution(choice=choice, cost=0, is_optimal=True, solver="z3")
        solver.add(z3.PbLe([(flag, cost // unit) for flag, cost in paid], (best.cost - 1) // unit))
    if best is None:
        raise BudgetError(
            f"Z3 found no layouts in {seconds:g} s; give it more time, or use the exact solver without Z3"
        )
    return best


def _paid(z3: Any, context: Any, solver: Any, problem: LayoutProblem, chosen: list[list[Any]]) -> list[tuple[Any, int]]:
    """Return Booleans and what each costs where it is true; one that stands for several choices is implied by them."""
    paid: list[tuple[Any, int]] = []
    for place, price in enumerate(problem.prices):
        by_cost: dict[int, Any] = {}
        for case in product(*(range(extent) for extent in price.costs.shape)):
            cost = int(price.costs[case])
            if cost == 0:
                continue
            flags = [chosen[n][option] for n, option in zip(price.scope, case, strict=True)]
            if len(flags) == 1:
                paid.append((flags[0], cost))
                continue
            if cost not in by_cost:
                by_cost[cost] = z3.Bool(f"pays[{place},{cost}]", ctx=context)
                paid.append((by_cost[cost], cost))
            solver.add(z3.Or([by_cost[cost], *(z3.Not(flag) for flag in flags)]))
    return paid
