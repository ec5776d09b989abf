"""Random legal block graphs by quota, without Hypothesis: what a machine with a GPU can emit, run and compare.

A recipe says what a graph must contain; graphs grow by trying, and one that lacks something alive is thrown away. Extents
are those of kernels (tiles up to 64), not of proofs. Long because every kind of node has its way of being drawn.
Invariant: the same number and seed give the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from workbench.codegen.cuda.storage import from_storage
from workbench.core.dtypes import DType
from workbench.core.layouts import column_major_strides
from workbench.device.check_inputs import InputKind, make_cases
from workbench.device.comparison import ELEMENT_FACTOR, ROW_FACTOR, TOLERANCES, compare
from workbench.errors import UsageError, WorkbenchError
from workbench.interpret.rounded import evaluate_rounded
from workbench.ugraph import inference
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import KernelBuilder, ThreadBuilder
from workbench.ugraph.inference import Place
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, BlockNode, OpNode, ThreadNode
from workbench.ugraph.value import Value

T = TypeVar("T")
DTYPES = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32)
KINDS = tuple(AccumulatorKind)
UNARY = ("neg", "square", "silu", "relu", "abs", "sigmoid", "tanh", "gelu", "exp")
BINARY = ("add", "sub", "mul", "maximum", "minimum")
ROWS, COLUMNS, DEPTHS = (1, 3, 8, 16, 17, 32, 64), (1, 5, 8, 16, 24, 32, 64), (4, 8, 16, 20, 32, 64)
NUMBERS = tuple(Fraction(n, d) for n, d in ((1, 2), (-3, 7), (2, 1), (1, 3), (5, 4)))
MOST_NOISE = 0.02
"""A graph that loses more than this when every tile is rounded to its type is too ill-conditioned to be compared."""

MARGIN = 4.0
"""Roundings in another order are another draw of the same errors; the largest of many may be this much larger."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a graph must contain: number, products in its loop, ragged tiles, an accumulator of a kind, its data type."""

    number: int
    products: int
    is_ragged: bool
    kind: AccumulatorKind
    dtype: DType


@dataclass(frozen=True, slots=True)
class Features:
    """What of a graph is alive: products of the loop body, ragged tiles, accumulators."""

    products: int
    is_ragged: bool
    kinds: frozenset[AccumulatorKind]


def recipes(count: int) -> list[Recipe]:
    """Return recipes of which half have a product in the loop, a quarter two, a quarter ragged tiles; kinds and types turn."""
    return [
        Recipe(
            number, (2, 1, 0, 0)[number % 4], number // 4 % 4 == 0, KINDS[number % len(KINDS)], DTYPES[number // 2 % 3]
        )
        for number in range(count)
    ]


def features(graph: KernelGraph) -> Features:
    """Return what is alive in the block graphs of a graph."""
    products, is_ragged, kinds = 0, False, set[AccumulatorKind]()
    for node in graph.graph_defined:
        block = node.block
        for alive in live_nodes(block):
            if isinstance(alive, Accumulator):
                kinds.add(alive.kind)
            is_ragged = is_ragged or any(block.tiles[tensor.name].is_ragged for tensor in alive.results)
            in_loop = bool(alive.results) and block.places[alive.results[0].name] is Place.LOOP
            inner = alive.graph.nodes if isinstance(alive, ThreadNode) else (alive,)
            products += in_loop * sum(isinstance(each, OpNode) and each.op == "matmul" for each in inner)
    return Features(products, is_ragged, frozenset(kinds))


def live_nodes(block: BlockGraph) -> list[BlockNode]:
    """Return the nodes that some output saver needs, in order."""
    needed: set[str] = set()
    kept = []
    for node in reversed(block.nodes):
        if not node.results or any(tensor.name in needed for tensor in node.results):
            needed.update(node.operands)
            kept.append(node)
    return list(reversed(kept))


