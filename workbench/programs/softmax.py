"""Softmax over rows. Invariant: a row that fits one block's shared memory is read once."""

from __future__ import annotations

from workbench.programs import tiling
from workbench.programs.record import Instance, Parameter, Program, Style
from workbench.programs.tiling import Tiles, fits, fitted
from workbench.ugraph import value
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.rule_blocks import parts
from workbench.ugraph.value import Value, exp


def _formula(instance: Instance, x: Value) -> Value:
    if instance.style is Style.MIRAGE:
        weights = exp(x)
        return weights / value.sum(weights)
    return value.softmax(x)


def _whole_rows(instance: Instance, *, safe: bool) -> KernelGraph:
    """Build e / sum(e) with one row a block; `safe` subtracts the row's maximum first, which changes no result."""
    kernel, (x,) = instance.start()
    block = kernel.block(x, grid=(instance["batch"],))
    row = block.load(x, imap=(0,))
    weights = exp(row - value.max(row)) if safe else exp(row)
    block.save(weights / value.sum(weights), omap=(0,))
    block.finish(name="softmax")
    return instance.finish(kernel)


def _two_passes(instance: Instance, tiles: Tiles) -> KernelGraph:
    """Build the row sums in one kernel that loops over the columns, and the quotients in a second."""
    kernel, (x,) = instance.start()
    rows, columns = parts(instance["batch"], tiles.rows), parts(instance["hidden"], tiles.columns)
    block = kernel.block(x, grid=(rows,), loop=columns)
    block.save(block.accumulate(exp(block.load(x, imap=(0,), fmap=1)), "sum_dim"), omap=(0,))
    (total,) = block.finish(names=["row_sums"], dtypes=["float32"], name="row_sums")
    block = kernel.block(x, total, grid=(rows, columns))
    block.save(exp(block.load(x, imap=(0, 1))) / block.load(total, imap=(0,)), omap=(0, 1))
    block.finish(name="quotients")
    return instance.finish(kernel)


def _known_good(instance: Instance) -> list[KernelGraph]:
    whole = [_whole_rows(instance, safe=safe) for safe in (False, True)]
    if all(fits(graph) for graph in whole):
        return whole
    busy = -(-instance["batch"] // tiling.MULTIPROCESSORS)
    return [fitted(lambda tiles: _two_passes(instance, tiles), Tiles(rows=min(16, busy), columns=1024, depth=1))]


SOFTMAX = Program(
    name="softmax",
    summary="Exponentials of a row over their sum.",
    equations={style: "exp(X) / sum(exp(X))" for style in Style},
    inputs={"X": ("batch", "hidden")},
    parameters=(
        Parameter("batch", 16, "rows of X"),
        Parameter("hidden", 4096, "width of a row, the normalised axis"),
    ),
    formula=_formula,
    known_good=_known_good,
    source="the row-wise kernel of every kernel tutorial (one row a block, kept on chip); Mirage has no such benchmark, so "
    "its style only spells the composite out",
)
