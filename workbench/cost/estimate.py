"""How long a µGraph takes with given launch choices: counts of every kernel, turned to time by a preset.

Invariant: every kernel of the graph is priced, or the estimate is refused; nothing counts as zero for lack of a rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from workbench.core.tensors import DeviceTensor
from workbench.cost.breakdown import Cost, KernelCost
from workbench.cost.counts import as_numbers, count, dims_of
from workbench.cost.form import BlockForm, block_form
from workbench.cost.hardware import Hardware
from workbench.cost.launch import LaunchChoice, own_choice
from workbench.cost.library import is_view, library_counts, library_times
from workbench.cost.presets import Preset
from workbench.cost.presets import preset as named_preset
from workbench.cost.time_model import PARTS, kernel_times, occupancy, usable_multiprocessors
from workbench.errors import UsageError
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.expand import expand
from workbench.ugraph.inference import GRID_AXES
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, OpNode

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
) -> Cost:
    """Return the cost of a program, kernels one after the other.

    choices: one per graph-defined operator, each graph's own where not given; cold: inputs are not in the L2 cache.
    Raises: MissingRuleError for an operator without a cost, UsageError for another number of choices.
    """
    return price(features(graph, hardware, choices), hardware, preset, cold=cold)


def features(graph: KernelGraph, hardware: Hardware, choices: Sequence[LaunchChoice] | None = None) -> Features:
    """Return the counts of every kernel of a program. Raises: as `estimate`."""
    if choices is not None and len(choices) != len(graph.graph_defined):
        raise UsageError(
            f"{len(choices)} launch choices for {len(graph.graph_defined)} graph-defined operators; give one each"
        )
    made: set[str] = set()
    found: list[tuple[str, Number]] = []
    blocks = iter(node.block for node in expanded(graph).graph_defined)
    number = 0
    for node in graph.nodes:
        operands = [(graph.tensors[name], name in made) for name in node.operands]
        results = [(graph.tensors[tensor.name], tensor.name in graph.output_names) for tensor in node.results]
        if isinstance(node, OpNode):
            if not is_view(node, [tensor for tensor, _ in operands]):
                found.append((node.op, library_counts(node, operands, results, hardware)))
                made.update(tensor.name for tensor in node.results)
            elif node.operands and node.operands[0] in made:
                made.update(tensor.name for tensor in node.results)
            continue
        block = next(blocks)
        chosen = own_choice(node.block) if choices is None else choices[number]
        counts = _block_counts(block, node, operands, results, chosen, hardware)
        while choices is None and counts["shared_at_least"] > hardware.shared_bytes_per_block and chosen.stages > 2:
            chosen = replace(chosen, stages=chosen.stages - 1)  # as a backend does that is left to choose
            counts = _block_counts(block, node, operands, results, chosen, hardware)
        number += 1
        found.append((_name(node), counts))
        made.update(tensor.name for tensor in node.results)
    return Features(tuple(found))


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
) -> Number:
    form, values = concrete_form(block, _name(node), operands, results)
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
