"""The same µGraph with another tiling: another grid split (also of axes that were whole), loop count, split, cluster.

A tiling is thought of in axes: the grid may split every axis that all results keep and nothing in the block folds. The
graph is first taken to counts of one, where maps say nothing and can be exchanged, then to the counts asked for.
Invariant: what leaves here is built anew by inference, with the same inputs and outputs; counts need not divide extents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from workbench.core.tensors import DeviceTensor
from workbench.errors import NotApplicableError, UnknownNameError, WorkbenchError
from workbench.ugraph.axes import AxisAnalysis, Names, analyze_axes
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.cut_freedom import fixed_counts, partial_axes, repeated_axes
from workbench.ugraph.dataflow import Path
from workbench.ugraph.inference import GRID_AXES
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    BlockNode,
    DimMap,
    InputIterator,
    OutputSaver,
    RunningMax,
    ThreadNode,
)
from workbench.ugraph.reinstantiate import reinstantiate
from workbench.ugraph.rewrite import Launch, Rewriter
from workbench.ugraph.tiling import Counts, Tiling

__all__ = ["Counts", "Retiler", "Tiling", "retile", "tilings"]

MOST_BLOCKS = (2**31 - 1, 65535, 65535)
"""Blocks along x, y, z of one launch (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""


def tilings(graph: KernelGraph, names: Names | None = None) -> tuple[Tiling, ...]:
    """Return, per graph-defined operator, which axes may be cut. names: as for `analyze_axes`.

    The same axes have the same names whatever the graph's present tiling is.
    """
    return Retiler(graph, names).tilings


def retile(graph: KernelGraph, counts: Mapping[int, Counts] | Counts, names: Names | None = None) -> KernelGraph:
    """Return the graph with other counts of some graph-defined operators, by number; or of the only one.

    Before: `grid(64) loop(32)`, `x = load(X) fmap(1)`; after `Counts({"a": 2, "c": 32}, loop=16)`: `grid(32, 2) loop(16)`,
    `x = load(X) imap(y: 0) fmap(1)`. Raises: UnknownNameError for an axis or operator that there is not;
    NotApplicableError, with the reason, where the cut is not legal.
    """
    return Retiler(graph, names).build(counts)


class Retiler:
    """Retilings of one graph; keeps what they share. Attributes: graph; tilings; bare: all counts that may be 1 are."""

    def __init__(self, graph: KernelGraph, names: Names | None = None) -> None:
        """Take the graph to counts of one and find its axes."""
        self.graph, self.names = graph, names
        self._splits = partial_axes(graph)
        self._fixed = fixed_counts(graph, self._splits)
        self.bare = _Bare(self._splits).rewrite(_ones(graph, self._fixed, self._splits))
        self.analysis = analyze_axes(self.bare, names)
        blocks = [node.block for node in self.bare.graph_defined]
        self.tilings = tuple(self._tiling(number, block) for number, block in enumerate(blocks))

    def build(self, counts: Mapping[int, Counts] | Counts) -> KernelGraph:
        """Return the graph with these counts. Raises: as `retile`."""
        if isinstance(counts, Counts):
            if len(self.tilings) != 1:
                raise UnknownNameError(
                    f"{len(self.tilings)} graph-defined operators: give counts by number, {{0: Counts(...)}}"
                )
            counts = {0: counts}
        for number in counts:
            if not 0 <= number < len(self.tilings):
                raise UnknownNameError(f"no graph-defined operator {number}; there are {len(self.tilings)}")
        wanted = {tiling.kernel: counts.get(tiling.kernel, tiling.counts) for tiling in self.tilings}
        letters = {number: self._letters(self.tilings[number], wanted[number]) for number in wanted}
        try:
            mapped = _Mapped(self, letters).rewrite(self.bare)
        except WorkbenchError as error:
            raise NotApplicableError(f"the axes cannot be mapped so: {error}") from error
        asked: dict[str, int] = {}
        for number, cut in wanted.items():
            here = mapped.graph_defined[number].block
            found = dict.fromkeys(GRID_AXES, 1)
            found |= {letter: cut.grid[axis] for letter, axis in letters[number].items()}
            if self.tilings[number].split:
                found[self._split_letter(number)] = cut.split
            if self.tilings[number].loop:
                found["loop"] = cut.loop
            present = (*here.grid_dims, here.forloop_range)
            was = dict(zip((*GRID_AXES, "loop"), present, strict=True))
            asked |= {f"{number}.{key}": count for key, count in found.items() if was[key] == 1 and count > 1}
        made = reinstantiate(mapped, counts=asked) if asked else mapped
        made = _Clusters({number: cut.cluster for number, cut in wanted.items()}).rewrite(made)
        self._check_interface(made)
        return made

    @property
    def split_names(self) -> dict[str, int]:
        """Names under which a number of split parts stands in `Tiling.tiles` -> the graph-defined operator that splits."""
        several = len(self.tilings) > 1
        found = {
            f"{tiling.split}.{self._split_letter(tiling.kernel)}{tiling.kernel if several else ''}": tiling.kernel
            for tiling in self.tilings
            if tiling.split
        }
        return {name: kernel for name, kernel in found.items() if name in self.analysis.axes}

    def split_place(self, kernel: int) -> int | None:
        """Return which grid axis (0, 1, 2) splits a reduced axis, None where none does."""
        return self._splits[kernel][0] if self._splits[kernel] else None

    def seen_by(self, kernel: int, node: InputIterator) -> tuple[tuple[str, ...], ...]:
        """Return the axes of each dimension of what an input iterator loads."""
        return self.analysis.operands[self._iterator(self.tilings[kernel].label, node), 0]

    # ------------------------------------------------------------------------------------------------------- what may be
    def _split_letter(self, number: int) -> str:
        return GRID_AXES[self._splits[number][0]]

    def _kept(self, number: int) -> set[int]:
        """Return the grid axes of the bare graph that are not for free axes: they split, or their count is fixed."""
        grid = self.bare.graph_defined[number].block.grid_dims
        return {*self._splits[number], *(axis for axis in range(3) if grid[axis] > 1)}

    def _tiling(self, number: int, block: BlockGraph) -> Tiling:
        analysis, node = self.analysis, self.bare.graph_defined[number]
        label, cuts = node.results[0].name, analysis.blocks[number]
        loops = [*cuts.loop] if block.forloop_range == 1 and f"{number}.loop" not in self._fixed else []
        loop = loops[0] if len(loops) == 1 else None
        splits = [axis for place in self._splits[number] for axis in cuts.grid[place] if block.grid_dims[place] == 1]
        splits = splits if f"{number}.split" not in self._fixed else []
        split = splits[0] if len(self._splits[number]) == 1 and len(splits) == 1 else None
        folded = {name for name, axis in analysis.axes.items() if any(p[0] == label for p in axis.reduced_by)}
        folded |= {axis for places in cuts.grid for axis in places} | {*cuts.loop} | repeated_axes(analysis)
        outputs = [analysis.dims(tensor.name) for tensor in node.results]
        inputs = [analysis.operands[self._iterator(label, tile), 0] for tile in block.iterators]
        free = []
        for name in dict.fromkeys(name for dims in (*outputs, *inputs) for dim in dims for name in dim):
            axis = analysis.axes[name]
            if axis.extent > 1 and name not in folded and axis.part_of is None and self._is_free(name, inputs, outputs):
                free.append(name)
        ordered = not any(isinstance(n, RunningMax) or (isinstance(n, Accumulator) and n.rescale) for n in block.nodes)
        pieces = {tile: axis for axis, tile in cuts.tiles.items()}
        return Tiling(
            kernel=number,
            label=label,
            extents={name: axis.extent for name, axis in analysis.axes.items()},
            free=tuple(free),
            loop=loop,
            split=split,
            can_cluster=loop is not None and ordered,
            room=3 - len(self._kept(number)),
            counts=self._present(number, free, loop, split),
            tiles={
                path[1]: _joined(analysis.tensors[path], pieces)
                for inner in block.nodes
                for path in _paths(label, inner)
            },
            tensors={t.name: analysis.dims(t.name) for t in (*self._operands(number), *node.results)},
            pieces=pieces,
        )

    def _operands(self, number: int) -> list[DeviceTensor]:
        node = self.bare.graph_defined[number]
        return [self.bare.tensors[name] for name in node.operands]

    @staticmethod
    def _iterator(label: str, node: InputIterator) -> Path:
        return (label, node.result.name)

    @staticmethod
    def _is_free(
        name: str, inputs: list[tuple[tuple[str, ...], ...]], outputs: list[tuple[tuple[str, ...], ...]]
    ) -> bool:
        """Return True when every result has the axis, some input too, and each of them only as an outermost one."""
        everywhere = all(any(name in dim for dim in dims) for dims in outputs)
        somewhere = any(name in dim for dims in inputs for dim in dims)
        outermost = all(dim[0] == name for dims in (*inputs, *outputs) for dim in dims if name in dim)
        return everywhere and somewhere and outermost

    def _present(self, number: int, free: list[str], loop: str | None, split: str | None) -> Counts:
        """Return the counts that the graph has."""
        block = self.graph.graph_defined[number].block
        label = self.graph.graph_defined[number].results[0].name
        analysis = self.analysis
        grid: dict[str, int] = {}
        for node in block.iterators:
            dims = analysis.operands[(label, node.result.name), 0]
            for place, dim in enumerate(node.imap):
                if dim is not None and block.grid_dims[place] > 1 and dims[dim] and dims[dim][0] in free:
                    grid[dims[dim][0]] = block.grid_dims[place]
        shared = block.grid_dims[self._splits[number][0]] if split else 1
        return Counts(grid, block.forloop_range if loop else 1, shared, prod(block.cluster_dims))

    # ---------------------------------------------------------------------------------------------------------- building
    def _letters(self, tiling: Tiling, cut: Counts) -> dict[str, str]:
        """Return which grid axis splits which axis: those of the graph where they are, others where there is room."""
        named = {axis: count for axis, count in cut.grid.items() if count != 1}
        for axis in named:
            if axis not in tiling.free:
                known = ", ".join(tiling.free) or "none"
                what = UnknownNameError if axis not in tiling.extents else NotApplicableError
                raise what(f"the grid of kernel {tiling.kernel} cannot split axis {axis!r}; it can split: {known}")
        self._check_counts(tiling, cut)
        kept = self._kept(tiling.kernel)
        open_places = [place for place in range(3) if place not in kept]
        if len(named) > len(open_places):
            raise NotApplicableError(
                f"kernel {tiling.kernel} has room for {len(open_places)} split axes, {len(named)} are asked for"
            )
        letters: dict[str, str] = {}
        for axis, place in self._places_now(tiling).items():
            if axis in named and place in open_places and named[axis] <= MOST_BLOCKS[place]:
                letters[GRID_AXES[place]] = axis
                open_places.remove(place)
        rest = sorted((axis for axis in named if axis not in letters.values()), key=lambda axis: -named[axis])
        for axis, place in zip(rest, open_places, strict=False):
            if named[axis] > MOST_BLOCKS[place]:
                raise NotApplicableError(f"{named[axis]} blocks along {GRID_AXES[place]}; at most {MOST_BLOCKS[place]}")
            letters[GRID_AXES[place]] = axis
        return letters

    def _places_now(self, tiling: Tiling) -> dict[str, int]:
        node = self.graph.graph_defined[tiling.kernel]
        found: dict[str, int] = {}
        for iterator in node.block.iterators:
            dims = self.analysis.operands[(tiling.label, iterator.result.name), 0]
            for place, dim in enumerate(iterator.imap):
                if dim is not None and dims[dim] and dims[dim][0] in tiling.free:
                    found.setdefault(dims[dim][0], place)
        return found

    @staticmethod
    def _check_counts(tiling: Tiling, cut: Counts) -> None:
        for what, count in (*cut.grid.items(), ("loop", cut.loop), ("split", cut.split), ("cluster", cut.cluster)):
            if not isinstance(count, int) or count < 1:
                raise NotApplicableError(f"{what} = {count!r} of kernel {tiling.kernel}; a count is at least 1")
        for what, axis, count in (("loop", tiling.loop, cut.loop), ("split", tiling.split, cut.split)):
            if axis is None and count > 1:
                raise NotApplicableError(f"kernel {tiling.kernel} has no {what} whose count may change")
        if cut.cluster == tiling.counts.cluster and cut.loop == tiling.counts.loop:
            pass
        elif cut.cluster > 1 and not tiling.can_cluster:
            raise NotApplicableError(f"the iterations of kernel {tiling.kernel} cannot be shared by a cluster")
        elif cut.cluster > cut.loop:
            raise NotApplicableError(f"{cut.cluster} blocks of a cluster cannot share {cut.loop} iterations")
        for axis, count in cut.grid.items():
            if count > tiling.extents.get(axis, count):
                raise NotApplicableError(f"{count} blocks cannot share axis {axis} of {tiling.extents[axis]} elements")

    def _check_interface(self, made: KernelGraph) -> None:
        for old, new in zip((*self.graph.inputs, *self.graph.outputs), (*made.inputs, *made.outputs), strict=True):
            if (old.shape, old.dtype, old.strides) != (new.shape, new.dtype, new.strides):
                raise NotApplicableError(f"{old.name} would change from {old.shape} to {new.shape}")


def _joined(dims: tuple[tuple[str, ...], ...], pieces: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return dims in which a piece of several atoms ("h.tile.0*h.tile.1") is one name."""
    result = []
    for dim in dims:
        text = "*".join(dim)
        whole = next((piece for piece in pieces if "*" in piece and text.startswith(piece)), None)
        if whole is not None:
            rest = text[len(whole) :].strip("*")
            dim = (whole, *(rest.split("*") if rest else ()))
        result.append(dim)
    return tuple(result)


def _paths(label: str, node: BlockNode) -> list[Path]:
    """Return where the analysis of axes has the tiles that a node makes; a thread graph's tile is its root."""
    if isinstance(node, ThreadNode):
        return [(label, node.results[0].name, node.graph.output)]
    return [(label, tensor.name) for tensor in node.results]


def _ones(graph: KernelGraph, fixed: set[str], splits: list[tuple[int, ...]]) -> KernelGraph:
    """Return the graph with every count 1 that may be 1; all others as they are."""
    wanted = {
        f"{number}.{key}": 1
        for number, node in enumerate(graph.graph_defined)
        for place, key in enumerate((*GRID_AXES, "loop"))
        if (*node.block.grid_dims, node.block.forloop_range)[place] > 1
        and (f"{number}.split" if place in splits[number] else f"{number}.{key}") not in fixed
    }
    if not wanted:
        return graph
    made = _with_counts(graph, wanted)
    if made is not None:
        return made
    for key in wanted:  # some count is fixed: one after the other
        made = _with_counts(graph, {key: 1})
        graph = graph if made is None else made
    return graph


def _with_counts(graph: KernelGraph, counts: Mapping[str, int]) -> KernelGraph | None:
    try:
        made = reinstantiate(graph, counts=counts)
    except NotApplicableError:
        return None
    before, after = ([t.shape for t in (*g.inputs, *g.outputs)] for g in (graph, made))
    return made if before == after else None


class _Bare(Rewriter):
    """Takes grid axes of count 1 out of the maps, but for those that split a reduced axis."""

    def __init__(self, splits: list[tuple[int, ...]]) -> None:
        self.splits = splits

    def block_graph(self, block: BlockGraph, operands: Sequence[DeviceTensor], number: int, label: str) -> BlockGraph:
        self.grid = block.grid_dims
        return super().block_graph(block, operands, number, label)

    def imap(self, node: InputIterator, path: Path, number: int) -> DimMap:
        return self._left(node.imap, number)

    def omap(self, node: OutputSaver, result: int, number: int) -> DimMap:
        return self._left(node.omap, number)

    def _left(self, dims: DimMap, number: int) -> DimMap:
        x, y, z = (dim if self.grid[p] > 1 or p in self.splits[number] else None for p, dim in enumerate(dims))
        return x, y, z


class _Mapped(Rewriter):
    """Maps free axes to grid axes whose count is 1. letters: per graph-defined operator, grid axis -> axis."""

    def __init__(self, owner: Retiler, letters: Mapping[int, Mapping[str, str]]) -> None:
        self.analysis: AxisAnalysis = owner.analysis
        self.letters = letters
        self.results = [node.results for node in owner.bare.graph_defined]

    def imap(self, node: InputIterator, path: Path, number: int) -> DimMap:
        return self._with(node.imap, self.analysis.operands[path, 0], number)

    def omap(self, node: OutputSaver, result: int, number: int) -> DimMap:
        return self._with(node.omap, self.analysis.dims(self.results[number][result].name), number)

    def _with(self, dims: DimMap, axes: tuple[tuple[str, ...], ...], number: int) -> DimMap:
        found = list(dims)
        for letter, axis in self.letters[number].items():
            found[GRID_AXES.index(letter)] = next((n for n, dim in enumerate(axes) if dim and dim[0] == axis), None)
        return found[0], found[1], found[2]


class _Clusters(Rewriter):
    """Gives graph-defined operators their clusters."""

    def __init__(self, clusters: Mapping[int, int]) -> None:
        self.clusters = clusters

    def launch(self, number: int, block: BlockGraph) -> Launch:
        return Launch(block.grid_dims, block.forloop_range, block.block_dims, (self.clusters[number], 1, 1))
