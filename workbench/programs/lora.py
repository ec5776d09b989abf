"""A linear layer with a low-rank adapter (LoRA). Invariant: the adapter rides on the loop that reads X for the layer."""

from __future__ import annotations

from workbench.programs.record import Instance, Parameter, Program, Style
from workbench.programs.tiling import Layout, Tiles, even_parts, fits, fitted, weight_layout
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.rule_blocks import parts
from workbench.ugraph.value import Value, concat


def _formula(instance: Instance, x: Value, w: Value, a: Value, b: Value) -> Value:
    return x @ w + (x @ a) @ b


def _layout(instance: Instance) -> Layout:
    """Return the layout of W; A, which rides along, is read by every block and makes deep tiles costly."""
    return weight_layout(instance["batch"], instance["hidden"], instance["out"], 3)


def _two_accumulators(instance: Instance, tiles: Tiles) -> KernelGraph:
    """Build acc(X W) + acc(X A) B: both products of X in one loop, the small second product after it."""
    kernel, inputs = instance.start()
    columns, rows = parts(instance["out"], tiles.columns), parts(instance["batch"], tiles.rows)
    layout = _layout(instance)
    block = kernel.block(
        *inputs, grid=(columns, rows), loop=parts(instance["hidden"], tiles.depth), threads=(layout.threads,),
        cluster=(layout.cluster,),
    )  # fmt: skip
    x = block.load(inputs[0], imap=(None, 0), fmap=1)
    w = block.load(inputs[1], imap=(1, None), fmap=0)
    a = block.load(inputs[2], fmap=0)
    b = block.load(inputs[3], imap=(1, None))
    block.save(block.accumulate(x @ w) + block.accumulate(x @ a) @ b, omap=(1, 0))
    block.finish(name="lora")
    return instance.finish(kernel)


def _concatenated(instance: Instance, tiles: Tiles) -> KernelGraph:
    """Build acc((X | X A)(W ; B)): the paper's form, one product of concatenated operands in every iteration.

    The product is linear in X, so the adapter's part of each iteration adds up to (X A) B. The loop divides the hidden
    axis, because a ragged axis has no place in a concatenation.
    """
    kernel, inputs = instance.start()
    columns, rows = parts(instance["out"], tiles.columns), parts(instance["batch"], tiles.rows)
    block = kernel.block(*inputs, grid=(columns, rows), loop=even_parts(instance["hidden"], tiles.depth))
    x = block.load(inputs[0], imap=(None, 0), fmap=1)
    w = block.load(inputs[1], imap=(1, None), fmap=0)
    a = block.load(inputs[2], fmap=0)
    b = block.load(inputs[3], imap=(1, None))
    block.save(block.accumulate(concat(x, x @ a, axis=-1) @ concat(w, b, axis=-2)), omap=(1, 0))
    block.finish(name="lora")
    return instance.finish(kernel)


def _known_good(instance: Instance) -> list[KernelGraph]:
    start = _layout(instance).tiles
    graphs = [fitted(lambda tiles: _two_accumulators(instance, tiles), start)]
    concatenated = _concatenated(instance, Tiles())
    return [*graphs, concatenated] if fits(concatenated) else graphs


LORA = Program(
    name="lora",
    summary="A linear layer plus the low-rank update that fine-tuning adds to it.",
    equations={style: "X @ W + (X @ A) @ B" for style in Style},
    inputs={"X": ("batch", "hidden"), "W": ("hidden", "out"), "A": ("hidden", "rank"), "B": ("rank", "out")},
    parameters=(
        Parameter("batch", 16, "rows of X (tokens)"),
        Parameter("hidden", 256, "width of a row of X"),
        Parameter("out", 4096, "columns of W and B"),
        Parameter("rank", 16, "rank of the update"),
    ),
    formula=_formula,
    known_good=_known_good,
    source="Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2021; Mirage OSDI'25, section 8 (LoRA): "
    "(W | B)(X | A X); shapes of its benchmark",
)
