"""Emitting a graph-defined operator and running it on the host, against the float64 meaning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.codegen.cuda.emitted import KernelSource
from workbench.codegen.cuda.host_run import HostOptions, HostRun, run_on_host
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.schedule import DEFAULT_SCHEDULE, Schedule
from workbench.codegen.cuda.storage import from_storage, laid_out, span, storage_dtype, to_storage
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.interpret.floats import evaluate
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode

Array = npt.NDArray[Any]
TOLERANCES = {DType.FLOAT16: 2e-3, DType.BFLOAT16: 1e-2, DType.FLOAT32: 2e-6}


def stored(values: npt.ArrayLike, tensor: DeviceTensor) -> Array:
    """Numbers as the flat memory of a tensor, strides and all."""
    memory = np.zeros(span(tensor), storage_dtype(tensor.dtype))
    laid_out(memory, tensor)[...] = to_storage(values, tensor.dtype)
    return memory


def numbers_of(memory: Array, tensor: DeviceTensor) -> npt.NDArray[np.float64]:
    """The numbers of a tensor's flat memory."""
    return from_storage(laid_out(memory, tensor), tensor.dtype)


def hard_inputs(graph: KernelGraph, seed: int = 0, scale: float = 0.3) -> list[Array]:
    """Inputs whose rows and columns differ in scale, rounded to the tensors' types, so that no row can stand for another."""
    rng = np.random.default_rng(seed)
    made = []
    for tensor in graph.inputs:
        values = scale * rng.standard_normal(tensor.shape)
        for axis, extent in enumerate(tensor.shape):
            shape = [1] * len(tensor.shape)
            shape[axis] = extent
            values = values * np.exp(0.4 * rng.standard_normal(shape))
        made.append(numbers_of(stored(values, tensor), tensor))
    return made


def run_kernel(
    kernel: KernelSource, arrays: Sequence[Array], cache: Path | None = None, **options: Any
) -> tuple[list[Array], HostRun]:
    """Run a kernel on numbers for its inputs; return the outputs' numbers and what the run counted."""
    arguments = [stored(array, p.tensor) for p, array in zip(kernel.inputs, arrays, strict=True)]
    arguments += [np.zeros(span(p.tensor), storage_dtype(p.dtype)) for p in kernel.outputs]
    run = run_on_host(kernel.source, kernel.launch, arguments, HostOptions(cache_folder=cache, **options))
    return [numbers_of(memory, p.tensor) for memory, p in zip(run.outputs, kernel.outputs, strict=True)], run


def node_graph(graph: KernelGraph, node: GraphDefinedNode) -> KernelGraph:
    """The kernel graph of one graph-defined operator of a graph, its operands inputs."""
    inputs = tuple({name: graph.tensors[name] for name in node.operands}.values())
    return KernelGraph(inputs, (node,), tuple(tensor.name for tensor in node.results))


def relative_error(found: Array, right: Array) -> float:
    """Frobenius norm of the difference over that of the right values."""
    size = float(np.linalg.norm(right))
    difference = float(np.linalg.norm(found - right))
    return difference / size if size else difference


def check_graph(
    graph: KernelGraph, cache: Path, *, schedule: Schedule = DEFAULT_SCHEDULE, inputs: Sequence[Array] | None = None
) -> list[KernelSource]:
    """Emit and run each graph-defined operator of a graph on what the ones before gave; compare with float64.

    Predefined operators are evaluated. Returns the kernels. Raises: AssertionError with the output that is off.
    """
    given = list(inputs) if inputs is not None else hard_inputs(graph)
    values = dict(zip((tensor.name for tensor in graph.inputs), given, strict=True))
    right = evaluate(graph, given)
    kernels = []
    for node in graph.nodes:
        if isinstance(node, GraphDefinedNode):
            kernel = emit_block(node, schedule=schedule)
            kernels.append(kernel)
            outputs, _ = run_kernel(kernel, [values[name] for name in node.operands], cache)
        else:
            outputs = list(node.spec.on_float(tuple(values[name] for name in node.operands), node.attribute_map, 0))
        for tensor, output in zip(node.results, outputs, strict=True):
            assert isinstance(tensor, DeviceTensor)
            values[tensor.name] = numbers_of(stored(output, tensor), tensor)
    tolerance = max(TOLERANCES[tensor.dtype] for tensor in graph.tensors.values())
    for tensor, expected in zip(graph.outputs, right, strict=True):
        error = relative_error(values[tensor.name], expected)
        assert error < tolerance, f"output {tensor.name} is off by {error:.2e}, allowed {tolerance:.0e}"
    return kernels
