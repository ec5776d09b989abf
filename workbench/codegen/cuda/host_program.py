"""Run a whole emitted program on this computer's processor: its kernels through the host shim, products by NumPy.

Invariant: the kernels' text is the one the device gets, byte for byte; every buffer has exactly the size that the device
gives it, so that a stray access is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from workbench.codegen.cuda.emitted import EmittedProgram, KernelLaunch, LibraryMatmul
from workbench.codegen.cuda.host_run import DEFAULT_OPTIONS, HostOptions, run_on_host
from workbench.codegen.cuda.storage import Array, from_storage, laid_out, span, storage_dtype, to_storage
from workbench.errors import ShapeError


def run_program_on_host(
    program: EmittedProgram, inputs: Sequence[Array], options: HostOptions = DEFAULT_OPTIONS
) -> list[Array]:
    """Return the outputs of a program, in order, as stored (bf16 as uint16 bits), each of its tensor's shape.

    inputs: numbers, by position, of the input tensors' shapes; they are rounded to the tensors' types.
    Raises: ShapeError; what `run_on_host` raises for a kernel that does not build or misbehaves.
    """
    if len(inputs) != len(program.inputs):
        raise ShapeError(f"program {program.name} takes {len(program.inputs)} inputs, got {len(inputs)}")
    memory: dict[str, Array] = {}
    for name, given in zip(program.inputs, inputs, strict=True):
        tensor = program.buffer(name).tensor
        if tuple(given.shape) != tensor.shape:
            raise ShapeError(f"input {name} has shape {tuple(given.shape)}, the program takes {tensor.shape}")
        memory[name] = np.zeros(span(tensor), storage_dtype(tensor.dtype))
        laid_out(memory[name], tensor)[...] = to_storage(given, tensor.dtype)
    for step in program.steps:
        match step:
            case KernelLaunch():
                _launch(program, step, memory, options)
            case LibraryMatmul():
                _multiply(program, step, memory)
    return [laid_out(memory[name], program.buffer(name).tensor).copy() for name in program.outputs]


def _launch(program: EmittedProgram, step: KernelLaunch, memory: dict[str, Array], options: HostOptions) -> None:
    arguments, written = [], []
    for parameter, name in zip(step.kernel.parameters, step.arguments, strict=True):
        tensor = program.buffer(name).tensor
        if parameter.is_output:
            memory[name] = np.empty(span(tensor), storage_dtype(tensor.dtype))
            written.append(name)
        arguments.append(memory[name])
    run = run_on_host(step.kernel.source, step.kernel.launch, arguments, replace(options, keep=frozenset()))
    memory.update(zip(written, run.outputs, strict=True))


def _multiply(program: EmittedProgram, step: LibraryMatmul, memory: dict[str, Array]) -> None:
    left, right, result = (program.buffer(name).tensor for name in (step.left, step.right, step.result))
    values = [
        from_storage(laid_out(memory[name], tensor), tensor.dtype)
        for name, tensor in ((step.left, left), (step.right, right))
    ]
    memory[step.result] = np.zeros(span(result), storage_dtype(result.dtype))
    laid_out(memory[step.result], result)[...] = to_storage(values[0] @ values[1], result.dtype)
