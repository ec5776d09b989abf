"""What predefined kernel operators cost: one kernel each, that reads its operands and writes its results once.

Invariant: an operator whose primitives have no rule is an error, never free; a view of a tensor that lies dense is no kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.cost.hardware import Hardware
from workbench.cost.presets import Coefficients
from workbench.cost.rules import Shape, rule_of
from workbench.cost.time_model import PARTS
from workbench.domains.work import Work
from workbench.ops.spec import OpKind
from workbench.ugraph.nodes import OpNode


def is_view(node: OpNode, operands: Sequence[DeviceTensor]) -> bool:
    """Return True when an operator only renames what lies dense: no kernel runs."""
    return node.op == "constant" or (node.op == "reshape" and operands[0].is_row_major)


def library_counts(
    node: OpNode,
    operands: Sequence[tuple[DeviceTensor, bool]],
    results: Sequence[tuple[DeviceTensor, bool]],
    hardware: Hardware,
) -> dict[str, float]:
    """Return the counts of one predefined operator.

    operands: and whether an earlier kernel made each; results: and whether the program returns each.
    Raises: MissingRuleError.
    """
    spec = node.spec
    if spec.expand is None:
        rule_of(node.op)
    shapes = tuple(tensor.shape for tensor, _ in operands)
    work: Work = spec.work(shapes, node.attribute_map)
    found = {"library": 1.0, "unique_bytes": 0.0, "made_bytes": 0.0, "stored_bytes": 0.0, "handed_bytes": 0.0}
    for tensor, made in operands:
        found["made_bytes" if made else "unique_bytes"] += tensor.nbytes
    for tensor, last in results:
        found["stored_bytes" if last else "handed_bytes"] += tensor.nbytes
    is_product = spec.kind is OpKind.CONTRACTION
    flops = float(work.flops)
    if is_product:
        dtype = min((tensor.dtype for tensor, _ in operands), key=lambda kind: kind.nbytes)
        flops *= hardware.tensor_rate(DType.FLOAT16) / hardware.tensor_rate(dtype)
    found["tensor_flops"], found["lanes"] = (flops, 0.0) if is_product else (0.0, flops)
    if spec.expand is None and rule_of(node.op).shape is Shape.MOVE:
        found["lanes"] = float(work.elements_written)
    return found


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
    parts["launch"] = hardware.node_us
    parts["start"] = coefficients.start_us + (coefficients.cold_us if cold and unique else 0.0)
    return parts
