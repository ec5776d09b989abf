"""RMSNorm followed by a linear layer: the normalisation and the projection that open a transformer block.

Invariant: the division by the root mean square, a number per row, commutes with the product, so one loop over the hidden
axis serves both reductions (Mirage OSDI'25, figure 3b).
"""

from __future__ import annotations

from fractions import Fraction

from workbench.programs.record import Instance, Parameter, Program, Style
from workbench.programs.tiling import Tiles, fitted, weight_layout
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.rule_blocks import parts
from workbench.ugraph.value import Value, reshape, rms_norm

EPS = Fraction(1, 10**6)


def _formula(instance: Instance, *inputs: Value) -> Value:
    if instance.style is Style.MIRAGE:
        x, w = inputs
        return rms_norm(x, eps=0) @ w
    x, g, w = inputs
    return rms_norm(x, eps=EPS, gain=g) @ w


def _one_block(instance: Instance, tiles: Tiles, *, gain_on_weight: bool = False) -> KernelGraph:
    """Build (X * G) @ W / rms(X), or X @ (G * W) / rms(X), in one kernel: columns over the grid, hidden over the loop."""
    kernel, inputs = instance.start()
    columns, rows = parts(instance["out"], tiles.columns), parts(instance["batch"], tiles.rows)
    layout = weight_layout(instance["batch"], instance["hidden"], instance["out"])
    block = kernel.block(
        *inputs, grid=(columns, rows), loop=parts(instance["hidden"], tiles.depth), threads=(layout.threads,),
        cluster=(layout.cluster,),
    )  # fmt: skip
    x = block.load(inputs[0], imap=(None, 0), fmap=1)
    w = block.load(inputs[-1], imap=(1, None), fmap=0)
    if instance.style is Style.MIRAGE:
        product, eps = x @ w, Fraction(0)
    else:
        g, eps = block.load(inputs[1], fmap=0), EPS
        product = x @ (reshape(g, (*g.shape, 1)) * w) if gain_on_weight else (x * g) @ w
    block.save(block.accumulate(product) / block.accumulate(x, "rms", eps=eps), omap=(1, 0))
    block.finish(name="rms_norm_linear")
    return instance.finish(kernel)


def _known_good(instance: Instance) -> list[KernelGraph]:
    start = weight_layout(instance["batch"], instance["hidden"], instance["out"]).tiles
    graphs = [fitted(lambda tiles: _one_block(instance, tiles), start)]
    if instance.style is Style.STANDARD:
        graphs.append(fitted(lambda tiles: _one_block(instance, tiles, gain_on_weight=True), start))
    return graphs


RMS_NORM_LINEAR = Program(
    name="rms_norm_linear",
    summary="Rows normalised by their root mean square, times a gain, through a linear layer.",
    equations={
        Style.STANDARD: "(X / sqrt(mean(X^2) + 1e-6) * G) @ W",
        Style.MIRAGE: "(X / sqrt(mean(X^2))) @ W",
    },
    inputs={"X": ("batch", "hidden"), "G": ("hidden",), "W": ("hidden", "out")},
    mirage_inputs={"X": ("batch", "hidden"), "W": ("hidden", "out")},
    parameters=(
        Parameter("batch", 16, "rows of X (tokens)"),
        Parameter("hidden", 4096, "width of a row, the reduced axis"),
        Parameter("out", 4096, "columns of W"),
    ),
    formula=_formula,
    known_good=_known_good,
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019; Mirage OSDI'25, section 3 and figure 3; "
    "shapes of LLaMA-2-7B",
)
