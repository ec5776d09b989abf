"""Work: flops are the operations that NumPy does on an object array of counting numbers.

NumPy starts a fold with its first element, n - 1 operations; the workbench counts n (the fold starts from the neutral
element, as an accumulator does), so one operation per folded result element is added here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from tests.conformance.operator_checks.cases import CASES, operands_of
from workbench.core.shapes import Shape
from workbench.domains.work import Work
from workbench.ops import complete_attributes, operator
from workbench.ops.spec import Array, Attributes, AttributeValue, OpKind, OpSpec


class Counter:
    """How many operations were done on the numbers that carry it."""

    def __init__(self) -> None:
        self.operations = 0


class CountingNumber:
    """A float that counts each operation done on it."""

    def __init__(self, value: float, counter: Counter) -> None:
        self.value, self.counter = value, counter

    def _made(self, value: float) -> CountingNumber:
        self.counter.operations += 1
        return CountingNumber(value, self.counter)

    def __add__(self, other: object) -> CountingNumber:
        return self._made(self.value + _value(other))

    def __radd__(self, other: object) -> CountingNumber:
        return self._made(_value(other) + self.value)

    def __sub__(self, other: object) -> CountingNumber:
        return self._made(self.value - _value(other))

    def __rsub__(self, other: object) -> CountingNumber:
        return self._made(_value(other) - self.value)

    def __mul__(self, other: object) -> CountingNumber:
        return self._made(self.value * _value(other))

    def __rmul__(self, other: object) -> CountingNumber:
        return self._made(_value(other) * self.value)

    def __truediv__(self, other: object) -> CountingNumber:
        return self._made(self.value / _value(other))

    def __rtruediv__(self, other: object) -> CountingNumber:
        return self._made(_value(other) / self.value)

    def __pow__(self, other: object) -> CountingNumber:
        return self._made(self.value ** _value(other))

    def __neg__(self) -> CountingNumber:
        return self._made(-self.value)

    def __abs__(self) -> CountingNumber:
        return self._made(abs(self.value))

    def __float__(self) -> float:
        self.counter.operations += 1  # a function of the math module was called on it
        return self.value

    def _compared(self, result: bool) -> bool:
        self.counter.operations += 1
        return result

    def __ge__(self, other: object) -> bool:
        return self._compared(self.value >= _value(other))

    def __gt__(self, other: object) -> bool:
        return self._compared(self.value > _value(other))

    def __le__(self, other: object) -> bool:
        return self._compared(self.value <= _value(other))

    def __lt__(self, other: object) -> bool:
        return self._compared(self.value < _value(other))

    def sqrt(self) -> CountingNumber:
        """Called by numpy.sqrt on object arrays, as the next two are by their namesakes."""
        return self._made(self.value**0.5)

    def exp(self) -> CountingNumber:
        return self._made(float(np.exp(self.value)))

    def log(self) -> CountingNumber:
        return self._made(float(np.log(self.value)))


def _value(other: object) -> float:
    return other.value if isinstance(other, CountingNumber) else float(other)  # type: ignore[arg-type]


def counting(array: Array, counter: Counter) -> Array:
    """Return an object array of counting numbers."""
    made: Callable[[float], CountingNumber] = lambda value: CountingNumber(value, counter)  # noqa: E731
    return np.asarray(np.frompyfunc(made, 1, 1)(array), dtype=object)


class _CountApply:
    """An `Apply` that runs each part's own `on_float` on counting numbers, and counts how folds start."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    def __call__(self, name: str, *operands: Array, **attributes: AttributeValue) -> Array:
        spec = operator(name)
        complete = complete_attributes(spec, attributes, tuple(array.shape for array in operands))
        if spec.expand is not None:
            return spec.expand(self, operands, tuple(array.shape for array in operands), complete)
        (result,) = self.primitive(spec, operands, complete)
        return result

    def primitive(self, spec: OpSpec, operands: tuple[Array, ...], attributes: Attributes) -> tuple[Array, ...]:
        """Return the results of an operator that does not expand."""
        results = tuple(
            np.asarray(result) if np.asarray(result).dtype == object else counting(result, self.counter)
            for result in spec.on_float(operands, attributes, 0)
        )
        if spec.kind in (OpKind.REDUCTION, OpKind.CONTRACTION):
            self.counter.operations += sum(result.size for result in results)
        return results


def counted_flops(spec: OpSpec, operands: tuple[Array, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> int:
    """Return the operations of one application; a composite does those of its expansion."""
    counter = Counter()
    numbers = tuple(counting(array, counter) for array in operands)
    apply = _CountApply(counter)
    if spec.expand is not None:
        spec.expand(apply, numbers, shapes, attributes)
    else:
        apply.primitive(spec, numbers, attributes)
    return counter.operations


def check_work(spec: OpSpec) -> None:
    """Compare flops with counted operations, elements with the shapes' sizes."""
    rng = np.random.default_rng(12)
    for case in CASES[spec.name]:
        attributes = case.complete(spec)
        # Small operands stay inside the bounds of a clamp, so that they go on counting after its first comparison.
        operands = tuple(array / 16 for array in operands_of(case, rng))
        flops = counted_flops(spec, operands, case.shapes, attributes)
        results = spec.infer_shapes(case.shapes, attributes)
        read, written = (sum(prod(shape) for shape in shapes) for shapes in (case.shapes, results))
        if spec.kind is OpKind.CONSTANT:
            written = 0  # a literal in the program is never stored
        assert spec.work(case.shapes, attributes) == Work(flops, read, written), case
