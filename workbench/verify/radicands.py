"""Roots of perfect squares, rewritten to absolute values before anything is drawn at random.

In a field the root of t^2 is t for half of the t and -t for the others, so sqrt((x^2 + y^2)^2) would match x^2 + y^2 in
half of the draws, and sqrt(x^2 y^2) would be accepted as x y in the other half (`docs/verification.md`). Invariant: the
rewritten graph has the same real values, and no root whose radicand is written as a square.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from workbench.ops.attributes import fraction, integer
from workbench.ops.registry import operator
from workbench.ops.spec import AttributeValue
from workbench.ugraph.dataflow import Path
from workbench.ugraph.expand import expand_composites, inline_thread_graphs
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode, ThreadNode
from workbench.ugraph.rewrite import LevelBuilder, Rewriter, restate
from workbench.ugraph.value import Value

_MOVES = frozenset({"transpose", "reshape", "broadcast"})
_NORMS = frozenset({"rms", "rms_norm", "l2_norm"})
_NOT_NEGATIVE = frozenset({"exp", "abs", "relu", "sigmoid", "square", "sqrt", "rsqrt", "rms"})
_KEEPS_SIGN = frozenset({"sum", "mean", "sum_to_columns", "max", *_MOVES})


@lru_cache(maxsize=256)
def rewrite_square_radicands(graph: KernelGraph) -> KernelGraph:
    """Return the graph with roots of perfect squares as absolute values; the graph itself if there are none.

    sqrt(square(t))           -> abs(t)
    sqrt(mul(t, t))           -> abs(t)
    rsqrt(power(t, 4))        -> div(1, square(t))
    sqrt(mul(square(x), square(y))) -> abs(mul(x, y))

    Squares are seen through products, quotients, constant factors, reshapes and sums over one element; sums of squares are
    no squares. Where t is seen not to be negative, abs is left out. Norms over one element are expanded first.
    """
    found = list(_operators(graph))
    if any(op in _NORMS and shape[axis] == 1 for op, shape, axis in found):
        graph = expand_composites(inline_thread_graphs(graph))
        found = list(_operators(graph))
    if not any(op in ("sqrt", "rsqrt") for op, _, _ in found):
        return graph
    if any(isinstance(node, ThreadNode) for launch in graph.graph_defined for node in launch.block.nodes):
        graph = inline_thread_graphs(graph)
    rewriter = _Squares()
    rewritten = rewriter.rewrite(graph)
    return rewritten if rewriter.changed else graph


def _operators(graph: KernelGraph) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield per predefined operator its name, the shape of its first operand, and its axis (-1 if it has none)."""

    def described(node: OpNode, shapes: dict[str, tuple[int, ...]]) -> tuple[str, tuple[int, ...], int]:
        axis = node.attribute_map.get("axis", -1)
        return node.op, shapes[node.operands[0]] if node.operands else (), axis if isinstance(axis, int) else -1

    kernel = {name: tensor.shape for name, tensor in graph.tensors.items()}
    for node in graph.nodes:
        if isinstance(node, OpNode):
            yield described(node, kernel)
            continue
        tiles = {name: tile.shape for name, tile in node.block.tiles.items()}
        for inner in node.block.nodes:
            if isinstance(inner, OpNode):
                yield described(inner, tiles)
            elif isinstance(inner, ThreadNode):
                registers = {register.name: register.shape for register in inner.graph.inputs}
                for deepest in inner.graph.nodes:
                    yield described(deepest, registers)
                    registers.update({result.name: result.shape for result in deepest.results})


@dataclass(frozen=True, slots=True)
class _Made:
    op: str
    operands: tuple[Value, ...]
    attributes: dict[str, AttributeValue]


