"""The part of the layout problem that is about one block graph.

Invariant: a tile may have the layouts in `options`, and each operator that goes over elements has a variable of its own, its
walk: how the block's threads share the elements. So every rule and price is about two variables at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import assert_never

from workbench.core.layouts import DeviceLayout, Layout, RegisterLayout, SharedLayout, Spread
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor, SharedTensor
from workbench.ops.attributes import integer
from workbench.ops.spec import OpKind
from workbench.optimize import banks
from workbench.optimize.layout_rules import (
    ASYNC,
    BARRIER_PASSES,
    BYTES_PASSES,
    CONFLICTS,
    CONTIGUOUS,
    ELEMENTS,
    FRAGMENT,
    LDMATRIX,
    MOST_CONFLICTS,
    REGISTERS,
    ROWS,
    SCALAR_PASSES,
    SECTOR_PASSES,
    SPREADS,
    SWIZZLE_PASSES,
    VIEWS,
    LayoutModel,
    element_bytes,
    factors_of,
    is_aligned,
    joined_factors,
)
from workbench.ugraph.inference import Place
from workbench.ugraph.nodes import (
    Accumulator,
    AccumulatorKind,
    GraphDefinedNode,
    InputIterator,
    OpNode,
    OutputSaver,
    RunningMax,
    ThreadNode,
)


class BlockModel:
    """Adds the variables, rules and prices of one block graph."""

    def __init__(self, model: LayoutModel, launch: GraphDefinedNode) -> None:
        self.launch, self.block = launch, launch.block
        self.label = launch.results[0].name
        self.model, self.problem = model, model.problem
        self.has_product = any(factors_of(node) for node in self.block.nodes)
        self.joined = joined_factors(self.block)
        self.factor_names = {
            piece for node in self.block.nodes for name in factors_of(node) for piece in self.joined.get(name, (name,))
        }

    def run(self) -> None:
        """Add them."""
        for node in self.block.nodes:
            for tensor in node.results:
                if isinstance(tensor, SharedTensor) and tensor.name not in self.joined:
                    options = self.options(tensor, isinstance(node, InputIterator))
                    number = self.problem.add(f"{self.label}.{tensor.name}", options)
                    self.model.tensors[self.label, tensor.name] = number
                    self.tile_prices(tensor, number, isinstance(node, InputIterator))
        saved = 0
        for number, node in enumerate(self.block.nodes):
            match node:
                case InputIterator():
                    self.loaded(node)
                case OpNode():
                    self.operator(number, node)
                case Accumulator():
                    self.accumulator(number, node)
                case RunningMax():
                    self.reduction(number, node.operand, [tensor.name for tensor in node.results], -1)
                case ThreadNode():
                    self.thread(number, node)
                case OutputSaver():
                    self.saved(number, node, self.launch.results[saved])
                    saved += 1
                case _:
                    assert_never(node)

    # ------------------------------------------------------------------------------------------------------- options
    def options(self, tensor: SharedTensor, is_input: bool) -> list[Layout]:
        """Return the layouts that a tile may have."""
        is_matrix = len(tensor.shape) >= 2 and min(tensor.shape[-2:]) > 1
        is_padded = tensor.name in self.factor_names and not is_input  # to the rows that tensor cores read
        spreads = SPREADS if is_matrix or is_padded else SPREADS[:1]
        shared: list[Layout] = [SharedLayout(axis, s) for axis in ((-1, -2) if is_matrix else (-1,)) for s in spreads]
        if is_input:
            return shared
        registers: list[Layout] = []
        if is_matrix and self.has_product:
            registers.append(FRAGMENT)
        if self.has_product and tensor.shape[-1:] == (1,):
            registers.append(ROWS)
        registers += [ELEMENTS[-1], ELEMENTS[-2]] if is_matrix else [ELEMENTS[-1]]
        return [*registers, *shared]

    def rounds(self, name: str) -> int:
        """Return how often a tile is made: once an iteration, or once."""
        return self.block.forloop_range if self.block.places[name] is Place.LOOP else 1

    def size(self, name: str) -> int:
        """Return the bytes of an element in shared memory: factors of products are handed over in their own type."""
        is_input = isinstance(self.block.producer(name), InputIterator)
        return element_bytes(self.block.tiles[name], is_input or name in self.factor_names)

    def variable(self, name: str) -> int:
        """Return the variable of a tile."""
        return self.model.tensors[self.label, name]

    def is_constant(self, name: str) -> bool:
        """Return True for a number, which lies nowhere."""
        node = self.block.producer(name)
        return isinstance(node, OpNode) and node.spec.kind is OpKind.CONSTANT

    def walk(self, number: int, where: str, shape: Shape) -> int:
        """Add the walk of an operator over elements of this shape and return its variable."""
        is_matrix = len(shape) >= 2 and min(shape[-2:]) > 1
        options = [ELEMENTS[-1], ELEMENTS[-2]] if is_matrix else [ELEMENTS[-1]]
        if is_matrix and self.has_product:
            options.insert(0, FRAGMENT)
        if self.has_product and shape[-1:] == (1,):
            options.insert(0, ROWS)
        made = self.model.walks[self.label, number] = self.problem.add(f"walk of {self.label}.{where}", options)
        return made

    # -------------------------------------------------------------------------------------------------------- prices
    def tile_prices(self, tensor: SharedTensor, number: int, is_input: bool) -> None:
        """Charge the bytes of a tile in shared memory, and the barrier that one made in an iteration needs."""
        shape, size = tensor.shape, self.size(tensor.name)
        rounds, where = self.rounds(tensor.name), f"{self.label}.{tensor.name}"

        def space(layout: Layout) -> int:
            if not isinstance(layout, SharedLayout):
                return 0
            rows, columns = ((1, 1, *shape))[-2:]
            nbytes = prod(shape[:-2]) * banks.tile_bytes(rows, columns, size, layout)
            return -(-nbytes // BYTES_PASSES) + (SWIZZLE_PASSES if layout.spread is Spread.SWIZZLED else 0)

        self.model.charge("shared memory", where, [number], space)
        if not is_input:
            self.model.charge(
                "barriers",
                where,
                [number],
                lambda layout: BARRIER_PASSES * rounds if isinstance(layout, SharedLayout) else 0,
            )

    def access(self, tensor: SharedTensor, layout: Layout, walk: Layout, size: int) -> int:
        """Return the passes in which a block goes over a tile in shared memory once."""
        if not isinstance(layout, SharedLayout):
            return 0
        rows, columns = ((1, 1, *tensor.shape))[-2:]
        elements = prod(tensor.shape)
        if walk != FRAGMENT and isinstance(walk, RegisterLayout) and walk.innermost == layout.innermost:
            return -(-elements * size // 128)  # neighbours lie together, so accesses can be as wide as they like
        per = 64 if walk == FRAGMENT else banks.WARP  # elements of one access
        return -(-elements // per) * self.passes(rows, columns, size, layout, walk)

    @staticmethod
    def passes(rows: int, columns: int, size: int, layout: SharedLayout, walk: Layout) -> int:
        """Return the passes of one access of a warp."""
        is_turned = layout.innermost == -2
        lying = (columns, rows) if is_turned else (rows, columns)
        if walk == FRAGMENT and min(rows, columns) >= banks.FRAGMENT_ROWS:
            return banks.fragment_passes(lying[1], size, layout.spread, transposed=is_turned)
        axis = walk.innermost if isinstance(walk, RegisterLayout) else -1
        return banks.walk_passes(*lying, size, layout.spread, along_rows=axis != layout.innermost)

    def on_walk(self, name: str, walk: int, shape: Shape, where: str, rule: str = REGISTERS) -> None:
        """Say how an operand or result goes with a walk over elements of `shape`."""
        if self.is_constant(name):
            return
        tensor = self.block.tiles[name]
        number, rounds = self.variable(name), self.rounds(name)
        size = self.size(name)
        is_same = tensor.shape[-2:] == shape[-2:]

        def holds(layout: Layout, way: Layout) -> bool:
            if isinstance(layout, SharedLayout):
                return True
            if is_same:
                return layout == way
            return layout == ROWS and way == FRAGMENT and tensor.shape[-2:] == (*shape[-2:-1], 1)

        self.model.demand(rule, where, [number, walk], holds)
        self.model.charge(
            "walks", where, [number, walk], lambda layout, way: rounds * self.access(tensor, layout, way, size)
        )
        if is_same and len(shape) >= 2 and min(shape[-2:]) > 1:
            rows, columns = shape[-2:]
            self.model.demand(
                CONFLICTS, where, [number, walk],
                lambda layout, way: not isinstance(layout, SharedLayout)
                or self.passes(rows, columns, size, layout, way) < MOST_CONFLICTS,
            )  # fmt: skip

    # --------------------------------------------------------------------------------------------------------- nodes
    def loaded(self, node: InputIterator) -> None:
        """A copy is 16 bytes wide where both sides are contiguous along one axis and rows are aligned."""
        tensor, tile = self.block.operands[node.operand], node.result
        device = self.model.tensors[self.launch.operands[node.operand],]
        number, where = self.variable(tile.name), f"{self.label}.{tile.name}"
        rounds, elements, size = self.rounds(tile.name), prod(tile.shape), tensor.dtype.nbytes

        is_matrix = len(tile.shape) >= 2 and min(tile.shape[-2:]) > 1

        def is_wide(source: DeviceLayout, layout: SharedLayout) -> bool:
            is_along = source.innermost == layout.innermost or not is_matrix  # a row and a column lie alike
            return is_along and is_aligned(tensor, tile, source.innermost)

        def can_be_wide(source: DeviceLayout) -> bool:
            return is_aligned(tensor, tile, source.innermost)

        self.model.demand(ASYNC, where, [device, number], lambda d, s: is_wide(d, s) or not can_be_wide(d))
        self.model.charge(
            "copies", where, [device, number],
            lambda d, s: rounds * (-(-elements * size // 128) if is_wide(d, s) else SCALAR_PASSES * -(-elements // banks.WARP)),
        )  # fmt: skip

    def operator(self, number: int, node: OpNode) -> None:
        """Say what an operator demands and costs."""
        where = f"{self.label}.{node.results[0].name}"
        match node.spec.kind:
            case OpKind.CONTRACTION:
                self.product(node.operands, node.results[0].name, where)
            case OpKind.REDUCTION:
                axis = integer(node.attribute_map, "axis") if "axis" in node.attribute_map else -1
                self.reduction(number, node.operands[0], [node.results[0].name], axis, others=node.operands[1:])
            case OpKind.ELEMENTWISE:
                self.elementwise(number, node.operands, node.results[0].name, where)
            case OpKind.MOVEMENT:
                if node.results[0].name not in self.joined:
                    self.view(node, where)
            case OpKind.CONSTANT:
                pass
            case _:
                assert_never(node.spec.kind)

    def elementwise(self, number: int, operands: Sequence[str], result: str, where: str) -> None:
        """Go over operands and result in one walk."""
        shape = self.block.tiles[result].shape
        walk = self.walk(number, result, shape)
        for name in dict.fromkeys((*operands, result)):
            self.on_walk(name, walk, shape, where)

    def accumulator(self, number: int, node: Accumulator) -> None:
        """An accumulator goes over its operand in every iteration."""
        where = f"{self.label}.{node.result.name}"
        if node.kind.reduces_last_axis or node.kind is AccumulatorKind.SUM_TO_COLUMNS:
            others = [node.rescale] if node.rescale is not None else []
            self.reduction(number, node.operand, [node.result.name], -1, others=others)
        else:
            self.elementwise(number, node.operands, node.result.name, where)

    def reduction(
        self, number: int, operand: str, results: Sequence[str], axis: int, others: Sequence[str] = ()
    ) -> None:
        """Go over the operand along the folded axis; the result stays with the rows of a fragment, or is shared."""
        where, tile = f"{self.label}.{results[0]}", self.block.tiles[operand]
        walk = self.walk(number, results[0], tile.shape)
        self.on_walk(operand, walk, tile.shape, where)
        for name in dict.fromkeys(others):
            self.on_walk(name, walk, tile.shape, where)
        if len(tile.shape) >= 2 and min(tile.shape[-2:]) > 1 and axis in (-1, -2):
            self.model.demand(
                CONTIGUOUS, where, [walk], lambda way: way == ELEMENTS[axis] or (axis == -1 and way == FRAGMENT)
            )
            source, rounds = self.variable(operand), self.rounds(operand)
            elements = prod(tile.shape)
            self.model.charge(
                "strided folds", where, [source, walk],
                lambda layout, way: rounds * -(-elements // banks.WARP)
                if isinstance(layout, SharedLayout) and layout.innermost != axis and layout.spread is Spread.PLAIN
                else 0,
            )  # fmt: skip
        for result in results:
            self.model.demand(
                REGISTERS, where, [self.variable(result), walk],
                lambda layout, way: isinstance(layout, SharedLayout) or (layout == ROWS and way in (FRAGMENT, ROWS)),
            )  # fmt: skip

    def product(self, operands: Sequence[str], result: str, where: str) -> None:
        """A product takes its factors as `factors` says and leaves a fragment, or stores it."""
        self.factors(operands, where)
        tile, number, rounds = self.block.tiles[result], self.variable(result), self.rounds(result)
        if FRAGMENT in self.problem.variables[number].options:
            self.model.demand(
                REGISTERS, where, [number], lambda layout: isinstance(layout, SharedLayout) or layout == FRAGMENT
            )
        self.model.charge("products", where, [number], lambda layout: rounds * self.access(tile, layout, FRAGMENT, 4))

    def factors(self, operands: Sequence[str], where: str) -> None:
        """Demand what ldmatrix and mma take: the left operand in shared memory or in fragments, the right one shared."""
        pieces = [(place, piece) for place, name in enumerate(operands) for piece in self.joined.get(name, (name,))]
        for place, name in pieces:
            tile, number, rounds = self.block.tiles[name], self.variable(name), self.rounds(name)
            size = min(2, tile.dtype.nbytes)  # what is computed is handed over in 16 bits
            rows, columns = ((1, 1, *tile.shape))[-2:]
            parts = -(-prod(tile.shape) // 64)  # 8 x 8 matrices

            def reads(layout: Layout, rows: int = rows, columns: int = columns, size: int = size) -> int:
                """Return the passes of one 8 x 8 matrix, 0 where ldmatrix cannot read it."""
                if not isinstance(layout, SharedLayout):
                    return 1
                return banks.ldmatrix_passes(rows if layout.innermost == -2 else columns, size, layout.spread)

            def takes(layout: Layout, is_left: bool = place == 0) -> bool:
                return isinstance(layout, SharedLayout) or (is_left and layout == FRAGMENT)

            def cost(layout: Layout, reads: Callable[[Layout], int] = reads, units: int = rounds * parts) -> int:
                return units * (reads(layout) or SCALAR_PASSES) if isinstance(layout, SharedLayout) else 0

            self.model.demand(REGISTERS, where, [number], takes)
            if min(rows, columns) > 1 or len(self.problem.variables[number].options) > 1:
                self.model.demand(LDMATRIX, where, [number], lambda layout, reads=reads: reads(layout) == 1)
            self.model.charge("products", where, [number], cost)

    def thread(self, number: int, node: ThreadNode) -> None:
        """A thread graph goes over its result's elements; a product at its leaf leaves them as a fragment."""
        result, shape = node.results[0].name, node.results[0].shape
        where = f"{self.label}.{result}"
        factors = factors_of(node)
        walk = self.walk(number, result, shape)
        for name in dict.fromkeys((*(name for name in node.operands if name not in factors), result)):
            self.on_walk(name, walk, shape, where)
        if factors:
            self.factors(factors, where)
            if FRAGMENT in self.problem.variables[walk].options:
                self.model.demand(REGISTERS, where, [walk], lambda way: way == FRAGMENT)

    def view(self, node: OpNode, where: str) -> None:
        """A view reads its operand where it lies, so that lies in shared memory, and the view lies as it does."""
        shape = node.results[0].shape
        turned = node.op == "transpose" and min(shape[-2:]) > 1
        for name in node.operands:
            if self.is_constant(name):
                continue
            self.model.demand(VIEWS, where, [self.variable(name)], lambda layout: isinstance(layout, SharedLayout))
            for tensor in node.results:
                self.model.demand(
                    VIEWS, where, [self.variable(name), self.variable(tensor.name)],
                    lambda a, b: isinstance(b, SharedLayout)
                    and (not turned or not isinstance(a, SharedLayout) or a.innermost != b.innermost),
                )  # fmt: skip

    def saved(self, number: int, node: OutputSaver, result: DeviceTensor) -> None:
        """Write a tile to device memory, best along the axis that is contiguous there."""
        tile = self.block.tiles[node.operand]
        where = f"{self.label}.{result.name}"
        walk = self.walk(number, f"{node.operand} saved", tile.shape)
        self.on_walk(node.operand, walk, tile.shape, where)
        units = -(-prod(tile.shape) * result.dtype.nbytes // 128)

        def writes(way: Layout, layout: DeviceLayout) -> int:
            if way == FRAGMENT:
                return units * (2 if layout.innermost == -1 else SECTOR_PASSES)
            along = way.innermost if isinstance(way, RegisterLayout) else -1
            return units * (1 if along == layout.innermost else SECTOR_PASSES)

        self.model.charge("saves", where, [walk, self.model.tensors[result.name,]], writes)
