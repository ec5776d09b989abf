"""Gated MLPs: two projections of one input, one of them gating the other, with and without the projection back.

Invariant: both projections share the loop over the hidden axis, so X is read once; the gate is applied after the loop.
"""

from __future__ import annotations

from workbench.programs.record import Instance, Parameter, Program, Style
from workbench.programs.tiling import Tiles, fitted, weight_layout
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.rule_blocks import parts
from workbench.ugraph.value import Value, silu

_BATCH = Parameter("batch", 8, "rows of X (tokens)")
_HIDDEN = Parameter("hidden", 4096, "width of a row of X")


def _gated(instance: Instance, x: Value, w1: Value, w2: Value) -> Value:
    return silu(x @ w1) * (x @ w2)


def _gated_down(instance: Instance, x: Value, w1: Value, w2: Value, w3: Value) -> Value:
    return (silu(x @ w1) * (x @ w2)) @ w3


def _gate_block(
    kernel: KernelBuilder, instance: Instance, inputs: tuple[Value, ...], width: str, tiles: Tiles
) -> Value:
    """Add silu(X @ W1) * (X @ W2) as one kernel: columns over the grid, hidden over the loop."""
    columns, rows = parts(instance[width], tiles.columns), parts(instance["batch"], tiles.rows)
    layout = weight_layout(instance["batch"], instance["hidden"], instance[width], 2)
    block = kernel.block(
        *inputs, grid=(columns, rows), loop=parts(instance["hidden"], tiles.depth), threads=(layout.threads,),
        cluster=(layout.cluster,),
    )  # fmt: skip
    x = block.load(inputs[0], imap=(None, 0), fmap=1)
    w1, w2 = (block.load(weight, imap=(1, None), fmap=0) for weight in inputs[1:])
    gate, up = block.accumulate(x @ w1), block.accumulate(x @ w2)
    block.save(silu(gate) * up, omap=(1, 0))
    (result,) = block.finish(name="gated_mlp")
    return result


def _one_kernel(instance: Instance, tiles: Tiles) -> KernelGraph:
    kernel, inputs = instance.start()
    _gate_block(kernel, instance, inputs, "out", tiles)
    return instance.finish(kernel)


def _two_kernels(instance: Instance, tiles: Tiles, *, library_matmul: bool) -> KernelGraph:
    """Build the gated MLP in one kernel and the projection back in a second, its own or the library's."""
    kernel, (x, w1, w2, w3) = instance.start()
    inner = _gate_block(kernel, instance, (x, w1, w2), "inner", tiles)
    if library_matmul:
        kernel.apply("matmul", inner, w3)
        return instance.finish(kernel)
    columns, rows = parts(instance["out"], tiles.columns), parts(instance["batch"], tiles.rows)
    block = kernel.block(inner, w3, grid=(columns, rows), loop=parts(instance["inner"], tiles.depth))
    u = block.load(inner, imap=(None, 0), fmap=1, name="u")
    w = block.load(w3, imap=(1, None), fmap=0)
    block.save(block.accumulate(u @ w), omap=(1, 0))
    block.finish(name="down_projection")
    return instance.finish(kernel)


def _known_good(instance: Instance) -> list[KernelGraph]:
    start = weight_layout(instance["batch"], instance["hidden"], instance["out"], 2).tiles
    return [fitted(lambda tiles: _one_kernel(instance, tiles), start)]


def _known_good_down(instance: Instance) -> list[KernelGraph]:
    start = weight_layout(instance["batch"], instance["hidden"], instance["inner"], 2).tiles
    return [
        fitted(lambda tiles: _two_kernels(instance, tiles, library_matmul=False), start),
        fitted(lambda tiles: _two_kernels(instance, tiles, library_matmul=True), start),
    ]


GATED_MLP = Program(
    name="gated_mlp",
    summary="Two projections of one input, the first through SiLU gating the second.",
    equations={style: "silu(X @ W1) * (X @ W2)" for style in Style},
    inputs={"X": ("batch", "hidden"), "W1": ("hidden", "out"), "W2": ("hidden", "out")},
    parameters=(_BATCH, _HIDDEN, Parameter("out", 4096, "columns of W1 and W2")),
    formula=_gated,
    known_good=_known_good,
    source="Shazeer, GLU Variants Improve Transformer, 2020; Mirage OSDI'25, section 8 (gated MLP); shapes of its benchmark",
)

GATED_MLP_DOWN = Program(
    name="gated_mlp_down",
    summary="A whole gated MLP: two projections, the gate, and the projection back.",
    equations={style: "(silu(X @ W1) * (X @ W2)) @ W3" for style in Style},
    inputs={
        "X": ("batch", "hidden"),
        "W1": ("hidden", "inner"),
        "W2": ("hidden", "inner"),
        "W3": ("inner", "out"),
    },
    parameters=(
        _BATCH,
        _HIDDEN,
        Parameter("inner", 4096, "columns of W1 and W2, rows of W3"),
        Parameter("out", 4096, "columns of W3"),
    ),
    formula=_gated_down,
    known_good=_known_good_down,
    source="Shazeer, GLU Variants Improve Transformer, 2020; the case that Mirage's users report as finding nothing",
)
