"""From Python functions to kernel graphs: `trace` with a shape per argument, `program` with named axes.

Invariant: the function is called once, on values that record; what it computes on numbers alone becomes a constant.
"""

from __future__ import annotations
import __future__

import ast
import difflib
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import update_wrapper
from typing import SupportsIndex, overload

from workbench.core.dtypes import DType, as_dtype
from workbench.core.layouts import Strides
from workbench.core.shapes import Shape, as_shape
from workbench.core.tensors import DeviceTensor
from workbench.errors import ShapeError, UsageError
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import Value

Argument = DeviceTensor | Sequence[int] | tuple[Sequence[int], DType | str] | tuple[Sequence[int], DType | str, Strides]
_RESERVED = ("dtype",)


def trace(fn: Callable[..., object], /, *, dtype: DType | str = DType.FLOAT16, **shapes: Argument) -> KernelGraph:
    """Return the kernel graph of what a function computes; inputs are in the order of the function's parameters.

    shapes: per argument a shape `(16, 4096)`, `(shape, dtype)`, `(shape, dtype, strides)` or a DeviceTensor (whose name
    is not used); dtype: of arguments given as a shape alone. Parameters with a default may be left out: they keep it.
    The function returns a value, or a tuple of values (outputs in that order); a number becomes a constant output.

        wb.trace(lambda X, Y: wb.exp(X) @ Y, X=(4, 8), Y=(8, 16), dtype="float32")

    Raises: UsageError for arguments or results that do not fit, ShapeError, DTypeError, and what operators raise.
    """
    if not callable(fn):
        raise UsageError(f"trace needs a function, got {type(fn).__name__}")
    parameters = _parameters(fn)
    label = "" if getattr(fn, "__name__", "<lambda>") == "<lambda>" else str(getattr(fn, "__name__", ""))
    _check_names("argument", label or "the traced function", shapes, parameters)
    missing = [name for name, has_default in parameters.items() if name not in shapes and not has_default]
    if missing:
        raise UsageError(
            f"{label or 'the traced function'}: no shape for {', '.join(missing)}; give one per argument, {missing[0]}=(16, 64)"
        )
    kernel = KernelBuilder(label)
    values: dict[str, object] = {}
    for name in parameters:
        if name in shapes:
            shape, kind, strides = _argument(name, shapes[name], dtype)
            values[name] = kernel.input(name, shape, kind, strides)
    return _traced(kernel, label or "the traced function", fn(**values))


def _traced(kernel: KernelBuilder, label: str, result: object) -> KernelGraph:
    results = result if isinstance(result, tuple | list) else (result,)
    if not results:
        raise UsageError(f"{label} returned an empty {type(result).__name__}; return at least one tensor")
    for number, value in enumerate(results):
        where = f"{label}: result {number}" if len(results) > 1 else f"the result of {label}"
        if value is None:
            raise UsageError(f"{where} is None; return the tensors it computes")
        if isinstance(value, bool) or not isinstance(value, Value | int | float | Fraction):
            raise UsageError(f"{where} is a {type(value).__name__}; return a traced tensor, or a tuple of them")
        kernel.output(kernel.value(value))
    return kernel.build()


def _parameters(fn: Callable[..., object]) -> dict[str, bool]:
    """Return the names of a function's parameters in order, and whether each has a default."""
    found: dict[str, bool] = {}
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UsageError(
                f"parameter {parameter} cannot be given by name; write every tensor as an ordinary parameter of the function"
            )
        if parameter.name in _RESERVED:
            raise UsageError(f"parameter {parameter.name!r} has the name of an option; rename it")
        found[parameter.name] = parameter.default is not parameter.empty
    return found


