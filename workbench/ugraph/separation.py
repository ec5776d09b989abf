"""Dimensions in which no tensor has an index twice: uses of a tensor that see another index see copies of its dimensions.

X @ X^T pairs every row with every row: its two uses of X share extents, not indices. Invariant: copies are made only where
an operator would otherwise meet a dimension with itself.
"""

from __future__ import annotations

from workbench.ugraph.atoms import Atoms
from workbench.ugraph.dataflow import Dataflow
from workbench.ugraph.dimensions import Dimensions, Use


class _ClashError(Exception):
    pass


def separated_dimensions(flow: Dataflow) -> Dimensions:
    """Return dimensions in which no tensor has an atom twice: where it would, a use of a tensor sees copies.

    Of the uses that would help, the one through the last operand is taken, and of those the last.
    """
    separate: set[Use] = set()
    dimensions, complete = _try(flow, separate)
    while not complete:
        reached = dimensions.step
        for use in _candidates(flow, reached, separate):
            found, complete = _try(flow, separate | {use})
            if complete or found.step > reached:
                separate.add(use)
                dimensions = found
                break
        else:  # no copy helps: let the two dimensions be one
            dimensions, complete = Dimensions(flow, Atoms(), separate), True
            dimensions.derive()
    atoms = dimensions.atoms
    atoms.on_clash = None
    for (number, position), copies in dimensions.copies.items():
        value = flow.steps[number].operands[position]
        for run, copy in zip(dimensions.values[value], copies, strict=True):
            if not atoms.would_clash(run, copy):
                atoms.same(run, copy)
    atoms.settle()
    return dimensions


def _try(flow: Dataflow, separate: set[Use]) -> tuple[Dimensions, bool]:
    def clash(left: int, right: int) -> None:
        raise _ClashError

    dimensions = Dimensions(flow, Atoms(clash), separate)
    try:
        dimensions.derive()
    except _ClashError:
        return dimensions, False
    return dimensions, True


def _candidates(flow: Dataflow, reached: int, separate: set[Use]) -> list[Use]:
    """Return the uses of tensors used several times that lead to a step, the most telling first."""
    uses: dict[int, list[Use]] = {}
    for number, step in enumerate(flow.steps):
        for position, value in enumerate(step.operands):
            uses.setdefault(value, []).append((number, position))
    makers = {value: number for number, step in enumerate(flow.steps) for value in step.results}
    leads: dict[Use, int] = {}  # use -> the last operand of `reached` that it leads to
    for position, value in enumerate(flow.steps[reached].operands):
        leads[reached, position] = position
        seen, stack = set[int](), [makers[value]]
        while stack:
            number = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            for operand, inner in enumerate(flow.steps[number].operands):
                leads[number, operand] = max(position, leads.get((number, operand), -1))
                stack.append(makers[inner])
    several = [use for group in uses.values() if len(group) > 1 for use in group]
    known = [use for use in several if use not in separate and use[0] <= reached]
    return sorted(known, key=lambda use: (-leads.get(use, -1), -use[0], -use[1]))
