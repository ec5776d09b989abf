"""What no schedule of a structure can undercut under the cost model, known before any is enumerated.

Invariant: the bound is at most the cost of every row of the structure's schedule space.
"""

from __future__ import annotations

from workbench.cost.estimate import predefined_features, price
from workbench.cost.hardware import Hardware
from workbench.cost.presets import Preset
from workbench.cost.presets import preset as named_preset
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import InputIterator

ROUNDING = 1e-9
"""Share by which the bound is lowered, as its terms are added in another order than those of a cost."""


def structure_bound(
    graph: KernelGraph, hardware: Hardware, preset: Preset | None = None, *, cold: bool = True
) -> float:
    """Return microseconds that a structure takes under every schedule.

    Predefined kernels cost what they cost; a graph-defined one a launch, a start, and the program's inputs and outputs
    that it reads and writes, once each. Raises: MissingRuleError for an operator without a cost.
    """
    chosen = named_preset() if preset is None else preset
    total = predefined_us(graph, hardware, chosen, cold=cold)
    rate = hardware.bandwidth_tb_s * 1e6 * chosen.coefficients.memory_efficiency
    inputs = {tensor.name for tensor in graph.inputs}
    for node in graph.graph_defined:
        read = {name for name in _loaded(node.block, node.operands) if name in inputs} if cold else set[str]()
        moved = sum(graph.tensors[name].nbytes for name in read)
        moved += sum(tensor.nbytes for tensor in node.results if tensor.name in graph.output_names)
        total += hardware.node_us + chosen.coefficients.start_us + moved / rate
    return total * (1.0 - ROUNDING)


def predefined_us(graph: KernelGraph, hardware: Hardware, preset: Preset, *, cold: bool) -> float:
    """Return the microseconds of predefined kernels, which no schedule changes. Raises: as `structure_bound`."""
    return sum(
        kernel.total_us for kernel in price(predefined_features(graph, hardware), hardware, preset, cold=cold).kernels
    )


def _loaded(block: BlockGraph, operands: tuple[str, ...]) -> set[str]:
    """Return the kernel tensors of which a tile reaches a result."""
    needed = {saver.operand for saver in block.savers}
    loaded = set[str]()
    for node in reversed(block.nodes):
        if any(tensor.name in needed for tensor in node.results):
            needed.update(node.operands)
            if isinstance(node, InputIterator):
                loaded.add(operands[node.operand])
    return loaded
