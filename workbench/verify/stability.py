"""What the data types do to a program: its error against float64 on inputs chosen to be hard, and where it overflows.

Equality is a statement about real numbers; this is the separate question of what float16, bfloat16 and float32 make of it.
Invariant: errors are relative to the largest value of the output's row in float64; an overflow names the first tensor that
has one and carries the inputs that show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.core.dtypes import DType
from workbench.display import Displayed
from workbench.errors import ShapeError, UsageError
from workbench.interpret.floats import evaluate
from workbench.interpret.rounded import evaluate_rounded, round_to
from workbench.ops.spec import Array
from workbench.ugraph.kernel_graph import KernelGraph, expect_kernel_graph
from workbench.verify.hard_inputs import hard_inputs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StabilityCase:
    """One set of inputs and what became of it.

    Attributes:
        name: what is hard about the inputs.
        error: largest |value - float64| over the largest |float64| of the same output row; inf where a value is not finite
            although float64's is, unless it cannot be (`unrepresentable`).
        rms_error: root of the mean square of the same, over finite elements.
        overflow: path of the first tensor with an infinite or undefined element that float64 does not have, "" if none.
        elements: how many output elements are not finite although float64's are.
        unrepresentable: output elements that the output's data type cannot hold; they are left out.
        undefined: output elements that are not finite in float64 either; they are left out.
        inputs: the inputs, kept where there is an overflow and for the largest error; () elsewhere.
    """

    name: str
    error: float
    rms_error: float
    overflow: str = ""
    elements: int = 0
    unrepresentable: int = 0
    undefined: int = 0
    inputs: tuple[Array, ...] = ()

    def describe(self) -> str:
        """Return one line."""
        line = f"{self.name:34} error {self.error:8.2e}  rms {self.rms_error:8.2e}"
        if self.overflow:
            line += f"  overflow in {self.overflow} ({self.elements} output elements)"
        if self.unrepresentable:
            line += f"  {self.unrepresentable} elements beyond the output's type"
        if self.undefined:
            line += f"  {self.undefined} elements not finite in float64"
        return line

    def to_json(self) -> dict[str, object]:
        """Return the plain form, arrays left out; infinite errors as null."""
        return {
            "name": self.name,
            "error": self.error if np.isfinite(self.error) else None,
            "rms_error": self.rms_error if np.isfinite(self.rms_error) else None,
            "overflow": self.overflow,
            "elements": self.elements,
            "unrepresentable": self.unrepresentable,
            "undefined": self.undefined,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StabilityReport(Displayed):
    """How a program behaves in its data types, case by case.

    Attributes: name of the program; dtypes: of its inputs and outputs; cases, in the order tried; seed.
    """

    name: str
    dtypes: tuple[str, ...]
    cases: tuple[StabilityCase, ...]
    seed: int = 0

    @property
    def error(self) -> float:
        """The largest error of all cases; inf where there is an overflow in an output."""
        return max((case.error for case in self.cases), default=0.0)

    @property
    def worst(self) -> StabilityCase:
        """The case with the largest error."""
        return max(self.cases, key=lambda case: case.error)

    @property
    def overflows(self) -> tuple[StabilityCase, ...]:
        """The cases in which a tensor overflows, with their inputs."""
        return tuple(case for case in self.cases if case.overflow)

    def __getitem__(self, name: str) -> StabilityCase:
        """Return the case of this name. Raises: KeyError."""
        return {case.name: case for case in self.cases}[name]

    def describe(self) -> str:
        """Return a table: one line per case, the worst named at the end."""
        lines = [f"stability of {self.name or 'the program'} in {', '.join(self.dtypes)}, against float64"]
        lines += [f"  {case.describe()}" for case in self.cases]
        if self.cases:
            lines.append(f"  largest error {self.error:.2e}: {self.worst.name}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the plain form."""
        return {
            "name": self.name,
            "dtypes": list(self.dtypes),
            "error": self.error if np.isfinite(self.error) else None,
            "worst": self.worst.name if self.cases else "",
            "cases": [case.to_json() for case in self.cases],
            "seed": self.seed,
        }


_NEARLY = 15 / 16
"""An output above this share of its type's largest number counts as beyond it: a rounding error decides there."""

Given = Sequence[npt.ArrayLike] | Mapping[str, Sequence[npt.ArrayLike]]


