"""A program with concatenations and splits as one without: every tensor taken apart where its axes are cut.

`split(X @ W, 2)` becomes two products with the two halves of W, `concat(X, Y) @ W` the sum of two products; what is
searched is the program of the pieces. Invariant: the pieces laid side by side are the tensor; a µGraph of the pieces
becomes one of the program by splitting inputs before it and concatenating outputs after it, in kernels of their own.

Long because every way in which an operator passes cuts on is here once: to find the cuts, and to carry it out on pieces.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.core.shapes import Shape
from workbench.errors import NotApplicableError
from workbench.ops.attributes import integer
from workbench.ops.spec import AxisMap, Concatenated, Dim, DimSource, Factor, OpKind, Piece, Same
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.expand import expand_composites
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, OpNode
from workbench.ugraph.rewrite import FreshNames, Rewriter
from workbench.ugraph.value import Value

Index = tuple[int, ...]  # which piece: a number per dimension
_JOIN = {"matmul": "add", "sum": "add", "max": "maximum"}
"""What joins the results of a fold over the pieces of an axis."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """A program taken apart.

    Attributes: program; core: the program of the pieces; cuts: per input and output of the program, by name, the extents
    of the pieces of every dimension.
    """

    program: KernelGraph
    core: KernelGraph
    cuts: Mapping[str, tuple[tuple[int, ...], ...]]

    def whole(self, graph: KernelGraph) -> KernelGraph:
        """Return a µGraph of the program, made of one of the core: split, the graph, concat."""
        return graph if self.core is self.program else _Whole(self).build(graph)


def taken_apart(program: KernelGraph) -> Pieces:
    """Return a program taken apart; one without concatenations and splits is its own core. Raises: as `pieces_of`."""
    return pieces_of(program) or Pieces(program, program, {})


def pieces_of(program: KernelGraph) -> Pieces | None:
    """Return a program of operators taken apart, None if nothing in it is concatenated or split.

    Raises: NotApplicableError where a reshape joins an axis that is cut with another.
    """
    if not any(isinstance(node, OpNode) and node.op in ("concat", "split") for node in program.nodes):
        return None
    segments = _Cuts(program).segments()
    flat = program
    if any(_folds_whole(node, program, segments) for node in program.nodes if isinstance(node, OpNode)):
        flat = expand_composites(program)
        segments = _Cuts(flat).segments()
    core = _Taking(flat, segments).core()
    ends = [tensor.name for tensor in (*flat.inputs, *flat.outputs)]
    cuts = {name: tuple(tuple(b - a for a, b in dim) for dim in segments[name]) for name in ends}
    return Pieces(program, core, cuts)


Segments = Mapping[str, tuple[tuple[tuple[int, int], ...], ...]]  # per tensor and dimension (from, to) of each piece


class _Cuts:
    """Finds where every dimension is cut: at the borders of parts, carried through all operators until nothing changes."""

    def __init__(self, program: KernelGraph) -> None:
        self.program = program
        self.cuts: dict[tuple[str, int], set[int]] = {}
        self.rigid: dict[tuple[str, int], str] = {}

    def segments(self) -> dict[str, tuple[tuple[tuple[int, int], ...], ...]]:
        """Return the pieces. Raises: NotApplicableError."""
        before = -1
        while (now := sum(map(len, self.cuts.values()))) != before:
            before = now
            for node in self.program.nodes:
                assert isinstance(node, OpNode)
                self._node(node)
        for (name, dim), op in self.rigid.items():
            if self.cuts.get((name, dim)):
                raise NotApplicableError(
                    f"{op} regroups dimension {dim} of {name}, along which tensors are concatenated or split; "
                    "reshape before the concatenation or after the split"
                )
        return {name: self._of(name, tensor.shape) for name, tensor in self.program.tensors.items()}

    def _of(self, name: str, shape: Shape) -> tuple[tuple[tuple[int, int], ...], ...]:
        dims = []
        for dim, extent in enumerate(shape):
            marks = [0, *sorted(self.cuts.get((name, dim), ())), extent]
            dims.append(tuple(itertools.pairwise(marks)))
        return tuple(dims)

    def _node(self, node: OpNode) -> None:
        shapes = tuple(self.program.tensor(name).shape for name in node.operands)
        axes = node.spec.axes(shapes, node.attribute_map)
        for result, sources in zip(node.results, axes.results, strict=True):
            for dim, source in enumerate(sources):
                self._source(node, shapes, (result.name, dim), source)
        for group in axes.reduced:
            self._share([self._cell(node, shapes, member) for member in group if isinstance(member, Dim)])
            self._fix(node, [self._cell(node, shapes, m.dim) for m in group if isinstance(m, Factor)])

    def _cell(self, node: OpNode, shapes: Sequence[Shape], dim: Dim) -> tuple[str, int]:
        return node.operands[dim.operand], dim.axis % len(shapes[dim.operand])

    def _source(self, node: OpNode, shapes: Sequence[Shape], result: tuple[str, int], source: DimSource) -> None:
        match source:
            case Same(dims):
                self._share([result, *(self._cell(node, shapes, dim) for dim in dims)])
            case Concatenated(dims):
                start = 0
                for dim in dims:
                    extent = shapes[dim.operand][dim.axis]
                    self._shift(result, self._cell(node, shapes, dim), start, extent)
                    start += extent
            case Piece(dim, start, extent):
                self._shift(self._cell(node, shapes, dim), result, start, extent)
            case _:
                dims = source.dims if not isinstance(source, Factor) else (source.dim,)
                self._fix(node, [result, *(self._cell(node, shapes, dim) for dim in dims)])

    def _share(self, cells: Sequence[tuple[str, int]]) -> None:
        marks = {mark for cell in cells for mark in self.cuts.get(cell, ())}
        if marks:
            for cell in cells:
                self.cuts.setdefault(cell, set()).update(marks)

    def _shift(self, whole: tuple[str, int], part: tuple[str, int], start: int, extent: int) -> None:
        """Note that `part` is `whole` from `start` on."""
        length = self.program.tensor(whole[0]).shape[whole[1]]
        outer, inner = self.cuts.setdefault(whole, set()), self.cuts.setdefault(part, set())
        outer |= {mark for mark in (start, start + extent, *(start + mark for mark in inner)) if 0 < mark < length}
        inner |= {mark - start for mark in outer if start < mark < start + extent}

    def _fix(self, node: OpNode, cells: Sequence[tuple[str, int]]) -> None:
        self.rigid.update(dict.fromkeys(cells, node.op))


def _folds_whole(node: OpNode, program: KernelGraph, segments: Segments) -> bool:
    """Return whether a composite folds an axis that is cut: it is carried out by its parts then."""
    if node.spec.expand is None or node.spec.kind is not OpKind.REDUCTION:
        return False
    shapes = tuple(program.tensor(name).shape for name in node.operands)
    groups = node.spec.axes(shapes, node.attribute_map).reduced
    return any(
        len(segments[node.operands[member.operand]][member.axis]) > 1
        for group in groups
        for member in group
        if isinstance(member, Dim)
    )


class _Taking:
    """Builds the program of the pieces."""

    def __init__(self, program: KernelGraph, segments: Segments) -> None:
        self.program, self.segments = program, segments
        self.builder = KernelBuilder(program.name)
        self.names = FreshNames(program.tensors)
        self.values: dict[str, dict[Index, Value]] = {}

    def core(self) -> KernelGraph:
        """Return the program of the pieces."""
        for tensor in self.program.inputs:
            self.values[tensor.name] = {
                index: self.builder.input(self.names(tensor.name), shape, tensor.dtype)
                if len(pieces) > 1
                else self.builder.input(tensor.name, tensor.shape, tensor.dtype, tensor.strides)
                for pieces in [dict(self._pieces(tensor.name))]
                for index, shape in pieces.items()
            }
        for node in self.program.nodes:
            assert isinstance(node, OpNode)
            self._node(node)
        self.builder.output(*(v for t in self.program.outputs for v in self.values[t.name].values()))
        return self.builder.build()

    def _pieces(self, name: str) -> Iterator[tuple[Index, Shape]]:
        """Yield the index and shape of every piece of a tensor."""
        dims = self.segments[name]
        for index in itertools.product(*(range(len(dim)) for dim in dims)):
            yield index, tuple(dim[i][1] - dim[i][0] for dim, i in zip(dims, index, strict=True))

    def _node(self, node: OpNode) -> None:
        shapes = tuple(self.program.tensor(name).shape for name in node.operands)
        axes = node.spec.axes(shapes, node.attribute_map)
        for number, result in enumerate(node.results):
            made = {}
            for index, shape in self._pieces(result.name):
                match node.op:
                    case "concat":
                        made[index] = self._of_concat(node, index)
                    case "split":
                        made[index] = self._of_split(node, number, axes.results[number], index)
                    case _:
                        made[index] = self._computed(node, shapes, axes, index, shape)
            self.values[result.name] = made

    def _at(self, name: str, dim: int, start: int) -> int:
        """Return which piece of a dimension begins at a place."""
        return next(number for number, (begin, _) in enumerate(self.segments[name][dim]) if begin == start)

    def _of_concat(self, node: OpNode, index: Index) -> Value:
        rank = len(index)
        axis = integer(node.attribute_map, "axis") % rank
        start = self.segments[node.results[0].name][axis][index[axis]][0]
        for name in node.operands:
            extent = self.program.tensor(name).shape[axis]
            if start < extent:
                return self.values[name][(*index[:axis], self._at(name, axis, start), *index[axis + 1 :])]
            start -= extent
        raise AssertionError  # the pieces of a concatenation are pieces of its operands

    def _of_split(self, node: OpNode, number: int, sources: Sequence[DimSource], index: Index) -> Value:
        (name,) = node.operands
        axis, piece = next((dim, source) for dim, source in enumerate(sources) if isinstance(source, Piece))
        start = piece.start + self.segments[node.results[number].name][axis][index[axis]][0]
        return self.values[name][(*index[:axis], self._at(name, axis, start), *index[axis + 1 :])]

    def _computed(self, node: OpNode, shapes: Sequence[Shape], axes: AxisMap, index: Index, shape: Shape) -> Value:
        """Return one piece of an operator's result, joined over the pieces of what it folds."""
        fixed: dict[tuple[int, int], int] = {}
        for dim, source in enumerate(axes.results[0]):
            if isinstance(source, Same):
                fixed |= {(member.operand, member.axis): index[dim] for member in source.dims}
        kept = set(fixed)
        groups = [[m for m in group if isinstance(m, Dim)] for group in axes.reduced]
        folded = [g for g in groups if not any((m.operand, m.axis) in kept for m in g)]
        lengths = [len(self.segments[node.operands[g[0].operand]][g[0].axis]) if g else 1 for g in folded]
        parts = []
        for choice in itertools.product(*map(range, lengths)):
            for group, number in zip(folded, choice, strict=True):
                fixed |= {(member.operand, member.axis): number for member in group}
            operands = [
                self.values[name][tuple(fixed.get((position, dim), 0) for dim in range(-len(shapes[position]), 0))]
                for position, name in enumerate(node.operands)
            ]
            attributes: dict[str, Any] = node.attribute_map
            if "shape" in attributes:
                attributes["shape"] = shape
            parts.append(self.builder.apply_all(node.op, *operands, **attributes)[0])
        if len(parts) > 1 and node.op not in _JOIN:
            raise NotApplicableError(f"{node.op} folds an axis along which tensors are concatenated or split")
        result = parts[0]
        for part in parts[1:]:
            result = self.builder.apply(_JOIN[node.op], result, part)
        return result


