"""Degrees of numerators and denominators of a program without exp and roots, by one walk.

Invariant: every element of a tensor is a quotient of polynomials of at most these degrees in the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from workbench.core.tensors import DeviceTensor
from workbench.errors import OutsideLaxError
from workbench.interpret.walk import Observer, walk, walk_block
from workbench.ops.attributes import complete_attributes, integer
from workbench.ops.registry import operator
from workbench.ops.spec import AttributeValue, Opaque
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.expand import expand
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, GraphDefinedNode, InputIterator, OpNode, RunningMax

_KEEPS = frozenset({"neg", "scale", "transpose", "reshape", "broadcast", "split", "relu", "abs", "clamp", "max"})


@dataclass(frozen=True, slots=True)
class Degrees:
    """Degrees of an element's numerator and denominator; shape of the tensor."""

    numerator: int
    denominator: int
    shape: tuple[int, ...]


@dataclass(slots=True)
class Analysis:
    """Degrees of the worst output, and the summed degrees of everything that is divided by.

    Attributes: opaque; piecewise; reason: why there is no analysis, "" if there is.
    """

    numerator: int = 0
    denominator: int = 0
    zeros: int = 0
    opaque: list[str] = field(default_factory=list)
    piecewise: bool = False
    reason: str = ""


class _DegreeDomain:
    def __init__(self) -> None:
        self.analysis = Analysis()
        self.blocks = 1

    def operator(self, node: OpNode, operands: tuple[Degrees, ...]) -> tuple[Degrees, ...]:
        return self.rule(node.op, node.attribute_map, operands, tuple(t.shape for t in node.results))

    def tile_operator(self, node: OpNode, operands: tuple[Degrees, ...]) -> tuple[Degrees, ...]:
        return self.rule(node.op, node.attribute_map, operands, tuple(t.shape for t in node.results))

    def launch(
        self, node: GraphDefinedNode, operands: tuple[Degrees, ...], observe: Observer | None
    ) -> tuple[Degrees, ...]:
        block = node.block
        outer, self.blocks = self.blocks, prod(block.grid_dims) * block.forloop_range
        saved = walk_block(block, operands, self, observe, ())
        self.blocks = outer
        return tuple(
            Degrees(value.numerator, value.denominator, tensor.shape)
            for value, tensor in zip(saved, node.results, strict=True)
        )

    def load(self, node: InputIterator, value: Degrees, tensor: DeviceTensor, block: BlockGraph) -> Degrees:
        return Degrees(value.numerator, value.denominator, node.result.shape)

    def accumulate(self, node: Accumulator, operand: Degrees, rescale: Degrees | None, block: BlockGraph) -> Degrees:
        if rescale is not None:
            raise OutsideLaxError("a rescaled accumulator follows an exp")
        if node.kind.value == "max":
            return operand
        folded = operand.shape[-1] if node.kind.reduces_last_axis else 1
        return _sum(operand, block.forloop_range * folded, node.result.shape)

    def running_max(self, node: RunningMax, operand: Degrees, block: BlockGraph) -> tuple[Degrees, Degrees]:
        self.analysis.piecewise = True
        shift = _sum(operand, 2, node.shift.shape)
        return Degrees(operand.numerator, operand.denominator, node.maximum.shape), shift

    def rule(
        self,
        op: str,
        attributes: dict[str, AttributeValue],
        operands: tuple[Degrees, ...],
        shapes: tuple[tuple[int, ...], ...],
    ) -> tuple[Degrees, ...]:
        spec, shape = operator(op), shapes[0]
        if op in ("relu", "abs", "clamp", "max", "maximum", "minimum"):
            self.analysis.piecewise = True
        if isinstance(spec.field, Opaque):
            self.analysis.opaque.append(op)
            self.analysis.reason = f"the argument of {op} is a random function here"
            return (Degrees(1, 0, shape),)
        if spec.expand is not None and op not in ("mean", "square", "power"):
            made = spec.expand(self._apply, operands, tuple(o.shape for o in operands), attributes)
            return (made,)
        if op in _KEEPS:
            return tuple(Degrees(operands[0].numerator, operands[0].denominator, s) for s in shapes)
        if op == "constant":
            return (Degrees(0, 0, shape),)
        if op in ("add", "sub"):
            a, b = operands
            return (_added(a, b, shape),)
        if op in ("mul", "square"):
            a, b = operands[0], operands[-1]
            return (Degrees(a.numerator + b.numerator, a.denominator + b.denominator, shape),)
        if op == "div":
            a, b = operands
            self.analysis.zeros += prod(b.shape) * self.blocks * max(b.numerator, 1)
            return (Degrees(a.numerator + b.denominator, a.denominator + b.numerator, shape),)
        if op == "power":
            (a,), e = operands, integer(attributes, "exponent")
            if e < 0:
                self.analysis.zeros += prod(a.shape) * self.blocks * max(a.numerator, 1)
                return (Degrees(a.denominator * -e, a.numerator * -e, shape),)
            return (Degrees(a.numerator * e, a.denominator * e, shape),)
        if op in ("sum", "mean"):
            return (_sum(operands[0], operands[0].shape[integer(attributes, "axis")], shape),)
        if op == "sum_to_columns":
            return (_sum(operands[0], operands[0].shape[-1] // shape[-1], shape),)
        if op == "matmul":
            a, b = operands
            product = Degrees(a.numerator + b.numerator, a.denominator + b.denominator, shape)
            return (_sum(product, a.shape[-1], shape),)
        if op in ("maximum", "minimum", "concat"):
            return (
                Degrees(max(o.numerator for o in operands), max(o.denominator for o in operands), shape),
            )
        self.analysis.reason = f"the degree of {op} is not analysed"
        return tuple(Degrees(0, 0, s) for s in shapes)

    def _apply(self, name: str, *operands: Degrees, **attributes: AttributeValue) -> Degrees:
        spec = operator(name)
        shapes = tuple(o.shape for o in operands)
        complete = complete_attributes(spec, attributes, shapes)
        return self.rule(name, dict(complete), operands, spec.infer_shapes(shapes, complete))[0]


def _added(a: Degrees, b: Degrees, shape: tuple[int, ...]) -> Degrees:
    return Degrees(
        max(a.numerator + b.denominator, b.numerator + a.denominator), a.denominator + b.denominator, shape
    )


def _sum(a: Degrees, extent: int, shape: tuple[int, ...]) -> Degrees:
    return Degrees(a.numerator + (extent - 1) * a.denominator, extent * a.denominator, shape)


def analyse(graph: KernelGraph) -> Analysis:
    """Return the degrees of a program's worst output element."""
    domain = _DegreeDomain()
    inputs = [Degrees(1, 0, tensor.shape) for tensor in graph.inputs]
    mapped: Callable[..., list[Degrees]] = walk
    outputs = mapped(expand(graph), inputs, domain)
    result = domain.analysis
    result.numerator = max(value.numerator for value in outputs)
    result.denominator = max(value.denominator for value in outputs)
    return result
