"""The first test of every structure: one random point in a pair of finite fields, at small extents.

The extents are such that grid and loop end early where a structure allows it, else they are cut evenly. All graphs of a
search share inputs, so a tile that two of them have in common is computed once. Invariant: a structure passes only if
every output element agrees with the program's; what passes is not proved (`verify` gives a bound), what fails is wrong.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.core.tensors import DeviceTensor
from workbench.domains.field_pairs import field_pair
from workbench.domains.finite_field import FieldArithmetic, FieldValue, random_elements
from workbench.errors import FieldError, NotApplicableError, OutsideLaxError, WorkbenchError
from workbench.interpret.arrays import Tile
from workbench.interpret.field import FieldDomain, FieldPoint, evaluate_in_field
from workbench.interpret.walk import Observer
from workbench.ops.spec import Branch
from workbench.search.built_blocks import BuiltBlocks
from workbench.search.enumeration import Sketch
from workbench.search.problem import Problem
from workbench.search.schedules import follow_ties, small_extents, small_instance
from workbench.search.verdicts import Screening
from workbench.ugraph.axes import analyze_axes
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, GraphDefinedNode, InputIterator, OpNode
from workbench.ugraph.reinstantiate import joint_reduction, reinstantiate


@dataclass
class _Instance:
    """The program at small extents: inputs and outputs at one random point, and a domain that remembers."""

    extents: dict[str, int]
    program: KernelGraph
    inputs: list[FieldPoint]
    outputs: list[FieldPoint]
    domain: _Remembering
    blocks: BuiltBlocks


class Screen:
    """Screens the sketches of one problem. Attributes: problem, seed; instances: ragged first, then even."""

    def __init__(self, problem: Problem, *, seed: int = 0) -> None:
        """Evaluate the program once per instance."""
        self.problem, self.seed = problem, seed
        even = small_extents(problem)
        free = {name: extent for name, extent in even.items() if name not in problem.ties}
        ragged = follow_ties(problem, {name: extent - 1 if extent > 2 else extent for name, extent in free.items()})
        self.instances = [made for extents in (ragged, even) if (made := self._instance(extents)) is not None]

    def _instance(self, extents: dict[str, int]) -> _Instance | None:
        program = self.problem.program
        try:
            names = analyze_axes(program).axes  # without those that only the search knows, joined of several
            small = reinstantiate(program, {name: extent for name, extent in extents.items() if name in names})
        except WorkbenchError:
            return None
        rng = np.random.default_rng(self.seed)
        pair = field_pair("w31")
        arithmetic = FieldArithmetic(pair, pair.random_omega(rng))
        domain = _Remembering(arithmetic, seed=self.seed)
        piecewise = any(isinstance(node, OpNode) and isinstance(node.spec.field, Branch) for node in program.nodes)
        inputs = []
        for tensor in small.inputs:
            real = rng.uniform(0.5, 1.5, tensor.shape) if piecewise else None
            inputs.append(FieldPoint(random_elements(rng, tensor.shape, pair), real))
        try:
            return _Instance(extents, small, inputs, evaluate_in_field(small, inputs, domain), domain, BuiltBlocks())
        except (OutsideLaxError, FieldError):
            return None

    def screen(self, sketch: Sketch) -> Screening:
        """Return whether a sketch agrees with the program at the instances' points."""
        if not self.instances:
            return Screening("unknown", "the program has no small instance that has a meaning in a finite field")
        why = ""
        for instance in self.instances:
            try:
                candidate = small_instance(sketch, instance.extents, instance.blocks)
            except NotApplicableError as fault:
                why = str(fault)
                continue
            shapes = (tuple(tensor.shape for tensor in candidate.inputs),)
            try:
                outputs = evaluate_in_field(candidate, instance.inputs, instance.domain)
            except (OutsideLaxError, FieldError) as fault:
                return Screening("unknown", f"no meaning in a finite field: {fault}", 1, shapes)
            fault_at = _difference(instance, outputs)
            if fault_at:
                return Screening("different", fault_at, 1, shapes)
            return Screening("equal", "agrees with the program at a random point of a field pair", 1, shapes)
        return Screening("unknown", f"no small instance can be built: {why}")

    def screen_graph(self, candidate: KernelGraph) -> Screening:
        """Return whether a finished graph agrees with the program, at a small instance of both."""
        rng = np.random.default_rng(self.seed)
        try:
            program, small = joint_reduction(self.problem.program, candidate, rng)
        except NotApplicableError as fault:
            return Screening("unknown", f"no small instance: {fault}")
        pair = field_pair("w31")
        domain = FieldDomain(FieldArithmetic(pair, pair.random_omega(rng)), seed=self.seed)
        inputs = [
            FieldPoint(random_elements(rng, tensor.shape, pair), rng.uniform(0.5, 1.5, tensor.shape))
            for tensor in program.inputs
        ]
        try:
            left, right = (evaluate_in_field(graph, inputs, domain) for graph in (program, small))
        except (OutsideLaxError, FieldError) as fault:
            return Screening("unknown", f"no meaning in a finite field: {fault}")
        shapes = (tuple(tensor.shape for tensor in program.inputs),)
        for number, (one, two) in enumerate(zip(left, right, strict=True)):
            if one.residues.shape != two.residues.shape or domain.arithmetic.differs(one.residues, two.residues).any():
                return Screening("different", f"output {number} differs at a random point", 1, shapes)
        return Screening("equal", "agrees at a random point", 1, shapes)