class _Whole(Rewriter):
    """Puts a µGraph of the pieces between splits and concatenations."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces

    def build(self, graph: KernelGraph) -> KernelGraph:
        """Return the µGraph of the program."""
        kernel = KernelBuilder(graph.name)
        program = self.pieces.program
        self.names = FreshNames([*graph.tensors, *program.tensors])
        whole = [kernel.input(t.name, t.shape, t.dtype, t.strides) for t in program.inputs]
        names = iter(graph.inputs)
        values: dict[str, Value] = {}
        for tensor in whole:
            for part in self._split(kernel, tensor, self.pieces.cuts[tensor.name]):
                values[next(names).name] = part
        launches = 0
        for node in graph.nodes:
            operands = [values[name] for name in node.operands]
            match node:
                case GraphDefinedNode():
                    results = self.graph_defined(kernel, node, operands, launches)
                    launches += 1
                case OpNode():
                    results = self.operator(kernel, node, operands, (node.results[0].name,))
            values.update(zip((tensor.name for tensor in node.results), results, strict=True))
        parts = iter(values[name] for name in graph.output_names)
        kernel.output(*(self._joined(kernel, parts, self.pieces.cuts[t.name]) for t in program.outputs))
        return kernel.build()

    def _split(self, kernel: KernelBuilder, value: Value, cuts: Sequence[tuple[int, ...]]) -> Iterator[Value]:
        """Yield the pieces of a tensor in the order of their indices."""
        parts = [value]
        for dim, extents in enumerate(cuts):
            if len(extents) > 1:
                axis = dim - len(cuts)
                parts = [
                    piece
                    for part in parts
                    for piece in kernel.apply_all(
                        "split", part, name=self.names(f"{value.name}_part"), parts=_equal(extents), axis=axis
                    )
                ]
        yield from parts

    def _joined(self, kernel: KernelBuilder, parts: Iterator[Value], cuts: Sequence[tuple[int, ...]]) -> Value:
        """Return a tensor of its pieces, taken from an iterator."""

        def join(dim: int) -> Value:
            if dim == len(cuts):
                return next(parts)
            made = [join(dim + 1) for _ in cuts[dim]]
            return (
                made[0]
                if len(made) == 1
                else kernel.apply("concat", *made, name=self.names("joined"), axis=dim - len(cuts))
            )

        return join(0)


def _equal(extents: tuple[int, ...]) -> int | tuple[int, ...]:
    return len(extents) if len(set(extents)) == 1 else extents
