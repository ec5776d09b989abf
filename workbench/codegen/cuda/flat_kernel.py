"""Elementwise chains and movement as one kernel without blocks of tiles: threads of the whole grid share the elements.

Invariant: every element of a result is computed from elements of the inputs alone, so blocks need not meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from workbench.codegen.cuda.c_names import CNames
from workbench.codegen.cuda.emitted import KernelParameter, KernelSource
from workbench.codegen.cuda.kernel import KernelWriter, settled_fast_math
from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.lowering import LoweredBlock, Lowering
from workbench.codegen.cuda.plan import make_plan
from workbench.codegen.cuda.plan_notes import plan_notes
from workbench.codegen.cuda.schedule import Schedule
from workbench.codegen.cuda.shared_memory import allocate, derive_barriers
from workbench.codegen.cuda.tile_values import Loaded, Saved, TileValue
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import EmitError
from workbench.ugraph.inference import Place
from workbench.ugraph.kernel_units import Unit
from workbench.ugraph.nodes import OpNode

THREADS = 256
PER_THREAD = 8
"""Elements of one thread, about: a 16-byte access of a 16-bit type."""


def flat_kernel(
    unit: Unit,
    tensors: Mapping[str, DeviceTensor],
    inputs: Sequence[str],
    results: Sequence[str],
    constants: Mapping[str, OpNode],
    name: str,
    schedule: Schedule,
) -> KernelSource:
    """Return a flat unit as a kernel. Raises: EmitError for float64."""
    return flat_source(
        unit.operators, [tensors[n] for n in inputs], [tensors[n] for n in results], constants, name, schedule
    )


def flat_source(
    nodes: Sequence[OpNode],
    inputs: Sequence[DeviceTensor],
    results: Sequence[DeviceTensor],
    constants: Mapping[str, OpNode],
    name: str,
    schedule: Schedule,
) -> KernelSource:
    """Return the kernel that computes results, by name, from inputs through these operators."""
    for tensor in (*inputs, *results):
        if tensor.dtype is DType.FLOAT64:
            raise EmitError("float64 is not claimed", tensor.name, "use float32, or a 16-bit type")
    names = CNames()
    kernel_name = names.claim(name)
    parameters = tuple(
        KernelParameter(name=names.claim(tensor.name), tensor=tensor, is_output=is_output)
        for group, is_output in ((inputs, False), (results, True))
        for tensor in group
    )
    low = Lowering(names)
    values: dict[str, TileValue] = {
        tensor.name: Loaded(
            name=names.claim(tensor.name.lower()), label=tensor.name, shape=tensor.shape, ragged=(None,) * len(tensor.shape),
            dtype=tensor.dtype, place=Place.INVARIANT, parameter=number, tensor=tensor, imap=(None, None, None), fmap=None,
        )
        for number, tensor in enumerate(inputs)
    }  # fmt: skip
    for node in nodes:
        for operand in node.operands:
            if operand not in values:
                (values[operand],) = low.operator(
                    "constant", [], constants[operand].attribute_map, constants[operand].results
                )
        made = low.operator(node.op, [values[operand] for operand in node.operands], node.attribute_map, node.results)
        values.update(zip((tensor.name for tensor in node.results), made, strict=True))
    saved = tuple(Saved(values[tensor.name], (None, None, None), tensor) for tensor in results)
    elements = max(prod(tensor.shape) for tensor in results)
    blocks = max(1, min(-(-elements // (THREADS * PER_THREAD)), 65535))
    lowered = LoweredBlock(saved=saved, grid=(1, 1, 1), iterations=1, parameters=tuple(inputs))
    plan = make_plan(lowered, schedule, names, THREADS, 1, spread=blocks)
    allocate(plan)
    derive_barriers(plan)
    fast = settled_fast_math(schedule, parameters)
    body = KernelWriter(plan, kernel_name, parameters, fast).body()
    launch = LaunchShape(kernel=kernel_name, grid=(blocks, 1, 1), threads=THREADS, shared_bytes=plan.shared_bytes)
    settled = Schedule(
        threads=THREADS, cluster=1, fast_math=fast, programmatic=bool(schedule.programmatic), releases=schedule.releases
    )  # fmt: skip
    return KernelSource(
        name=kernel_name, body=body, launch=launch, parameters=parameters, schedule=settled,
        notes=tuple(plan_notes(plan)), products=0,
    )  # fmt: skip