def _difference(instance: _Instance, outputs: Sequence[FieldPoint]) -> str:
    for number, (expected, found) in enumerate(zip(instance.outputs, outputs, strict=True)):
        left, right = expected.residues, found.residues
        if left.shape != right.shape:
            return f"output {number} has shape {right.shape} instead of {left.shape}"
        wrong = instance.domain.arithmetic.differs(left, right)
        if wrong.any():
            return f"output {number} differs in {int(wrong.sum())} of {wrong.size} elements at a random point"
    return ""


@dataclass
class _Known:
    """What was computed, by what it was computed from; the values are kept alive, so that their identities last."""

    results: dict[Hashable, tuple[object, ...]] = field(default_factory=dict)
    contents: dict[Hashable, FieldPoint] = field(default_factory=dict)


class _Remembering(FieldDomain):
    """A field domain that computes the same operator on the same values once."""

    def __init__(self, arithmetic: FieldArithmetic, *, seed: int) -> None:
        super().__init__(arithmetic, seed=seed)
        self._known = _Known()

    def load(self, node: InputIterator, value: FieldPoint, tensor: DeviceTensor, block: BlockGraph) -> Tile[FieldPoint]:
        """Return the tiles an input iterator brings."""
        counts = tuple(n if d is not None else 1 for n, d in zip(block.grid_dims, node.imap, strict=True))
        loop = block.forloop_range if node.fmap is not None else 1
        key = ("load", id(value), node.imap, node.fmap, counts, loop)
        if key not in self._known.results:
            self._known.results[key] = (super().load(node, value, tensor, block), value)
        tile = self._known.results[key][0]
        assert isinstance(tile, Tile)
        return tile

    def tile_operator(self, node: OpNode, operands: tuple[Tile[FieldPoint], ...]) -> tuple[Tile[FieldPoint], ...]:
        """Return the results of an operator on tiles."""
        key = ("tile", node.op, node.attributes, *map(id, operands))
        if key not in self._known.results:
            self._known.results[key] = (super().tile_operator(node, operands), operands)
        tiles = self._known.results[key][0]
        assert isinstance(tiles, tuple)
        return tiles

    def accumulate(
        self, node: Accumulator, operand: Tile[FieldPoint], rescale: Tile[FieldPoint] | None, block: BlockGraph
    ) -> Tile[FieldPoint]:
        """Return what an accumulator leaves."""
        key = ("accumulate", node.kind, node.columns, node.eps, id(operand), id(rescale), block.forloop_range)
        if key not in self._known.results:
            self._known.results[key] = (super().accumulate(node, operand, rescale, block), operand, rescale)
        tile = self._known.results[key][0]
        assert isinstance(tile, Tile)
        return tile

    def operator(self, node: OpNode, operands: tuple[FieldPoint, ...]) -> tuple[FieldPoint, ...]:
        """Return the results of a predefined kernel operator."""
        key = ("kernel", node.op, node.attributes, *map(id, operands))
        if key not in self._known.results:
            self._known.results[key] = (super().operator(node, operands), operands)
        results = self._known.results[key][0]
        assert isinstance(results, tuple)
        return results

    def launch(
        self, node: GraphDefinedNode, operands: tuple[FieldPoint, ...], observe: Observer | None
    ) -> tuple[FieldPoint, ...]:
        """Return the results of a block graph, equal ones as one object; a block graph that graphs share runs once."""
        key = ("launch", id(node.block), *map(id, operands))
        if key not in self._known.results:
            results = tuple(map(self._one, super().launch(node, operands, observe)))
            self._known.results[key] = (results, node.block, operands)
        found = self._known.results[key][0]
        assert isinstance(found, tuple)
        return found

    def _one(self, point: FieldPoint) -> FieldPoint:
        residues: FieldValue = point.residues
        sides = [np.asarray(side).tobytes() for side in (residues.p, residues.q) if side is not None]
        return self._known.contents.setdefault((residues.shape, *sides), point)
