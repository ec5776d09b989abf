"""How much shared memory a block needs at least, before any plan is made.

Invariant: no plan of the same block graph with the same stages takes less; a schedule that this refuses cannot be written.
"""

from __future__ import annotations

from workbench.core.tensors import DeviceTensor
from workbench.cost.counts import count
from workbench.cost.estimate import concrete_form
from workbench.cost.hardware import hardware
from workbench.errors import UsageError
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.expand import expand
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode
from workbench.units import Bytes


def shared_bytes_at_least(block: BlockGraph, *, stages: int) -> Bytes:
    """Return the shared memory that one block needs whatever the plan, in bytes.

    Tiles that are loaded in a loop stand there `stages` times (not more than there are iterations, two where there is a
    loop), tiles that a product reads once; what is computed may stay in registers or lie where something else lay.
    Raises: UsageError for fewer than one stage.
    """
    if stages < 1:
        raise UsageError(f"{stages} stages; give at least 1")
    results = tuple(DeviceTensor(f"result {number}", shape) for number, shape in enumerate(block.result_shapes))
    names = [f"operand {number}" for number in range(len(block.operands))]
    inputs = tuple(
        DeviceTensor(name, tensor.shape, tensor.dtype, tensor.strides)
        for name, tensor in zip(names, block.operands, strict=True)
    )
    node = GraphDefinedNode(block, tuple(names), results)
    plain = expand(KernelGraph(inputs, (node,), tuple(tensor.name for tensor in results)))
    inner = plain.graph_defined[0].block
    form, values = concrete_form(inner, "block", [(t, False) for t in inputs], [(t, True) for t in results])
    cluster = float(block.cluster_dims[0] * block.cluster_dims[1] * block.cluster_dims[2])
    launch = {"loop": float(block.forloop_range), "cluster": cluster, "threads": 128.0, "stages": float(stages)}
    return Bytes(int(count(form, values, hardware("h200"), launch)["shared_at_least"]))
