"""The text of small emitted kernels, word for word: what a reader sees, and what a change of the emitter changes.

After a change that is meant, read the difference, then run with --update-golden.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.unit.codegen.cuda.planned import block_graph, looped_product, node_of
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.core.dtypes import DType
from workbench.ugraph.builder import BlockBuilder, KernelBuilder, ThreadBuilder


def elementwise(block: BlockBuilder) -> None:
    block.save(block.apply("silu", block.load(0, imap=(0,))) * block.load(1, imap=(0,)), omap=(0,))


def softmax(block: BlockBuilder) -> None:
    block.save(block.apply("softmax", block.load(0, imap=(0,)), axis=-1), omap=(0,))


def online(block: BlockBuilder) -> None:
    """A running maximum over ragged tiles."""
    s = block.load(0, imap=(1,), fmap=1)
    largest, shift = block.running_max(s)
    weights, factor = block.apply("exp", s - largest), block.apply("exp", shift)
    block.save(block.accumulate(weights, "rescale_sum", rescale=factor), omap=(1,))


def threads(block: BlockBuilder) -> None:
    thread = ThreadBuilder()
    x, y = block.load(0), block.load(1)
    a, b = thread.input("a", x.shape), thread.input("b", y.shape)
    block.save(block.thread(thread.build(a * b / 3 + 1), x, y))


def ragged_product(block: BlockBuilder) -> None:
    w = block.load(1, imap=(1,), fmap=0)
    block.save(block.accumulate(block.load(0, fmap=1) @ w), omap=(1,))


def two_products(block: BlockBuilder) -> None:
    """exp(X Y) Z: the fragments of the first product are the left operand of the second."""
    weights = block.apply("exp", block.load(0) @ block.load(1, fmap=1))
    block.save(block.accumulate(weights @ block.load(2, fmap=0)))


def flat() -> str:
    k = KernelBuilder("flat")
    x = k.input("X", (64, 128), DType.BFLOAT16)
    k.output(k.apply("relu", k.apply("transpose", x)))
    (kernel,) = emit_program(k.build()).kernels
    return kernel.body


def block_text(fill: Callable[[BlockBuilder], None], *shapes: tuple[int, ...], **options: object) -> str:
    return emit_block(node_of(block_graph(fill, *shapes, **options))).body  # type: ignore[arg-type]  # keywords of block_graph


CASES: dict[str, Callable[[], str]] = {
    "elementwise": lambda: block_text(elementwise, (8, 256), (8, 256), grid=(4,)),
    "softmax": lambda: block_text(softmax, (8, 300), grid=(8,)),
    "flat": flat,
    "threads": lambda: block_text(threads, (4, 64), (64,)),
    "online": lambda: block_text(online, (4, 140), grid=(2,), loop=3, dtype=DType.FLOAT32),
    "looped_product": lambda: block_text(looped_product, (16, 256), (256, 64), loop=4),
    "ragged_product": lambda: block_text(ragged_product, (3, 50), (50, 33), grid=(3,), loop=2, dtype=DType.FLOAT32),
    "clustered_product": lambda: block_text(looped_product, (16, 256), (256, 32), loop=4, cluster=(2,)),
    "two_products": lambda: block_text(two_products, (16, 32), (32, 64), (64, 32), loop=2, dtype=DType.BFLOAT16),
}


@pytest.mark.parametrize("name", CASES)
def test_the_text_of_a_kernel(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.cu", CASES[name]())


@pytest.mark.parametrize("name", CASES)
def test_every_node_has_its_comment_and_its_name(name: str) -> None:
    """A kernel begins with its plan, and every tile of the µGraph that takes a step is a block with its name and shape."""
    text = CASES[name]()
    notes = [line for line in text.splitlines() if line.startswith("// ")]
    steps = [line.split(": ", 1)[1].split(";")[0].strip() for line in notes if re.match(r"// \w+ the loop: ", line)]
    assert steps
    for step in steps:
        assert text.count(step) >= 2, step
    assert all(re.search(r"\[[\d, ]*\]", step) for step in steps)
