"""Inputs on which data types show their limits, made for any program. Invariant: seeded, and of the program's shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from workbench.core.shapes import Shape
from workbench.interpret.floats import FloatDomain
from workbench.interpret.walk import walk
from workbench.ops.attributes import complete_attributes
from workbench.ops.registry import operator
from workbench.ops.spec import Array, Attributes, AttributeValue, OpSpec
from workbench.ugraph.kernel_graph import KernelGraph

LARGEST_EXPONENT = 100.0
"""How large arguments of exp are made: e^100 is far inside float64 and far outside float32."""

_TRIES = 8  # evaluations that look for the scale at which exponents are that large


def hard_inputs(graph: KernelGraph, seed: int) -> Iterator[tuple[str, tuple[Array, ...]]]:
    """Yield what is hard about them, and inputs, one set at a time (they can be large); see `stability.stability`."""
    rng = np.random.default_rng(seed)
    normal = [rng.standard_normal(tensor.shape) for tensor in graph.inputs]
    yield "N(0, 1)", tuple(normal)
    scale = _scale_of_large_exponents(graph, normal)
    if scale is not None:
        yield f"exponents near {LARGEST_EXPONENT:g}", tuple(scale * array for array in normal)
    yield "tiny values (2^-10)", tuple(array * 2.0**-10 for array in normal)
    for number, tensor in enumerate(graph.inputs):
        if len(tensor.shape) >= 2:
            large = list(normal)
            large[number] = normal[number] * _by_row(tensor.shape, [1.0, 256.0])
            yield f"large rows of {tensor.name} (2^8)", tuple(large)
    yield "rows of different scale and offset", tuple(_uneven(array) for array in normal)
    yield "sums that cancel", tuple(_cancelling(array) for array in normal)


def _by_row(shape: tuple[int, ...], factors: Sequence[float]) -> Array:
    """Return factors that go round over the last but one axis, to be multiplied with an array of this shape."""
    rows: Array = np.asarray([[factors[number % len(factors)]] for number in range(shape[-2])])
    return rows


def _uneven(array: Array) -> Array:
    """Return rows scaled by 1/16 to 16 in turn, every other one far off zero; a vector is scaled element by element."""
    if array.ndim < 2:
        steps: Array = np.arange(array.size).reshape(array.shape)
        return np.asarray(array * 4.0 ** ((steps % 3) - 1.0))
    rows: Array = np.arange(array.shape[-2])[:, None]
    return np.asarray((array + 8.0 * (rows % 2)) * 4.0 ** ((rows % 5) - 2.0))


def _cancelling(array: Array) -> Array:
    """Return rows whose elements nearly sum to zero: each second one the negative of the one before, plus a thousandth."""
    result = array.copy()
    if array.ndim and array.shape[-1] >= 2:
        pairs = array.shape[-1] // 2
        result[..., 1 : 2 * pairs : 2] = -array[..., 0 : 2 * pairs : 2] * (1 + 2.0**-10)
    return result


class _ExponentDomain(FloatDomain):
    """Float64 evaluation that remembers the largest argument of exp, composites looked into."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0.0
        self.found = False

    def rule(self, spec: OpSpec, operands: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
        """Note the argument of an exp, then evaluate as usual."""
        if spec.name == "exp":
            self.found = True
            with np.errstate(all="ignore"):
                size = float(np.nanmax(np.abs(operands[0]), initial=0.0))
            if np.isfinite(size):
                self.largest = max(self.largest, size)
        elif spec.expand is not None and _contains_exp(spec, operands, attributes, prefix):

            def apply(name: str, *inner: Array, **given: AttributeValue) -> Array:
                part = operator(name)
                (result,) = self.rule(part, inner, part.check_attributes(given), prefix)
                return result

            shapes = tuple(operand.shape[prefix:] for operand in operands)
            with np.errstate(all="ignore"):
                spec.expand(apply, operands, shapes, attributes)
        return super().rule(spec, operands, attributes, prefix)


def _contains_exp(spec: OpSpec, operands: Sequence[Array], attributes: Attributes, prefix: int) -> bool:
    """Return whether an operator's expansion, all the way down, has an exp; only shapes are computed."""
    names: set[str] = set()

    def apply(name: str, *shapes: Shape, **given: AttributeValue) -> Shape:
        names.add(name)
        part = operator(name)
        complete = complete_attributes(part, given, shapes)
        if part.expand is not None:
            part.expand(apply, shapes, shapes, complete)
        return part.infer_shapes(shapes, complete)[0]

    shapes = tuple(operand.shape[prefix:] for operand in operands)
    assert spec.expand is not None
    spec.expand(apply, shapes, shapes, attributes)
    return "exp" in names


def _largest_exponent(graph: KernelGraph, inputs: Sequence[Array]) -> float | None:
    domain = _ExponentDomain()
    walk(graph, list(inputs), domain)
    return domain.largest if domain.found else None


def _scale_of_large_exponents(graph: KernelGraph, normal: Sequence[Array]) -> float | None:
    """Return by how much all inputs are scaled so that the largest argument of exp is near 100, None without exp.

    The argument grows like a power of the scale, the same or not at all (normalised inputs); secant steps on logarithms.
    """
    scale, size = 1.0, _largest_exponent(graph, normal)
    if size is None:
        return None
    degree = 1.0
    for _ in range(_TRIES):
        if size <= 0 or abs(size / LARGEST_EXPONENT - 1) < 0.05:
            break
        step = (LARGEST_EXPONENT / size) ** (1 / degree)
        following = scale * float(np.clip(step, 2.0**-10, 2.0**10))
        new_size = _largest_exponent(graph, [following * array for array in normal])
        assert new_size is not None
        if new_size <= 0:
            break
        growth = np.log(new_size / size) / np.log(following / scale)
        if abs(growth) < 0.05:  # normalised before: no scale makes these exponents large
            return scale
        degree, scale, size = float(max(growth, 0.25)), following, new_size
    return scale
