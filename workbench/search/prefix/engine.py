"""The paper's algorithm 1: prefixes extended operator by operator, kernel level and block level, each graph once.

Slower than values first and as complete, but for concatenation, which it does not offer: it is what the paper describes,
shows every step, and checks the other engine. Invariant: same program, space, options and seed give the same events; a
prefix bears the same name whatever is pruned.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from workbench.errors import UsageError
from workbench.search.driver import drive
from workbench.search.events import Event
from workbench.search.plans import Plan
from workbench.search.prefix.maps import MapsOfPrefixes, MapsSearch, maps_of
from workbench.search.prefix.one_plan import PrefixSearch
from workbench.search.prefix.options import Options, Setting
from workbench.search.prefix.prefixes import parse_name
from workbench.search.pruners.names import pruners_of
from workbench.search.pruners.rule import Pruner
from workbench.search.shared import Shared
from workbench.search.space import Space
from workbench.search.verdicts import Verifier
from workbench.search.work import Known, Outcome, Unit
from workbench.ugraph.kernel_graph import KernelGraph


def search(
    program: KernelGraph,
    *,
    space: Space | None = None,
    pruners: Sequence[str | Pruner] | None = None,
    verifier: Verifier | None = None,
    seed: int = 0,
    **options: object,
) -> Iterator[Event]:
    """Return the events of a search by prefixes, in this process; pruners: names or objects; options: see `Options`.

    Raises: UsageError, UnknownNameError.
    """
    return drive(prefix_work(program, space or Space(), pruners, verifier, seed, **options))


def prefix_work(
    program: KernelGraph,
    space: Space,
    pruners: Sequence[str | Pruner] | None,
    verifier: Verifier | None,
    seed: int,
    **options: object,
) -> PrefixWork:
    """Return a search by prefixes as units of work. Raises: UsageError, UnknownNameError."""
    known = set(Options.__dataclass_fields__) - {"pruners"}
    if not set(options) <= known:
        raise UsageError(f"option {sorted(set(options) - known)[0]!r}: a prefix search has {', '.join(sorted(known))}")
    chosen = Options(pruners=pruners_of(pruners), **options)  # type: ignore[arg-type]
    if not any(pruner.needs_expressions for pruner in chosen.pruners) and "unique" not in options:
        chosen = replace(chosen, unique=False)
    return PrefixWork(Setting(Shared(program, space, seed), verifier, chosen))


class PrefixWork:
    """The search as units of work, one plan each, or one choice of maps."""

    def __init__(self, setting: Setting) -> None:
        """Read the program. Raises: UsageError for a program with block graphs, or a start that is in no plan."""
        shared = setting.shared
        self.setting, self.shared = setting, shared
        enumerates = shared.space.mapping == "enumerate"
        self.maps = tuple(maps_of(shared.problem, shared.space)) if enumerates else ()
        self.plans = () if enumerates else shared.plans
        self._chosen = range(len(self.maps) or len(self.plans))
        if setting.options.start:
            number, _ = parse_name(setting.options.start)
            if number not in self._chosen:
                raise UsageError(f"prefix {setting.options.start!r}: there are {len(self._chosen)} plans")
            self._chosen = range(number, number + 1)

    @property
    def total(self) -> int:
        """How many plans are searched."""
        return len(self._chosen)

    def rounds(self) -> Generator[Sequence[Unit], Sequence[Outcome], None]:
        """Yield all plans at once."""
        if self.maps:
            yield [MapsOfPrefixes(self.setting, number, self.maps[number]) for number in self._chosen]
        else:
            yield [PlanOfPrefixes(self.setting, number, self.plans[number]) for number in self._chosen]

    def note(self, event: Event) -> None:
        """Nothing depends on what is found."""

    def plan(self, number: int) -> PrefixSearch:
        """Return the search of one plan, to be looked at step by step."""
        if self.maps:
            return MapsSearch(self.setting, number, self.maps[number])
        return PrefixSearch(self.setting, number, self.plans[number])


@dataclass(frozen=True)
class PlanOfPrefixes:
    """A unit: one plan."""

    setting: Setting
    number: int
    plan: Plan
    counts_on = True
    steps = 1
    guess_ms = 1

    @property
    def name(self) -> str:
        """Which plan."""
        return f"prefixes of plan {self.number}: {self.plan.describe()}"

    def events(self, known: Known) -> Generator[Event, None, Outcome]:
        """Yield what the plan has."""
        return (yield from PrefixSearch(self.setting, self.number, self.plan).events(known))
