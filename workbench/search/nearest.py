"""What came closest when a search found nothing: the value within the limit that is fewest operators from an output.

Invariant: the value can be made within the limit, and its distance is never more than the operators that are missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from workbench.display import Displayed
from workbench.domains.abstract_distance import FAR
from workbench.domains.abstract_expr import Axis
from workbench.domains.abstract_goals import Goals, Judgement
from workbench.domains.abstract_normal_form import ONE, Value
from workbench.domains.abstract_readback import Readback
from workbench.search.expressions import Expressions
from workbench.search.palette import palette_of
from workbench.search.pieces import taken_apart
from workbench.search.problem import Problem, problem_of
from workbench.search.space import Space
from workbench.search.value_text import term_text
from workbench.ugraph.kernel_graph import KernelGraph

WIDER = 4
"""How many further operators are allowed when looking for values on the way to an output."""

_NEVER = 10_000
_CROSSINGS = {"exp": "take exp", "sqrt": "take the root", "div": "divide by it", "max": "take the maximum"}


@dataclass(frozen=True, slots=True)
class NearestValue(Displayed):
    """A value that is no output but close to one.

    Attributes: expression: in the lecture's notation; operators: that make it; distance: operators from it to an output,
    at least; output: which one; goal: that output with the value marked ⟦ ⟧; missing: what is still to be done, in words.
    """

    expression: str
    operators: int
    distance: int
    output: int
    goal: str
    missing: str

    def describe(self) -> str:
        """Return two lines: the value and what is missing, and where it stands in the output."""
        made = f"made with {_count(self.operators)}" if self.operators else "an input"
        return (
            f"{self.expression} ({made}) is at least {_count(self.distance)} from output {self.output}; "
            f"missing: {self.missing}\n  {self.goal}"
        )

    def to_json(self) -> dict[str, object]:
        """Return the plain form that the command line prints."""
        return {
            "expression": self.expression,
            "operators": self.operators,
            "distance": self.distance,
            "output": self.output,
            "goal": self.goal,
            "missing": self.missing,
        }


def nearest_value(program: KernelGraph, space: Space) -> NearestValue | None:
    """Return the value with the least distance above 0 that operators within the limit make; None if none has any.

    Of several, the largest expression. Raises: UsageError for a program that cannot be searched.
    """
    problem = problem_of(taken_apart(program).core)
    expressions = _expressions(problem, space, space.max_block_ops)
    operators = _operators(expressions)
    if any(operators.get(goal, _NEVER) >= _NEVER for goal in expressions.goals):
        expressions = _expressions(problem, space, space.max_block_ops + WIDER)
        operators = _operators(expressions)
    goals = Goals(expressions.algebra, expressions.goals, expressions.costs)
    best: tuple[int, int, int, Value] | None = None
    for value, made in operators.items():
        if made > space.max_block_ops or goals.is_goal(value) or expressions.algebra.frozen[value]:
            continue
        distance = goals.distance(value)
        if 0 < distance < FAR:
            key = (distance, -expressions.algebra.weight[value], -made, value)
            best = key if best is None else min(best, key)
    if best is None:
        return None
    value, judgement = best[3], goals.judge(best[3])
    reader = _Reader(expressions, goals)
    return NearestValue(
        reader.text(value),
        operators[value],
        judgement.distance,
        judgement.goal,
        reader.goal(judgement),
        reader.missing(judgement),
    )


def _expressions(problem: Problem, space: Space, limit: int) -> Expressions:
    palette = palette_of(problem, replace(space, max_block_ops=limit))
    folds = [(name, (Axis(name),)) for name in problem.reduced]
    return Expressions(problem, palette, {}, folds, limit=limit, outer_products=space.outer_products).close()


def _operators(expressions: Expressions) -> dict[Value, int]:
    """Return per value the operators of a tree that makes it of inputs; values that nothing makes are left out."""
    known: dict[Value, int] = dict.fromkeys(expressions.starts, 0)
    changed = True
    while changed:
        changed = False
        for value, makings in expressions.makings.items():
            for making in makings:
                count = 1 + sum(known.get(operand, _NEVER) for operand in set(making.operands))
                if count < known.get(value, _NEVER):
                    known[value], changed = count, True
    return known


def _count(operators: int) -> str:
    return f"{operators} operator{'s' * (operators != 1)}"


class _Reader:
    """Writes values as text, with the extents of means as they are in the program."""

    def __init__(self, expressions: Expressions, goals: Goals) -> None:
        self.readback, self.goals = Readback(expressions.algebra), goals
        self.problem = expressions.problem

    def text(self, value: Value) -> str:
        return term_text(self.readback.term(value), self.problem)

    def goal(self, judgement: Judgement) -> str:
        return term_text(self.readback.goal_with_part(self.goals, judgement), self.problem)

    def missing(self, judgement: Judgement) -> str:
        """Return in words what is between a value and the output it lies in."""
        steps = []
        if judgement.cofactor != ONE:
            steps.append(f"multiply by {self.text(judgement.cofactor)}")
        if judgement.left:
            steps.append(f"sum over {', '.join(map(str, judgement.left))}")
        steps += [_CROSSINGS.get(label, f"take {label}") for label in reversed(judgement.path) if label != "numerator"]
        return ", then ".join(steps or ["add what stands beside it"])
