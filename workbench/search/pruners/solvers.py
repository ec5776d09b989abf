"""Teaching baselines: no pruning, and the subexpression test put to Z3 or to an e-graph, as Mirage does.

Invariant: a solver has a time limit and is ended by force; what it cannot tell is undecided. Undecided is kept and
counted, unless "drop" is asked for: that is what Mirage does, and it loses graphs.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from workbench.domains.abstract_expr import Term
from workbench.domains.abstract_readback import Readback
from workbench.domains.abstract_solvers import EGraph, Z3Solver
from workbench.errors import UsageError
from workbench.search.places import Place
from workbench.search.prefix.tensors import Tensor
from workbench.search.pruners.expression import SizesRule
from workbench.search.pruners.rule import PREFIX, Context, Outlook, Rule

Undecided = Literal["keep", "drop"]
_PREFIX_ONLY = frozenset({PREFIX})


@dataclass(frozen=True, slots=True)
class NoPruner:
    """Drops nothing."""

    name: ClassVar[str] = "none"
    engines: ClassVar[frozenset[str]] = _PREFIX_ONLY
    needs_expressions: ClassVar[bool] = False

    def bind(self, context: Context) -> Rule:
        """Return a rule that keeps everything."""
        rule = Rule()
        rule.name = self.name
        return rule


@dataclass(frozen=True, slots=True)
class Z3Pruner:
    """Asks Z3, in a process of its own, which is killed past the time limit.

    Attributes: seconds: wall time for one question; total_seconds: for all, then everything is undecided; undecided.
    """

    seconds: float = 1.0
    total_seconds: float = 60.0
    undecided: Undecided = "keep"
    name: ClassVar[str] = "z3"
    engines: ClassVar[frozenset[str]] = _PREFIX_ONLY
    needs_expressions: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raises: UsageError for another choice."""
        _check(self.undecided)

    def bind(self, context: Context) -> Rule:
        """Return the rule for one plan."""
        return _Z3Rule(context, self)


@dataclass(frozen=True, slots=True)
class EgglogPruner:
    """Asks an e-graph that was grown from each output for a number of rounds (extra `egraph`).

    Attributes: rounds; total_seconds: for all questions, then everything is undecided; undecided.
    """

    rounds: int = 4
    total_seconds: float = 60.0
    undecided: Undecided = "keep"
    name: ClassVar[str] = "egglog"
    engines: ClassVar[frozenset[str]] = _PREFIX_ONLY
    needs_expressions: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raises: UsageError for another choice."""
        _check(self.undecided)

    def bind(self, context: Context) -> Rule:
        """Return the rule for one plan. Raises: UsageError without egglog."""
        return _EgglogRule(context, self)


def _check(undecided: str) -> None:
    if undecided not in ("keep", "drop"):
        raise UsageError(f"undecided {undecided!r}: use 'keep' or 'drop'")


class _SolverRule(Rule, ABC):
    """Asks once per expression of the paper's form, within a budget of time."""

    def __init__(self, context: Context, total_seconds: float, undecided: Undecided) -> None:
        super().__init__()
        self.sizes = SizesRule(context)
        self.readback = Readback(self.sizes.algebra)
        self.goals = [self.readback.term(value) for value in self.sizes.goals.values]
        self.left_s, self.drops_undecided = total_seconds, undecided == "drop"
        self.answers: dict[int, bool | None] = {}

    @abstractmethod
    def ask(self, part: Term) -> bool | None:
        """Return whether a term is a subexpression of an output, None if that is not known."""

    def answer(self, made: Tensor) -> bool | None:
        value = self.sizes.expression(made)
        if value not in self.answers:
            found: bool | None = None
            if self.left_s > 0:
                start = time.perf_counter()
                found = self.ask(self.readback.term(value))
                self.left_s -= time.perf_counter() - start
            if found is None:
                self.undecided += 1
            self.answers[value] = found
        return self.answers[value]

    def drops_tensor(self, made: Tensor, place: Place) -> bool:
        found = self.answer(made)
        return self.drops_undecided if found is None else not found

    def why(self, outlook: Outlook, *, drops: bool) -> str:
        made = outlook.move.made
        found = self.answer(made) if made is not None else None
        if found is None:
            return f"undecided in its time: {'dropped' if drops else 'kept'}"
        return "proved to be a subexpression" if found else "refuted"


class _Z3Rule(_SolverRule):
    name = "z3"

    def __init__(self, context: Context, pruner: Z3Pruner) -> None:
        super().__init__(context, pruner.total_seconds, pruner.undecided)
        self.solver = Z3Solver(seconds=pruner.seconds)

    def ask(self, part: Term) -> bool | None:
        for goal in self.goals:
            if self.solver.proves_subexpression(part, goal):
                return True
        return None

    def __del__(self) -> None:
        self.solver.close()


class _EgglogRule(_SolverRule):
    name = "egglog"

    def __init__(self, context: Context, pruner: EgglogPruner) -> None:
        super().__init__(context, pruner.total_seconds, pruner.undecided)
        try:
            self.graphs = [EGraph(goal, rounds=pruner.rounds) for goal in self.goals]
        except ImportError as error:
            raise UsageError("pruner egglog: egglog is not installed; install the extra `egraph`") from error

    def ask(self, part: Term) -> bool | None:
        return True if any(graph.contains(part) for graph in self.graphs) else None

    def why(self, outlook: Outlook, *, drops: bool) -> str:
        made = outlook.move.made
        if made is not None and self.answer(made):
            term = self.readback.term(self.sizes.expression(made))
            if any(graph.equals_goal(term) for graph in self.graphs):
                return "proved to equal an output"
        return super().why(outlook, drops=drops)
