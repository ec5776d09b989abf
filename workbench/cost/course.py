"""The course's roofline: what a lecture on Mirage estimates for an H100, with every assumption as a named field.

Time of a kernel = launch + max(bytes / (bandwidth * share), flops / rate), share = min(1, blocks / (0.4 * 132)): a grid
that leaves most multiprocessors idle does not reach the bandwidth. Invariant: every figure says whether all it rests on
is printed in the lecture, or which assumptions fill the gaps. Source: lecture notes to CMU 15-779 (Fall 2025), lecture 11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from workbench.cost.breakdown import Cost, KernelCost
from workbench.cost.estimate import features
from workbench.cost.hardware import hardware
from workbench.cost.launch import LaunchChoice
from workbench.errors import UsageError
from workbench.ugraph.kernel_graph import KernelGraph

TEXT = "from the text"
BF16, FP32 = 2, 4


def _said(value: object, where: str) -> object:
    return field(default=value, metadata={"source": f"{TEXT}: {where}"})


def _assumed(value: object, why: str) -> object:
    return field(default=value, metadata={"source": f"under assumption: {why}"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What the lecture's figures rest on; `source(name)` says of each whether the text prints it.

    Raises: UsageError for a number that is not positive (a launch may take no time), or a share above 1.
    """

    memory_tb_s: float = _said(3.35, "exercise 6, 1074 MB / 3.35 TB/s")  # type: ignore[assignment]
    launch_us: float = _said(4.0, "section 3.3, one launch is 4 us")  # type: ignore[assignment]
    multiprocessors: int = _said(132, "section 6, an H100 has 132")  # type: ignore[assignment]
    shared_bytes: int = _said(227 * 1024, "exercise 5, 227 KB a block")  # type: ignore[assignment]
    hidden: int = _said(4096, "section 3.3, H = D = 4096")  # type: ignore[assignment]
    tensor_tflops: float = _assumed(989.0, "dense rate of the H100 data sheet; the text prints only 8.7 us")  # type: ignore[assignment]
    l2_mb: float = _assumed(50.0, "the H100's L2 cache, in units of 10^6 B; the text only says that 134 MB exceed it")  # type: ignore[assignment]
    busy_share: float = _assumed(0.4, "blocks on 0.4 of the multiprocessors reach the whole bandwidth")  # type: ignore[assignment]
    grids: tuple[int, ...] = _assumed((16, 32, 64, 128, 256), "nx of demo 4; the text prints 16 and 64")  # type: ignore[assignment]
    loops: tuple[int, ...] = _assumed((1, 4, 16, 64), "ni of demo 4; the text prints 16 and 64")  # type: ignore[assignment]
    small_batch: int = _assumed(8, "batch of the LoRA and gated MLP demos")  # type: ignore[assignment]
    rank: int = _assumed(16, "rank of the LoRA demo")  # type: ignore[assignment]
    narrow_blocks: int = _assumed(1, "X @ A, 16 columns wide, runs on one block")  # type: ignore[assignment]
    l2_serves_repeats: bool = _assumed(True, "of repeated reads the L2 cache serves its size over the first reads")  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Check the ranges. Raises: UsageError."""
        for item in fields(self):
            value = getattr(self, item.name)
            least = 0.0 if item.name in ("launch_us", "l2_mb") else 1e-12
            for number in value if isinstance(value, tuple) else (value,):
                if not isinstance(number, bool) and not least <= number < float("inf"):
                    raise UsageError(f"assumption {item.name} = {number!r} of the course; give a positive number")
        if self.busy_share > 1 or not self.grids or not self.loops:
            raise UsageError(
                f"assumptions busy_share = {self.busy_share!r}, grids = {self.grids}, loops = {self.loops} of the course; "
                "give a share up to 1, and at least one grid and one loop"
            )

    def source(self, name: str) -> str:
        """Return where a value comes from: "from the text: ..." or "under assumption: ..."."""
        return next(str(item.metadata["source"]) for item in fields(self) if item.name == name)

    def share(self, blocks: float) -> float:
        """Return the share of the bandwidth that this many blocks reach. Raises: UsageError for none."""
        if not blocks > 0:
            raise UsageError(f"a grid of {blocks!r} blocks; give at least one")
        return min(1.0, blocks / (self.busy_share * self.multiprocessors))

    def time_us(self, nbytes: float, *, blocks: float | None = None, flops: float = 0.0) -> float:
        """Return the microseconds of one kernel; blocks: of its grid, enough for the whole bandwidth unless given."""
        share = 1.0 if blocks is None else self.share(blocks)
        return self.launch_us + max(nbytes / (self.memory_tb_s * 1e6 * share), flops / (self.tensor_tflops * 1e6))


COURSE = Assumptions()


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the lecture's figures.

    Attributes: name; value, as computed; unit; printed: what the lecture prints; digits: after the decimal point there;
    rests_on: names of the assumptions it needs, none where the text says it all; how: the arithmetic in words.
    """

    name: str
    value: float
    unit: str
    printed: float
    digits: int
    rests_on: tuple[str, ...]
    how: str

    @property
    def is_reproduced(self) -> bool:
        """True when the value, rounded as the lecture rounds, is what it prints."""
        return abs(self.value - self.printed) <= 0.5 * 10.0**-self.digits + 1e-9

    def source(self, assumptions: Assumptions = COURSE) -> str:
        """Return "from the text" or "under assumption ..." with the assumptions named."""
        if not self.rests_on:
            return TEXT
        reasons = "; ".join(
            f"{name} ({assumptions.source(name).removeprefix('under assumption: ')})" for name in self.rests_on
        )
        return f"under assumption {reasons}"


