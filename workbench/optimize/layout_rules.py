"""What the layout problem knows of operators: names of rules, weights of prices, which tiles are factors of products.

Invariant: prices are passes over the banks of shared memory (one 128-byte access of a warp) of one block, all iterations
together; a rule says what an operator cannot do with a layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from workbench.core.layouts import Holding, RegisterLayout, Spread
from workbench.core.tensors import DeviceTensor, SharedTensor
from workbench.ops.attributes import integer
from workbench.ops.spec import OpKind
from workbench.optimize.layout_problem import LayoutProblem
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.nodes import BlockNode, OpNode, ThreadNode

FRAGMENT, ROWS = RegisterLayout(Holding.FRAGMENT), RegisterLayout(Holding.ROWS)
ELEMENTS = {axis: RegisterLayout(Holding.ELEMENTS, axis) for axis in (-1, -2)}

GIVEN, ASYNC, LDMATRIX, CONFLICTS, CONTIGUOUS, REGISTERS, VIEWS = (
    "given layout", "16-byte copies", "ldmatrix operands", "bank conflicts", "contiguous reduction", "registers", "views",
)  # fmt: skip
SPREADS = (Spread.PLAIN, Spread.SWIZZLED, Spread.PADDED)
"""In the order in which equally good ones are preferred."""

RULES = (GIVEN, ASYNC, LDMATRIX, CONFLICTS, CONTIGUOUS, REGISTERS, VIEWS)
"""Names of the rules."""

POSSIBLE = (GIVEN, REGISTERS, VIEWS)
"""Those about what is possible at all: they are always demanded."""

MOST_CONFLICTS = 8
"""Passes of one access from which on `bank conflicts` forbids a walk."""

BARRIER_PASSES = 16
"""What a barrier costs, about: a tile of an iteration that is made in shared memory needs one before it is read."""

SECTOR_PASSES, SCALAR_PASSES = 4, 4
"""A write to device memory that uses a quarter of its sectors; a copy element by element, per 32 elements."""

BYTES_PASSES, SWIZZLE_PASSES = 128, 1
"""Bytes of shared memory that are worth a pass; what a swizzle costs once, so that none is made for nothing."""


@dataclass
class LayoutModel:
    """A layout problem and which variable is which.

    Attributes: hard: names of the rules that are demanded; tensors: by (tensor,) of the kernel level or (launch label,
    tile); walks: by (launch label, node number).
    """

    hard: frozenset[str] = frozenset(RULES)
    problem: LayoutProblem = field(default_factory=LayoutProblem)
    tensors: dict[tuple[str, ...], int] = field(default_factory=dict)
    walks: dict[tuple[str, int], int] = field(default_factory=dict)

    def demand(self, name: str, where: str, scope: Sequence[int], holds: Callable[..., bool]) -> None:
        """Add a rule if it is demanded."""
        if name in self.hard or name in POSSIBLE:
            self.problem.demand(name, where, scope, holds)

    def charge(self, name: str, where: str, scope: Sequence[int], cost: Callable[..., int]) -> None:
        """Add a price."""
        self.problem.charge(name, where, scope, cost)


def element_bytes(tensor: SharedTensor, keeps_type: bool) -> int:
    """Return the bytes of an element of a tile: inputs and factors keep their type, all else is kept in float32."""
    return tensor.dtype.nbytes if keeps_type else max(4, tensor.dtype.nbytes)


def factors_of(node: BlockNode) -> tuple[str, ...]:
    """Return the tiles that a node multiplies as matrices."""
    if isinstance(node, ThreadNode):
        outer = dict(zip((tensor.name for tensor in node.graph.inputs), node.operands, strict=True))
        leaves = [inner for inner in node.graph.nodes if inner.spec.kind is OpKind.CONTRACTION]
        return tuple(outer[name] for inner in leaves for name in inner.operands)
    return node.operands if isinstance(node, OpNode) and node.spec.kind is OpKind.CONTRACTION else ()


def joined_factors(block: BlockGraph) -> dict[str, tuple[str, ...]]:
    """Return the concatenations that only products read, piece against piece: their tiles are never made.

    concat(a, b) @ concat(c, d) along the contracted axis is a @ c + b @ d.
    """
    found: dict[str, tuple[str, ...]] = {}
    for node in block.nodes:
        factors = factors_of(node)
        makers = [block.producer(name) for name in factors]
        joins = [made for made in makers if isinstance(made, OpNode) and made.op == "concat"]
        if len(joins) != 2:
            continue
        left, right = joins
        axes = [integer(join.attribute_map, "axis") for join in joins]
        meets = axes == [-1, -2] and [block.tiles[n].shape[-1] for n in left.operands] == [
            block.tiles[n].shape[-2] for n in right.operands
        ]
        if meets and all(len(list(block.consumers(name))) == 1 for name in factors):
            found |= {name: join.operands for name, join in zip(factors, joins, strict=True)}
    return found


def is_aligned(tensor: DeviceTensor, tile: SharedTensor, innermost: int) -> bool:
    """Return True when rows of a tile are whole 16-byte pieces at 16-byte addresses along this axis."""
    if not tile.shape:
        return False
    axis = innermost if len(tile.shape) >= -innermost else -1
    return tile.shape[axis] * tensor.dtype.nbytes % 16 == 0 and tensor.shape[axis] * tensor.dtype.nbytes % 16 == 0
