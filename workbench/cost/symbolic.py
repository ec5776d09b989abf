"""A kernel whose counts are columns: extents of its tiles as functions of how its axes are cut.

Invariant: for one row of the columns the counts are those of the graph that is cut so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from workbench.cost.counts import count
from workbench.cost.form import Array, BlockForm, Dims, block_form, size_of
from workbench.cost.hardware import Hardware
from workbench.errors import NotApplicableError
from workbench.ugraph.axes import AxisAnalysis
from workbench.ugraph.inference import GRID_AXES
from workbench.ugraph.nodes import BlockNode, InputIterator, OpNode
from workbench.ugraph.retile import Retiler, Tiling

Column = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class SymbolicKernel:
    """One kernel of a structure.

    Attributes: tiling: of the graph as it was given; form; fixed: counts by name that stay; split_names: names of numbers
    of splits -> the kernel that splits; tied: kernels whose number of splits the sizes here follow; fixed_loop,
    fixed_split: iterations and splits where they cannot change; cut_loop, cut_split: the axes that these cut;
    product_axes: axes that are rows, columns or inner axes of products; joins: for an axis that lays others one after the
    other, the axes of each part.
    """

    tiling: Tiling
    form: BlockForm
    fixed: Mapping[str, float]
    split_names: Mapping[str, int]
    tied: tuple[int, ...]
    fixed_loop: int
    fixed_split: int
    cut_loop: str | None
    cut_split: str | None
    product_axes: frozenset[str]
    joins: Mapping[str, Dims]

    def count(self, columns: Mapping[str, Column], hardware: Hardware) -> dict[str, Array]:
        """Return the counts of many schedules. columns: free axes, loop, split, cluster, stages, threads, tied splits."""
        numbers = {name: np.asarray(column, float) for name, column in columns.items()}
        return count(self.form, self._values(numbers), hardware, numbers)

    def _values(self, numbers: Mapping[str, Array]) -> dict[str, Array | float]:
        tiling = self.tiling
        values: dict[str, Array | float] = dict(self.fixed)
        values["split"] = numbers["split"]
        for name, extent in tiling.extents.items():
            kernel = self.split_names.get(name)
            if kernel is not None:
                parts = numbers["split"] if kernel == tiling.kernel else numbers.get(f"split{kernel}", np.asarray(1.0))
                values[name] = values[f"@{name}"] = parts
                continue
            values[f"@{name}"] = float(extent)
            values[name] = np.ceil(extent / numbers[name]) if name in tiling.free else float(extent)
        for name in tiling.free:
            values[f"grid:{name}"] = numbers[name]
        for piece, axis in tiling.pieces.items():
            names = piece.split("*")
            if not all(name in tiling.extents for name in names):  # a cut of one element, or its tile has another name
                continue
            length: Array = np.asarray(float(prod(tiling.extents[name] for name in names)))
            if axis == self.cut_split:
                length = np.ceil(length / numbers["split"])
            if axis == self.cut_loop:
                length = np.ceil(length / numbers["loop"])
            values[piece] = length
        for name, joined in self.joins.items():  # inner ones stand before those that hold them
            values[name] = sum((size_of((part,), values) for part in joined), np.asarray(0.0))
        return values


def symbolic_kernel(retiler: Retiler, kernel: int, given: Retiler) -> SymbolicKernel:
    """Return a kernel of a graph of primitives. given: the graph as it was given, whose cuts may be fewer.

    Raises: NotApplicableError when expanding changed what may be cut; MissingRuleError for an operator without a cost.
    """
    tiling, graph, outer = retiler.tilings[kernel], retiler.bare, given.tilings[kernel]
    as_given = given.bare.graph_defined[kernel].block
    if (
        not set(outer.free) <= set(tiling.free)
        or outer.loop not in (tiling.loop, None)
        or outer.split not in (tiling.split, None)
    ):
        raise NotApplicableError(f"kernel {kernel}: the axes of its composites are not those of their expansion")
    node = graph.graph_defined[kernel]
    made = {t.name for earlier in graph.nodes[: graph.nodes.index(node)] for t in earlier.results}
    split_names = retiler.split_names
    place = retiler.split_place(kernel)

    def device(name: str) -> Dims:
        return tuple(tuple(f"@{axis}" for axis in dim) for dim in tiling.tensors[name])

    def cuts_of(iterator: InputIterator) -> tuple[str, ...]:
        dims = retiler.seen_by(kernel, iterator)
        cuts = [f"grid:{axis}" for axis in outer.free if any(axis in dim for dim in dims)]
        for number, letter in enumerate(GRID_AXES):
            if iterator.imap[number] is not None:
                cuts.append("split" if number == place and tiling.split else f"fixed.{letter}")
        return tuple(cuts)

    fixed = {f"fixed.{letter}": float(c) for letter, c in zip(GRID_AXES, node.block.grid_dims, strict=True)}
    counts = (*(f"grid:{axis}" for axis in outer.free), *fixed, *(("split",) if tiling.split else ()))
    operands = [graph.tensors[name] for name in node.operands]
    form = block_form(
        node.block,
        name=node.name or node.results[0].name,
        tiles=tiling.tiles,
        operands=[(tensor, device(tensor.name), tensor.name in made) for tensor in operands],
        results=[(tensor, device(tensor.name), tensor.name in graph.output_names) for tensor in node.results],
        counts=counts,
        cuts_of=cuts_of,
    )
    shown = {axis for dims in (*tiling.tiles.values(), *tiling.tensors.values()) for dim in dims for axis in dim}
    tied = tuple(sorted({k for name, k in split_names.items() if name in shown and k != kernel}))
    return SymbolicKernel(
        _merged(outer, tiling),
        form,
        fixed,
        split_names,
        tied,
        as_given.forloop_range,
        as_given.grid_dims[place] if place is not None and outer.split is None and tiling.split else 1,
        tiling.loop,
        tiling.split,
        _product_axes(tiling, node.block.nodes),
        _joins(retiler.analysis),
    )


def _joins(analysis: AxisAnalysis) -> dict[str, Dims]:
    """Return the axes that lay others one after the other, those inside others first."""
    found: dict[str, Dims] = {}

    def visit(name: str) -> None:
        parts = analysis.axes[name].joins
        if name in found or not parts or parts == ((name,),):
            return
        for part in parts:
            for inner in part:
                visit(inner)
        found[name] = parts

    for name in analysis.axes:
        visit(name)
    return found


def _merged(outer: Tiling, inner: Tiling) -> Tiling:
    """Return what may be cut in the graph as given, with the tiles and extents of its primitives."""
    return Tiling(
        kernel=outer.kernel,
        label=outer.label,
        extents=inner.extents,
        free=outer.free,
        loop=outer.loop,
        split=outer.split,
        can_cluster=outer.can_cluster,
        room=outer.room,
        counts=outer.counts,
        tiles=inner.tiles,
        tensors=inner.tensors,
        pieces=inner.pieces,
    )


def _product_axes(tiling: Tiling, nodes: tuple[BlockNode, ...]) -> frozenset[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, OpNode) and node.op == "matmul":
            for name in (*node.operands, node.results[0].name):
                found.update(axis for dim in tiling.tiles[name][-2:] for axis in dim)
    return frozenset(found)
