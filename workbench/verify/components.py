"""Which parts of the inputs share a condition (a root that must exist, a denominator that must not be zero).

Invariant: two conditions that touch a common input element are in one component; conditions of different components
rest on different elements, so components can be drawn apart without bias.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.core.shapes import Shape
from workbench.interpret.cones import Box, ConeAxes, Cones, cone_boxes
from workbench.ops.spec import Array


class Components:
    """The components of a program's input elements; conditions are added site by site."""

    def __init__(self, axes: ConeAxes, shapes: Sequence[Shape]) -> None:
        self._axes, self._shapes = axes, list(shapes)
        self._ids: dict[int, Array] = {}
        self._parent: list[int] = []
        self._known: set[str] = set()

    def add(self, cones: Cones) -> None:
        """Join, for every element of a site, all input elements in its cone."""
        for boxes in cone_boxes(self._axes, cones, None, len(self._shapes)):
            key = repr(boxes)
            if key in self._known or not boxes:
                continue
            self._known.add(key)
            number = len(self._parent)
            self._parent.append(number)
            for k, box in boxes.items():
                if k not in self._ids:
                    self._ids[k] = np.full(self._shapes[k], -1, dtype=np.int32)
                ids = self._ids[k]
                for old in np.unique(ids[box]).tolist():
                    if old >= 0:
                        self._parent[self._find(old)] = number
                ids[box] = number

    def of(self, cones: Cones, mask: Array) -> list[int] | None:
        """Return the components of the masked elements of a site; None when one rests on no input."""
        found: dict[int, None] = {}
        for boxes in cone_boxes(self._axes, cones, mask, len(self._shapes)):
            component = self._component(boxes)
            if component is None:
                return None
            found[component] = None
        return list(found)

    def places(self, components: Sequence[int]) -> dict[int, Array]:
        """Return, per input that some components touch, which of its elements they hold."""
        chosen = set(components)
        wanted = np.array([self._find(number) in chosen for number in range(len(self._parent))] + [False])
        result = {}
        for k, ids in self._ids.items():
            place = wanted[ids]  # -1 looks at the last entry, which is False
            if place.any():
                result[k] = place
        return result

    def _component(self, boxes: dict[int, Box]) -> int | None:
        for k, box in boxes.items():
            if k in self._ids:
                number = int(self._ids[k][tuple(part.start for part in box)])
                if number >= 0:
                    return self._find(number)
        return None

    def _find(self, number: int) -> int:
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number
