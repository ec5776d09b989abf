"""Pruners by name. Invariant: a name that no pruner has, or that an engine cannot use, is said in one line."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from workbench.errors import UnknownNameError, UsageError
from workbench.search.pruners.expression import AbstractExpression
from workbench.search.pruners.rule import PREFIX, VALUES, Pruner
from workbench.search.pruners.solvers import EgglogPruner, NoPruner, Z3Pruner
from workbench.search.pruners.structure import Axes, Demand, Memory, Reducibility

DEFAULT = ("abstract_expression", "axes", "reducibility", "demand")
"""What a search prunes with when nothing is said."""

_MAKERS: dict[str, Callable[[], Pruner]] = {
    "abstract_expression": AbstractExpression,
    "abstract_expression_by_sizes": lambda: AbstractExpression("sizes"),
    "axes": Axes,
    "reducibility": Reducibility,
    "demand": Demand,
    "memory": Memory,
    "none": NoPruner,
    "z3": Z3Pruner,
    "egglog": EgglogPruner,
}
_ALWAYS = frozenset(DEFAULT)  # what the values-first engine cannot be without


def pruner_names() -> tuple[str, ...]:
    """Return the names that may be asked for; `cost_bound` needs a function, so it is given as an object."""
    return tuple(sorted(_MAKERS))


def pruners_of(chosen: Sequence[str | Pruner] | None, *, engine: str = PREFIX) -> tuple[Pruner, ...]:
    """Return pruners by name or as they are, each name once; the default ones for None.

    Raises: UnknownNameError for a name that no pruner has; UsageError for a pruner that the engine cannot use, for a
    name given twice, for "none" beside others, and where the values-first engine would lack what it is made of.
    """
    made: list[Pruner] = []
    for item in DEFAULT if chosen is None else chosen:
        pruner = _by_name(item) if isinstance(item, str) else item
        if any(pruner.name == other.name for other in made):
            raise UsageError(f"pruner {pruner.name} is given twice")
        if engine not in pruner.engines:
            able = " and ".join(sorted(pruner.engines))
            raise UsageError(f"pruner {pruner.name} does not work with engine {engine!r}, only with {able}")
        made.append(pruner)
    names = {pruner.name for pruner in made}
    if "none" in names and len(names) > 1:
        raise UsageError(f"pruner none stands alone, not beside {', '.join(sorted(names - {'none'}))}")
    if engine == VALUES and not names >= _ALWAYS:
        missing = ", ".join(sorted(_ALWAYS - names))
        raise UsageError(f"engine {VALUES!r} cannot do without {missing}; use engine={PREFIX!r} to switch pruners off")
    return tuple(made)


def _by_name(name: str) -> Pruner:
    if name in _MAKERS:
        return _MAKERS[name]()
    if name == "cost_bound":
        raise UsageError("pruner cost_bound needs a bound: give CostBound(bound, limit) instead of the name")
    near = difflib.get_close_matches(name, _MAKERS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(pruner_names())}"
    raise UnknownNameError(f"unknown pruner {name!r}; {hint}")