def _check_names(kind: str, where: str, given: Mapping[str, object], known: Mapping[str, object]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has: {', '.join(known) or 'none'}"
            raise UsageError(f"{where} has no {kind} {name!r}; {hint}")


def _argument(name: str, given: Argument, dtype: DType | str) -> tuple[Shape, DType, Strides | None]:
    """Return shape, type and strides (None: row-major) of an argument. Raises: UsageError, ShapeError, DTypeError."""
    if isinstance(given, DeviceTensor):
        return given.shape, given.dtype, given.strides
    if isinstance(given, str | int | float) or not isinstance(given, Sequence):
        raise UsageError(f"argument {name}: {given!r} is no shape; give a tuple such as (16, 4096)")
    if given and isinstance(given[0], Sequence):
        if len(given) not in (2, 3) or not isinstance(given[1], DType | str):
            raise UsageError(f"argument {name}: give (shape, dtype) or (shape, dtype, strides), got {given!r}")
        strides = given[2] if len(given) == 3 else None
        if strides is not None and not isinstance(strides, Sequence):
            raise UsageError(f"argument {name}: strides {strides!r} must be a tuple of one integer per axis")
        return _shape(name, given[0]), as_dtype(given[1]), None if strides is None else tuple(strides)
    return _shape(name, given), as_dtype(dtype), None


def _shape(name: str, extents: Sequence[object]) -> Shape:
    found = []
    for extent in extents:
        if isinstance(extent, bool) or not isinstance(extent, SupportsIndex):
            raise ShapeError(f"argument {name}: extent {extent!r} of {tuple(extents)} is no integer")
        found.append(operator.index(extent))
    return as_shape(found, where=f"argument {name}")


# ------------------------------------------------------------------------------------------------------------ programs
class TracedProgram:
    """A function over tensors with named axes; call it with sizes to get the kernel graph, with tensors to use it inline.

    Attributes: name; axes: the names of the axes, in order of appearance; signature: per tensor its axes (a number is a
    fixed extent); options: parameters with a default (numbers such as eps), which a call may set by name.
    """

    def __init__(self, fn: Callable[..., object]) -> None:
        self._fn = fn
        self.name = str(getattr(fn, "__name__", "program"))
        self.signature: dict[str, tuple[str | int, ...]] = {}
        self.options: dict[str, object] = {}
        defaults = inspect.signature(fn).parameters
        for name, has_default in _parameters(fn).items():
            annotation = defaults[name].annotation
            if has_default:
                self.options[name] = defaults[name].default
            else:
                self.signature[name] = _axes(f"program {self.name}: parameter {name}", name, _source(fn, annotation))
        named = [axis for axes in self.signature.values() for axis in axes if isinstance(axis, str)]
        self.axes = tuple(dict.fromkeys(named))
        for axis in self.axes:
            if axis in self.options or axis in _RESERVED:
                raise UsageError(f"program {self.name}: axis {axis!r} has the name of an option; rename it")
        update_wrapper(self, fn)

    @overload
    def __call__(self, *, dtype: DType | str = DType.FLOAT16, **sizes: object) -> KernelGraph: ...
    @overload
    def __call__(self, *tensors: Value, **options: object) -> object: ...
    def __call__(self, *tensors: Value, **sizes: object) -> object:
        """Return the kernel graph at these sizes (`f(b=16, h=4096, d=4096, dtype="float16")`).

        Given traced tensors, it returns what the function makes of them: programs can call programs.
        Raises: UsageError for a missing or unknown size, ShapeError for one that is no positive integer.
        """
        if tensors or any(isinstance(size, Value) for size in sizes.values()):
            if not any(isinstance(value, Value) for value in (*tensors, *sizes.values())):
                call = ", ".join(f"{axis}=..." for axis in self.axes)
                raise UsageError(
                    f"program {self.name}: sizes are given by name, {self.name}({call}); arrays to evaluate()"
                )
            return self._fn(*tensors, **sizes)
        dtype = sizes.pop("dtype", DType.FLOAT16)
        if not isinstance(dtype, DType | str):
            raise UsageError(f"program {self.name}: dtype {dtype!r} is no data type; give its name")
        return self.graph(dtype=dtype, **sizes)

    def graph(self, *, dtype: DType | str = DType.FLOAT16, **sizes: object) -> KernelGraph:
        """Return the kernel graph at these sizes; options of the function may be given as well."""
        _check_names("axis or option", f"program {self.name}", sizes, {**dict.fromkeys(self.axes), **self.options})
        missing = [axis for axis in self.axes if axis not in sizes]
        if missing:
            call = ", ".join(f"{axis}=..." for axis in self.axes)
            raise UsageError(f"program {self.name}: no size for {', '.join(missing)}; call {self.name}({call})")
        extents: dict[str, int] = {}
        for axis in self.axes:
            size = sizes[axis]
            if isinstance(size, bool) or not isinstance(size, SupportsIndex) or operator.index(size) < 1:
                raise ShapeError(f"program {self.name}: size {axis}={size!r} must be an integer of at least 1")
            extents[axis] = operator.index(size)
        kernel = KernelBuilder(self.name)
        values = {
            name: kernel.input(
                name, [extents[axis] if isinstance(axis, str) else axis for axis in axes], as_dtype(dtype)
            )
            for name, axes in self.signature.items()
        }
        options = {name: sizes.get(name, default) for name, default in self.options.items()}
        return _traced(kernel, self.name, self._fn(**values, **options))

    def __repr__(self) -> str:
        tensors = ", ".join(f"{name}: {' '.join(map(str, axes))}" for name, axes in self.signature.items())
        return f"<program {self.name}({tensors})>"


def program(fn: Callable[..., object]) -> TracedProgram:
    """Turn a function whose parameters are annotated with axes into a program (a decorator).

        @wb.program
        def f(X: "b h", G: "h", W: "h d"):
            return wb.rms_norm(X) * G @ W

        f(b=16, h=4096, d=4096, dtype="float16")    # a KernelGraph

    An axis is a name, or a number where the extent is fixed; "" is a scalar. Raises: UsageError naming the parameter
    whose annotation is missing or no string of axes.
    """
    if not callable(fn):
        raise UsageError(f"@program needs a function, got {type(fn).__name__}")
    return TracedProgram(fn)


def _source(fn: Callable[..., object], annotation: object) -> object:
    """Return the annotation as written; under `from __future__ import annotations` it is the source text of itself."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if not isinstance(annotation, str) or code is None or not code.co_flags & __future__.annotations.compiler_flag:
        return annotation
    try:
        return ast.literal_eval(annotation)
    except (SyntaxError, ValueError):
        return _Unquoted(annotation)


@dataclass(frozen=True)
class _Unquoted:
    text: str

    def __repr__(self) -> str:
        return self.text


def _axes(where: str, name: str, annotation: object) -> tuple[str | int, ...]:
    if annotation is inspect.Parameter.empty:
        raise UsageError(f'{where} has no axes; annotate it, {name}: "b h"')
    if not isinstance(annotation, str):
        raise UsageError(f'{where}: annotation {annotation!r} is no string of axes; write {name}: "b h"')
    axes: list[str | int] = []
    for word in annotation.split():
        if word.isidentifier():
            axes.append(word)
        elif word.isascii() and word.isdecimal() and int(word) >= 1:
            axes.append(int(word))
        else:
            raise UsageError(f"{where}: {word!r} is neither the name of an axis nor a positive extent")
    return tuple(axes)
