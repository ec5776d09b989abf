"""How often folds over one axis must follow each other: which loops can be had at all, asked before any axis is cut.

A loop accumulates once: what is folded in it cannot depend on what it folds. Invariant: a plan that is called hopeless
has no graph in the space; the depths are of the derivation that nests least, and plans ask for no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from workbench.domains.abstract_normal_form import Value
from workbench.search.expressions import Expressions
from workbench.search.makings import Making
from workbench.search.palette import Effect
from workbench.search.plans import Plan
from workbench.search.space import Space

ENDLESS = 99


class Nesting:
    """Depths of folds over each axis, on expressions whose axes are whole."""

    def __init__(self, expressions: Expressions) -> None:
        """Keep the expressions of the plan that cuts nothing."""
        self.expressions = expressions
        self._depths: dict[str, int] = {}

    def depth(self, axis: str) -> int:
        """Return how many folds over an axis follow each other before the last output, at least; ENDLESS: it is not made.

        A softmax or norm along the axis counts endlessly: it holds the axis whole.
        """
        if axis not in self._depths:
            mask = self.expressions.mask(axis)
            weight = self.expressions.algebra.weight
            known: dict[Value, int] = dict.fromkeys(self.expressions.starts, 0)
            for value in sorted(self.expressions.makings, key=lambda v: (weight[v], v)):
                if value not in known:
                    makings = self.expressions.makings[value]
                    known[value] = min((self._of(m, mask, known) for m in makings), default=ENDLESS)
            self._depths[axis] = max(known.get(goal, ENDLESS) for goal in self.expressions.goals)
        return self._depths[axis]

    def _of(self, making: Making, mask: int, known: dict[Value, int]) -> int:
        inner = max(known.get(operand, ENDLESS) for operand in making.operands)
        if not making.mask & mask:
            return inner
        return ENDLESS if making.operator.effect is Effect.WHOLE else inner + 1


def depths_of(expressions: Expressions, axes: Iterable[str]) -> dict[str, int]:
    """Return the depth of folds over each axis; expressions: of the plan that cuts nothing."""
    nesting = Nesting(expressions)
    return {axis: nesting.depth(axis) for axis in axes}


def is_hopeless(plan: Plan, space: Space, depth: Callable[[str], int]) -> bool:
    """Return whether loops of a plan would have to accumulate what depends on them. depth: `Nesting.depth`."""
    first, last = plan.loops[0], plan.loops[-1]
    if len(plan.loops) == 1:
        return first is not None and depth(first) > 1
    if first is None or space.chains == "all":
        return False
    # What holds an axis whole can fold it for both block graphs: `chains`, "held whole".
    return last in (None, first) and depth(first) > (1 if last is None else 2)
