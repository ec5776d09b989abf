"""Which programs are studied, and how one is asked for: by name, style, data type and sizes.

Invariant: whatever is wrong with a request is said in one line with the nearest right one; nothing is guessed.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Mapping, Sequence

from workbench.core.dtypes import DType, as_dtype
from workbench.core.shapes import Shape
from workbench.errors import ShapeError, UnknownNameError, UsageError
from workbench.programs import attention
from workbench.programs.gated_mlp import GATED_MLP, GATED_MLP_DOWN
from workbench.programs.lora import LORA
from workbench.programs.moe_expert import MOE_EXPERT
from workbench.programs.ntrans import NTRANS
from workbench.programs.record import Instance, Parameter, Program, Style
from workbench.programs.rms_norm_linear import RMS_NORM_LINEAR
from workbench.programs.softmax import SOFTMAX
from workbench.ugraph.kernel_graph import KernelGraph

_PROGRAMS = {
    program.name: program
    for program in (
        RMS_NORM_LINEAR,
        GATED_MLP,
        GATED_MLP_DOWN,
        LORA,
        attention.GQA,
        attention.MHA,
        attention.MQA,
        attention.GQA_DECODE,
        attention.QK_NORM_ATTENTION,
        NTRANS,
        SOFTMAX,
        attention.ATTENTION_SAFE,
        MOE_EXPERT,
    )
}


def names() -> list[str]:
    """Return the names of all programs, sorted."""
    return sorted(_PROGRAMS)


def program(name: str) -> Program:
    """Return the record of a program. Raises: UnknownNameError with the nearest names."""
    if name in _PROGRAMS:
        return _PROGRAMS[name]
    raise UnknownNameError(f"unknown program {name!r}; {_nearest(name, names())}")


def parameters(name: str) -> tuple[Parameter, ...]:
    """Return the sizes of a program with their defaults. Raises: UnknownNameError."""
    return program(name).parameters


def get(name: str, style: Style | str = "standard", dtype: DType | str = DType.FLOAT16, **sizes: int) -> KernelGraph:
    """Return a program as a kernel graph of predefined operators.

    style: "standard", or "mirage" for Mirage's own formula; sizes: see `parameters`.
    Raises: UnknownNameError, UsageError, ShapeError, DTypeError.
    """
    return instance(name, style, dtype, sizes).build()


def known_good(
    name: str, style: Style | str = "standard", dtype: DType | str = DType.FLOAT16, **sizes: int
) -> list[KernelGraph]:
    """Return the µGraphs the literature knows for a program at these sizes, written by hand, best first.

    Their grids, loops and splits follow simple rules from the sizes; every block fits 227 KB of shared memory.
    Raises: UnknownNameError, UsageError, ShapeError, DTypeError; MemoryLimitError when no tile is small enough.
    """
    settled = instance(name, style, dtype, sizes)
    return settled.program.known_good(settled)


def instance(name: str, style: Style | str, dtype: DType | str, sizes: Mapping[str, int]) -> Instance:
    """Return a program with everything settled, sizes not given at their defaults. Raises: as `get`."""
    record = program(name)
    settled = record.defaults
    for size, extent in sizes.items():
        if size not in settled:
            raise UnknownNameError(f"program {name} has no size {size!r}; {_nearest(size, list(settled))}")
        settled[size] = _extent(name, size, extent)
    return Instance(record, settled, _style(style), as_dtype(dtype))


def infer_sizes(name: str, shapes: Sequence[Shape]) -> tuple[Style, dict[str, int]]:
    """Return style and sizes at which a program has inputs of these shapes, in order; the standard style if both fit.

    Where a dimension is batch * heads, heads keeps its default if that divides it, else batch is 1.
    Raises: UnknownNameError; ShapeError when the program has no such inputs at any sizes.
    """
    record = program(name)
    for style in Style:
        declared = list(record.dimensions(style).values())
        sizes = _solve(declared, shapes, record.defaults)
        if sizes is not None:
            return style, sizes
    wanted = ", ".join(f"{tensor}[{', '.join(dims)}]" for tensor, dims in record.inputs.items())
    raise ShapeError(f"inputs of shapes {', '.join(map(str, shapes))} do not fit program {name}, which reads {wanted}")


def describe(name: str) -> str:
    """Return what a program computes, its inputs, sizes and source, as text. Raises: UnknownNameError."""
    record = program(name)
    lines = [f"{record.name}: {record.summary}"]
    if record.equations[Style.STANDARD] == record.equations[Style.MIRAGE]:
        lines.append(f"  formula  {record.equations[Style.STANDARD]}")
    else:
        lines += [f"  {style.value:8} {equation}" for style, equation in record.equations.items()]
    lines.append("  inputs   " + _inputs_line(record.inputs))
    if record.mirage_inputs is not None:
        lines.append("  inputs of style mirage  " + _inputs_line(record.mirage_inputs))
    lines += [f"  {size.name} = {size.default}: {size.help}" for size in record.parameters]
    lines.append(f"  source   {record.source}")
    return "\n".join(lines)


def _inputs_line(inputs: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(f"{tensor}[{', '.join(dims)}]" for tensor, dims in inputs.items())


def _style(style: Style | str) -> Style:
    try:
        return Style(style)
    except ValueError as error:
        known = " or ".join(repr(member.value) for member in Style)
        raise UsageError(f"unknown style {style!r}; use {known}") from error


def _extent(name: str, size: str, extent: object) -> int:
    if isinstance(extent, bool):
        raise ShapeError(f"program {name}: size {size} = {extent!r} is a truth value; give a positive integer")
    try:
        value = operator.index(extent)  # type: ignore[arg-type]
    except TypeError as error:
        raise ShapeError(f"program {name}: size {size} = {extent!r} is not an integer; give a positive one") from error
    if value < 1:
        raise ShapeError(f"program {name}: size {size} = {value} must be at least 1")
    return value


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"


def _solve(
    declared: Iterable[tuple[str, ...]], shapes: Sequence[Shape], defaults: Mapping[str, int]
) -> dict[str, int] | None:
    """Return the sizes that make declared dimensions equal to shapes, None when there are none."""
    declared = list(declared)
    if [len(dims) for dims in declared] != [len(shape) for shape in shapes]:
        return None
    extents: dict[str, int] = {}
    for dims, shape in zip(declared, shapes, strict=True):
        for dim, extent in zip(dims, shape, strict=True):
            if extents.setdefault(dim, extent) != extent:
                return None
    sizes: dict[str, int] = {}
    for dim, extent in extents.items():
        outer, _, inner = dim.rpartition("*")
        if outer:
            sizes[inner] = defaults[inner] if extent % defaults[inner] == 0 else extent
            sizes[outer] = extent // sizes[inner]
        else:
            sizes[dim] = extent
    return sizes