class _Squares(Rewriter):
    def __init__(self) -> None:
        self.changed = False
        self._made: dict[tuple[int, str], _Made] = {}

    def operator(self, builder: LevelBuilder, node: OpNode, operands: list[Value], path: Path) -> list[Value]:
        """Add an operator, or what a root of a perfect square is."""
        stem = node.results[0].name
        if node.op in ("sqrt", "rsqrt"):
            root = self._root(builder, stem, operands[0])
            if root is not None:
                self.changed = True
                inverse = node.op == "rsqrt"
                if not self._is_not_negative(builder, root):
                    root = self._add(builder, stem, "abs", root)
                elif not inverse:
                    root = self._add(builder, stem, "scale", root, factor=Fraction(1))
                if inverse:
                    one = self._add(builder, stem, "constant", value=Fraction(1))
                    root = self._add(builder, stem, "div", one, root)
                results = restate(builder, [root], node.results)
                self._remember(builder, results[0], self._made[id(builder), root.name])
                return results
        results = self.plain_operator(builder, node, operands, path)
        if len(results) == 1:
            self._remember(builder, results[0], _Made(node.op, tuple(operands), node.attribute_map))
        return results

    def _remember(self, builder: LevelBuilder, value: Value, made: _Made) -> None:
        self._made[id(builder), value.name] = made

    def _add(self, builder: LevelBuilder, stem: str, op: str, *operands: Value, **attributes: AttributeValue) -> Value:
        value = builder.apply(op, *operands, name=self.names(stem), **attributes)
        self._remember(builder, value, _Made(op, operands, operator(op).check_attributes(attributes)))
        return value

    def _root(self, builder: LevelBuilder, stem: str, value: Value) -> Value | None:
        """Return a value whose square this value is, None where it is not written as a square."""
        plan = self._plan(builder, value)
        return None if plan is None else self._built(builder, stem, plan)

    def _plan(self, builder: LevelBuilder, value: Value) -> _Plan | None:
        made = self._made.get((id(builder), value.name))
        if made is None:
            return None
        x = made.operands
        match made.op:
            case "square":
                return _Plan("", (x[0],), {})
            case "mul" if x[0].name == x[1].name:
                return _Plan("", (x[0],), {})
            case "mul" | "div":
                parts = [self._plan(builder, operand) for operand in x]
                kept = [part for part in parts if part is not None]
                return _Plan(made.op, tuple(kept), {}) if len(kept) == len(parts) else None
            case "power":
                exponent = integer(made.attributes, "exponent")
                if exponent % 2:
                    return None
                half = exponent // 2
                return _Plan("", (x[0],), {}) if half == 1 else _Plan("power", (x[0],), {"exponent": half})
            case "constant":
                root = _rational_root(fraction(made.attributes, "value"))
                return None if root is None else _Plan("constant", (), {"value": root})
            case "scale":
                root, inner = _rational_root(fraction(made.attributes, "factor")), self._plan(builder, x[0])
                return None if root is None or inner is None else _Plan("scale", (inner,), {"factor": root})
            case "sum" | "mean" if x[0].shape[integer(made.attributes, "axis")] == 1:
                return self._plan(builder, x[0])
            case op if op in _MOVES:
                inner = self._plan(builder, x[0])
                return None if inner is None else _Plan(op, (inner,), made.attributes)
            case _:
                return None

    def _built(self, builder: LevelBuilder, stem: str, plan: _Plan) -> Value:
        operands = [
            operand if isinstance(operand, Value) else self._built(builder, stem, operand) for operand in plan.operands
        ]
        return operands[0] if not plan.op else self._add(builder, stem, plan.op, *operands, **plan.attributes)

    def _is_not_negative(self, builder: LevelBuilder, value: Value) -> bool:
        """Return True when a value is seen not to be negative."""
        made = self._made.get((id(builder), value.name))
        if made is None:
            return False
        if made.op in _NOT_NEGATIVE:
            return True
        if made.op == "constant":
            return fraction(made.attributes, "value") >= 0
        if made.op == "power" and integer(made.attributes, "exponent") % 2 == 0:
            return True
        if made.op == "mul" and made.operands[0].name == made.operands[1].name:
            return True
        if made.op == "scale" and fraction(made.attributes, "factor") < 0:
            return False
        if made.op in ("add", "mul", "div", "scale", "power", "maximum", "minimum") or made.op in _KEEPS_SIGN:
            return all(self._is_not_negative(builder, operand) for operand in made.operands)
        return False


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to build a root: an operator over values and roots; the operator "" is the value itself."""

    op: str
    operands: tuple[Value | _Plan, ...]
    attributes: dict[str, AttributeValue]


def _rational_root(value: Fraction) -> Fraction | None:
    if value < 0:
        return None
    root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
    return root if root * root == value else None
