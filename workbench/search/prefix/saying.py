"""What events of the prefix search say when asked. Invariant: nothing is looked at before that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from workbench.search.prefix.moves import Move
from workbench.search.prefix.prefixes import Prefix
from workbench.search.prefix.views import Looked


class Looking(Protocol):
    """Looks at an extension; a `PrefixSearch` does. Attributes: last: what was looked at last, and what it was."""

    last: tuple[Saying, Looked] | None

    def look(self, prefix: Prefix, moment: int, high: int, low: int, move: Move) -> Looked:
        """Return everything there is to say about it."""
        ...


@dataclass(frozen=True, slots=True)
class Saying:
    """What an event says when asked: an extension that is looked at only then."""

    search: Looking
    prefix: Prefix
    moment: int
    high: int
    low: int
    move: Move
    rule: str = ""

    def of(self, what: str) -> Callable[[], str]:
        """Return one of its texts, to be written when asked for."""
        return _Words(self, what)

    def look(self) -> Looked:
        """Return everything there is to say about the extension."""
        last = self.search.last
        if last is None or last[0] is not self:  # an event's texts are asked for one after the other
            last = self.search.last = (self, self.search.look(self.prefix, self.moment, self.high, self.low, self.move))
        return last[1]


@dataclass(frozen=True, slots=True)
class _Words:
    saying: Saying
    what: str

    def __call__(self) -> str:
        looked = self.saying.look()
        match self.what:
            case "expression":
                return looked.expression()
            case "latex":
                return looked.expression(latex=True)
            case "goal":
                return looked.goal()
            case "goal_latex":
                return looked.goal(latex=True)
            case "subject":
                return looked.subject()
            case "verdicts":
                return looked.lines()
        return looked.evidence(self.saying.rule)
