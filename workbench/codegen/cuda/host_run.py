"""Run a CUDA kernel on this computer's processor: what does the same source text compute, and where does it misbehave?

Invariant: a kernel that misbehaves ends its own process, never ours, and its error names thread, cause and line.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.codegen.cuda.host_build import HostProgram, Parameter, build_for_host, source_lines
from workbench.codegen.cuda.launch_shape import LaunchShape, check_attributes
from workbench.errors import HostRunError

Array = npt.NDArray[Any]
Argument = Array | np.generic | int | float | None
MAX_ARGUMENTS, MAX_SCALAR_BYTES = 64, 64
STACK_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """How a kernel is run on the host.

    seed: order of threads, warps and blocks. 0 ascending, 1 descending (each warp runs ahead as far as it can),
        others random.
    instrument: check every access of the kernel, not only those by intrinsics (about twice slower).
    races: look for accesses that no barrier orders.
    keep: indices of writable arguments whose contents the kernel reads; all others are filled with NaN bits first.
    timeout_s: then the run is ended and reported.
    flags: more compiler flags, such as -DROWS=16.
    portable_fibers: switch threads by ucontext, also where there is a faster way.
    cache_folder: where built programs are kept; None for the user's cache.
    """

    seed: int = 0
    instrument: bool = True
    races: bool = True
    keep: frozenset[int] = frozenset()
    timeout_s: float = 60.0
    compiler: str = "g++"
    flags: tuple[str, ...] = ()
    portable_fibers: bool = False
    cache_folder: Path | None = None


DEFAULT_OPTIONS = HostOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRun:
    """What a run gave: the arrays behind the kernel's non-const pointers, in order, and counts.

    ldmatrix_conflicts: shared-memory passes beyond one for each 8 x 8 matrix, summed; 0 when tiles are well swizzled.
    """

    outputs: tuple[Array, ...]
    elapsed_s: float
    compile_s: float
    switches: int
    blocks: int
    mma: int
    ldmatrix: int
    ldmatrix_conflicts: int


def pack_scalar(value: Argument, parameter: Parameter, where: str) -> bytes:
    """Return the bytes of a number as the kernel's parameter takes it."""
    if isinstance(value, np.generic) and parameter.kind == "b":
        packed = value.tobytes()
        if len(packed) != parameter.bytes:
            raise HostRunError(f"{where} has {len(packed)} bytes, the kernel takes {parameter.bytes}")
        return packed
    if value is None or isinstance(value, np.ndarray) or parameter.kind == "b":
        raise HostRunError(f"{where} is {type(value).__name__}; the kernel takes a number of {parameter.bytes} bytes")
    dtype = np.dtype(f"{parameter.kind}{parameter.bytes}")
    if dtype.kind != "f" and (isinstance(value, float | np.floating) or not _fits(int(value), dtype)):
        raise HostRunError(f"{where} is {value!r}, which is no {dtype} as the kernel takes")
    return np.asarray(value, dtype).tobytes()


