"""When two sketches are the same structure, told without building them.

Composites are taken apart, so a norm offered whole and its parts are one; what an accumulator takes along is folded
before it. A constant factor is left out wherever it stands: two graphs that make the same output, and differ only in
where they multiply by constants, are one. Invariant: equal keys of graphs that make the same outputs mean equal structures
(`ugraph.structure`, which carries constants outwards); the reverse need not hold.
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction

from workbench.ops.registry import operator
from workbench.ops.spec import AttributeValue
from workbench.search.enumeration import Sketch
from workbench.search.hypergraph import Edge
from workbench.search.palette import Effect, Operator
from workbench.search.places import LOOP

Key = int


class Canonical:
    """Gives every distinct computation a number; one object per search, so that keys can be compared."""

    def __init__(self) -> None:
        self._keys: dict[Hashable, Key] = {}

    def key(self, sketch: Sketch) -> tuple[Key, ...]:
        """Return the keys of the outputs."""
        graph = sketch.hypergraph
        made: dict[int, Key] = {}
        for node, edge in sketch.chosen:
            operands = [self._operand(sketch, made, operand) for operand in edge.operands]
            made[node] = self._edge(sketch, node, edge, operands)
        stored = sorted(made[node] for node, edge in sketch.chosen if edge.kind == "store")
        return (
            *(self._operand(sketch, made, output) for output in sketch.outputs),
            self._intern(("stored", graph.plan, *stored)),
        )

    def _operand(self, sketch: Sketch, made: dict[int, Key], node: int) -> Key:
        if node in made:
            return made[node]
        graph = sketch.hypergraph
        start = graph.expressions.problem.starts[graph.expressions.starts.index(graph.values[node])]
        return self._intern(("input", start.position, start.dims))

    def _edge(self, sketch: Sketch, node: int, edge: Edge, operands: list[Key]) -> Key:
        graph, op = sketch.hypergraph, edge.operator
        place = graph.places[node]
        if op is None:
            return self._intern((edge.kind, place.kernel, place.stage == LOOP, *operands))
        where = (place.kernel,) if edge.kind != "kernel" else ("kernel",)
        match edge.kind:
            case "combine":
                return self._intern((*where, "combine", op.name, *operands))
            case "accumulate":
                return self._accumulated(where, op, edge.axis, operands[0])
        if edge.parts:
            x, y, w, z = operands
            halves = self._intern((*where, "concat", x, y)), self._intern((*where, "concat", w, z))
            return self._intern((*where, "matmul", edge.axis, *halves))
        return self._applied(where, op, edge.axis, operands)

    def _accumulated(self, where: tuple[Hashable, ...], op: Operator, axis: str, operand: Key) -> Key:
        kind = "max" if op.name == "max" else "sum"
        value = self._intern((*where, "square", operand)) if op.name == "rms" else operand
        if axis:
            value = self._intern((*where, kind, axis, value))
        value = self._intern((*where, "accumulate", kind, value))
        if op.name == "rms":
            eps = Fraction(str(dict(op.attributes).get("eps", 0)))
            value = self._intern((*where, "add", eps, value)) if eps else value
            value = self._intern((*where, "sqrt", value))
        return value

    def _applied(self, where: tuple[Hashable, ...], op: Operator, axis: str, operands: list[Key]) -> Key:
        if _scales(op):
            return operands[0]
        if op.name == "mean":
            return self._intern((*where, "sum", axis, *operands))
        if op.effect in (Effect.FOLD, Effect.WHOLE) and op.spec.expand is not None:
            return op.spec.expand(
                _Expanding(self, where, axis), tuple(operands), ((2,),), {"axis": -1, **dict(op.attributes)}
            )
        if op.constant is not None:
            return self._intern((*where, op.name, op.constant, *operands))
        name = "add" if op.name == "sub" else op.name  # a sum with a negative
        if op.spec.commutative or name == "add":
            operands = sorted(operands)
        folded = (axis,) if op.effect in (Effect.FOLD, Effect.CONTRACT, Effect.WHOLE) else ()
        if name == "matmul":
            operands = sorted(operands)
        return self._intern((*where, name, *folded, *op.attributes, *operands))

    def _intern(self, key: Hashable) -> Key:
        return self._keys.setdefault(key, len(self._keys))


def _scales(op: Operator) -> bool:
    """Return whether an operator multiplies its operand by a constant, and does nothing else."""
    if op.constant is None:
        return op.name in ("neg", "scale")
    return op.name == "mul" or (op.name == "div" and op.position == 1)


class _Expanding:
    """An `Apply` over keys: what a composite is made of, in the same place."""

    def __init__(self, canonical: Canonical, where: tuple[Hashable, ...], axis: str) -> None:
        self.canonical, self.where, self.axis = canonical, where, axis
        self.constants: dict[Key, Fraction] = {}

    def __call__(self, name: str, *operands: Key, **attributes: AttributeValue) -> Key:
        intern = self.canonical._intern
        if name == "constant":
            value = Fraction(str(attributes["value"]))
            key = intern(("constant", value))
            self.constants[key] = value
            return key
        if name == "mean":
            return intern((*self.where, "sum", self.axis, *operands))
        if name == "rms":
            expand = operator("rms").expand
            assert expand is not None
            return expand(self, operands, ((2,),), {"axis": -1, **attributes})
        numbers = [self.constants[key] for key in operands if key in self.constants]
        tensors = [key for key in operands if key not in self.constants]
        if name == "neg" or (name in ("mul", "div", "scale") and len(tensors) == 1 and operands[0] == tensors[0]):
            return tensors[0]
        name = "add" if name == "sub" else name
        folded = (self.axis,) if name in ("sum", "max") else ()
        ordered = sorted(tensors) if name in ("add", "mul") else tensors
        return intern((*self.where, name, *folded, *numbers, *ordered))
