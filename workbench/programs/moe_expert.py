"""The experts of a mixture-of-experts layer, each on its own rows: batched matmuls without gating or routing.

Invariant: an expert never reads another's weights, so the experts lie along one axis of the grid.
"""

from __future__ import annotations

from workbench.programs.record import Instance, Parameter, Program, Style
from workbench.programs.tiling import Tiles, fitted
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.rule_blocks import parts
from workbench.ugraph.value import Value, exp


def _formula(instance: Instance, x: Value, a: Value, b: Value) -> Value:
    return exp(x @ a) @ b


def _two_kernels(instance: Instance, tiles: Tiles) -> KernelGraph:
    """Build exp(X A) in one kernel and the product with B in a second, experts along grid x."""
    kernel, (current, a, b) = instance.start()
    rows = parts(instance["rows"], tiles.rows)
    for weight, reduced, width in ((a, "hidden", "inner"), (b, "inner", "out")):
        grid = (instance["experts"], parts(instance[width], tiles.columns), rows)
        block = kernel.block(current, weight, grid=grid, loop=parts(instance[reduced], tiles.depth))
        x = block.load(current, imap=(0, None, 1), fmap=2)
        w = block.load(weight, imap=(0, 2), fmap=1)
        total = block.accumulate(x @ w)
        block.save(exp(total) if weight is a else total, omap=(0, 2, 1))
        (current,) = block.finish(name="expert_up" if weight is a else "expert_down")
    return instance.finish(kernel)


def _known_good(instance: Instance) -> list[KernelGraph]:
    return [fitted(lambda tiles: _two_kernels(instance, tiles), Tiles())]


MOE_EXPERT = Program(
    name="moe_expert",
    summary="Batched experts: each expert's rows through its two weights, exp between them, no gating.",
    equations={style: "exp(X @ A) @ B" for style in Style},
    inputs={
        "X": ("experts", "rows", "hidden"),
        "A": ("experts", "hidden", "inner"),
        "B": ("experts", "inner", "out"),
    },
    parameters=(
        Parameter("experts", 8, "experts"),
        Parameter("rows", 8, "rows (tokens) of each expert"),
        Parameter("hidden", 4096, "width of a row of X"),
        Parameter("inner", 4096, "columns of A, rows of B"),
        Parameter("out", 4096, "columns of B"),
    ),
    formula=_formula,
    known_good=_known_good,
    source="Mirage's benchmark moe.py, which has exp for the activation and neither gate nor routing",
)
