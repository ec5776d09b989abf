"""The reference meaning of a µGraph: float64 arrays, NumPy or any namespace with the same functions (CuPy)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.core.dtypes import DType
from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape
from workbench.errors import ShapeError, UsageError
from workbench.interpret.arrays import ArrayDomain
from workbench.interpret.walk import Observer, walk
from workbench.ops.spec import Array, Attributes, OpKind, OpSpec
from workbench.ugraph.kernel_graph import KernelGraph, expect_kernel_graph


class FloatDomain(ArrayDomain[Array]):
    """Values are float64 arrays; each operator's `on_float` is its meaning.

    namespace: the module of the arrays (numpy or cupy).
    """

    def __init__(self, namespace: Any = np, chunk_elements: int = 1 << 24) -> None:
        super().__init__(chunk_elements)
        self.namespace = namespace

    def map(self, function: Callable[..., Array], *values: Array) -> Array:
        """Return `function` of the arrays."""
        return function(*values)

    def rule(self, spec: OpSpec, operands: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
        """Return the operator's float64 results."""
        with np.errstate(all="ignore"):  # overflow and 0/0 are values here (inf, nan); the caller looks at them
            results = spec.on_float(operands, attributes, prefix)
        if spec.kind is OpKind.CONSTANT:
            return tuple(self.namespace.asarray(result) for result in results)
        return results

    def shape_of(self, value: Array) -> Shape:
        """Return the array's shape."""
        return tuple(value.shape)

    def fill(self, value: Array, valid: Array, identity: str) -> Array:
        """Return the array with other slots 0 (sum) or -inf (max)."""
        valid = self.namespace.asarray(valid)
        filled: Array = self.namespace.where(valid, value, 0.0 if identity == "sum" else -np.inf)
        return filled

    def at_least_lowest(self, value: Array, dtype: DType) -> Array:
        """Return the value, -inf replaced by the lowest number of the type that kernels compute in, at least float32."""
        bounded: Array = self.namespace.maximum(value, -max(dtype.largest, DType.FLOAT32.largest))
        return bounded

    def integers(self, values: Array) -> Array:
        """Return whole numbers as float64."""
        whole: Array = self.namespace.asarray(values, dtype=np.float64)
        return whole


def evaluate(graph: KernelGraph, inputs: Sequence[npt.ArrayLike], *, observe: Observer | None = None) -> list[Array]:
    """Return the outputs of a program on arrays, computed in float64, as a list in the program's order of outputs.

    inputs: one array per program input, by position, of the input's shape (NumPy or CuPy; converted to float64).
    observe: called with (path of names, value) for every tensor and tile; tiles carry four leading axes.
    Raises: ShapeError for a wrong number of inputs or a wrong shape, UsageError for what is no array.
    """
    expect_kernel_graph(graph, "evaluated")
    if isinstance(inputs, (str, bytes, dict)) or not hasattr(inputs, "__len__"):
        raise UsageError(f"inputs must be a sequence of arrays in the program's order, got {type(inputs).__name__}")
    if len(inputs) != len(graph.inputs):
        names = ", ".join(tensor.name for tensor in graph.inputs)
        raise ShapeError(
            f"program {graph.name or '(unnamed)'} takes {len(graph.inputs)} inputs ({names}), got {len(inputs)}"
        )
    arrays = []
    for tensor, given in zip(graph.inputs, inputs, strict=True):
        array = _as_float64(given)
        if tuple(array.shape) != tensor.shape:
            raise ShapeError(f"input {tensor.name} has shape {tuple(array.shape)}, the program takes {tensor.shape}")
        arrays.append(array)
    return walk(graph, arrays, FloatDomain(array_namespace(*arrays)), observe)


def _as_float64(given: npt.ArrayLike) -> Array:
    if hasattr(given, "__cuda_array_interface__") and hasattr(given, "astype"):
        return given.astype(np.float64)  # type: ignore[no-any-return]
    if np.iscomplexobj(given):
        raise UsageError("an input is complex; µGraphs compute with real numbers")
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"an input of type {type(given).__name__} is no array of numbers") from error
