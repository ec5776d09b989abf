"""Does what a graph computes depend on how a looped axis is cut into iterations, or a reduced axis into partial results?

A sum over part of an axis is a partial sum; it may pass what is linear, until all parts are added up. The root of a part
of a sum, or a mean of such parts, depends on the cut. Invariant: what is not understood counts as dependent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from workbench.core.tensors import DeviceTensor
from workbench.ugraph.axes import AxisAnalysis, analyze_axes
from workbench.ugraph.dataflow import Dataflow, Step, flatten
from workbench.ugraph.inference import GRID_AXES, Place
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, InputIterator, OpNode, OutputSaver, RunningMax

_SUMS = frozenset({"sum", "matmul", "sum_to_columns"})
_MOVES = frozenset({"transpose", "reshape", "broadcast", "split", "concat"})
_LINEAR = frozenset({"scale", "neg", "sum", "mean", "sum_to_columns", *_MOVES})
_SUM_KINDS = (AccumulatorKind.SUM, AccumulatorKind.SUM_DIM, AccumulatorKind.SUM_TO_COLUMNS)
_FOLDING_KINDS = (AccumulatorKind.SUM_DIM, AccumulatorKind.MEAN, AccumulatorKind.RMS, AccumulatorKind.MAX_DIM)


class _Kind(Enum):
    WHOLE = "independent of the cut, element by element"
    SUM = "a sum over one part"
    PEAK = "a maximum over one part"
    JOINED = "elements and partial sums side by side"
    RUNNING = "a running maximum"
    SHIFT = "by how much a running maximum grew"
    FACTOR = "the exponential of a shift"
    BELOW = "elements less a running maximum"
    SHIFTED = "exponentials of elements less a running maximum"
    SHIFTED_SUM = "their sum over one part"
    DEPENDENT = "dependent on the cut"


@dataclass(frozen=True, slots=True)
class _State:
    kind: _Kind
    running: int = -1  # the step of the running maximum it belongs to


_WHOLE, _SUM, _PEAK, _DEPENDENT = (_State(k) for k in (_Kind.WHOLE, _Kind.SUM, _Kind.PEAK, _Kind.DEPENDENT))


def partial_axes(graph: KernelGraph) -> list[tuple[int, ...]]:
    """Return, per launch, the grid axes that lay partial results side by side: what they split no result keeps."""
    analysis = analyze_axes(graph)
    found = []
    for node, cuts in zip(graph.graph_defined, analysis.blocks, strict=True):
        kept = [{name for dim in analysis.dims(tensor.name) for name in dim} for tensor in node.results]
        found.append(
            tuple(
                place
                for place, axes in enumerate(cuts.grid)
                if axes
                and all(saver.omap[place] is not None for saver in node.block.savers)
                and not all(axis in names for axis in axes for names in kept)
            )
        )
    return found


def fixed_counts(graph: KernelGraph, splits: Sequence[Sequence[int]]) -> set[str]:
    """Return the counts ("0.loop", "1.split") on which depends what a graph computes. splits: its `partial_axes`."""
    flow, analysis = flatten(graph), analyze_axes(graph)
    repeated, suffix = repeated_axes(analysis), len(flow.launches) > 1
    fixed: set[str] = set()
    for number, cuts in enumerate(analysis.blocks):

        def is_plain(axes: tuple[str, ...], tiles: Mapping[str, str] = cuts.tiles) -> bool:
            pieces = tiles[axes[0]].split("*") if len(axes) == 1 and axes[0] in tiles else ["?"]
            return axes[0] not in repeated and all(piece in analysis.axes for piece in pieces) if axes else False

        if not is_plain(cuts.loop) or not loop_is_free(flow, analysis, number, cuts.loop[0]):
            fixed.add(f"{number}.loop")
        for place in splits[number]:
            parts = f"{cuts.grid[place][0]}.{GRID_AXES[place]}{number if suffix else ''}"
            known = is_plain(cuts.grid[place]) and parts in analysis.axes
            if not known or not split_is_free(flow, analysis, number, parts):
                fixed.add(f"{number}.split")
    return fixed


def repeated_axes(analysis: AxisAnalysis) -> set[str]:
    """Return the axes that some tensor has twice: a cut of one of the two would be ambiguous."""
    found: set[str] = set()
    for dims in analysis.tensors.values():
        seen = [analysis.axes[name].part_of or name for dim in dims for name in dim]
        found |= {name for name in seen if seen.count(name) > 1}
    return found


def loop_is_free(flow: Dataflow, analysis: AxisAnalysis, launch: int, axis: str) -> bool:
    """Return True when every count of iterations over this axis gives the same results of a graph-defined operator."""
    piece = frozenset(analysis.blocks[launch].tiles[axis].split("*"))
    walk = _Walk(flow, analysis, piece)
    for number, step in enumerate(flow.steps):
        if step.launch == launch and step.place is not Place.AFTER:
            walk.operator(number, step)
        elif step.launch == launch and isinstance(step.node, Accumulator):
            if not walk.accumulates(step):
                return False
        elif step.launch == launch and isinstance(step.node, OutputSaver) and step.operands[0] in walk.states:
            return False  # a value of before the loop
    return True


def split_is_free(flow: Dataflow, analysis: AxisAnalysis, launch: int, parts: str) -> bool:
    """Return True when every number of partial results gives the same outputs. parts: the axis that they are laid along."""
    piece = frozenset({parts})
    walk = _Walk(flow, analysis, piece)
    inside = _Walk(flow, analysis, frozenset(_piece_of(analysis, launch, parts)))
    for number, step in enumerate(flow.steps):
        if step.launch == launch:
            _partial_step(inside, number, step)
            if isinstance(step.node, OutputSaver):
                state = inside.states[step.operands[0]]
                walk.states[step.results[0]] = state if state.kind in (_Kind.SUM, _Kind.PEAK) else _DEPENDENT
        else:
            walk.operator(number, step, completes=True)
    outputs = [walk.states.get(value, _WHOLE) for value in flow.outputs]
    return all(state.kind is _Kind.WHOLE for state in outputs)


def _piece_of(analysis: AxisAnalysis, launch: int, parts: str) -> list[str]:
    whole = analysis.axes[parts].part_of
    return analysis.blocks[launch].tiles[whole].split("*") if whole is not None else []


def _partial_step(walk: _Walk, number: int, step: Step) -> None:
    """Follow one step of the launch whose results are partial: its accumulators leave sums over a part."""
    if isinstance(step.node, Accumulator):
        good = walk.accumulates(step)
        peak = step.node.kind in (AccumulatorKind.MAX, AccumulatorKind.MAX_DIM)
        summing = step.node.kind in _SUM_KINDS
        walk.states[step.results[0]] = (_PEAK if peak else _SUM) if good and (peak or summing) else _DEPENDENT
    elif not isinstance(step.node, OutputSaver):
        walk.operator(number, step)


class _Walk:
    """Follows values through operators. piece: names of the part of the axis that a value runs along."""

    def __init__(self, flow: Dataflow, analysis: AxisAnalysis, piece: frozenset[str]) -> None:
        self.flow, self.analysis, self.piece = flow, analysis, piece
        self.states: dict[int, _State] = {}
        self.folding = {path for name in piece for path in analysis.axes[name].reduced_by}

    def has_piece(self, value: int) -> bool:
        dims = self.analysis.tensors[self.flow.paths[value]]
        joins = [axis for dim in dims for axis in dim]
        return any(self._shows(name) for name in joins)

    def _shows(self, name: str) -> bool:
        if name in self.piece:
            return True
        axis = self.analysis.axes.get(name)
        return axis is not None and any(self._shows(inner) for dim in axis.joins for inner in dim)

    def state(self, value: int) -> _State:
        return self.states.get(value, _WHOLE)

    def operator(self, number: int, step: Step, *, completes: bool = False) -> None:
        """Note the state of what a step makes. completes: a fold adds up all parts, not those of one tile."""
        node = step.node
        states = [self.state(value) for value in step.operands]
        match node:
            case DeviceTensor():
                result = _WHOLE
            case InputIterator() | OutputSaver():
                result = states[0]
            case RunningMax():
                fine = states[0].kind in (_Kind.WHOLE, _Kind.PEAK) and not completes
                self.states[step.results[0]] = _State(_Kind.RUNNING, number) if fine else _DEPENDENT
                self.states[step.results[1]] = _State(_Kind.SHIFT, number) if fine else _DEPENDENT
                return
            case Accumulator():
                result = self._late_accumulator(step, states)
            case OpNode():
                result = self._op(step, node, states, completes=completes)
        self.states.update(dict.fromkeys(step.results, result))

    def _late_accumulator(self, step: Step, states: list[_State]) -> _State:
        """Return what an accumulator of another launch makes of partial results that it loads."""
        node = step.node
        assert isinstance(node, Accumulator)
        if all(state.kind is _Kind.WHOLE for state in states):
            return _WHOLE
        folds = step.path in self.folding
        if states[0].kind is _Kind.SUM and node.kind in _SUM_KINDS:
            return _WHOLE if folds else _SUM
        if states[0].kind is _Kind.PEAK and node.kind in (AccumulatorKind.MAX, AccumulatorKind.MAX_DIM):
            return _WHOLE if folds else _PEAK
        return _DEPENDENT

    def _op(self, step: Step, node: OpNode, states: list[_State], *, completes: bool) -> _State:
        folds = step.path in self.folding
        kinds = {state.kind for state in states}
        if kinds <= {_Kind.WHOLE}:
            if not folds or completes:
                return _WHOLE
            return _SUM if node.op in _SUMS else _PEAK if node.op == "max" else _DEPENDENT
        if _Kind.DEPENDENT in kinds:
            return _DEPENDENT
        if kinds & {_Kind.RUNNING, _Kind.SHIFT, _Kind.FACTOR, _Kind.BELOW, _Kind.SHIFTED, _Kind.SHIFTED_SUM}:
            return self._running(step, node, states, folds=folds)
        if _Kind.PEAK in kinds:
            return self._peak(node, states, folds=folds, completes=completes)
        return self._sum(step, node, states, folds=folds, completes=completes)

    def _sum(self, step: Step, node: OpNode, states: list[_State], *, folds: bool, completes: bool) -> _State:
        kinds = [state.kind for state in states]
        if node.op == "concat" and set(kinds) <= {_Kind.WHOLE, _Kind.SUM, _Kind.JOINED} and set(kinds) != {_Kind.SUM}:
            plain = [v for v, kind in zip(step.operands, kinds, strict=True) if kind is _Kind.WHOLE]
            return _State(_Kind.JOINED) if not completes and all(self.has_piece(v) for v in plain) else _DEPENDENT
        if _Kind.JOINED in kinds:
            fine = node.op == "matmul" and folds and sorted(k.name for k in kinds) == ["JOINED", "WHOLE"]
            return _SUM if fine else _DEPENDENT
        if folds and completes:
            others = [v for v, kind in zip(step.operands, kinds, strict=True) if kind is _Kind.WHOLE]
            fine = node.op in _SUMS and kinds.count(_Kind.SUM) == 1 and not any(self.has_piece(v) for v in others)
            return _WHOLE if fine else _DEPENDENT
        return _SUM if not folds and self._is_linear(step, node, kinds, _Kind.SUM) else _DEPENDENT

    def _is_linear(self, step: Step, node: OpNode, kinds: list[_Kind], partial: _Kind) -> bool:
        """Return True when the result is a sum over parts wherever the partial operands are."""
        if node.op in _LINEAR or node.op in ("add", "sub"):
            return all(kind is partial for kind in kinds)
        others = [value for value, kind in zip(step.operands, kinds, strict=True) if kind is not partial]
        steady = all(self.state(value).kind is _Kind.WHOLE and not self.has_piece(value) for value in others)
        if node.op in ("mul", "matmul"):
            return kinds.count(partial) == 1 and steady
        return node.op == "div" and kinds[0] is partial and kinds[1] is _Kind.WHOLE and steady

    def _peak(self, node: OpNode, states: list[_State], *, folds: bool, completes: bool) -> _State:
        if any(state.kind is not _Kind.PEAK for state in states):
            return _DEPENDENT
        if folds:
            return _WHOLE if completes and node.op == "max" else _DEPENDENT
        return _PEAK if node.op in (*_MOVES, "max", "maximum") else _DEPENDENT

    def _running(self, step: Step, node: OpNode, states: list[_State], *, folds: bool) -> _State:
        """Return what becomes of values around a running maximum: exponentials less it are rescaled alike."""
        owners = {state.running for state in states if state.kind is not _Kind.WHOLE}
        if len(owners) != 1:
            return _DEPENDENT
        owner = owners.pop()
        kinds = [state.kind for state in states]
        if node.op == "exp" and kinds[0] in (_Kind.SHIFT, _Kind.BELOW):
            return _State(_Kind.FACTOR if kinds[0] is _Kind.SHIFT else _Kind.SHIFTED, owner)
        if node.op == "sub" and kinds == [_Kind.WHOLE, _Kind.RUNNING]:
            return _State(_Kind.BELOW, owner)
        if _Kind.SHIFTED in kinds and kinds.count(_Kind.WHOLE) == len(kinds) - 1:
            if folds:
                return _State(_Kind.SHIFTED_SUM, owner) if node.op in _SUMS else _DEPENDENT
            return _State(_Kind.SHIFTED, owner) if node.op in ("mul", *_MOVES) else _DEPENDENT
        if not folds and self._is_linear(step, node, kinds, _Kind.SHIFTED_SUM):
            return _State(_Kind.SHIFTED_SUM, owner)
        return _DEPENDENT

    def accumulates(self, step: Step) -> bool:
        """Return True when an accumulator adds up the parts of what it folds to the same whatever the cut."""
        node = step.node
        assert isinstance(node, Accumulator)
        state, folds = self.state(step.operands[0]), step.path in self.folding
        if node.rescale is not None:
            factor = self.state(step.operands[1])
            alike = factor.kind is _Kind.FACTOR and factor.running == state.running
            by_part = state.kind is _Kind.SHIFTED_SUM and node.kind is AccumulatorKind.RESCALE
            at_once = state.kind is _Kind.SHIFTED and node.kind is AccumulatorKind.RESCALE_SUM and folds
            return alike and (by_part or at_once)
        if state.kind is _Kind.WHOLE:
            return folds and node.kind in _FOLDING_KINDS
        if state.kind is _Kind.SUM:
            return node.kind in _SUM_KINDS
        return state.kind is _Kind.PEAK and node.kind in (AccumulatorKind.MAX, AccumulatorKind.MAX_DIM)
