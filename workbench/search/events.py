"""What a search tells: one stream of events for steppers, progress bars, logs and tables. Invariant: events are facts.

An event knows its evidence but does not print it: `describe()` does, when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from workbench.search.verdicts import VerdictLike
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.units import counted

Text = Callable[[], str]
"""Words that are put together when somebody asks for them; a field of this kind does not count in comparisons."""


@dataclass(frozen=True, slots=True)
class Said:
    """A text that is already there."""

    text: str

    def __call__(self) -> str:
        """Return it."""
        return self.text


_NOTHING = Said("")


@dataclass(frozen=True, slots=True)
class Started:
    """The search of one plan begins. Attributes: plan; what is searched, in words."""

    plan: str

    def describe(self) -> str:
        """Return the plan."""
        return f"searching {self.plan}"


@dataclass(frozen=True, slots=True)
class ValueKept:
    """A value may be part of a graph. Attributes: plan; node: its number in the plan; place; operators it takes at least."""

    plan: str
    node: int
    place: str
    least: int
    text: Text = field(compare=False)

    def describe(self) -> str:
        """Return the value in the lecture's notation."""
        return f"{self.place}: {self.text()} (at least {counted(self.least, 'operator')})"


@dataclass(frozen=True, slots=True)
class Extended:
    """An operator can make a value, or, in the prefix engine, a prefix is longer by one operator.

    Attributes: plan; node; operator; operands: node numbers. Of a prefix also: prefix, parent: names; distance: operators
    to a goal at least; expression, latex: of the new tensor; goal, goal_latex: the program's with the part that it
    matches marked; verdicts: of the pruners, one a line.
    """

    plan: str
    node: int
    operator: str
    operands: tuple[int, ...]
    prefix: str = ""
    parent: str = ""
    distance: int = 0
    expression: Text = field(default=_NOTHING, compare=False)
    latex: Text = field(default=_NOTHING, compare=False)
    goal: Text = field(default=_NOTHING, compare=False)
    goal_latex: Text = field(default=_NOTHING, compare=False)
    verdicts: Text = field(default=_NOTHING, compare=False)

    def describe(self) -> str:
        """Return the operator and its operands."""
        line = f"{self.node} = {self.operator}({', '.join(map(str, self.operands))})"
        return f"{self.prefix}: {line}: {self.expression()}" if self.prefix else line


@dataclass(frozen=True, slots=True)
class Pruned:
    """Something was left out.

    Attributes: plan; rule; subject: what, in words; evidence: why, in words when asked; count: how many alike. Of a prefix
    also: prefix, parent: names; verdicts: of the pruners, one a line.
    """

    plan: str
    rule: str
    subject: Text = field(compare=False)
    evidence: Text = field(compare=False)
    count: int = 1
    prefix: str = ""
    parent: str = ""
    verdicts: Text = field(default=_NOTHING, compare=False)

    def describe(self) -> str:
        """Return what was left out and why."""
        return f"{self.rule}: {self.subject()}; {self.evidence()}"


@dataclass(frozen=True, slots=True)
class Completed:
    """A µGraph that computes the program, at the program's sizes with a first schedule.

    Attributes: plan; number: of the structure in this search; graph; operators: of its block graphs; kernels.
    """

    plan: str
    number: int
    graph: KernelGraph
    operators: int
    kernels: int

    def describe(self) -> str:
        """Return the graph's text."""
        return self.graph.describe()


@dataclass(frozen=True, slots=True)
class Verified:
    """A completed µGraph was tested and is right as far as the verdict goes."""

    number: int
    graph: KernelGraph
    verdict: VerdictLike

    def describe(self) -> str:
        """Return the verdict."""
        return f"structure {self.number}: {self.verdict.kind}, {self.verdict.reason}"


@dataclass(frozen=True, slots=True)
class Refused:
    """A completed µGraph was tested and is wrong, or nothing could be said."""

    number: int
    graph: KernelGraph
    verdict: VerdictLike

    def describe(self) -> str:
        """Return the verdict."""
        return f"structure {self.number}: {self.verdict.kind}, {self.verdict.reason}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the search is. Attributes: done, total plans; states; structures so far."""

    done: int
    total: int
    states: int
    structures: int

    def describe(self) -> str:
        """Return the counts."""
        return f"plan {self.done} of {self.total}, {counted(self.states, 'state')}, {counted(self.structures, 'structure')}"


@dataclass(frozen=True, slots=True)
class Finished:
    """The search ended.

    Attributes: states: settled needs; candidates: graphs met; structures: different ones; verified: that passed; pruned:
    rule -> count; incomplete: expressions that could not be taken apart in every way; seconds: wall time.
    """

    states: int
    candidates: int
    structures: int
    verified: int
    pruned: Mapping[str, int]
    incomplete: int
    seconds: float = field(compare=False)

    def describe(self) -> str:
        """Return the counts in one line."""
        pruned = ", ".join(f"{rule} {count}" for rule, count in sorted(self.pruned.items()))
        return (
            f"{counted(self.states, 'state')}, {counted(self.candidates, 'graph')}, "
            f"{counted(self.structures, 'structure')}, {self.verified:,} verified; "
            f"left out: {pruned or 'nothing'}; {self.seconds:.2f} s"
        )


Event = Started | ValueKept | Extended | Pruned | Completed | Verified | Refused | Progress | Finished
