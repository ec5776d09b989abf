"""How large the tiles of a sketch are under other counts than it was built with, told without building it again.

The axes of what a block loads are known, and the operators' axis rules say of which axes the other tiles are made; the
counts say how much of each axis a tile has. Invariant: sizes are told only if they are right for the built graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from workbench.ops.spec import Concatenated, Dim, DimSource, Factor, Product, Same
from workbench.programs.tiling import FRAGMENT, SHARED_MEMORY_LIMIT
from workbench.search.axis_runs import DimNames
from workbench.search.instantiate import Counts, Instantiation
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, BlockNode, InputIterator, OpNode, OutputSaver

_Share = tuple[str, bool]  # what a tile has of an axis, and whether the loop cuts it
_Run = tuple[_Share, ...]  # a product of shares
_Extent = tuple[_Run, ...]  # a sum of products
_ONE: _Extent = ((),)


class _UntoldError(Exception):
    """What a tile is made of does not follow from the axis rules."""


@dataclass(frozen=True, slots=True)
class _TileSize:
    """A tile.

    Attributes: extents; element_bytes; looped: the axis whose parts the loop loads; is_factor: a product reads it as it
    was loaded.
    """

    extents: tuple[_Extent, ...]
    element_bytes: int
    looped: str | None
    is_factor: bool


class TileSizes:
    """The sizes of the tiles of a sketch that was built, as functions of its counts."""

    @classmethod
    def of(cls, built: Instantiation, graph: KernelGraph) -> TileSizes | None:
        """Return the sizes of what was built as this graph, None when they do not follow."""
        try:
            return cls(built, [node.block for node in graph.graph_defined])
        except _UntoldError:
            return None

    def __init__(self, built: Instantiation, blocks: Sequence[BlockGraph]) -> None:
        """Read the block graphs. Raises: _UntoldError."""
        self.extents, self.split = built.extents, built.graph.plan.split
        self.uncut: list[frozenset[str]] = []
        self.tiles: list[list[_TileSize]] = []
        for kernel, block in enumerate(blocks):
            loads = built.loads[kernel]
            # An axis that lies side by side with blocks in one dimension is not cut.
            self.uncut.append(
                frozenset(name for dims in loads.values() for dim in dims if len(dim) > 1 for name in dim)
            )
            self.tiles.append([*_Extents(block, loads, self._shares(kernel, built.counts)).tiles()])

    def fits(self, counts: Sequence[Counts]) -> bool:
        """Return whether every block holds all its tiles at once."""
        return all(self.bytes_at_most(kernel, counts) <= SHARED_MEMORY_LIMIT for kernel in range(len(self.tiles)))

    def may_fit(self, counts: Sequence[Counts]) -> bool:
        """Return whether every block holds what products read as it was loaded."""
        return all(self.factor_tile_bytes(kernel, counts) <= SHARED_MEMORY_LIMIT for kernel in range(len(self.tiles)))

    def bytes_at_most(self, kernel: int, counts: Sequence[Counts]) -> int:
        """Return `tiling.shared_bytes_at_most` of a block graph."""
        shares, is_looped = self._shares(kernel, counts), counts[kernel].loop > 1
        return sum(
            prod([_value(extent, shares) for extent in tile.extents])
            * tile.element_bytes
            * (2 if tile.looped is not None and is_looped else 1)
            for tile in self.tiles[kernel]
        )

    def factor_tile_bytes(self, kernel: int, counts: Sequence[Counts]) -> int:
        """Return `tiling.factor_tile_bytes` of a block graph."""
        shares, is_looped = self._shares(kernel, counts), counts[kernel].loop > 1
        total = 0
        for tile in self.tiles[kernel]:
            if tile.is_factor:
                *outer, rows, columns = [_value(extent, shares) for extent in tile.extents]
                whole = 0 if tile.looped is None else self.extents[tile.looped]
                padded = -(-rows // FRAGMENT) * -(-columns // FRAGMENT) * FRAGMENT**2
                total += prod(outer) * padded * tile.element_bytes * (2 if is_looped and whole > FRAGMENT else 1)
        return total

    def _shares(self, kernel: int, counts: Sequence[Counts]) -> dict[_Share, int]:
        """Return how much of every axis a tile has, whether or not the loop cuts it."""
        cuts = {name: count for name, count in counts[kernel].grid if name not in self.uncut[kernel]}
        extents = dict(self.extents)
        if self.split is not None and kernel == 1:
            extents[f"{self.split}.g"] = dict(counts[0].grid)[self.split]
        shares: dict[_Share, int] = {}
        for name, extent in extents.items():
            part = -(-extent // cuts.get(name, 1))
            shares[name, False], shares[name, True] = part, -(-part // counts[kernel].loop)
        return shares


def _value(extent: _Extent, shares: Mapping[_Share, int]) -> int:
    return sum([prod([shares[share] for share in run]) for run in extent])


class _Extents:
    """What the tiles of one block graph are made of, found node by node. Raises: _UntoldError where it does not follow."""

    def __init__(
        self, block: BlockGraph, loads: Mapping[str, Sequence[DimNames]], shares: Mapping[_Share, int]
    ) -> None:
        self.block, self.loads, self.shares = block, loads, shares
        self.made: dict[str, tuple[_Extent, ...]] = {}
        for node in block.nodes:
            for tensor, extents in zip(node.results, self._results(node), strict=True):
                if tensor.shape != tuple([_value(extent, shares) for extent in extents]):
                    raise _UntoldError
                self.made[tensor.name] = extents

    def tiles(self) -> Iterator[_TileSize]:
        """Yield all tiles."""
        products = [node for node in self.block.nodes if isinstance(node, OpNode) and node.op == "matmul"]
        read = {name for node in products for name in node.operands}
        for node in self.block.nodes:
            is_loaded = isinstance(node, InputIterator)
            looped = None
            if isinstance(node, InputIterator) and node.fmap is not None:
                (looped,) = self.loads[node.result.name][node.fmap]
            for tensor in node.results:
                extents = self.made[tensor.name]
                yield _TileSize(extents, tensor.dtype.nbytes, looped, is_loaded and tensor.name in read)

    def _results(self, node: BlockNode) -> Iterable[tuple[_Extent, ...]]:
        match node:
            case InputIterator():
                dims = self.loads[node.result.name]
                return [tuple((tuple((name, place == node.fmap) for name in dim),) for place, dim in enumerate(dims))]
            case Accumulator():
                *outer, last = self.made[node.operand] or (_ONE,)
                if node.kind is AccumulatorKind.SUM_TO_COLUMNS:
                    assert node.columns is not None
                    last = self._factor(last, (_value(last, self.shares) // node.columns, node.columns), 1)
                elif node.kind.reduces_last_axis:
                    last = _ONE
                return [(*outer, last) if self.made[node.operand] else ()]
            case OpNode():
                shapes = tuple([self.block.tiles[name].shape for name in node.operands])
                axes = node.spec.axes(shapes, node.attribute_map)
                operands = [self.made[name] for name in node.operands]
                return [tuple([self._extent(source, operands) for source in result]) for result in axes.results]
            case OutputSaver():
                return []
        raise _UntoldError

    def _extent(self, source: DimSource, operands: Sequence[Sequence[_Extent]]) -> _Extent:
        def of(dim: Dim) -> _Extent:
            return operands[dim.operand][dim.axis]

        match source:
            case Same(dims=dims):
                return next((of(dim) for dim in dims if of(dim) != _ONE), _ONE)
            case Product(dims=dims):
                runs = [self._run(of(dim)) for dim in dims]
                return (tuple(share for run in runs for share in run),)
            case Factor(dim=dim, position=position, extents=extents):
                return self._factor(of(dim), extents, position)
            case Concatenated(dims=dims):
                return tuple(run for dim in dims for run in of(dim))
        raise _UntoldError

    def _factor(self, extent: _Extent, extents: Sequence[int], position: int) -> _Extent:
        """Return one of the factors into which a dimension is split, whole shares each."""
        rest = list(self._run(extent))
        found: list[_Run] = []
        for factor in extents:
            run: list[_Share] = []
            while rest and prod([self.shares[share] for share in run]) < factor:
                run.append(rest.pop(0))
            found.append(tuple(run))
        if rest:
            raise _UntoldError
        return (found[position],)

    @staticmethod
    def _run(extent: _Extent) -> _Run:
        if len(extent) > 1:
            raise _UntoldError
        return extent[0]
