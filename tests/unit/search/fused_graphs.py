"""Programs that are in no list, and the fused µGraph that a person would write for each, to be found by the search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from workbench.ugraph.builder import BlockBuilder, KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import (
    Value,
    clamp,
    concat,
    exp,
    gelu,
    layer_norm,
    maximum,
    mean,
    relu,
    rms_norm,
    silu,
    softmax,
    split,
    square,
    transpose,
)
from workbench.ugraph.value import (
    max as max_of,
)
from workbench.ugraph.value import (
    sum as sum_of,
)

Loads = tuple[tuple[tuple[int | None, ...], int | None], ...]  # per input: imap, fmap
Sizes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Fused:
    """A program, its input shapes, and one block graph (or more) that computes it."""

    name: str
    formula: Callable[..., object]
    sizes: Sizes
    build: Callable[[KernelBuilder, list[Value]], object]

    @property
    def is_wide(self) -> bool:
        """Whether the default space, with chains of two block graphs, takes many seconds."""
        return self.name in (
            "two LoRA branches",
            "layer norm then linear",
            "three linears share a norm",
            "linear, residual, norm",
            "variance",
        )

    def program(self) -> KernelGraph:
        """Return the program."""
        return self._graph(lambda kernel, inputs: self.formula(*inputs))

    def graph(self) -> KernelGraph:
        """Return the µGraph that a person would write."""
        return self._graph(self.build)

    def _graph(self, build: Callable[[KernelBuilder, list[Value]], object]) -> KernelGraph:
        kernel = KernelBuilder(self.name)
        outputs = build(kernel, [kernel.input(name, shape) for name, shape in self.sizes.items()])
        kernel.output(*(outputs if isinstance(outputs, tuple) else (outputs,)))
        return kernel.build()


def one_block(
    loads: Loads,
    body: Callable[..., object],
    *,
    grid: tuple[int, ...],
    loop: int,
    omaps: tuple[tuple[int | None, ...], ...],
) -> Callable[[KernelBuilder, list[Value]], tuple[Value, ...]]:
    """Return what builds one block graph: body gets the block and the tiles, and returns what is saved."""

    def build(kernel: KernelBuilder, inputs: list[Value]) -> tuple[Value, ...]:
        block: BlockBuilder = kernel.block(*inputs, grid=grid, loop=loop)
        tiles = [block.load(value, imap=imap, fmap=fmap) for value, (imap, fmap) in zip(inputs, loads, strict=True)]
        results = body(block, *tiles)
        for result, omap in zip(results if isinstance(results, tuple) else (results,), omaps, strict=True):
            block.save(result, omap=omap)
        return block.finish()

    return build


CASES: list[Fused] = []


def case(name: str, formula: Callable[..., object], build: Callable[..., object], **sizes: tuple[int, ...]) -> None:
    CASES.append(Fused(name, formula, sizes, build))


# ------------------------------------------------------------------------------------- the five that the issue names
def _norms_of_three(block: BlockBuilder, x: Value, g: Value, *weights: Value) -> tuple[Value, ...]:
    scaled, rms = x * g, block.accumulate(x, "rms", eps=Fraction(1, 10**6))
    return tuple(block.accumulate(scaled @ w) / rms for w in weights)


def _three(x: Value, g: Value, a: Value, b: Value, c: Value) -> tuple[Value, ...]:
    normal = rms_norm(x, gain=g)
    return normal @ a, normal @ b, normal @ c


_WEIGHTS = {"A": (64, 64), "B": (64, 48), "C": (64, 48)}
case(
    "three linears share a norm", _three,
    one_block(
        (((0,), 1), ((None,), 0), ((None,), 0), ((None,), 0), ((None,), 0)),
        _norms_of_three, grid=(2,), loop=4, omaps=((0,), (0,), (0,)),
    ),
    X=(16, 64), G=(64,), **_WEIGHTS,
)  # fmt: skip
for _index in range(3):
    case(
        f"one of three linears after a norm: {'ABC'[_index]}",
        lambda x, g, a, b, c, index=_index: _three(x, g, a, b, c)[index],
        lambda kernel, inputs, index=_index: one_block(
            (((None, 0), 1), ((), 0), ((1,), 0)), _norms_of_three, grid=(2, 2), loop=4, omaps=((1, 0),)
        )(kernel, [inputs[0], inputs[1], inputs[2 + index]]),
        X=(16, 64), G=(64,), **_WEIGHTS,
    )  # fmt: skip
case(
    "bias and residual", lambda x, w, b, r: x @ w + b + r,
    one_block(
        (((None, 0), 1), ((1, None), 0), ((0, None), None), ((1, 0), None)),
        lambda block, x, w, b, r: block.accumulate(x @ w) + b + r,
        grid=(2, 2), loop=4, omaps=((1, 0),),
    ),
    X=(16, 64), W=(64, 32), b=(32,), R=(16, 32),
)  # fmt: skip
case(
    "softmax of a product times a matrix", lambda x, a, b: softmax(x @ a) @ b,
    one_block(
        (((0,), None), ((), 1), ((), 0)),
        lambda block, x, a, b: (
            lambda e: block.accumulate(e @ b) / block.accumulate(e, "sum_dim")
        )(exp(x @ a)),
        grid=(2,), loop=4, omaps=((0,),),
    ),
    X=(16, 64), A=(64, 128), B=(128, 32),
)  # fmt: skip
case(
    "attention with a gain on V", lambda q, k, v, g: softmax(q @ k) @ (v * g),
    one_block(
        (((0, 1), None), ((0,), 2), ((0,), 1), ((), None)),
        lambda block, q, k, v, g: (
            lambda e: block.accumulate(e @ v) / block.accumulate(e, "sum_dim") * g
        )(exp(q @ k)),
        grid=(2, 2), loop=4, omaps=((0, 1),),
    ),
    Q=(2, 16, 32), K=(2, 32, 64), V=(2, 64, 32), g=(32,),
)  # fmt: skip
case(
    "two LoRA branches", lambda x, w, a, b, c, d: x @ w + (x @ a) @ b + (x @ c) @ d,
    one_block(
        (((), 1), ((1,), 0), ((), 0), ((1,), None), ((), 0), ((1,), None)),
        lambda block, x, w, a, b, c, d: (
            block.accumulate(x @ w) + block.accumulate(x @ a) @ b + block.accumulate(x @ c) @ d
        ),
        grid=(2,), loop=4, omaps=((1,),),
    ),
    X=(16, 64), W=(64, 64), A=(64, 8), B=(8, 64), C=(64, 8), D=(8, 64),
)  # fmt: skip

# ----------------------------------------------------------------------------------------------------------- more
case(
    "layer norm then linear", lambda x, w: layer_norm(x) @ w,
    one_block(
        (((0,), None), ((None, 1), None)), lambda block, x, w: layer_norm(x) @ w, grid=(2, 2), loop=1, omaps=((0, 1),)
    ),
    X=(16, 64), W=(64, 32),
)  # fmt: skip
case(
    "linear, residual, norm", lambda x, w, r, g: rms_norm(x @ w + r, gain=g),
    one_block(
        (((0,), 1), ((), 0), ((0,), None), ((), None)),
        lambda block, x, w, r, g: rms_norm(block.accumulate(x @ w) + r, gain=g), grid=(2,), loop=4, omaps=((0,),),
    ),
    X=(16, 64), W=(64, 32), R=(16, 32), G=(32,),
)  # fmt: skip
case(
    "variance", lambda x: mean(square(x - mean(x))),
    one_block((((0,), None),), lambda block, x: mean(square(x - mean(x))), grid=(2,), loop=1, omaps=((0,),)),
    X=(16, 64),
)  # fmt: skip
case(
    "moving average", lambda x, y, a: a * x + (1 - a) * y,
    one_block(
        (((0,), None), ((0,), None), ((), None)), lambda block, x, y, a: a * x + (1 - a) * y,
        grid=(2,), loop=1, omaps=((0,),),
    ),
    X=(16, 64), Y=(16, 64), a=(64,),
)  # fmt: skip
case(
    "gated MLP with biases", lambda x, a, b, c, d: silu(x @ a + c) * (x @ b + d),
    one_block(
        (((None, 0), 1), ((1,), 0), ((1,), 0), ((0,), None), ((0,), None)),
        lambda block, x, a, b, c, d: silu(block.accumulate(x @ a) + c) * (block.accumulate(x @ b) + d),
        grid=(2, 2), loop=4, omaps=((1, 0),),
    ),
    X=(16, 64), A=(64, 32), B=(64, 32), c=(32,), d=(32,),
)  # fmt: skip
case(
    "GELU MLP over the hidden axis", lambda x, a, b: gelu(x @ a) @ b,
    one_block(
        (((0,), None), ((), 1), ((), 0)), lambda block, x, a, b: block.accumulate(gelu(x @ a) @ b),
        grid=(2,), loop=4, omaps=((0,),),
    ),
    X=(16, 64), A=(64, 32), B=(32, 48),
)  # fmt: skip
case(
    "ReLU MLP with biases", lambda x, a, b, c, d: relu(x @ a + c) @ b + d,
    one_block(
        (((0,), None), ((), 1), ((), 0), ((), 0), ((), None)),
        lambda block, x, a, b, c, d: block.accumulate(relu(x @ a + c) @ b) + d,
        grid=(2,), loop=4, omaps=((0,),),
    ),
    X=(16, 64), A=(64, 32), B=(32, 48), c=(32,), d=(48,),
)  # fmt: skip
case(
    "largest column of a product", lambda x, w: max_of(x @ w),
    one_block(
        (((0,), None), ((), 1)), lambda block, x, w: block.accumulate(x @ w, "max_dim"), grid=(2,), loop=4, omaps=((0,),)
    ),
    X=(16, 64), W=(64, 32),
)  # fmt: skip
case(
    "two outputs that share nothing", lambda x, a, y, b: (x @ a, exp(y) + b),
    lambda kernel, inputs: (
        *one_block((((), 1), ((1,), 0)), lambda block, x, a: block.accumulate(x @ a), grid=(2,), loop=4, omaps=((1,),))(
            kernel, inputs[:2]
        ),
        *one_block((((0,), None), ((0,), None)), lambda block, y, b: exp(y) + b, grid=(2,), loop=1, omaps=((0,),))(
            kernel, inputs[2:]
        ),
    ),
    X=(16, 64), A=(64, 32), Y=(8, 8), B=(8, 8),
)  # fmt: skip
case(
    "elementwise only", lambda x, y: exp(x) * y + x,
    one_block((((0,), None), ((0,), None)), lambda block, x, y: exp(x) * y + x, grid=(2,), loop=1, omaps=((0,),)),
    X=(16, 64), Y=(16, 64),
)  # fmt: skip
case(
    "one sum", lambda x: sum_of(x),
    one_block((((0,), 1),), lambda block, x: block.accumulate(x, "sum_dim"), grid=(2,), loop=4, omaps=((0,),)),
    X=(16, 64),
)  # fmt: skip
case(
    "transposed weight, clamped", lambda x, w: clamp(x @ transpose(w), 0, 6),
    one_block(
        (((0,), 1), ((), 1)), lambda block, x, w: clamp(block.accumulate(x @ transpose(w)), 0, 6),
        grid=(2,), loop=4, omaps=((0,),),
    ),
    X=(16, 64), W=(32, 64),
)  # fmt: skip
case(
    "a single row", lambda x, g, w: rms_norm(x, gain=g) @ w,
    one_block((((), 1), ((), 0), ((1,), 0)), _norms_of_three, grid=(2,), loop=4, omaps=((1,),)),
    X=(1, 64), G=(64,), W=(64, 32),
)  # fmt: skip
case(
    "an input that is not read", lambda x, unused, w: maximum(x @ w, x @ w),
    lambda kernel, inputs: one_block(
        (((0,), 1), ((), 0)), lambda block, x, w: block.accumulate(x @ w), grid=(2,), loop=4, omaps=((0,),)
    )(kernel, [inputs[0], inputs[2]]),
    X=(16, 64), U=(7, 7), W=(64, 32),
)  # fmt: skip


def _gated_halves(x: Value, w: Value) -> Value:
    gate, up = split(x @ w, 2)
    return silu(gate) * up


case(
    "gate and up projection in one weight",
    _gated_halves,
    lambda kernel, inputs: one_block(
        (((0,), 1), ((), 0), ((), 0)),
        lambda block, x, gate, up: silu(block.accumulate(x @ gate)) * block.accumulate(x @ up),
        grid=(2,), loop=4, omaps=((0,),),
    )(kernel, [inputs[0], *kernel.apply_all("split", inputs[1], parts=2, axis=-1)]),
    X=(16, 64), W=(64, 64),
)  # fmt: skip
case(
    "rows and columns beside each other",
    lambda x, y, w: concat(x, y, axis=-1) @ w,
    lambda kernel, inputs: one_block(
        (((0,), None), ((0,), None), ((), None), ((), None)),
        lambda block, x, y, top, bottom: x @ top + y @ bottom,
        grid=(2,), loop=1, omaps=((0,),),
    )(kernel, [*inputs[:2], *kernel.apply_all("split", inputs[2], parts=(64, 32), axis=-2)]),
    X=(16, 64), Y=(16, 32), W=(96, 32),
)  # fmt: skip
case(
    "sizes that nothing divides", lambda x, g, w: rms_norm(x, gain=g) @ w,
    one_block((((0,), 1), ((), 0), ((), 0)), _norms_of_three, grid=(3,), loop=7, omaps=((0,),)),
    X=(7, 100), G=(100,), W=(100, 33),
)  # fmt: skip
