"""How rules of composites follow from their expansion. Invariant: nothing is said twice; the expansion decides.

A composite's flops are those of its parts; it reads its operands and writes its result once, its intermediate values
never reach memory.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from workbench.core.shapes import Shape, num_elements
from workbench.domains.work import Work
from workbench.ops.attributes import complete_attributes
from workbench.ops.broadcasting import WorkRule
from workbench.ops.registry import operator
from workbench.ops.spec import AbstractRule, Attributes, AttributeValue, Expansion, TermAlgebra

T = TypeVar("T")


class _CountFlops:
    """An `Apply` over shapes that adds up the flops of what it is asked to apply."""

    def __init__(self) -> None:
        self.flops = 0

    def __call__(self, name: str, *operands: Shape, **attributes: AttributeValue) -> Shape:
        spec = operator(name)
        complete = complete_attributes(spec, attributes, operands)
        (shape,) = spec.infer_shapes(operands, complete)
        self.flops += spec.work(operands, complete).flops
        return shape


class _BuildTerms(Generic[T]):
    """An `Apply` over (term, shape) pairs that builds abstract expressions."""

    def __init__(self, algebra: TermAlgebra[T]) -> None:
        self.algebra = algebra

    def __call__(self, name: str, *operands: tuple[T, Shape], **attributes: AttributeValue) -> tuple[T, Shape]:
        spec = operator(name)
        shapes = tuple(shape for _, shape in operands)
        complete = complete_attributes(spec, attributes, shapes)
        (shape,) = spec.infer_shapes(shapes, complete)
        return spec.abstract(self.algebra, tuple(term for term, _ in operands), shapes, complete), shape


def expanded_work(expand: Expansion) -> WorkRule:
    """Return the work rule of a composite."""

    def work(shapes: tuple[Shape, ...], attributes: Attributes) -> Work:
        counter = _CountFlops()
        result = expand(counter, shapes, shapes, attributes)
        return Work(counter.flops, sum(num_elements(shape) for shape in shapes), num_elements(result))

    return work


def expanded_abstract(expand: Expansion) -> AbstractRule:
    """Return the abstract rule of a composite; groups of its parts must be numbered as its own."""

    def abstract(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
        operands = tuple(zip(terms, shapes, strict=True))
        return expand(_BuildTerms(b), operands, shapes, attributes)[0]

    return abstract