def stability(graph: KernelGraph, *, seed: int = 0, inputs: Given | None = None) -> StabilityReport:
    """Return the error of a program in its data types against float64, relative to the output's scale, on hard inputs.

    Every tensor is rounded to its data type after each operator; inside operators and accumulators the arithmetic is
    float32. Both sides start from the same inputs, rounded to the inputs' types.
    inputs: instead of the built-in cases, one array per program input, or such lists by the case's name. The built-in
    cases: N(0, 1); exponents near 100 where there are any; tiny and large values; large rows of each input in turn; rows
    of different scale and offset; sums that cancel. seed: of the random numbers.
    Raises: ShapeError for inputs that do not fit, UsageError for what is no list of arrays.
    """
    expect_kernel_graph(graph, "examined")
    given: Iterable[tuple[str, tuple[Array, ...]]]
    if inputs is None:
        given = hard_inputs(graph, seed)
    elif isinstance(inputs, Mapping):
        given = [(str(name), _checked(graph, arrays)) for name, arrays in inputs.items()]
    else:
        given = [("given", _checked(graph, inputs))]
    cases = [_case(graph, name, arrays) for name, arrays in given]
    worst = max(range(len(cases)), key=lambda number: cases[number].error, default=-1)
    kept = [_kept(case, number == worst) for number, case in enumerate(cases)]
    dtypes = tuple(dict.fromkeys(tensor.dtype.value for tensor in (*graph.inputs, *graph.outputs)))
    return StabilityReport(name=graph.name, dtypes=dtypes, cases=tuple(kept), seed=seed)


def _checked(graph: KernelGraph, arrays: Sequence[npt.ArrayLike]) -> tuple[Array, ...]:
    if isinstance(arrays, (str, bytes)) or not hasattr(arrays, "__len__"):
        raise UsageError(f"inputs must be one array per program input, got {type(arrays).__name__}")
    if len(arrays) != len(graph.inputs):
        raise ShapeError(f"the program takes {len(graph.inputs)} inputs, got {len(arrays)}")
    checked = []
    for tensor, given in zip(graph.inputs, arrays, strict=True):
        array = np.asarray(given, dtype=np.float64)
        if array.shape != tensor.shape:
            raise ShapeError(f"input {tensor.name} has shape {array.shape}, the program takes {tensor.shape}")
        checked.append(array)
    return tuple(checked)


def _kept(case: StabilityCase, is_worst: bool) -> StabilityCase:
    if case.overflow or is_worst:
        return case
    return StabilityCase(
        name=case.name, error=case.error, rms_error=case.rms_error, elements=case.elements,
        unrepresentable=case.unrepresentable, undefined=case.undefined,
    )  # fmt: skip


def _case(graph: KernelGraph, name: str, given: Sequence[Array]) -> StabilityCase:
    rounded = [round_to(array, tensor.dtype) for array, tensor in zip(given, graph.inputs, strict=True)]
    undefined_at: dict[tuple[str, ...], Array] = {}

    def watch_reference(path: tuple[str, ...], value: object) -> None:
        bad = _not_finite(value)
        if bad is not None:
            undefined_at[path] = bad

    first_bad: list[tuple[str, ...]] = []

    def watch(path: tuple[str, ...], value: object) -> None:
        bad = None if first_bad else _not_finite(value)
        if bad is not None and (path not in undefined_at or bool((bad & ~undefined_at[path]).any())):
            first_bad.append(path)

    expected = evaluate(graph, rounded, observe=watch_reference)
    found = evaluate_rounded(graph, rounded, observe=watch)
    errors: list[Array] = []
    elements = unrepresentable = undefined = 0
    for want, got, tensor in zip(expected, found, graph.outputs, strict=True):
        relative, counts = _errors(want, np.asarray(got, dtype=np.float64), tensor.dtype)
        errors.append(relative.ravel())
        elements, unrepresentable, undefined = elements + counts[0], unrepresentable + counts[1], undefined + counts[2]
    joined = np.concatenate(errors) if errors else np.zeros(0)
    finite = joined[np.isfinite(joined)]
    return StabilityCase(
        name=name,
        error=float(joined.max(initial=0.0)),
        rms_error=float(np.sqrt(np.mean(finite**2))) if finite.size else float("inf") if joined.size else 0.0,
        overflow=".".join(first_bad[0]) if first_bad and (elements or not unrepresentable) else "",
        elements=elements,
        unrepresentable=unrepresentable,
        undefined=undefined,
        inputs=tuple(
            array.astype(np.float16) if tensor.dtype is DType.FLOAT16 else array  # exact, and half the memory
            for array, tensor in zip(rounded, graph.inputs, strict=True)
        ),
    )


def _not_finite(value: object) -> Array | None:
    """Return where a tensor (or a tile, which carries its array) is infinite or undefined, None if nowhere."""
    array = getattr(value, "value", value)
    if not isinstance(array, np.ndarray) or np.isfinite(array).all():
        return None
    return ~np.isfinite(array)


def _errors(want: Array, got: Array, dtype: DType) -> tuple[Array, tuple[int, int, int]]:
    """Return relative errors (0 where left out), and how many elements failed, cannot be held, and are undefined."""
    with np.errstate(all="ignore"):
        defined = np.isfinite(want)
        holds = np.abs(want) <= dtype.largest * _NEARLY
        size = np.where(defined, np.abs(want), 0.0)
        rows = size.max(axis=-1, keepdims=True) if size.ndim else size
        scale = np.where(rows > 0, rows, size.max(initial=0.0) or 1.0)
        counted = defined & holds
        bad = counted & ~np.isfinite(got)
        relative = np.where(counted, np.abs(got - want) / scale, 0.0)
        relative = np.where(bad, np.inf, relative)
    return relative, (int(bad.sum()), int((defined & ~holds).sum()), int((~defined).sum()))
