"""Block graphs that sketches have in common: most sketches differ from another one in one of their two block graphs.

Invariant: what is found under a key is what would be built for it; a graph is shared, never changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from workbench.core.dtypes import DType
from workbench.search.axis_runs import DimNames
from workbench.ugraph.block_graph import BlockGraph


@dataclass(frozen=True, slots=True)
class BuiltBlock:
    """A block graph that was built.

    Attributes: block; loads: per loaded tile, its dimensions; saved: per stored node, its dimensions and type.
    """

    block: BlockGraph
    loads: Mapping[str, tuple[DimNames, ...]]
    saved: tuple[tuple[int, tuple[DimNames, ...], DType], ...]


class BuiltBlocks:
    """Block graphs by what they are built of: which edges of a hypergraph, over which tensors, with which counts."""

    MOST = 2000
    """Block graphs that are kept, some ten kilobytes each."""

    def __init__(self) -> None:
        self._known: dict[Hashable, BuiltBlock] = {}

    def find(self, key: Hashable) -> BuiltBlock | None:
        """Return what was built for a key."""
        return self._known.get(key)

    def keep(self, key: Hashable, built: BuiltBlock) -> None:
        """Keep what was built; when there is too much, what was kept before is forgotten."""
        if len(self._known) >= self.MOST:
            self._known.clear()
        self._known[key] = built
