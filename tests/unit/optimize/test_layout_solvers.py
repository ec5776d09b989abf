from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from workbench.errors import BudgetError, LayoutConflictError
from workbench.optimize.layout_elimination import is_feasible, solve_by_elimination
from workbench.optimize.layout_problem import LayoutProblem, Price, Rule
from workbench.optimize.layout_z3 import solve_by_z3


def random_problem(seed: int, *, variables: int, forbidden: float = 0.2) -> LayoutProblem:
    rng = np.random.default_rng(seed)
    problem = LayoutProblem()
    for number in range(variables):
        problem.add(f"t{number}", tuple("abcdef"[: rng.integers(2, 5)]))
    for number in range(2 * variables):
        scope = tuple(int(n) for n in rng.choice(variables, min(variables, int(rng.integers(1, 4))), replace=False))
        shape = [len(problem.variables[n].options) for n in scope]
        if rng.random() < 0.5:
            problem.rules.append(Rule(f"rule {number}", "here", scope, rng.random(shape) >= forbidden))
        else:
            problem.prices.append(Price(f"price {number}", "here", scope, rng.integers(0, 2000, shape)))
    return problem


def brute_force(problem: LayoutProblem) -> int | None:
    """The least cost of all cases, each looked at."""
    assert problem.cases <= 10**6
    best = None
    for choice in product(*(range(len(variable.options)) for variable in problem.variables)):
        if problem.is_allowed(choice):
            cost = problem.cost(choice)
            best = cost if best is None else min(best, cost)
    return best


@pytest.mark.parametrize("seed", range(60))
def test_small_problems_equal_brute_force_and_each_other(seed: int) -> None:
    problem = random_problem(seed, variables=2 + seed % 5, forbidden=0.35)
    least = brute_force(problem)
    if least is None:
        assert not is_feasible(problem)
        for solve in (solve_by_elimination, solve_by_z3):
            with pytest.raises(LayoutConflictError):
                solve(problem)
        return
    for found in (solve_by_elimination(problem), solve_by_z3(problem), solve_by_elimination(problem, max_table=12)):
        assert problem.is_allowed(found.choice)
        assert found.cost == problem.cost(found.choice) == least
        assert found.is_optimal


@pytest.mark.parametrize("seed", range(8))
def test_larger_problems_are_equal_in_both_solvers_and_by_branching(seed: int) -> None:
    problem = random_problem(100 + seed, variables=12, forbidden=0.1)
    found = solve_by_elimination(problem)
    branched, by_z3 = solve_by_elimination(problem, max_table=60), solve_by_z3(problem, seconds=20)
    assert found.cost == branched.cost == by_z3.cost
    assert by_z3.is_optimal
    assert problem.is_allowed(branched.choice)


@pytest.mark.parametrize("seed", range(20))
def test_costs_that_differ_by_one_are_told_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = LayoutProblem()
    for number in range(6):
        problem.add(f"t{number}", ("a", "b", "c"))
    for number in range(9):
        scope = tuple(int(n) for n in rng.choice(6, 2, replace=False))
        problem.prices.append(Price(f"price {number}", "here", scope, rng.integers(1, 4, (3, 3))))
    assert solve_by_z3(problem).cost == solve_by_elimination(problem).cost == brute_force(problem)


def test_a_conflict_names_a_smallest_set_of_rules() -> None:
    problem = LayoutProblem()
    a, b, c = (problem.add(name, ("row", "column")) for name in "abc")
    problem.demand("given", "a", [a], lambda x: x == "row")
    problem.demand("given", "c", [c], lambda x: x == "row")
    problem.demand("copies", "a to b", [a, b], lambda x, y: x == y)
    problem.demand("operand", "b", [b], lambda x: x == "column")
    for solve in (solve_by_elimination, solve_by_z3):
        with pytest.raises(LayoutConflictError, match="given") as fault:
            solve(problem)
        assert set(fault.value.rules) == {("given", "a"), ("copies", "a to b"), ("operand", "b")}
        assert "price one of them" in str(fault.value)


def test_out_of_time_the_best_so_far_is_no_proof() -> None:
    problem = random_problem(7, variables=26, forbidden=0.02)
    exact = solve_by_elimination(problem)
    try:
        found = solve_by_z3(problem, seconds=0.2)
    except BudgetError:
        return
    assert problem.is_allowed(found.choice)
    assert found.cost >= exact.cost
    assert not found.is_optimal or found.cost == exact.cost


def test_rules_and_prices_that_say_nothing_are_left_out() -> None:
    problem = LayoutProblem()
    a = problem.add("a", ("row", "column"))
    problem.demand("always", "a", [a], lambda x: True)
    problem.charge("nothing", "a", [a], lambda x: 0)
    problem.charge("columns", "a", [a], lambda x: 3 if x == "column" else 0)
    assert (len(problem.rules), len(problem.prices), problem.cases) == (0, 1, 2)
    assert problem.cost_by_name((1,)) == {"columns": 3}
    assert solve_by_elimination(problem).choice == (0,)
