"""Pruners that look at axes, at what is left to do, at memory and at cost rather than at whole expressions.

Invariant: each is admissible for graphs that A_eq makes equal to the program, without dead operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from workbench.domains.abstract_distance import Region
from workbench.domains.abstract_expr import Kind
from workbench.domains.abstract_tables import bits_of
from workbench.errors import UsageError
from workbench.programs.tiling import SHARED_MEMORY_LIMIT
from workbench.search.palette import Operator
from workbench.search.places import Place
from workbench.search.prefix.prefixes import Prefix
from workbench.search.prefix.tensors import Tensor
from workbench.search.pruners.rule import PREFIX, VALUES, Context, Outlook, Rule

_BOTH = frozenset({PREFIX, VALUES})


@dataclass(frozen=True, slots=True)
class Axes:
    """Keeps tensors whose axes the program brings together: some product of it, with its sums opened, has them all."""

    name: ClassVar[str] = "axes"
    engines: ClassVar[frozenset[str]] = _BOTH
    needs_expressions: ClassVar[bool] = False

    def bind(self, context: Context) -> Rule:
        """Return the rule for one plan."""
        return _AxesRule(context)


class _AxesRule(Rule):
    """Every tensor has a monomial that varies along all its axes, and a monomial lies in one product of the program."""

    name = "axes"

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.algebra = context.tensors.algebra
        self.together = frozenset(self._masks(context.goals.regions))
        self.anything = any(region.undecided for region in context.goals.tables.regions.values())

    def _masks(self, regions: Iterable[Region]) -> Iterable[int]:
        queue, seen = list(regions), set()
        while queue:
            region = queue.pop()
            if id(region) in seen:
                continue
            seen.add(id(region))
            queue.extend(place.child for place in region.places)
            for view in region.opened.views:
                yield self.algebra.base_mask(view.bound | self.algebra.monomial_mask[view.body])

    def drops_tensor(self, made: Tensor, place: Place) -> bool:
        if self.anything:
            return False
        mask = self.algebra.base_mask(made.mask)
        return all(mask & ~whole for whole in self.together)

    def why(self, outlook: Outlook, *, drops: bool) -> str:
        made = outlook.move.made
        if made is None:
            return "dropped before it was looked at"
        names = ", ".join(map(str, self.algebra.axes_of(made.mask))) or "no axis"
        if drops:
            return f"it varies along {names}; no product of the program has all of them"
        return f"it varies along {names}, which meet in a product of the program"


@dataclass(frozen=True, slots=True)
class Reducibility:
    """Keeps folds over axes that some output folds; any other axis may be tiled by a grid only."""

    name: ClassVar[str] = "reducibility"
    engines: ClassVar[frozenset[str]] = _BOTH
    needs_expressions: ClassVar[bool] = False

    def bind(self, context: Context) -> Rule:
        """Return the rule for one plan."""
        return _ReducibilityRule(context)


class _ReducibilityRule(Rule):
    name = "reducibility"

    def __init__(self, context: Context) -> None:
        super().__init__()
        expressions = context.tensors.expressions
        self.reduced = 0
        names = set(context.problem.reduced)
        for goal in context.problem.goals:
            for term in goal.term.subterms():
                if term.kind in (Kind.SUM, Kind.MAX):
                    names.update(axis.name for axis in term.axes)
        for name in names:
            self.reduced |= expressions.mask(name)
        self.algebra = context.tensors.algebra

    def drops_before(self, operator: Operator, operands: tuple[Tensor, ...], folded: int, axis: str) -> bool:
        return bool(folded & ~self.reduced)

    def why(self, outlook: Outlook, *, drops: bool) -> str:
        names = ", ".join(map(str, self.algebra.axes_of(outlook.move.folded)))
        if not names:
            return "it folds no axis"
        return f"no output folds {names}" if drops else f"an output folds {names}"


@dataclass(frozen=True, slots=True)
class Demand:
    """Keeps prefixes that can still be joined to the outputs with the operators that are left."""

    name: ClassVar[str] = "demand"
    engines: ClassVar[frozenset[str]] = _BOTH
    needs_expressions: ClassVar[bool] = False

    def bind(self, context: Context) -> Rule:
        """Return the rule for one plan."""
        return _DemandRule(context)


class _DemandRule(Rule):
    name = "demand"

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.tensors, self.algebra = context.tensors, context.tensors.algebra
        goals = context.goals
        self.budget = sum(self.algebra.count[value] for value in goals.values)
        self.counts = not any(goals.tables.has_maximum(value) for value in goals.values) and not any(
            region.undecided for region in goals.regions
        )

    def drops_prefix(self, outlook: Outlook) -> bool:
        return bool(self._fault(outlook))

    def _fault(self, outlook: Outlook) -> str:
        left = outlook.left + outlook.kernels_left
        if outlook.stuck:
            return "a tensor of an earlier kernel that nothing reads can be read no more"
        joins = outlook.dangling - outlook.outputs
        if joins + (outlook.waiting > 0) > left:
            waits = " and one more to leave the loop" if outlook.waiting else ""
            return f"{outlook.dangling} tensors are unused, {max(joins, 0)} operators join them{waits}, {left} are left"
        if outlook.move.distance > left:
            return f"at least {outlook.move.distance} operators from an output, {left} are left"
        if self.tensors.exact and self.counts and not self.algebra.fits(outlook.count, self.budget):
            return f"the unused tensors together have {self._excess(outlook.count)}"
        return ""

    def _excess(self, count: int) -> str:
        has, most = self.algebra.feature_counts(count), self.algebra.feature_counts(self.budget)
        over = [(key, n) for key, n in has.items() if n > most.get(key, 0)]
        names = sorted(str(key[1] if isinstance(key, tuple) else key) for key, _ in over)  # not as they were met
        return "more of " + ", ".join(names) + " than the outputs"

    def why(self, outlook: Outlook, *, drops: bool) -> str:
        left = outlook.left + outlook.kernels_left
        return self._fault(outlook) or f"{outlook.dangling} tensors are unused, {left} operators are left"


@dataclass(frozen=True, slots=True)
class Memory:
    """Keeps tensors whose smallest possible tile fits a block's shared memory.

    Attributes: shared_bytes: of the GPU, in bytes; element_bytes: of the smallest type a tile is kept in.
    """

    shared_bytes: int = SHARED_MEMORY_LIMIT
    element_bytes: int = 1
    name: ClassVar[str] = "memory"
    engines: ClassVar[frozenset[str]] = _BOTH
    needs_expressions: ClassVar[bool] = False

    def bind(self, context: Context) -> Rule:
        """Return the rule for one plan."""
        return _MemoryRule(context, self)


class _MemoryRule(Rule):
    """An axis that a block folds at once is whole in every tile that has it; every other may be cut to one element."""

    name = "memory"

    def __init__(self, context: Context, pruner: Memory) -> None:
        super().__init__()
        self.pruner, self.extents = pruner, context.extents
        self.loops, self.grid = context.cuts.loops, context.cuts.grid

    def least_bytes(self, outlook: Outlook) -> int:
        """Return what the largest tile of the kernel takes at least, in bytes."""
        kernel = outlook.move.place.kernel
        if kernel is None:
            return 0
        folded, masks = outlook.move.folded, [operand.mask for operand in outlook.move.operands]
        at: Prefix | None = outlook.prefix
        while at is not None and at.move is not None:
            if at.move.place.kernel == kernel:
                folded |= at.move.folded
                masks += [operand.mask for operand in at.move.operands]
            at = at.parent
        held = folded & ~self.loops[kernel] & ~self.grid
        largest = 0
        for mask in masks:
            elements = 1
            for bit in bits_of(mask & held):
                elements *= self.extents.get(bit, 1)
            largest = max(largest, elements)
        return largest * self.pruner.element_bytes

    def drops_prefix(self, outlook: Outlook) -> bool:
        return self.least_bytes(outlook) > self.pruner.shared_bytes

    def why(self, outlook: Outlook, *, drops: bool) -> str:
        return f"the largest tile takes at least {self.least_bytes(outlook):,} B of {self.pruner.shared_bytes:,} B"


class Bound(Protocol):
    """A lower bound of what any completion of a prefix costs."""

    def __call__(self, prefix: Prefix, /) -> float:
        """Return the bound, in the unit of the limit."""
        ...


@dataclass(slots=True)
class CostBound:
    """Keeps prefixes whose cost can still be below a limit; lower the limit whenever something better is found.

    Attributes: bound: what any completion costs at least; limit: of what is of interest.
    """

    bound: Bound
    limit: float = field(default=float("inf"))
    name: ClassVar[str] = "cost_bound"
    engines: ClassVar[frozenset[str]] = frozenset({PREFIX})
    needs_expressions: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raises: UsageError for something that is no function."""
        if not callable(self.bound):
            raise UsageError(f"cost_bound needs a function from a prefix to a lower bound, got {self.bound!r}")

    def bind(self, context: Context) -> Rule:
        """Return the rule for one plan."""
        return _CostRule(self)


class _CostRule(Rule):
    name = "cost_bound"

    def __init__(self, pruner: CostBound) -> None:
        super().__init__()
        self.pruner = pruner

    def drops_extended(self, prefix: Prefix) -> bool:
        return self.pruner.bound(prefix) >= self.pruner.limit
