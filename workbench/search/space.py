"""Which µGraphs are looked for: limits, palette, and which chains of kernels count. Invariant: a result names its space.

Operators are counted without input iterators and output savers; reshapes and transposes that a layout asks for are not
counted. An accumulator counts one, also with the sum over a tile axis that it takes along; so does a composite (mean,
rms, softmax, a norm), which is offered whole and taken apart.
"""

from __future__ import annotations

from collections import abc
from dataclasses import asdict, dataclass, fields
from typing import Literal

from workbench.display import Displayed
from workbench.errors import UsageError
from workbench.ops.registry import operator

TABLE_1 = ("matmul", "sum", "add", "mul", "div", "exp", "square", "sqrt", "silu")
"""The operators of the paper's table 1 that compute (its Repeat and Reshape are layout and not counted)."""

NEVER = 99
"""More operators than any limit: nothing makes a value, or it leads to no output."""

Mapping = Literal["axes", "enumerate"]
Chains = Literal["needed", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space(Displayed):
    """A space of µGraphs.

    Attributes:
        palette: names of operators offered beside those that the program itself computes with (its composites whole,
            and what they are made of).
        kernel_palette: predefined operators offered at the kernel level, beside graph-defined ones.
        max_kernel_ops: kernels of a µGraph, predefined and graph-defined together.
        max_block_ops: operators of all its block graphs together.
        max_block_graphs: graph-defined operators, chained; 0 to 2.
        mapping: "axes" (one choice of looped and split axis for a block graph) or "enumerate" (the paper's independent
            imap, omap and fmap per tensor; prefix engine only, one block graph).
        grids, loops: with "enumerate" the grid_dims and forloop_range that are tried.
        free_scale: offer multiplication by the program's constants anywhere; by default constants live inside means,
            norms, and operators of the program with a constant operand.
        outer_products: let elementwise operators broadcast both operands (b,1) x (1,d); so they may in any case if one of
            the program does.
        concatenation: offer [x | y] times [w ; z] in a loop for a sum of two products; it counts three operators.
        chains: of two chained block graphs, those that could not as well be one or be cut better ("needed", see
            `chains`), or all.
    """

    palette: tuple[str, ...] = TABLE_1
    kernel_palette: tuple[str, ...] = ("matmul",)
    max_kernel_ops: int = 5
    max_block_ops: int = 11
    max_block_graphs: int = 2
    mapping: Mapping = "axes"
    grids: tuple[tuple[int, ...], ...] = ((16,),)
    loops: tuple[int, ...] = (1, 16)
    free_scale: bool = False
    outer_products: bool = False
    concatenation: bool = True
    chains: Chains = "needed"

    def __post_init__(self) -> None:
        """Raises: UnknownNameError for an operator that there is not, UsageError for any other choice that makes no sense."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, tuple):
                if not isinstance(value, tuple | list):
                    raise UsageError(f"{field.name} {value!r}: give a tuple, for example {field.default!r}")
                object.__setattr__(self, field.name, _tupled(list(value)))
        for limit in ("max_kernel_ops", "max_block_ops", "max_block_graphs"):
            if type(getattr(self, limit)) is not int:
                raise UsageError(f"{limit} {getattr(self, limit)!r}: give a whole number")
        for name in (*self.palette, *self.kernel_palette):
            operator(name)
        if any(name != "matmul" for name in self.kernel_palette):
            raise UsageError(f"kernel_palette {self.kernel_palette}: the search offers matmul at the kernel level")
        if not 0 <= self.max_block_graphs <= 2:
            raise UsageError(f"max_block_graphs {self.max_block_graphs}: use 0, 1 or 2")
        if self.max_block_ops < 1 or self.max_kernel_ops < 1:
            raise UsageError(
                f"max_block_ops {self.max_block_ops} and max_kernel_ops {self.max_kernel_ops} must be at least 1"
            )
        if self.max_block_ops + self.max_kernel_ops >= NEVER:
            raise UsageError(
                f"max_block_ops {self.max_block_ops} and max_kernel_ops {self.max_kernel_ops}: use less than {NEVER} together"
            )
        if self.mapping not in ("axes", "enumerate"):
            raise UsageError(f"mapping {self.mapping!r}: use 'axes' or 'enumerate'")
        if self.chains not in ("needed", "all"):
            raise UsageError(f"chains {self.chains!r}: use 'needed' or 'all'")
        grids = [grid if isinstance(grid, tuple) else () for grid in self.grids]
        if not all(1 <= len(grid) <= 3 and min(grid) >= 1 for grid in grids) or min(self.loops, default=0) < 1:
            raise UsageError(f"grids {self.grids} and loops {self.loops}: give up to 3 counts a grid, all at least 1")

    def describe(self) -> str:
        """Return the space in a few lines."""
        lines = [
            f"kernels: up to {self.max_kernel_ops}; graph-defined: up to {self.max_block_graphs} of them, with up to "
            f"{self.max_block_ops} operators together; mapping {self.mapping}; chains: {self.chains}",
            f"operators: {', '.join(self.palette)} and those of the program",
            f"at the kernel level: {', '.join(self.kernel_palette) or 'none'}",
        ]
        extras = [name for name in ("free_scale", "outer_products", "concatenation") if getattr(self, name)]
        return "\n".join([*lines, *([f"with {', '.join(extras)}"] if extras else [])])

    def to_json(self) -> dict[str, object]:
        """Return the plain form that records and the command line print."""
        return {name: _listed(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, plain: abc.Mapping[str, object]) -> Space:
        """Return the space of a plain form. Raises: UsageError for a name or value that there is not."""
        known = {field.name for field in fields(cls)}
        unknown = [name for name in plain if name not in known]
        if unknown:
            raise UsageError(f"a space has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        return cls(**{name: _tupled(value) for name, value in plain.items()})  # type: ignore[arg-type]


def _listed(value: object) -> object:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _tupled(value: object) -> object:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value
