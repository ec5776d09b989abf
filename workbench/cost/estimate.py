"""How long a µGraph takes with given launch choices: counts of every kernel, turned to time by a preset.

Invariant: every kernel of the graph is priced, or the estimate is refused; nothing counts as zero for lack of a rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.cost.breakdown import Cost, KernelCost
from workbench.cost.counts import as_numbers, count, dims_of
from workbench.cost.form import NO_ACCESSES, Accesses, BlockForm, block_form
from workbench.cost.hardware import Hardware
from workbench.cost.launch import LaunchChoice, own_choice
from workbench.cost.library import library_counts, library_times
from workbench.cost.presets import Preset
from workbench.cost.presets import preset as named_preset
from workbench.cost.time_model import PARTS, kernel_times, occupancy, usable_multiprocessors
from workbench.errors import UsageError
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.expand import expand
from workbench.ugraph.inference import GRID_AXES
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.kernel_units import Grouping, Unit, UnitKind
from workbench.ugraph.nodes import GraphDefinedNode, OpNode
from workbench.ugraph.rule_blocks import product_block, rows_block

Number = Mapping[str, float]


@dataclass(frozen=True)
class Features:
    """What a program does on a kind of GPU, without any coefficient: counts per kernel, by the names of `counts.COUNTED`."""

    kernels: tuple[tuple[str, Number], ...]

    def to_json(self) -> list[dict[str, object]]:
        """Return plain JSON data."""
        return [{"name": name, "counts": dict(counts)} for name, counts in self.kernels]

    @staticmethod
    def from_json(data: Sequence[Mapping[str, object]]) -> Features:
        """Return what `to_json` gave."""
        found = []
        for item in data:
            counts = item["counts"]
            assert isinstance(counts, Mapping)
            found.append((str(item["name"]), {str(name): float(value) for name, value in counts.items()}))
        return Features(tuple(found))


def estimate(
    graph: KernelGraph,
    *,
    hardware: Hardware,
    choices: Sequence[LaunchChoice] | None = None,
    preset: Preset | None = None,
    cold: bool = True,
    accesses: Sequence[Accesses] | None = None,
) -> Cost:
    """Return the cost of a program, kernels one after the other.

    choices: one per graph-defined operator, each graph's own where not given; cold: inputs are not in the L2 cache.
    accesses: per graph-defined operator, the tiles whose layouts make warps wait (`optimize.tile_accesses`); none unless
    given. Raises: MissingRuleError for an operator without a cost, UsageError for another number of choices.
    """
    return price(features(graph, hardware, choices, accesses), hardware, preset, cold=cold)


def features(
    graph: KernelGraph,
    hardware: Hardware,
    choices: Sequence[LaunchChoice] | None = None,
    accesses: Sequence[Accesses] | None = None,
) -> Features:
    """Return the counts of every kernel of a program. Raises: as `estimate`."""
    for what, given in (("launch choices", choices), ("mappings of accesses", accesses)):
        if given is not None and len(given) != len(graph.graph_defined):
            raise UsageError(
                f"{len(given)} {what} for {len(graph.graph_defined)} graph-defined operators; give one each"
            )
    return _Counter(graph, hardware, choices, accesses).run()


def predefined_features(graph: KernelGraph, hardware: Hardware) -> Features:
    """Return the counts of the kernels of predefined operators, which no schedule changes. Raises: as `estimate`."""
    return _Counter(graph, hardware, None, counts_launches=False).run()


class _Counter:
    """Counts the kernels of a program, as an emitter shares them among operators.

    counts_launches: whether graph-defined operators count too.
    """

    def __init__(
        self,
        graph: KernelGraph,
        hardware: Hardware,
        choices: Sequence[LaunchChoice] | None,
        accesses: Sequence[Accesses] | None = None,
        *,
        counts_launches: bool = True,
    ) -> None:
        self.graph, self.hardware, self.counts_launches = graph, hardware, counts_launches
        launches = graph.graph_defined
        inner = expanded(graph).graph_defined if counts_launches else launches
        self.blocks = dict(zip(launches, (node.block for node in inner), strict=True))
        self.choices = dict(zip(launches, choices, strict=True)) if choices is not None else {}
        self.accesses = dict(zip(launches, accesses, strict=True)) if accesses is not None else {}
        self.grouping = Grouping(graph)
        self.made: set[str] = set()
        self.counted: set[GraphDefinedNode] = set()
        self.found: list[tuple[str, Number]] = []

    def run(self) -> Features:
        """Return the counts of every kernel."""
        graph = self.graph
        grouping = self.grouping
        is_fused = len(graph.graph_defined) == len(graph.nodes)
        for unit in () if is_fused else grouping.run():
            first = unit.nodes[0]
            inputs, results = grouping.inputs(unit), grouping.results(unit)
            match unit.kind:
                case UnitKind.BLOCK:
                    assert isinstance(first, GraphDefinedNode)
                    self.launch(first)
                case UnitKind.PRODUCT:
                    assert isinstance(first, OpNode)
                    if takes_library(*(graph.tensors[name].dtype for name in (*first.operands, *results))):
                        self.flat(unit, inputs, results)
                    else:
                        self.by_rule(product_block(first, graph.tensors), unit)
                case UnitKind.ROWS:
                    self.by_rule(rows_block(unit, graph.tensors, inputs, results, grouping.constants), unit)
                case UnitKind.FLAT:
                    self.flat(unit, inputs, results)
        for node in graph.graph_defined:  # one that no output needs has its schedules all the same
            if node not in self.counted:
                self.launch(node)
        self.copies()
        return Features(tuple(self.found))

    def copies(self) -> None:
        """Count the copies of inputs that are outputs, and of outputs that are asked for again: each has its own memory."""
        tensors, inputs = self.graph.tensors, {tensor.name for tensor in self.graph.inputs}
        seen = set[str]()
        for name in self.graph.output_names:
            if name in inputs or name in seen:
                copy = replace(tensors[name], name=f"{name}_copy")
                node = OpNode("broadcast", (name,), (copy,), (("shape", copy.shape),))
                operands = [(tensors[name], name not in inputs)]
                self.found.append(("copy", library_counts([node], operands, [(copy, True)], tensors, self.hardware)))
            seen.add(name)

    def flat(self, unit: Unit, inputs: Sequence[str], results: Sequence[str]) -> None:
        """Count a kernel that is not made of tiles."""
        tensors, nodes = self.graph.tensors, unit.operators
        counts = library_counts(nodes, self.operands(inputs), self.results(results), tensors, self.hardware)
        self.found.append(("_".join([*(node.op for node in nodes[:3])]), counts))
        self.made.update(map(self.grouping.home, results))

    def by_rule(self, launch: GraphDefinedNode, unit: Unit) -> None:
        """Count a kernel of tiles that is made by rule for predefined operators."""
        inputs = tuple(self.graph.tensors[name] for name in dict.fromkeys(launch.operands))
        alone = KernelGraph(inputs, (launch,), tuple(tensor.name for tensor in launch.results), "kernel")
        inlined = expanded(alone).graph_defined[0].block
        choice = own_choice(launch.block)
        if choice.stages > 1:
            choice = replace(choice, stages=RULE_STAGES)
        self.count(inlined, launch, choice, "_".join(node.op for node in unit.operators[:3]))

    def launch(self, node: GraphDefinedNode) -> None:
        """Count a graph-defined operator under its choice, or as a backend does that is left to choose, if it counts."""
        self.counted.add(node)
        if not self.counts_launches:
            self.made.update(self.grouping.home(tensor.name) for tensor in node.results)
            return
        block, given = self.blocks[node], self.choices.get(node)
        chosen = own_choice(node.block) if given is None else given
        self.count(block, node, chosen, _name(node), is_free=given is None)

    def count(
        self, block: BlockGraph, node: GraphDefinedNode, choice: LaunchChoice, name: str, *, is_free: bool = True
    ) -> None:
        """Count a kernel; is_free: with fewer stages where they do not fit."""
        operands, results = self.operands(node.operands), self.results([tensor.name for tensor in node.results])
        accesses = self.accesses.get(node, NO_ACCESSES)
        counts = _block_counts(block, node, operands, results, choice, self.hardware, accesses)
        while is_free and counts["shared_at_least"] > self.hardware.shared_bytes_per_block and choice.stages > 2:
            choice = replace(choice, stages=choice.stages - 1)
            counts = _block_counts(block, node, operands, results, choice, self.hardware, accesses)
        self.found.append((name, counts))
        self.made.update(self.grouping.home(tensor.name) for tensor in node.results)

    def operands(self, names: Sequence[str]) -> list[tuple[DeviceTensor, bool]]:
        return [(self.graph.tensors[name], self.grouping.home(name) in self.made) for name in names]

    def results(self, names: Sequence[str]) -> list[tuple[DeviceTensor, bool]]:
        return [(self.graph.tensors[name], self.grouping.home(name) in self.graph.output_names) for name in names]


RULE_STAGES = 8
"""Stages of a product that is made by rule: as many as keep enough bytes on their way."""


def takes_library(left: DType, right: DType, result: DType) -> bool:
    """Return True for types that a vendor's library multiplies; others take a kernel of tiles."""
    return left is right and result in (left, DType.FLOAT32)


