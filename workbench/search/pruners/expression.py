"""Is the expression of a tensor a subexpression of the program's? The paper's pruner, in the axes form or in its own.

Invariant: what A_eq and A_sub make a subexpression is kept; what is undecided is kept and counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from workbench.domains.abstract_distance import FAR
from workbench.domains.abstract_expr import Axis, Term, to_sizes
from workbench.domains.abstract_goals import Goals, Judgement
from workbench.domains.abstract_normal_form import Algebra, Value
from workbench.domains.abstract_readback import Readback
from workbench.domains.abstract_tables import bits_of
from workbench.errors import UsageError
from workbench.search.palette import Effect, Operator, ValueBuilder
from workbench.search.places import Place
from workbench.search.plans import axis_parts
from workbench.search.prefix.tensors import Tensor
from workbench.search.problem import split_axes
from workbench.search.pruners.rule import PREFIX, VALUES, Context, Judged, Outlook, Rule

Form = Literal["axes", "sizes"]


@dataclass(frozen=True, slots=True)
class AbstractExpression:
    """Keeps subexpressions of the program, by "axes" (which axis is summed) or by "sizes" (how many elements: the paper)."""

    by: Form = "axes"

    def __post_init__(self) -> None:
        """Raises: UsageError for another form."""
        if self.by not in ("axes", "sizes"):
            raise UsageError(f"abstract_expression by {self.by!r}: use 'axes' or 'sizes'")

    @property
    def name(self) -> str:
        """Its name, with the form if it is the paper's."""
        return "abstract_expression" if self.by == "axes" else "abstract_expression_by_sizes"

    @property
    def engines(self) -> frozenset[str]:
        """The values-first engine is made of the axes form."""
        return frozenset({PREFIX, VALUES} if self.by == "axes" else {PREFIX})

    @property
    def needs_expressions(self) -> bool:
        """The axes form tells tensors apart."""
        return self.by == "axes"

    def bind(self, context: Context) -> ExpressionRule:
        """Return the rule for one plan."""
        return AxesRule(context) if self.by == "axes" else SizesRule(context)


class ExpressionRule(Rule, ABC):
    """What both forms have in common: the count test before anything is built, then the distance."""

    goals: Goals
    form: Form

    def __init__(self) -> None:
        """Know nothing yet of any expression."""
        super().__init__()
        self.words: dict[tuple[Value, str], str] = {}
        """What has been written of expressions: prefixes by the thousand share a few hundred."""
        self._judged: dict[Value, Judgement] = {}

    @abstractmethod
    def expression(self, tensor: Tensor) -> Value:
        """Return a tensor's expression in this form."""

    def drops_before(self, operator: Operator, operands: tuple[Tensor, ...], folded: int, axis: str) -> bool:
        """Return whether the counts alone rule the result out."""
        values = [self.expression(operand) for operand in operands]
        if len(values) == 2:
            name = "mul" if operator.effect is Effect.CONTRACT else operator.name
            return not self.goals.admits(name if name in _COUNTED else "add", values[0], values[1])
        if operator.name == "square":
            return not self.goals.admits("mul", values[0], values[0])
        return False

    def drops_tensor(self, made: Tensor, place: Place) -> bool:
        """Return whether a tensor is no subexpression of any output."""
        value = self.expression(made)
        if self.goals.algebra.is_undecided(value):
            self.undecided += 1
        return self.goals.distance(value) >= FAR

    def judgement(self, tensor: Tensor) -> Judgement:
        """Return the distance with its evidence."""
        value = self.expression(tensor)
        if value not in self._judged:
            self._judged[value] = self.goals.judge(value)
        return self._judged[value]

    def term(self, tensor: Tensor) -> Term:
        """Return a tensor's expression as a term."""
        return Readback(self.goals.algebra).term(self.expression(tensor))

    def goal_with_part(self, tensor: Tensor) -> Term:
        """Return the goal with the part marked that a tensor matches."""
        return Readback(self.goals.algebra).goal_with_part(self.goals, self.judgement(tensor))

    def explain(self, outlook: Outlook) -> Judged:
        """Return the verdict, with the distance."""
        made = outlook.move.made
        if made is None:
            return Judged(self.name, False, lambda: "the operands' counts together exceed every output's", FAR)
        found = self.judgement(made)
        return Judged(self.name, found.distance < FAR, found.describe, found.distance)


_COUNTED = frozenset({"add", "mul", "div", "maximum"})


class AxesRule(ExpressionRule):
    """By axes: the search's own expressions."""

    name, form = "abstract_expression", "axes"

    def __init__(self, context: Context) -> None:
        """Use the search's tensors."""
        super().__init__()
        self.tensors, self.goals = context.tensors, context.goals

    def expression(self, tensor: Tensor) -> Value:
        """Return the expression that the search has."""
        return self.tensors.value(tensor)

    def distance(self, made: Tensor) -> int:
        """Return the distance to a goal."""
        return self.goals.distance(self.tensors.value(made))


class SizesRule(ExpressionRule):
    """By sizes, the paper's form: an algebra of its own, in which equal extents are equal."""

    name, form = "abstract_expression_by_sizes", "sizes"

    def __init__(self, context: Context) -> None:
        """Write the outputs in the paper's form."""
        super().__init__()
        self.tensors = context.tensors
        expressions = context.tensors.expressions
        self.algebra = Algebra()
        self.extents = context.extents
        cut = {Axis(name): parts.all for name, parts in axis_parts(context.cuts.plan).items()}
        bits = {axis: context.extents[expressions.axis_mask(axis)] for axis in _axes(context, cut)}
        goals = [to_sizes(split_axes(goal.term, cut), bits) for goal in context.problem.goals]
        self.goals = Goals(self.algebra, [self.algebra.normalize(term) for term in goals], expressions.costs)
        self._known: dict[int, Value] = {}

    def expression(self, tensor: Tensor) -> Value:
        """Return the expression in the paper's form."""
        found = self._known.get(tensor.number)
        if found is None:
            found = self._known[tensor.number] = self._made(tensor)
        return found

    def _made(self, tensor: Tensor) -> Value:
        problem = self.tensors.expressions.problem
        operator = tensor.operator
        if operator is None:
            return self.algebra.symbol(problem.starts[tensor.start].term.name)
        values = [self.expression(operand) for operand in tensor.operands]
        if operator.constant is not None:
            values.insert(operator.position, self.algebra.constant(operator.constant))
        attributes = dict(operator.attributes)
        if operator.has_axis:
            attributes["axis"] = -1
        size = prod(self.extents[bit] for bit in bits_of(tensor.folded))
        number = problem.numbers.get(tensor.axis, 2)
        builder = _SizesOfValues(self.algebra, size)
        return operator.spec.abstract(builder, tuple(values), ((number,),) * len(values), attributes)


class _SizesOfValues(ValueBuilder):
    """Builds values of the paper's form: what is folded is a number of elements."""

    def __init__(self, algebra: Algebra, size: int) -> None:
        super().__init__(algebra, 0)
        self.size = size

    def sum(self, group: int, extent: int, argument: Value) -> Value:
        """Return the sum over the number of elements."""
        return self.algebra.sum_size(self.size, argument)

    def max(self, group: int, extent: int, argument: Value) -> Value:
        """Return the maximum of the number of elements."""
        return self.algebra.max_size(self.size, argument)


def _axes(context: Context, cut: Mapping[Axis, tuple[Axis, ...]]) -> list[Axis]:
    return [part for axis in map(Axis, context.problem.extents) for part in cut.get(axis, (axis,))]
