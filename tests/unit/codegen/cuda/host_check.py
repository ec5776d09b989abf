"""The check of a GPU, on the host: a case's program emitted, run through the host shim, compared with float64."""

from __future__ import annotations

from workbench.codegen.cuda.emitted import EmittedProgram, KernelLaunch, LibraryMatmul
from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.host_run import HostOptions
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.storage import from_storage, span
from workbench.device.check_inputs import InputKind, make_cases
from workbench.device.check_worker import CheckJob
from workbench.device.comparison import compare


def problems_on_host(
    job: CheckJob, *, kinds: tuple[InputKind, ...] = tuple(InputKind), options: HostOptions | None = None
) -> list[str]:
    """Return what is wrong with a job's program. Raises: EmitError, and what a misbehaving kernel raises."""
    program = job.program or emit_program(job.graph, schedules=job.schedules, library=job.library)
    found = buffer_problems(program)
    types = {tensor.dtype for tensor in (*job.graph.inputs, *job.graph.tensors.values())}
    tolerance = max(limit for dtype, limit in job.tolerances.items() if dtype in types)
    for case in make_cases(job.reference or job.graph, [job.graph], seed=job.seed, kinds=kinds):
        inputs = [
            from_storage(array, tensor.dtype) for array, tensor in zip(case.inputs, job.graph.inputs, strict=True)
        ]
        outputs = run_program_on_host(program, inputs, options or HostOptions())
        for name, output, expected in zip(program.outputs, outputs, case.expected, strict=True):
            dtype = program.buffer(name).tensor.dtype
            problem = compare(name, from_storage(output, dtype), expected, tolerance).problem
            found += [f"{case.name} inputs: {problem}"] if problem else []
    return found


def buffer_problems(program: EmittedProgram) -> list[str]:
    """Return where a program reads what is not there, or lets two living intermediates share memory."""
    found = []
    written = set(program.inputs)
    for number, step in enumerate(program.steps):
        if isinstance(step, LibraryMatmul):
            read, made = [step.left, step.right], [step.result]
        else:
            assert isinstance(step, KernelLaunch)
            pairs = list(zip(step.kernel.parameters, step.arguments, strict=True))
            read = [name for parameter, name in pairs if not parameter.is_output]
            made = [name for parameter, name in pairs if parameter.is_output]
            found += [
                f"{name} is {program.buffer(name).tensor}, {step.kernel.name} takes {parameter.tensor}"
                for parameter, name in pairs
                if (parameter.tensor.shape, parameter.tensor.dtype, parameter.tensor.strides)
                != (
                    program.buffer(name).tensor.shape,
                    program.buffer(name).tensor.dtype,
                    program.buffer(name).tensor.strides,
                )
            ]
        found += [f"step {number} reads {name} before it is written" for name in read if name not in written]
        for name in (*read, *made):
            buffer = program.buffer(name)
            if buffer.role == "intermediate" and not buffer.first <= number <= buffer.last:
                found.append(f"step {number} uses {name}, which lives from {buffer.first} to {buffer.last}")
        written.update(made)
    found += [f"output {name} is never written" for name in program.outputs if name not in written]
    placed = [buffer for buffer in program.buffers if buffer.role == "intermediate"]
    for position, one in enumerate(placed):
        assert one.offset is not None
        size = span(one.tensor) * one.tensor.dtype.nbytes
        if one.offset % 256 or one.offset + size > program.workspace_bytes:
            found.append(f"{one.name} lies at {one.offset} of {program.workspace_bytes} bytes")
        for other in placed[:position]:
            assert other.offset is not None
            other_size = span(other.tensor) * other.tensor.dtype.nbytes
            lives = one.first <= other.last and other.first <= one.last
            if lives and one.offset < other.offset + other_size and other.offset < one.offset + size:
                found.append(f"{one.name} and {other.name} share memory while both live")
    return found