@dataclass(frozen=True, slots=True)
class RandomGraph:
    """A graph, the recipe it follows, and by how much rounding alone throws it off (see `noise_of`)."""

    recipe: Recipe
    graph: KernelGraph
    noise: float


def tolerances_at(noise: float) -> dict[DType, float]:
    """Return the tolerances of a graph whose roundings alone throw it off by `noise`."""
    return {dtype: max(limit, MARGIN * noise) for dtype, limit in TOLERANCES.items()}


def random_graph(recipe: Recipe, seed: int = 0) -> RandomGraph:
    """Return a graph that follows a recipe and can be compared. Raises: UsageError when none is found."""
    for attempt in range(400):
        rng = np.random.default_rng([seed, recipe.number, attempt])
        try:
            graph = _Grower(rng, recipe).grow()
            found = features(graph)
            if found.products < recipe.products or recipe.kind not in found.kinds or found.is_ragged < recipe.is_ragged:
                continue
            noise = noise_of(graph, seed)
        except WorkbenchError:
            continue
        if noise <= MOST_NOISE:
            return RandomGraph(recipe, graph, noise)
    raise UsageError(f"no graph follows {recipe}")


def noise_of(graph: KernelGraph, seed: int) -> float:
    """Return how far the outputs move, as `compare` measures, when every tile is rounded to its type; inf if not finite."""
    worst = 0.0
    for case in make_cases(graph, seed=seed, kinds=tuple(InputKind)):
        inputs = [from_storage(array, tensor.dtype) for array, tensor in zip(case.inputs, graph.inputs, strict=True)]
        rounded = evaluate_rounded(graph, inputs)
        for tensor, found, expected in zip(graph.outputs, rounded, case.expected, strict=True):
            distance = compare(tensor.name, found.astype(np.float64), expected, 1.0)
            if distance.not_finite or not np.abs(expected).max() > 1e-3:
                return float("inf")
            worst = max(
                worst, distance.relative_error, distance.worst_row / ROW_FACTOR, distance.worst_element / ELEMENT_FACTOR
            )
    return worst


