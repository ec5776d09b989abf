"""What a pruner is: something with a name that may drop a tensor or a prefix, and says why.

A `Pruner` is what a user writes down; bound to one plan of one search it is a `Rule`. Invariant: a rule that is undecided
keeps, and counts that it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from workbench.domains.abstract_goals import Goals
from workbench.search.cuts import Cuts
from workbench.search.palette import Operator
from workbench.search.places import Place
from workbench.search.prefix.moves import Move
from workbench.search.prefix.prefixes import Prefix
from workbench.search.prefix.tensors import Tensor, Tensors
from workbench.search.problem import Problem

PREFIX, VALUES = "prefix", "values"
"""The engines: the paper's search by prefixes, and values before graphs."""


@dataclass(frozen=True)
class Context:
    """What a rule is bound to: the problem, the tensors of the search, and how the plan cuts axes."""

    problem: Problem
    tensors: Tensors
    cuts: Cuts
    extents: Mapping[int, int]

    @cached_property
    def goals(self) -> Goals:
        """The outputs, compiled."""
        expressions = self.tensors.expressions
        return Goals(expressions.algebra, expressions.goals, expressions.costs)


@dataclass(slots=True)
class Outlook:
    """A prefix and the move that would extend it, with what would then be left.

    Attributes: prefix; move; high, low: positions of its operands; left, kernels_left: operators still to come; dangling,
    waiting, count: as of a prefix; outputs: of the program; stuck: results that nothing later can read.
    """

    prefix: Prefix
    move: Move
    high: int
    low: int
    left: int
    kernels_left: int
    dangling: int
    waiting: int
    count: int
    outputs: int
    stuck: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """What one pruner says of an extension: whether it keeps it, why (in words, when asked), and the distance if it has one."""

    pruner: str
    keeps: bool
    why: Callable[[], str]
    distance: int | None = None

    def describe(self) -> str:
        """Return it in one line."""
        return f"{self.pruner} {'keeps' if self.keeps else 'drops'}: {self.why()}"


class Rule:
    """A pruner bound to a plan. Attributes: name; undecided: how often it could not tell and kept."""

    name = ""

    def __init__(self) -> None:
        """Start."""
        self.undecided = 0

    def drops_before(self, operator: Operator, operands: tuple[Tensor, ...], folded: int, axis: str) -> bool:
        """Return whether it drops the result before it is made."""
        return False

    def drops_tensor(self, made: Tensor, place: Place) -> bool:
        """Return whether it drops the result whatever else is there."""
        return False

    def distance(self, made: Tensor) -> int:
        """Return how many operators are between a tensor and a goal at least, 0 without an opinion."""
        return 0

    def drops_prefix(self, outlook: Outlook) -> bool:
        """Return whether it drops the extension because of what else is there."""
        return False

    @property
    def looks_at_prefixes(self) -> bool:
        """Whether it may drop a prefix because of what else is there."""
        kind = type(self)
        return kind.drops_prefix is not Rule.drops_prefix or kind.drops_extended is not Rule.drops_extended

    def drops_extended(self, prefix: Prefix) -> bool:
        """Return whether it drops a prefix that all others keep."""
        return False

    def explain(self, outlook: Outlook) -> Judged:
        """Return its verdict on an extension, with the evidence."""
        move = outlook.move
        drops = self.drops_before(move.operator, move.operands, move.folded, move.axis) or (
            move.made is not None and (self.drops_tensor(move.made, move.place) or self.drops_prefix(outlook))
        )
        return Judged(self.name, not drops, lambda: self.why(outlook, drops=drops))

    def why(self, outlook: Outlook, *, drops: bool) -> str:
        """Return the evidence in words."""
        return "dropped" if drops else "nothing against it"


class Pruner(Protocol):
    """What a user switches on; plain enough to travel to another process."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def engines(self) -> frozenset[str]:
        """The engines that can work with it."""
        ...

    @property
    def needs_expressions(self) -> bool:
        """Whether tensors must be told apart by expression."""
        ...

    def bind(self, context: Context) -> Rule:
        """Return the rule for one plan."""
        ...
