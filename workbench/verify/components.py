"""Which parts of the inputs share a condition (a root that must exist, a denominator that must not be zero).

Invariant: two conditions that touch a common input element are in one component; conditions of different components
rest on different elements, so components can be drawn apart without bias.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.core.shapes import Shape
from workbench.interpret.cones import ConeAxes, Cones, cone_boxes
from workbench.ops.spec import Array


class Components:
    """The components of a program's input elements; conditions are added site by site."""

    def __init__(self, axes: ConeAxes, shapes: Sequence[Shape]) -> None:
        self._axes, self._shapes = axes, list(shapes)
        self._ids: dict[int, Array] = {}
        self._parent: list[int] = []
        self._known: set[str] = set()
        self._roots: Array | None = None

    def add(self, cones: Cones) -> None:
        """Join, for every element of a site, all input elements in its cone."""
        self._roots = None
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
        where = np.nonzero(mask)
        found = np.full(len(where[0]), -1, dtype=np.int64)
        for k, ids in self._ids.items():
            numbers = [n for n, (other, _) in enumerate(self._axes.pairs) if other == k]
            low = [np.broadcast_to(cones.bounds[2 * n], mask.shape)[where] for n in numbers]
            high = [np.broadcast_to(cones.bounds[2 * n + 1], mask.shape)[where] for n in numbers]
            inside = np.all([a <= b for a, b in zip(low, high, strict=True)], axis=0) & (found < 0)
            found[inside] = ids[tuple(a[inside] for a in low)]
        if (found < 0).any():
            return None
        return [int(root) for root in np.unique(self._resolved()[found])]

    def places(self, components: Sequence[int]) -> dict[int, Array]:
        """Return, per input that some components touch, which of its elements they hold."""
        wanted = np.append(np.isin(self._resolved(), list(components)), False)
        result = {}
        for k, ids in self._ids.items():
            place = wanted[ids]  # -1 looks at the last entry, which is False
            if place.any():
                result[k] = place
        return result

    def most_together(self) -> int:
        """Return how many conditions, each with other input elements, the largest component has."""
        return int(np.unique(self._resolved(), return_counts=True)[1].max(initial=0))

    def _resolved(self) -> Array:
        if self._roots is None:
            self._roots = np.array([self._find(number) for number in range(len(self._parent))], dtype=np.int64)
        return self._roots

    def _find(self, number: int) -> int:
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number