def structure_bytes(
    batch: int, grid: int, loop: int, *, scales_weights: bool, hidden: int = 4096
) -> tuple[int, int, int]:
    """Return the shared memory of RMSNorm + Linear in one block: inputs, intermediates, accumulators, in bytes.

    Inputs bf16 and double-buffered, the rest float32. scales_weights: X (G W) instead of (X G) W, whose intermediate is
    as large as the tile of W. Counts that do not divide the axis leave tiles of the larger size. Raises: UsageError for an
    extent or count below 1.
    """
    if min(batch, grid, loop, hidden) < 1:
        raise UsageError(f"batch {batch}, grid {grid}, loop {loop}, hidden {hidden}; give numbers from 1")
    rows, depth, columns = batch, -(-hidden // loop), -(-hidden // grid)
    inputs = (rows * depth + depth + depth * columns) * BF16 * 2
    scaled = depth * columns if scales_weights else rows * depth
    intermediates = (rows * depth + scaled + rows + rows * columns) * FP32
    accumulators = (rows * columns + rows) * FP32
    return inputs, intermediates, accumulators


def cells_that_do_not_fit(batch: int, *, scales_weights: bool, assumptions: Assumptions = COURSE) -> int:
    """Return how many of the (nx, ni) of demo 4 exceed the shared memory of a block."""
    return sum(
        sum(structure_bytes(batch, grid, loop, scales_weights=scales_weights, hidden=assumptions.hidden))
        > assumptions.shared_bytes
        for grid in assumptions.grids
        for loop in assumptions.loops
    )


def course_cost(
    graph: KernelGraph, choices: Sequence[LaunchChoice] | None = None, assumptions: Assumptions = COURSE
) -> Cost:
    """Return what the lecture's roofline gives for a µGraph: per kernel its launch and the larger of memory and products.

    Every input is read from device memory once; what blocks read again comes from the L2 cache as far as that holds the
    first reads. Raises: as `estimate`.
    """
    kernels = []
    for name, counts in features(graph, hardware("h100"), choices).kernels:
        first = counts["unique_bytes"] + counts["made_bytes"]
        repeated = max(counts.get("requested_bytes", first) - first, 0.0)
        served = min(1.0, assumptions.l2_mb * 1e6 / first) if first and assumptions.l2_serves_repeats else 0.0
        total = first + repeated * (1.0 - served) + counts["stored_bytes"] + counts["handed_bytes"]
        share = assumptions.share(counts["blocks"]) if "blocks" in counts else 1.0
        each, once = counts["tensor_flops"], counts.get("last_tensor_flops", 0.0)
        flops = (each * counts["iterations"] + once) * counts["blocks"] if "blocks" in counts else each
        memory = total / (assumptions.memory_tb_s * 1e6 * share)
        products = flops / (assumptions.tensor_tflops * 1e6)
        parts = {
            "launch": assumptions.launch_us,
            "device memory": memory if memory >= products else 0.0,
            "tensor cores": products if products > memory else 0.0,
        }
        kernels.append(KernelCost(name, parts, {**counts, "memory_bytes": total, "bandwidth_share": share}))
    return Cost(tuple(kernels), "h100", "course")


def figures(assumptions: Assumptions = COURSE) -> tuple[Figure, ...]:
    """Return the lecture's figures, computed anew."""
    return (*_attention(assumptions), *_demo_4(assumptions), *_grouped(assumptions), *_small(assumptions))


def _attention(a: Assumptions) -> list[Figure]:
    n, d = 4096, 128
    once, square = 4 * n * d * BF16, 2 * n * n * BF16
    flops = 2 * 2 * n * n * d
    rate = ("tensor_tflops",)
    return [
        Figure(
            "attention, graph level", (once + square) / 1e6, "MB", 71, 0, (), "Q, K, V, O once; N x N written and read"
        ),
        Figure("attention, N x N", square / 1e6, "MB", 67, 0, (), "2 * 4096^2 * 2 B"),
        Figure("attention, fused", once / 1e6, "MB", 4.2, 1, (), "4 * 4096 * 128 * 2 B"),
        Figure("attention, ratio", (once + square) / once, "", 17, 0, (), "graph level over fused"),
        Figure("attention, products", flops / 1e9, "GFLOP", 8.6, 1, (), "2 * 2 * 4096^2 * 128"),
        Figure("attention, products", flops / (a.tensor_tflops * 1e6), "us", 8.7, 1, rate, "8.6 GFLOP / 989 TFLOP/s"),
    ]


def _demo_4(a: Assumptions) -> list[Figure]:
    batch, h = 16, a.hidden
    nbytes = (h * h + 2 * batch * h + h) * BF16
    inputs, between, kept = structure_bytes(16, 64, 16, scales_weights=False, hidden=h)
    busy, cells = ("busy_share",), ("grids", "loops")
    found = [
        Figure("exercise 5, inputs", inputs, "B", 82_944, 0, (), "(16*256 + 256 + 256*64) * 2 B * 2"),
        Figure("exercise 5, intermediates", between, "B", 36_928, 0, (), "(2*16*256 + 16 + 16*64) * 4 B"),
        Figure("exercise 5, accumulators", kept, "B", 4_160, 0, (), "(16*64 + 16) * 4 B"),
        Figure(
            "demo 4, nx=16 ni=64", a.time_us(nbytes, blocks=16), "us", 37.3, 1, busy, "W, X, G, O once at 16 / 52.8"
        ),
        Figure("demo 4, nx=64 ni=64", a.time_us(nbytes, blocks=64), "us", 14.1, 1, busy, "W, X, G, O once at 1"),
    ]
    printed = {(16, False): 11, (16, True): 12, (64, False): 15, (64, True): 14}
    for (rows, scales), expected in printed.items():
        name = f"cells that do not fit, batch {rows}, {'X (G W)' if scales else '(X G) W'}"
        value = cells_that_do_not_fit(rows, scales_weights=scales, assumptions=a)
        found.append(Figure(name, value, "", expected, 0, cells, "of 5 x 4 the sums of exercise 5 above 227 KB"))
    return found


def _grouped(a: Assumptions) -> list[Figure]:
    def cache(batch: int) -> int:
        return batch * 2 * 8192 * 128 * 2 * BF16

    small, large = cache(1), cache(16)
    served = min(1.0, a.l2_mb * 1e6 / large) if a.l2_serves_repeats else 0.0
    with_l2 = large + 7 * large * (1.0 - served)
    busy, repeats = ("busy_share",), ("l2_mb", "l2_serves_repeats")
    return [
        Figure("GQA batch 1, 16 blocks", a.time_us(small, blocks=16), "us", 12.3, 1, busy, "8.4 MB at 16 / 52.8"),
        Figure("GQA batch 1, split 32 times", a.time_us(small, blocks=64), "us", 6.5, 1, busy, "8.4 MB at 1"),
        Figure("GQA batch 16, each head reads", a.time_us(8 * large), "us", 325, 0, (), "8 * 134 MB"),
        Figure(
            "GQA batch 16, with L2", a.time_us(with_l2), "us", 220, 0, repeats, "134 MB + 7 * 134 MB * (1 - 50 / 134)"
        ),
        Figure("GQA batch 16, grouped", a.time_us(large), "us", 44, 0, (), "134 MB"),
        Figure("exercise 6, K and V", large / 1e6, "MB", 134, 0, (), "16 * 2 * 8192 * 128 * 2 * 2 B"),
        Figure("exercise 6, each head reads", 8 * large / 1e6, "MB", 1074, 0, (), "8 * 134 MB"),
        Figure(
            "exercise 6, each head reads", 8 * large / (a.memory_tb_s * 1e6), "us", 321, 0, (), "1074 MB / 3.35 TB/s"
        ),
        Figure("exercise 6, grouped", large / (a.memory_tb_s * 1e6), "us", 40, 0, (), "134 MB / 3.35 TB/s"),
    ]


def _small(a: Assumptions) -> list[Figure]:
    b, h, r = a.small_batch, a.hidden, a.rank
    rows, weights = b * h * BF16, h * h * BF16
    narrow, down = h * r * BF16, b * r * BF16
    product = a.time_us(rows + weights + rows)
    element = a.time_us(3 * rows)
    four = product + a.time_us(rows + narrow + down, blocks=a.narrow_blocks) + a.time_us(down + narrow + rows) + element
    one = a.time_us(rows + weights + 2 * narrow + rows)
    lora, gated = ("small_batch", "rank", "narrow_blocks", "busy_share"), ("small_batch",)
    return [
        Figure("LoRA, 4 kernels", four, "us", 29.3, 1, lora, "X W; X A on one block; (X A) B; sum: 14.06 + 7.10 + 2 * 4.06"),
        Figure("LoRA, 1 kernel", one, "us", 14.1, 1, ("small_batch", "rank"), "X, W, A, B, O once"),
        Figure("LoRA, ratio", four / one, "", 2.07, 2, lora, "4 kernels over 1"),
        Figure("gated MLP, 3 kernels", 2 * product + element, "us", 32.2, 1, gated, "two products, one elementwise kernel"),
        Figure(
            "gated MLP, 2 kernels", a.time_us(rows + 2 * weights + 2 * rows) + element, "us", 28.1, 1, gated,
            "one product with the weights side by side, one elementwise kernel",
        ),
        Figure("gated MLP, 1 kernel", a.time_us(rows + 2 * weights + rows), "us", 24.1, 1, gated, "X, W1, W2, O once"),
    ]  # fmt: skip


def describe(assumptions: Assumptions = COURSE) -> str:
    """Return the figures as a table: computed, printed in the lecture, and what each rests on."""
    lines = []
    for figure in figures(assumptions):
        mark = "=" if figure.is_reproduced else "is not"
        value = f"{figure.value:.{max(figure.digits, 2)}f} {figure.unit}".strip()
        lines.append(f"{figure.name}: {value} {mark} {figure.printed:g}; {figure.how}; {figure.source(assumptions)}")
    return "\n".join(lines)