@lru_cache(maxsize=256)
def expanded(graph: KernelGraph) -> KernelGraph:
    """Return the graph whose block graphs hold primitives only."""
    return expand(graph)


def _name(node: GraphDefinedNode) -> str:
    return node.name or node.results[0].name


def _block_counts(
    block: BlockGraph,
    node: GraphDefinedNode,
    operands: Sequence[tuple[DeviceTensor, bool]],
    results: Sequence[tuple[DeviceTensor, bool]],
    choice: LaunchChoice,
    hardware: Hardware,
    accesses: Accesses,
) -> Number:
    form, values = concrete_form(block, _name(node), operands, results, accesses)
    launch = {
        "loop": float(block.forloop_range),
        "cluster": float(choice.cluster),
        "threads": float(choice.threads),
        "stages": float(choice.stages),
    }
    return as_numbers(count(form, values, hardware, launch))


def concrete_form(
    block: BlockGraph,
    name: str,
    operands: Sequence[tuple[DeviceTensor, bool]],
    results: Sequence[tuple[DeviceTensor, bool]],
    accesses: Accesses = NO_ACCESSES,
) -> tuple[BlockForm, dict[str, float]]:
    """Return the form of a block graph as it is, and the numbers its names stand for."""
    values: dict[str, float] = {f"grid.{axis}": float(c) for axis, c in zip(GRID_AXES, block.grid_dims, strict=True)}
    shapes = {name: tile.shape for name, tile in block.tiles.items()}
    shapes |= {f"@{tensor.name}": tensor.shape for tensor, _ in (*operands, *results)}
    for tensor, shape in shapes.items():
        values |= {f"{tensor}#{axis}": float(extent) for axis, extent in enumerate(shape)}
    form = block_form(
        block,
        name=name,
        tiles={tile: dims_of(tile, tensor.shape) for tile, tensor in block.tiles.items()},
        operands=[(tensor, dims_of(f"@{tensor.name}", tensor.shape), made) for tensor, made in operands],
        results=[(tensor, dims_of(f"@{tensor.name}", tensor.shape), last) for tensor, last in results],
        counts=tuple(f"grid.{axis}" for axis in GRID_AXES),
        accesses=accesses,
        cuts_of=lambda it: tuple(
            f"grid.{axis}" for axis, dim in zip(GRID_AXES, it.imap, strict=True) if dim is not None
        ),
    )
    return form, values


def price(found: Features, hardware: Hardware, chosen: Preset | None = None, *, cold: bool = True) -> Cost:
    """Return the cost of a program whose counts are known."""
    chosen = named_preset() if chosen is None else chosen
    kernels = []
    for name, counts in found.kernels:
        if "library" in counts:
            kernels.append(KernelCost(name, library_times(counts, hardware, chosen.coefficients, cold=cold), counts))
            continue
        arrays = {key: np.asarray(value) for key, value in counts.items()}
        times = kernel_times(arrays, hardware, chosen.coefficients, cold=cold)
        held = float(occupancy(arrays, hardware))
        places = max(held, 1.0) * float(usable_multiprocessors(arrays, hardware))
        facts = {**counts, "occupancy": held, "waves": float(-(-counts["blocks"] // places))}
        kernels.append(KernelCost(name, {part: float(times[part]) for part in PARTS}, facts))
    return Cost(tuple(kernels), hardware.name, chosen.name, cold)