class _Grower:
    """Grows one kernel graph with one graph-defined operator."""

    def __init__(self, rng: np.random.Generator, recipe: Recipe) -> None:
        self.rng, self.recipe = rng, recipe
        self.kernel = KernelBuilder(f"random_{recipe.number}")
        self.ragged_axes = {self.pick("mnk")} | ({self.pick("mnk")} if self.chance(3) else set())
        self.grid = [self.pick((1, 2, 3)), self.pick((1, 2)), self.pick((1, 1, 2))]
        self.loop = self.pick((2, 3, 4, 5))
        if recipe.is_ragged:
            self.grid = [max(2, self.grid[0]), 2, self.grid[2]]
        self.batch = self.grid[2] * self.pick((1, 1, 2)) if self.grid[2] > 1 or self.chance(5) else 0
        self.m = self.axis("m", ROWS, self.grid[0])
        self.n = self.axis("n", COLUMNS, self.grid[1])
        self.k = self.axis("k", DEPTHS, self.loop)

    # ------------------------------------------------------------------------------------------------------- choices
    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, one_in: int) -> bool:
        return int(self.rng.integers(one_in)) == 0

    def axis(self, name: str, tiles: Sequence[int], count: int) -> int:
        """Return an extent that `count` cuts into tiles of a chosen size, the last one shorter if the axis is ragged."""
        tile = self.pick(tiles)
        if self.recipe.is_ragged and name in self.ragged_axes and count > 1:
            tile = max(tile, 3)
            return tile * count - int(self.rng.integers(1, tile))
        return tile * count

    # -------------------------------------------------------------------------------------------------------- inputs
    def input(self, name: str, *shape: int) -> Value:
        """Add an input with the batch axis in front where there is one; matrices are column-major now and then."""
        full = (self.batch, *shape) if self.batch and len(shape) == 2 else shape
        strides = column_major_strides(full) if len(full) > 1 and self.chance(4) else None
        return self.kernel.input(name, full, self.recipe.dtype, strides)

    def load(self, tensor: Value, *cuts: str) -> Value:
        """Load a tensor whose dimensions (without the batch axis) are cut by "x", "y", "loop" or nothing ("")."""
        lead = len(tensor.shape) - len(cuts)
        imap: list[int | None] = [None, None, None]
        fmap = None
        for position, cut in enumerate(cuts):
            if cut == "loop":
                fmap = lead + position
            elif cut:
                imap["xy".index(cut)] = lead + position
        if lead and self.grid[2] > 1:
            imap[2] = 0
        tile = self.block.load(tensor, imap=imap, fmap=fmap)
        self.remember([tile], Place.INVARIANT if fmap is None else Place.LOOP)
        return tile

    @property
    def may_cluster(self) -> bool:
        """Rescaled accumulators need their iterations in order, which a cluster does not keep."""
        return self.recipe.kind not in (AccumulatorKind.RESCALE, AccumulatorKind.RESCALE_SUM)

    # ---------------------------------------------------------------------------------------------------------- grow
    def grow(self) -> KernelGraph:
        """Return the graph. Raises: WorkbenchError when a step that must be possible is not."""
        skeleton = self.pick(self.skeletons())
        self.values: dict[str, Value] = {}
        self.places: dict[str, Place] = {}
        declare, build = skeleton
        operands = declare(self)
        row = self.input("G", self.k) if self.chance(3) else None
        bias = self.input("C", self.m, 1) if self.chance(3) else None
        residual = self.input("R", self.m, self.n) if self.chance(3) else None
        extra = [value for value in (row, bias, residual) if value is not None]
        self.block = self.kernel.block(
            *operands, *extra, grid=self.grid, loop=self.loop, threads=self.pick(((128,), (64,), (256,), (32, 4))),
            cluster=(self.loop,) if self.may_cluster and self.loop in (2, 4) and self.chance(3) else (1,),
        )  # fmt: skip
        self.must_save: list[Value] = []  # what the graph is about; everything else may turn out dead
        build(self, *operands)
        if row is not None:
            self.load(row, "loop")
        if bias is not None:
            self.load(bias, "x", "")
        if residual is not None:
            self.load(residual, "x", "y")
        for _ in range(int(self.rng.integers(0, 3))):
            self.step(Place.LOOP)
        self.accumulate()
        for _ in range(int(self.rng.integers(0, 4))):
            self.step(Place.AFTER)
        self.save_some()
        self.kernel.output(*self.block.finish(name="random"))
        return self.kernel.build()

    def skeletons(self) -> list[tuple[Callable[..., list[Value]], Callable[..., None]]]:
        """Return what declares the operands and what loads and multiplies them, for the products that are asked for."""
        match self.recipe.products:
            case 0:
                return [(_Grower.rows_declared, _Grower.rows_built)]
            case 1:
                return [(_Grower.product_declared, _Grower.product_built)]
            case _:
                return [
                    (_Grower.gated_declared, _Grower.gated_built),
                    (_Grower.attention_declared, _Grower.attention_built),
                ]

    def rows_declared(self) -> list[Value]:
        return [self.input("X", self.m, self.k), *([self.input("Z", self.m, self.k)] if self.chance(2) else [])]

    def rows_built(self, *operands: Value) -> None:
        for tensor in operands:
            self.load(tensor, "x", "loop")

    def product_declared(self) -> list[Value]:
        return [self.input("A", self.m, self.k), self.input("B", self.k, self.n)]

    def product_built(self, a: Value, b: Value) -> None:
        left, right = self.load(a, "x", "loop"), self.load(b, "loop", "y")
        if self.chance(3):
            left = self.apply(self.pick(("silu", "tanh", "square")), left)
        if self.chance(5):
            right = self.apply("scale", right, factor=Fraction(1, 2))
        product = self.maybe_thread(left, right)
        self.must_save.append(self.keep(product))

    def gated_declared(self) -> list[Value]:
        return [self.input("A", self.m, self.k), self.input("B", self.k, self.n), self.input("B2", self.k, self.n)]

    def gated_built(self, a: Value, b: Value, b2: Value) -> None:
        left = self.load(a, "x", "loop")
        first, second = (self.keep(self.apply("matmul", left, self.load(w, "loop", "y"))) for w in (b, b2))
        self.must_save.append(self.apply("mul", self.apply("silu", first), second))

    def attention_declared(self) -> list[Value]:
        self.head = self.pick((4, 8, 16, 24, 64))
        return [self.input("Q", self.m, self.head), self.input("K", self.head, self.k), self.input("V", self.k, self.n)]

    def attention_built(self, q: Value, k: Value, v: Value) -> None:
        logits = self.apply("matmul", self.load(q, "x", ""), self.load(k, "", "loop"))
        values = self.load(v, "loop", "y")
        if self.recipe.kind in (AccumulatorKind.RESCALE, AccumulatorKind.RESCALE_SUM):
            maximum, shift = self.block.running_max(logits)
            self.remember([maximum, shift], Place.LOOP)
            weights, factor = self.apply("exp", self.apply("sub", logits, maximum)), self.apply("exp", shift)
            total = self.keep(weights, AccumulatorKind.RESCALE_SUM, rescale=factor)
            product = self.keep(self.apply("matmul", weights, values), AccumulatorKind.RESCALE, rescale=factor)
        else:
            weights = self.apply(self.pick(("exp", "sigmoid", "relu", "tanh")), logits)
            total = self.keep(self.apply("square", weights), AccumulatorKind.SUM_DIM)
            product = self.keep(self.apply("matmul", weights, values))
        self.must_save.append(self.apply("div", product, self.apply("add", total, Fraction(1))))

    def maybe_thread(self, left: Value, right: Value) -> Value:
        """Multiply, now and then inside a thread graph with an epilogue."""
        if not self.chance(4):
            return self.apply("matmul", left, right)
        tree = ThreadBuilder()
        root = tree.apply("matmul", tree.input("p0", left.shape), tree.input("p1", right.shape))
        made = self.block.thread(tree.build(tree.apply("tanh", root)), left, right)
        self.remember([made], Place.LOOP)
        return made

    # --------------------------------------------------------------------------------------------------------- steps
    def remember(self, values: Sequence[Value], place: Place) -> None:
        for value in values:
            self.values[value.name], self.places[value.name] = value, place

    def at(self, *places: Place) -> list[Value]:
        return [value for name, value in self.values.items() if self.places[name] in places]

    def apply(self, op: str, *operands: Value | Fraction, **attributes: Any) -> Value:
        """Add an operator and remember what it makes. Raises: WorkbenchError."""
        made = self.block.apply_all(op, *operands, **attributes)
        read = [self.places.get(name, Place.INVARIANT) for name in self.block.nodes[-1].operands]
        self.remember(made, inference.merge_places(read, node=""))
        return made[0]

    def keep(self, value: Value, kind: AccumulatorKind = AccumulatorKind.SUM, **given: Value | int | Fraction) -> Value:
        """Accumulate. Raises: WorkbenchError."""
        made = self.block.accumulate(value, kind, **given)  # type: ignore[arg-type]  # each kind has its own
        self.remember([made], Place.AFTER)
        return made

    def step(self, place: Place) -> None:
        """Add a random operator on values of a place, if the choice is legal."""
        values = self.at(place, Place.INVARIANT)
        if not values:
            return
        value = self.pick(values)
        rank = len(value.shape)
        kind = self.pick(("unary", "unary", "binary", "binary", "number", "fold", "move"))
        try:
            match kind:
                case "unary":
                    self.apply(self.pick(UNARY), value)
                case "binary":
                    self.apply(self.pick(BINARY), value, self.pick(values))
                case "number":
                    op = self.pick(("scale", "clamp", "add", "power"))
                    match op:
                        case "scale":
                            self.apply(op, value, factor=self.pick(NUMBERS))
                        case "clamp":
                            self.apply(op, value, lo=Fraction(-1, 2), hi=Fraction(3, 4))
                        case "power":
                            self.apply(op, value, exponent=self.pick((2, 3)))
                        case _:
                            self.apply(op, value, self.pick(NUMBERS))
                case "fold":
                    op = self.pick(("sum", "mean", "max", "softmax", "rms"))
                    axis = -1 if rank < 2 or self.chance(2) else -2
                    self.apply(op, value, axis=axis, **({"eps": Fraction(1, 10**5)} if op == "rms" else {}))
                case _:
                    self.move(value, values)
        except WorkbenchError:
            return

    def move(self, value: Value, values: Sequence[Value]) -> None:
        """Add an operator that moves elements. Raises: WorkbenchError."""
        match self.pick(("transpose", "reshape", "concat", "split", "sum_to_columns")):
            case "transpose":
                self.apply("transpose", value)
            case "reshape":
                self.apply("reshape", value, shape=(*value.shape[:-1], 1, value.shape[-1]))
            case "concat":
                others = [other for other in values if other.shape[:-1] == value.shape[:-1]]
                self.apply("concat", value, self.pick(others), axis=-1)
            case "split":
                self.apply("split", value, parts=2, axis=-1)
            case _:
                divisors = [n for n in range(1, value.shape[-1] + 1) if value.shape[-1] % n == 0]
                self.apply("sum_to_columns", value, columns=self.pick(divisors))

    def accumulate(self) -> None:
        """Add the accumulator that the recipe asks for. Raises: UsageError when no value takes it."""
        kind = self.recipe.kind
        candidates = self.at(Place.LOOP)
        order = [candidates[int(i)] for i in self.rng.permutation(len(candidates))]
        for value in order:
            try:
                self.must_save.append(self.accumulated(value, kind))
            except WorkbenchError:
                continue
            return
        raise UsageError(f"no value takes an accumulator {kind}")

    def accumulated(self, value: Value, kind: AccumulatorKind) -> Value:
        match kind:
            case AccumulatorKind.SUM_TO_COLUMNS:
                divisors = [n for n in range(1, value.shape[-1] + 1) if value.shape[-1] % n == 0]
                return self.keep(value, kind, columns=self.pick(divisors))
            case AccumulatorKind.RMS:
                return self.keep(value, kind, eps=self.pick((Fraction(0), Fraction(1, 10**6))))
            case AccumulatorKind.RESCALE | AccumulatorKind.RESCALE_SUM:
                maximum, shift = self.block.running_max(value)
                self.remember([maximum, shift], Place.LOOP)
                weights = self.apply("exp", self.apply("sub", value, maximum))
                return self.keep(weights, kind, rescale=self.apply("exp", shift))
            case _:
                return self.keep(value, kind)

    # --------------------------------------------------------------------------------------------------------- saving
    def save_some(self) -> None:
        """Store what must be stored, and the value made last. Raises: WorkbenchError."""
        last = [value for value in self.at(Place.AFTER) if value.name not in {kept.name for kept in self.must_save}]
        for value in self.must_save:
            self.save(value)
        if last:
            try:
                self.save(last[-1])
            except WorkbenchError:
                return

    def save(self, value: Value) -> None:
        """Store a tile along the axes that cut it; other grid axes are laid along any dimension."""
        tile = self.block.tile(value)
        omap: list[int | None] = [None, None, None]
        for dim, split in enumerate(tile.ragged):
            for axis, _ in split.parts if split is not None else ():
                if axis < 3:
                    omap[axis] = dim
        free = [dim for dim, split in enumerate(tile.ragged) if split is None]
        for axis in range(3):
            if self.grid[axis] > 1 and omap[axis] is None:
                if not free:
                    raise UsageError("every dimension of the tile ends early")
                omap[axis] = self.pick(free)
        self.block.save(value, omap=omap)