def _fits(value: int, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return int(limits.min) <= value <= int(limits.max)


def pack_arguments(
    parameters: Sequence[Parameter], arguments: Sequence[Argument], kernel: str, keep: frozenset[int]
) -> tuple[list[str], list[bytes]]:
    """Return the lines of the job file and the bytes of the data file, one for each argument.

    Raises: HostRunError when number, kind or element size do not fit the kernel's parameters.
    """
    if len(arguments) != len(parameters) or len(arguments) > MAX_ARGUMENTS:
        raise HostRunError(
            f"{kernel} takes {len(parameters)} arguments (at most {MAX_ARGUMENTS}), got {len(arguments)}"
        )
    lines, data = [], []
    for index, (parameter, value) in enumerate(zip(parameters, arguments, strict=True)):
        where = f"{kernel}: argument {index}"
        if parameter.kind != "p":
            packed = pack_scalar(value, parameter, where)
            if len(packed) > MAX_SCALAR_BYTES:
                raise HostRunError(f"{where} has {len(packed)} bytes; at most {MAX_SCALAR_BYTES} by value")
            lines.append(f"s {len(packed)}")
        elif value is None:
            packed = b""
            lines.append("n 0")
        elif not isinstance(value, np.ndarray) or not value.flags.c_contiguous:
            raise HostRunError(f"{where} is a pointer; give a C-contiguous array, not {type(value).__name__}")
        elif parameter.pointee_bytes > 1 and parameter.pointee_bytes != value.itemsize:
            raise HostRunError(
                f"{where} points to {parameter.pointee_bytes}-byte elements; {value.dtype} has {value.itemsize} bytes"
            )
        else:
            is_output = not parameter.is_constant
            packed = b"\xff" * value.nbytes if is_output and index not in keep else value.tobytes()
            lines.append(f"{'w' if is_output else 'c'} {value.nbytes}")
        data.append(packed)
    return lines, data


def explain(text: str, program: HostProgram, source: str, kernel: str) -> HostRunError:
    """Turn the child's report into an error that names the line of the source."""
    match = re.search(r"WB_HOST_ERROR\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)", text)
    if match is None:
        return HostRunError(f"{kernel} on the host ended without a report: {text.strip()[:300] or 'no output'}")
    kind, place, thread, message = match.groups()
    addresses = list(dict.fromkeys(re.findall(r"@(0x[0-9a-f]+)", message)))
    own = [place] if re.fullmatch(r"0x[0-9a-f]+", place) else []
    found = dict(zip([*own, *addresses], source_lines(program.path, [*own, *addresses]), strict=True))
    for address in addresses:
        line = found[address]
        message = message.replace(f" @{address}", f" (line {line})" if line else "")
    message = message.replace(" @(nil)", "")
    line = found.get(place)
    rows = source.splitlines()
    quoted = f"; line {line}: {rows[line - 1].strip()[:160]}" if line and line <= len(rows) else ""
    who = f"{thread}: " if thread else ""
    return HostRunError(f"{kernel} on the host: {kind}: {who}{message}{quoted}", kind=kind, line=line)


def check_meeting_places(text: str, program: HostProgram, kernel: str) -> None:
    """Report barriers and collectives at which threads of one block met from different lines."""
    for row in text.splitlines():
        pair = row.split()
        lines = source_lines(program.path, pair)
        if None not in lines and lines[0] != lines[1]:
            raise HostRunError(
                f"{kernel} on the host: divergence: threads meet at one barrier or collective from line {lines[0]} and "
                f"line {lines[1]}; move it out of the branch",
                kind="divergence",
                line=lines[0],
            )


def run_on_host(
    source: str, launch: LaunchShape, arguments: Sequence[Argument], options: HostOptions = DEFAULT_OPTIONS
) -> HostRun:
    """Run `launch.kernel` of a CUDA source on the host and return what it wrote.

    source: the text for NVRTC (`kernel_source`). arguments: arrays for pointers (their element size must fit; f16 takes
    float16, bf16 takes uint16), None for a null pointer, numbers for scalars. Arrays behind pointers to const are
    inputs and cannot be written; all others are outputs, filled with NaN bits before the run and returned as copies.
    Raises: HostCompileError (no compiler, or its complaint); LaunchShapeError (the launch contradicts the source's
    attributes); HostRunError for arguments that do not fit and for a kernel that misbehaves: `kind` is one of "out of
    bounds", "misaligned", "write to input", "race", "copy in flight", "deadlock", "divergence", "barrier", "cluster",
    "stack overflow", "undefined", "arithmetic", "timeout".
    """
    check_attributes(source, launch)
    program = build_for_host(
        source,
        launch.kernel,
        instrument=options.instrument,
        compiler=options.compiler,
        cache_folder=options.cache_folder,
        flags=options.flags,
        portable_fibers=options.portable_fibers,
    )
    lines, data = pack_arguments(program.parameters, arguments, launch.kernel, options.keep)
    numbers = [*launch.grid, launch.threads, *launch.cluster, launch.shared_bytes, options.seed]
    head = " ".join(map(str, [*numbers, int(options.races), STACK_BYTES, len(lines)]))
    with tempfile.TemporaryDirectory() as scratch:
        job, inputs, outputs = (Path(scratch) / name for name in ("job", "inputs", "outputs"))
        job.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
        inputs.write_bytes(b"".join(data))
        command = [str(program.path), str(job), str(inputs), str(outputs)]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise HostRunError(
                f"{launch.kernel} on the host: timeout: not finished after {options.timeout_s} s; an endless loop, or "
                "too large a problem (try instrument=False)",
                kind="timeout",
            ) from None
        if result.returncode:
            raise explain(result.stderr or f"exit status {result.returncode}", program, source, launch.kernel)
        first, _, places = result.stdout.partition("\n")
        check_meeting_places(places, program, launch.kernel)
        written = outputs.read_bytes()
    arrays, offset = [], 0
    for parameter, value in zip(program.parameters, arguments, strict=True):
        if parameter.kind == "p" and not parameter.is_constant and isinstance(value, np.ndarray):
            flat = np.frombuffer(written, value.dtype, value.size, offset)
            arrays.append(flat.reshape(value.shape).copy())
            offset += value.nbytes
    elapsed, *counts = first.split()
    switches, blocks, mma, ldmatrix, conflicts = map(int, counts)
    return HostRun(
        outputs=tuple(arrays),
        elapsed_s=float(elapsed),
        compile_s=program.compile_s,
        switches=switches,
        blocks=blocks,
        mma=mma,
        ldmatrix=ldmatrix,
        ldmatrix_conflicts=conflicts,
    )
