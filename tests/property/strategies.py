"""Random legal µGraphs for Hypothesis: every kind of node, every accumulator, ragged tiles, clusters, thread graphs.

Graphs grow by trying: a step that is not legal leaves the graph as it was. Extents are small (1 to 7), so that graphs
can also be evaluated; values may be NaN or infinite (log of a negative number, exp of exp), which `operators` can avoid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

from hypothesis import strategies as st

from workbench.core.dtypes import DType
from workbench.core.layouts import column_major_strides
from workbench.core.tensors import DeviceTensor, SharedTensor
from workbench.errors import WorkbenchError
from workbench.ugraph import inference
from workbench.ugraph.builder import BlockBuilder, KernelBuilder, ThreadBuilder
from workbench.ugraph.inference import Place
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import AccumulatorKind
from workbench.ugraph.value import Value

T = TypeVar("T")
UNARY = ("exp", "neg", "square", "silu", "relu", "abs", "sigmoid", "tanh", "sqrt", "rsqrt", "log", "transpose")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "matmul", "pow", "concat")
WITH_AXIS = ("sum", "mean", "max", "rms", "softmax")
WITH_NUMBER = ("scale", "clamp", "power", "gelu", "rms_norm", "l2_norm", "layer_norm", "constant")
RESHAPING = ("sum_to_columns", "reshape", "broadcast", "split")
ALL_OPERATORS = frozenset((*UNARY, *BINARY, *WITH_AXIS, *WITH_NUMBER, *RESHAPING))
TAME = ALL_OPERATORS - {"log", "sqrt", "rsqrt", "div", "pow", "exp", "l2_norm"}
"""Operators that keep small finite inputs finite and depend on them continuously."""

ODD_NAMES = ("input", "save", "a b", 'quo"te', "π", "x.1", "0", "tab\there", "as", "loop", "")
FRACTIONS = tuple(Fraction(n, d) for n, d in ((1, 2), (-3, 7), (2, 1), (1, 3), (-1, 1), (5, 4096)))


@dataclass(frozen=True)
class Options:
    """What the graphs may contain. `operators`: names of predefined operators to choose from."""

    max_steps: int = 5
    blocks: bool = True
    ragged: bool = True
    threads: bool = True
    clusters: bool = True
    running_max: bool = True
    odd_names: bool = False
    mixed_types: bool = True
    operators: Collection[str] = ALL_OPERATORS


def kernel_graphs(options: Options | None = None) -> st.SearchStrategy[KernelGraph]:
    """Return a strategy of legal kernel graphs of predefined operators and (unless switched off) block graphs."""
    return st.builds(lambda data, chosen: _Grower(data.draw, chosen).grow(), st.data(), st.just(options or Options()))


class _Grower:
    """Grows one kernel graph by drawn choices."""

    def __init__(self, draw: Callable[[st.SearchStrategy[object]], object], options: Options) -> None:
        self._draw, self.options = draw, options
        self.kernel = KernelBuilder(self.pick(["", "program", 'with "quotes"'] if options.odd_names else ["program"]))
        self.values: list[Value] = []
        self.dtype = self.pick([DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64])

    # ------------------------------------------------------------------------------------------------------- choices
    def pick(self, choices: Sequence[T]) -> T:
        return self._draw(st.sampled_from(choices))  # type: ignore[return-value]

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))  # type: ignore[return-value]

    def chance(self, one_in: int) -> bool:
        return self.number(1, one_in) == one_in

    def operator(self, group: Sequence[str]) -> str | None:
        allowed = [name for name in group if name in self.options.operators]
        return self.pick(allowed) if allowed else None

    # -------------------------------------------------------------------------------------------------------- kernel
    def grow(self) -> KernelGraph:
        for _ in range(self.number(1, 3)):
            self.input(tuple(self.number(1, 7) for _ in range(self.pick([2, 2, 2, 3, 1, 0]))))
        for _ in range(self.number(1, self.options.max_steps)):
            if self.options.blocks and self.chance(2):
                self.block()
            else:
                made = self.step(self.kernel, self.values)
                if made and self.options.mixed_types and self.chance(6):
                    made = self.restated(made)
                self.values += made
        made_names = [value.name for value in self.values[len(self.kernel.inputs) :]]
        last = self.values[-1]
        others = [value for value in self.values if value.name != last.name]
        chosen = [last, *(self.pick(others) for _ in range(self.number(0, 2)) if others)]
        unique = list({value.name: value for value in chosen}.values())
        assert made_names or unique
        self.kernel.output(*(reversed(unique) if self.chance(2) else unique))
        return self.kernel.build()

    def input(self, shape: tuple[int, ...]) -> Value:
        odd = [name for name in ODD_NAMES if name not in {tensor.name for tensor in self.kernel.inputs}]
        name = self.pick(odd) if self.options.odd_names and self.chance(2) else f"I{len(self.kernel.inputs)}"
        dtype = DType.FLOAT32 if self.options.mixed_types and self.chance(4) else self.dtype
        strides = column_major_strides(shape) if len(shape) > 1 and self.chance(3) else None
        value = self.kernel.input(name, shape, dtype, strides)
        self.values.insert(len(self.kernel.inputs) - 1, value)
        return value

    def restated(self, made: list[Value]) -> list[Value]:
        tensors = [tensor for tensor in self.kernel.nodes[-1].results if isinstance(tensor, DeviceTensor)]
        stated = [
            DeviceTensor(tensor.name, tensor.shape, DType.FLOAT32, column_major_strides(tensor.shape))
            for tensor in tensors
        ]
        return list(self.kernel.restate(*stated)) if stated else made

    # ---------------------------------------------------------------------------------------- one predefined operator
    def step(self, builder: KernelBuilder | BlockBuilder, values: list[Value]) -> list[Value]:
        """Return the results of a random operator, none if the choice was not legal."""
        if not values:
            return []
        try:
            return self._step(builder, values)
        except WorkbenchError:
            return []

    def _step(self, builder: KernelBuilder | BlockBuilder, values: list[Value]) -> list[Value]:
        group = self.pick([UNARY, BINARY, BINARY, WITH_AXIS, WITH_NUMBER, RESHAPING])
        op, value = self.operator(group), self.pick(values)
        if op is None:
            return []
        rank = len(value.shape)
        if group is UNARY:
            return [builder.apply(op, value)]
        if group is BINARY:
            return self._binary(builder, op, value, values)
        if group is WITH_AXIS:
            axis = self.number(-rank, -1) if rank else -1
            if op == "rms":
                return [builder.apply(op, value, axis=axis, eps=self.pick([Fraction(0), Fraction(1, 10**6)]))]
            return [builder.apply(op, value, axis=axis)]
        match op:
            case "scale":
                return [builder.apply(op, value, factor=self.pick(FRACTIONS))]
            case "clamp":
                return [builder.apply(op, value, lo=-self.number(0, 2), hi=self.pick([Fraction(1, 2), Fraction(3)]))]
            case "power":
                return [builder.apply(op, value, exponent=self.pick([-1, 2, 3]))]
            case "gelu":
                return [builder.apply(op, value, approximate=self.pick(["none", "tanh"]))]
            case "rms_norm" | "l2_norm" | "layer_norm":
                return [builder.apply(op, value, eps=self.pick([Fraction(0), Fraction(1, 10**5)]))]
            case "constant":
                return [builder.apply(op, value=self.pick(FRACTIONS))]
            case "sum_to_columns":
                return [builder.apply(op, value, columns=self.number(1, value.shape[-1] if rank else 1))]
            case "reshape":
                return [builder.apply(op, value, shape=self.pick([(-1,), (1, *value.shape), (*value.shape[1:], -1)]))]
            case "broadcast":
                return [builder.apply(op, value, shape=(2, *(3 if extent == 1 else extent for extent in value.shape)))]
            case _:
                parts = self.pick([1, 2, 3])
                return list(builder.apply_all("split", value, parts=parts, axis=self.number(-rank, -1) if rank else -1))

    def _binary(self, builder: KernelBuilder | BlockBuilder, op: str, value: Value, values: list[Value]) -> list[Value]:
        if op == "matmul" and isinstance(builder, KernelBuilder) and len(value.shape) > 1 and self.chance(2):
            return [builder.apply(op, value, self.input((value.shape[-1], self.number(1, 5))))]
        fitting = [other for other in values if self._fits(op, value, other)]
        if op == "concat":
            chosen = [value, *(self.pick(fitting) for _ in range(self.number(0, 2)) if fitting)]
            return [builder.apply(op, *chosen, axis=-1)]
        if fitting and not self.chance(5):
            pair = (value, self.pick(fitting))
            return [builder.apply(op, *(reversed(pair) if op != "matmul" and self.chance(2) else pair))]
        return [builder.apply(op, value, self.pick(FRACTIONS))]

    @staticmethod
    def _fits(op: str, value: Value, other: Value) -> bool:
        if op == "matmul":
            return len(other.shape) > 1 and value.shape[-1:] == other.shape[-2:-1]
        if op == "concat":
            return value.shape[:-1] == other.shape[:-1] and len(other.shape) == len(value.shape)
        return all(a == b or 1 in (a, b) for a, b in zip(value.shape[::-1], other.shape[::-1], strict=False))

    # --------------------------------------------------------------------------------------------------------- block
    def block(self) -> None:
        """Add a graph-defined operator, unless none of its values could be stored."""
        operands = [self.pick(self.values) for _ in range(self.number(1, 2))]
        if len(operands[0].shape) > 1 and self.chance(2):
            operands.append(self.input((operands[0].shape[-1], self.number(1, 7))))
        loop = self.pick([1, 2, 3, 4])
        builder = BlockBuilder(
            [self._operand(value, number) for number, value in enumerate(operands)],
            grid=[self.pick([1, 1, 2, 3]) for _ in range(self.number(1, 3))],
            loop=loop,
            threads=self.pick([(128,), (32, 4), (256,)]),
            cluster=self.pick([(1,), (loop,)] if self.options.clusters else [(1,)]),
        )
        if not _BlockGrower(self, builder).grow():
            return
        label = self.pick(["", "fused"])
        self.values += self.kernel.graph_defined(builder.build(), operands, name=label)

    def _operand(self, value: Value, number: int) -> DeviceTensor:
        tensor = next(
            tensor
            for tensor in (*self.kernel.inputs, *(t for node in self.kernel.nodes for t in node.results))
            if tensor.name == value.name
        )
        assert isinstance(tensor, DeviceTensor)
        return replace(tensor, name=f"operand{number}") if self.chance(4) else tensor


class _BlockGrower:
    """Grows the inside of one block graph."""

    def __init__(self, outer: _Grower, builder: BlockBuilder) -> None:
        self.outer, self.builder = outer, builder
        self.places: dict[str, Place] = {}
        self.tiles: dict[str, Value] = {}

    def grow(self) -> bool:
        """Return whether the block graph stores something."""
        outer = self.outer
        self.product()
        for position in range(len(self.builder.operands)):
            for _ in range(1 if outer.chance(2) else outer.number(1, 2)):
                self.load(position)
        for _ in range(outer.number(0, 4)):
            self.body_step(Place.LOOP)
        if outer.options.running_max and outer.chance(3):
            self.rescaled()
        for _ in range(outer.number(1, 3)):
            self.accumulate()
        for _ in range(outer.number(0, 3)):
            self.body_step(Place.AFTER)
        wanted, saved = outer.number(1, 3), 0
        for value in reversed(list(self.tiles.values())):
            if saved < wanted and self.places[value.name] is not Place.LOOP and (saved == 0 or outer.chance(2)):
                saved += self.save(value)
        return saved > 0

    def remember(self, values: Sequence[Value], place: Place) -> None:
        for value in values:
            self.tiles[value.name], self.places[value.name] = value, place

    def at(self, *places: Place) -> list[Value]:
        return [value for name, value in self.tiles.items() if self.places[name] in places]

    def load(self, position: int) -> None:
        outer, tensor = self.outer, self.builder.operands[position]
        dims: list[int | None] = [None, *range(len(tensor.shape))]
        imap = tuple(outer.pick(dims) for _ in range(3))
        fmap = outer.pick([*dims, *dims[1:]])
        _, ragged = inference.tile_of(
            tensor, (imap[0], imap[1], imap[2]), fmap, self.builder.grid_dims, self.builder.loop, node=""
        )
        if not outer.options.ragged and any(split is not None for split in ragged):
            imap, fmap = (None, None, None), None
        tile = self.builder.load(position, imap=imap, fmap=fmap)
        self.remember([tile], Place.INVARIANT if fmap is None else Place.LOOP)

    def product(self) -> None:
        """Load two operands that can be multiplied, rows and columns split, the contracted axis looped; multiply them."""
        first, second = self.builder.operands[0], self.builder.operands[-1]
        if len(first.shape) != 2 or len(second.shape) != 2 or first.shape[1] != second.shape[0]:
            return
        rows, columns = self.outer.pick([(0, 1), (1, 0), (2, 2)])
        maps = [[dim if axis == cut else None for axis in range(3)] for dim, cut in ((0, rows), (1, columns))]
        grid, loop = self.builder.grid_dims, self.builder.loop
        even = first.shape[0] % grid[rows] == second.shape[1] % grid[columns] == first.shape[1] % loop == 0
        if not even and not self.outer.options.ragged:
            return
        left = self.builder.load(0, imap=maps[0], fmap=1)
        right = self.builder.load(len(self.builder.operands) - 1, imap=maps[1], fmap=0)
        self.remember([left, right], Place.LOOP)
        if "matmul" in self.outer.options.operators:
            self.remember([self.builder.apply("matmul", left, right)], Place.LOOP)

    def body_step(self, place: Place) -> None:
        """Add an operator or a thread graph to the loop body, or to what follows the loop."""
        outer = self.outer
        values = self.at(place, Place.INVARIANT)
        use_thread = outer.options.threads and bool(values) and outer.chance(4)
        made = self.thread(values) if use_thread else outer.step(self.builder, values)
        if made:
            operands = self.builder.nodes[-1].operands
            self.remember(made, inference.merge_places([self.places_of(name) for name in operands], node=""))
        for node in self.builder.nodes:  # constants that numbers became
            for tensor in node.results:
                if tensor.name not in self.tiles:
                    self.remember([Value(self.builder, tensor.name, tensor.shape)], Place.INVARIANT)

    def places_of(self, name: str) -> Place:
        return self.places.get(name, Place.INVARIANT)

    def thread(self, values: list[Value]) -> list[Value]:
        outer, tree = self.outer, ThreadBuilder()
        allowed = [op for op in ("exp", "silu", "square", "neg", "tanh") if op in outer.options.operators]
        first = outer.pick(values)
        partners = [value for value in values if _Grower._fits("matmul", first, value)] if len(first.shape) > 1 else []
        operands = [first]
        try:
            root = tree.input("p0", first.shape)
            if partners and outer.chance(2):
                operands.append(outer.pick(partners))
                root = tree.apply("matmul", root, tree.input("p1", operands[1].shape))
            for _ in range(outer.number(1, 3)):
                others = [value for value in values if value.shape == root.shape]
                if others and outer.chance(2):
                    operands.append(outer.pick(others))
                    root = tree.apply("mul", root, tree.input(f"p{len(operands) - 1}", root.shape))
                elif allowed:
                    root = tree.apply(outer.pick(allowed), root)
                else:
                    root = tree.apply("add", root, outer.pick(FRACTIONS))
            return [self.builder.thread(tree.build(root), *operands)]
        except WorkbenchError:
            return []

    def rescaled(self) -> None:
        """Add a running maximum and the two accumulators that its shift rescales."""
        logits = [value for value in self.at(Place.LOOP, Place.INVARIANT) if value.shape]
        if not logits:
            return
        value = self.outer.pick(logits)
        try:
            maximum, shift = self.builder.running_max(value)
            self.remember([maximum, shift], Place.LOOP)
            weights, factor = self.builder.apply("exp", value - maximum), self.builder.apply("exp", shift)
        except WorkbenchError:
            return
        for node in self.builder.nodes:
            for tensor in node.results:
                if tensor.name not in self.tiles:
                    self.remember([Value(self.builder, tensor.name, tensor.shape)], Place.LOOP)
        for kind in (AccumulatorKind.RESCALE, AccumulatorKind.RESCALE_SUM):
            try:
                self.remember([self.builder.accumulate(weights, kind, rescale=factor)], Place.AFTER)
            except WorkbenchError:
                continue

    def accumulate(self) -> None:
        outer = self.outer
        values = self.at(Place.LOOP, Place.INVARIANT)
        value = outer.pick(self.at(Place.LOOP) or values)
        kinds = [kind for kind in AccumulatorKind if "rescale" not in kind.value]
        kind = outer.pick(kinds)
        columns = outer.number(1, 3) if kind is AccumulatorKind.SUM_TO_COLUMNS else None
        eps = outer.pick([Fraction(0), Fraction(1, 10**6)]) if kind is AccumulatorKind.RMS else Fraction(0)
        try:
            self.remember([self.builder.accumulate(value, kind, columns=columns, eps=eps)], Place.AFTER)
        except WorkbenchError:
            return

    def save(self, value: Value) -> bool:
        """Store a tile along the axes that cut it; other grid axes are laid along any dimension."""
        tile = next(t for node in self.builder.nodes for t in node.results if t.name == value.name)
        assert isinstance(tile, SharedTensor)
        grid = self.builder.grid_dims
        omap: list[int | None] = [None, None, None]
        for dim, split in enumerate(tile.ragged):
            for axis, _ in split.parts if split is not None else ():
                if axis < 3:
                    omap[axis] = dim
        free = [dim for dim, split in enumerate(tile.ragged) if split is None]
        for axis in range(3):
            if grid[axis] > 1 and omap[axis] is None:
                if not free:
                    return False
                omap[axis] = self.outer.pick(free)
        try:
            self.builder.save(value, omap=omap)
        except WorkbenchError:
            return False
        return True
