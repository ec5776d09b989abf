"""What kernels of predefined operators cost that are not made of tiles: library products, operators element by element.

Invariant: an operator whose primitives have no rule is an error, never free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod

from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.cost.hardware import Hardware
from workbench.cost.presets import Coefficients
from workbench.cost.rules import Shape, rule_of
from workbench.cost.time_model import PARTS
from workbench.domains.work import Work
from workbench.ops.spec import OpKind
from workbench.ugraph.nodes import OpNode

LIBRARY_TILE, LEAST_DEPTH = 64, 512
"""Rows and columns of a result, and depth, that one block of a library's product has at least, about."""


def library_counts(
    nodes: Sequence[OpNode],
    operands: Sequence[tuple[DeviceTensor, bool]],
    results: Sequence[tuple[DeviceTensor, bool]],
    shapes: Mapping[str, DeviceTensor],
    hardware: Hardware,
) -> dict[str, float]:
    """Return the counts of one kernel of predefined operators: a product of the library, or operators element by element.

    nodes: that share the kernel; operands: what it reads, and whether an earlier kernel made each; results: what it writes,
    and whether the program returns each; shapes: of all tensors. Raises: MissingRuleError.
    """
    found = {"library": 1.0, "unique_bytes": 0.0, "made_bytes": 0.0, "stored_bytes": 0.0, "handed_bytes": 0.0}
    found |= {"tensor_flops": 0.0, "lanes": 0.0, "products": 0.0, "tiles": 0.0}
    for tensor, made in operands:
        found["made_bytes" if made else "unique_bytes"] += tensor.nbytes
    for tensor, last in results:
        found["stored_bytes" if last else "handed_bytes"] += tensor.nbytes
    for node in nodes:
        _add_work(found, node, shapes, hardware)
    return found


def _add_work(found: dict[str, float], node: OpNode, tensors: Mapping[str, DeviceTensor], hardware: Hardware) -> None:
    spec = node.spec
    if spec.expand is None:
        rule_of(node.op)
    read = [tensors[name] for name in node.operands]
    work: Work = spec.work(tuple(tensor.shape for tensor in read), node.attribute_map)
    if spec.kind is OpKind.CONTRACTION:
        dtype = min((tensor.dtype for tensor in read), key=lambda kind: kind.nbytes)
        found["tensor_flops"] += float(work.flops) * hardware.tensor_rate(DType.FLOAT16) / hardware.tensor_rate(dtype)
        found["products"] += 1.0
        *batch, rows, columns = node.results[0].shape
        deep = max(read[0].shape[-1] // LEAST_DEPTH, 1)
        found["tiles"] += float(prod(batch) * ceil(rows / LIBRARY_TILE) * ceil(columns / LIBRARY_TILE) * deep)
        return
    is_move = spec.expand is None and rule_of(node.op).shape is Shape.MOVE
    found["lanes"] += float(work.elements_written if is_move else work.flops)


def library_times(
    counts: Mapping[str, float], hardware: Hardware, coefficients: Coefficients, *, cold: bool = True
) -> dict[str, float]:
    """Return the parts of a predefined operator's kernel in microseconds."""
    room = 0.8 * hardware.l2_bytes
    made, unique, handed = counts["made_bytes"], counts["unique_bytes"], counts["handed_bytes"]
    device = counts["stored_bytes"] + handed * (1.0 if handed > room else coefficients.store_weight)
    device += made * max(0.0, 1.0 - room / max(made, 1.0))
    device += unique if cold else unique * max(0.0, 1.0 - room / max(unique + made, 1.0))
    through = made + unique + handed + counts["stored_bytes"]
    rate = hardware.tensor_rate(DType.FLOAT16) * 1e6 * coefficients.library_efficiency
    if counts["products"]:
        rate *= min(1.0, counts["tiles"] / hardware.multiprocessors / counts["products"])
    lanes = hardware.multiprocessors * hardware.fp32_lanes * hardware.clock_ghz * 1e3
    busy = {
        "device memory": device / (hardware.bandwidth_tb_s * 1e6 * coefficients.library_efficiency),
        "L2": through / (hardware.l2_tb_s * 1e6),
        "tensor cores": counts["tensor_flops"] / rate,
        "fp32": counts["lanes"] * coefficients.lane_scale / lanes,
    }
    first = max(busy, key=lambda name: busy[name])
    parts = dict.fromkeys(PARTS, 0.0)
    hidden = coefficients.memory_overlap
    parts |= {name: us if name == first else (1.0 - hidden) * us for name, us in busy.items()}
    parts["launch"] = hardware.node_us + counts["products"] * coefficients.library_us
    parts["start"] = coefficients.start_us + (coefficients.cold_us if cold and unique else 0.0)
    return parts
