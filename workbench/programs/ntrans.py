"""The normalised transformer's (nGPT's) residual update: a step from X towards the normalised H, normalised again.

Invariant: nothing here but reading and writing costs time, so each row is read once and never leaves the chip.
"""

from __future__ import annotations

from workbench.programs.record import Instance, Parameter, Program, Style
from workbench.programs.tiling import Tiles, fits, fitted
from workbench.ugraph.builder import BlockBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.rule_blocks import parts
from workbench.ugraph.value import Value, l2_norm, rms_norm, sqrt, square


def _norm(instance: Instance, operand: Value) -> Value:
    return rms_norm(operand, eps=0) if instance.style is Style.MIRAGE else l2_norm(operand)


def _step(instance: Instance, normalised: Value, x: Value, alpha: Value) -> Value:
    """Return X + alpha * (normalised H - X); Mirage's benchmark adds where the model subtracts."""
    return x + alpha * (normalised + x if instance.style is Style.MIRAGE else normalised - x)


def _formula(instance: Instance, h: Value, x: Value, alpha: Value) -> Value:
    return _norm(instance, _step(instance, _norm(instance, h), x, alpha))


def _one_kernel(instance: Instance) -> KernelGraph:
    """Build the whole program with one row a block; without a loop no tile needs to be accumulated in shared memory."""
    kernel, inputs = instance.start()
    threads = max(64, min(512, -(-instance["hidden"] // 8)))  # eight neighbours, 16 bytes, a thread
    block = kernel.block(*inputs, grid=(instance["batch"],), threads=(threads,))
    block.save(_formula(instance, *(block.load(tensor, imap=(0,)) for tensor in inputs)), omap=(0,))
    block.finish(name="ntrans")
    return instance.finish(kernel)


def _length(instance: Instance, block: BlockBuilder, operand: Value) -> Value:
    """Accumulate what the norm divides by: the root of the sum, or in Mirage's style of the mean, of squares."""
    if instance.style is Style.MIRAGE:
        return block.accumulate(operand, "rms")
    return sqrt(block.accumulate(square(operand), "sum_dim"))


def _three_kernels(instance: Instance, tiles: Tiles) -> KernelGraph:
    """Build the length of H, the length of the step, and the quotient, for rows too long for one block."""
    kernel, (h, x, alpha) = instance.start()
    rows, columns = parts(instance["batch"], tiles.rows), parts(instance["hidden"], tiles.columns)
    block = kernel.block(h, grid=(rows,), loop=columns)
    block.save(_length(instance, block, block.load(h, imap=(0,), fmap=1)), omap=(0,))
    (first,) = block.finish(names=["h_length"], dtypes=["float32"], name="length_of_h")

    block = kernel.block(h, x, alpha, first, grid=(rows,), loop=columns)
    h_tile, x_tile, a_tile = (block.load(tensor, imap=(0,), fmap=1) for tensor in (h, x, alpha))
    step = _step(instance, h_tile / block.load(first, imap=(0,)), x_tile, a_tile)
    block.save(_length(instance, block, step), omap=(0,))
    (second,) = block.finish(names=["step_length"], dtypes=["float32"], name="length_of_step")

    block = kernel.block(h, x, alpha, first, second, grid=(rows, columns))
    h_tile, x_tile, a_tile = (block.load(tensor, imap=(0, 1)) for tensor in (h, x, alpha))
    step = _step(instance, h_tile / block.load(first, imap=(0,)), x_tile, a_tile)
    block.save(step / block.load(second, imap=(0,)), omap=(0, 1))
    block.finish(name="quotient")
    return instance.finish(kernel)


def _known_good(instance: Instance) -> list[KernelGraph]:
    one = _one_kernel(instance)
    if fits(one):
        return [one]
    return [fitted(lambda tiles: _three_kernels(instance, tiles), Tiles(rows=1, columns=1024, depth=1))]


NTRANS = Program(
    name="ntrans",
    summary="nGPT's residual update: from X a step alpha towards the normalised H, and the result normalised.",
    equations={
        Style.STANDARD: "Y / |Y|, Y = X + alpha * (H / |H| - X)",
        Style.MIRAGE: "Y / rms(Y), Y = X + alpha * (H / rms(H) + X)",
    },
    inputs={"H": ("batch", "hidden"), "X": ("batch", "hidden"), "alpha": ("batch", "hidden")},
    parameters=(
        Parameter("batch", 8, "rows (tokens)"),
        Parameter("hidden", 4096, "width of a row; alpha has one step size per element, as in Mirage's benchmark"),
    ),
    formula=_formula,
    known_good=_known_good,
    source="Loshchilov et al., nGPT: Normalized Transformer, 2024; Mirage OSDI'25, section 8 (nTrans): fused it loses to "
    "TensorRT because every tensor passes through shared memory; shapes of its benchmark",
)
