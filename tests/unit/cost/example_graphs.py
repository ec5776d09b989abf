"""µGraphs of the cost tests whose cuts no other code chooses."""

from __future__ import annotations

from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def split_attention(groups: int, rows: int, width: int, context: int, *, split: int, loop: int) -> KernelGraph:
    """Return exp(Q K) V over its row sums: keys split over blocks, partial results combined by a second kernel."""
    kernel = KernelBuilder("split_attention")
    shapes = ((groups, rows, width), (groups, width, context), (groups, context, width))
    q, k, v = (kernel.input(name, shape) for name, shape in zip("QKV", shapes, strict=True))
    block = kernel.block(q, k, v, grid=(groups, 1, split), loop=loop)
    logits = block.load(q, imap=(0,)) @ block.load(k, imap=(0, None, 2), fmap=2)
    weights = block.apply("exp", logits)
    products = block.accumulate(weights @ block.load(v, imap=(0, None, 1), fmap=1))
    sums = block.accumulate(weights, "sum_dim")
    block.save(products, omap=(0, None, 2))
    block.save(sums, omap=(0, None, 2))
    products, sums = block.finish(names=["products", "sums"], dtypes=["float32", "float32"])
    second = kernel.block(products, sums, grid=(groups,))
    total = second.apply("sum_to_columns", second.load(products, imap=(0,)), columns=width)
    count = second.apply("sum", second.load(sums, imap=(0,)), axis=-1)
    second.save(total / count, omap=(0,))
    kernel.output(*second.finish(names=["O"], dtypes=["float16"]))
    return kernel.build()
