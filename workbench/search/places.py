"""Where a value is: in device memory before, between or after the block graphs, or inside one of them.

Inside a block graph a value is the same in every iteration, changes with it, or exists after the loop; in the second
block graph it also matters whether it depends on what the first one stored. Invariant: places are ordered by time, and
an operator's result is never earlier than its operands.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import product


class Place(IntEnum):
    """A place; the order is that of time.

    Attributes: kernel: which block graph, 0 or 1, None in device memory; stage: FIXED, LOOP or AFTER inside a block graph,
    -1 outside; is_dependent: whether it is in the second block graph and depends on the first.
    """

    kernel: int | None
    stage: int
    is_dependent: bool

    BEFORE = 0  # device memory: inputs, and what predefined kernels make of them
    A_FIXED = 1
    A_LOOP = 2
    A_AFTER = 3
    BETWEEN = 4  # device memory: depends on the first block graph
    B_FIXED = 5
    B_LOOP = 6
    B_AFTER = 7
    B_FIXED_DEPENDENT = 8
    B_LOOP_DEPENDENT = 9
    B_AFTER_DEPENDENT = 10
    AFTER = 11  # device memory: depends on the second block graph


FIXED, LOOP, AFTER = 0, 1, 2
DEVICE = (Place.BEFORE, Place.BETWEEN, Place.AFTER)
for _place in Place:  # plain attributes, since they are read millions of times
    if _place in DEVICE:
        _place.kernel, _place.stage = None, -1
    elif _place < Place.BETWEEN:
        _place.kernel, _place.stage = 0, (_place - 1) % 4
    else:
        _place.kernel, _place.stage = 1, (_place - 5) % 3
    _place.is_dependent = Place.B_FIXED_DEPENDENT <= _place <= Place.B_AFTER_DEPENDENT
_INSIDE = {
    (0, FIXED, False): Place.A_FIXED,
    (0, LOOP, False): Place.A_LOOP,
    (0, AFTER, False): Place.A_AFTER,
    (1, FIXED, False): Place.B_FIXED,
    (1, LOOP, False): Place.B_LOOP,
    (1, AFTER, False): Place.B_AFTER,
    (1, FIXED, True): Place.B_FIXED_DEPENDENT,
    (1, LOOP, True): Place.B_LOOP_DEPENDENT,
    (1, AFTER, True): Place.B_AFTER_DEPENDENT,
}


def inside(kernel: int, stage: int, *, dependent: bool = False) -> Place:
    """Return the place of a stage of a block graph."""
    return _INSIDE[kernel, stage, dependent]


def operand_places(place: Place, varies: tuple[bool, ...]) -> Iterator[tuple[Place, ...]]:
    """Yield where the operands of an operator inside a block graph may be, if its result is at a place.

    varies: per operand, whether it changes with the iteration. What does is in the loop; a result after the loop has an
    operand there, a dependent result a dependent operand.
    """
    kernel = place.kernel
    assert kernel is not None
    stages: list[tuple[int, ...]]
    if place.stage == LOOP:
        stages = [tuple(LOOP if looped else FIXED for looped in varies)] if any(varies) else []
    elif any(varies):
        stages = []
    elif place.stage == FIXED:
        stages = [(FIXED,) * len(varies)]
    else:
        stages = [chosen for chosen in product((AFTER, FIXED), repeat=len(varies)) if AFTER in chosen]
    flags: list[tuple[bool, ...]]
    if kernel == 0 or not place.is_dependent:
        flags = [(False,) * len(varies)]
    else:
        flags = [chosen for chosen in product((True, False), repeat=len(varies)) if any(chosen)]
    for chosen in stages:
        for dependent in flags:
            yield tuple(inside(kernel, s, dependent=d) for s, d in zip(chosen, dependent, strict=True))
