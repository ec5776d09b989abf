"""Small graphs that the tests of the views draw; node counts are given where they are built."""

from __future__ import annotations

import workbench as wb
from workbench.ugraph.kernel_graph import KernelGraph


def rms_norm_linear(name: str = "rms_norm_linear") -> KernelGraph:
    """X W / rms(X) in one block graph: 2 inputs, 7 nodes in the block graph (3 of them in the loop), 1 output."""
    kernel = wb.KernelBuilder(name)
    x, w = kernel.input("X", (16, 4096)), kernel.input("W", (4096, 4096))
    block = kernel.block(x, w, grid=(64,), loop=64)
    x_tile, w_tile = block.load(x, fmap=1), block.load(w, imap=(1,), fmap=0)
    total = block.accumulate(x_tile @ w_tile, name="total")
    block.save(total / block.accumulate(x_tile, "rms", name="length"), omap=(1,))
    kernel.output(*block.finish(names=["O"], name="fused"))
    return kernel.build()


def gated_with_threads() -> KernelGraph:
    """silu(X W1) * (X W2 + 1) with a thread graph of 4 operators, then exp: 3 + (8 + 4) + 1 + 2 = 18 nodes."""
    kernel = wb.KernelBuilder("gated")
    inputs = [kernel.input(name, shape) for name, shape in (("X", (8, 64)), ("W1", (64, 32)), ("W2", (64, 32)))]
    block = kernel.block(*inputs, grid=(2,), loop=4)
    x = block.load(inputs[0], fmap=1)
    w1, w2 = (block.load(weight, imap=(1,), fmap=0) for weight in inputs[1:])
    gate, up = block.accumulate(x @ w1), block.accumulate(x @ w2)
    threads = wb.ThreadBuilder()
    left, right = threads.input("gate", gate.shape), threads.input("up", up.shape)
    block.save(block.thread(threads.build(wb.silu(left) * (right + 1)), gate, up, name="gated"), omap=(1,))
    (first,) = block.finish(names=["first"])
    kernel.output(wb.exp(first), first)
    return kernel.build()


def ragged() -> KernelGraph:
    """exp of 22 columns over 4 blocks, tiles of 6, the last of 4, in a column-major input."""
    kernel = wb.KernelBuilder("ragged")
    x = kernel.input("X", (3, 22), strides=(1, 3))
    block = kernel.block(x, grid=(4,))
    block.save(wb.exp(block.load(x, imap=(1,))), omap=(1,))
    kernel.output(*block.finish())
    return kernel.build()


def chain(length: int) -> KernelGraph:
    """`length` exponentials one after the other."""
    kernel = wb.KernelBuilder("chain")
    value = kernel.input("X", (4, 4))
    for _ in range(length):
        value = wb.exp(value)
    kernel.output(value)
    return kernel.build()


def hostile() -> KernelGraph:
    """Names that a careless label, id, title or table would break on."""
    kernel = wb.KernelBuilder('</svg><script>alert("1")</script>')
    x = kernel.input('a"b\\N\\l<i>&amp;', (2, 2))
    y = kernel.input("zero\x00newline\n", (2, 2))
    kernel.output(kernel.apply("add", x, y, name="n" * 300))
    return kernel.build()
