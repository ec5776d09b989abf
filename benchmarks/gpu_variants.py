"""What `gpu_tune.py` tries: for each row of the speed table, µGraphs with other grids, loops and splits, under schedules.

Invariant: every variant computes the row's program; only grid, loop, split, cluster, threads and stages differ, and for
some programs the structure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from tests.gpu.cases import TARGET_ROWS, TargetRow
from workbench import programs
from workbench.codegen.cuda.schedule import Schedule
from workbench.errors import WorkbenchError
from workbench.programs import attention, attention_graphs, gated_mlp, lora, ntrans, rms_norm_linear
from workbench.programs.record import Instance
from workbench.programs.registry import instance
from workbench.programs.tiling import Tiles, fits
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import rms_norm, silu

MULTIPROCESSORS = 132
SHARED = 227 * 1024


@dataclass(frozen=True, slots=True)
class Variant:
    """A µGraph of a row under schedules, and what it is called."""

    row: str
    name: str
    graph: KernelGraph
    schedules: Mapping[str, Schedule] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A row to be tuned: the program that says what is right, its variants, and what is known of its peers."""

    label: str
    program: str
    sizes: Mapping[str, int]
    reference: KernelGraph
    variants: tuple[Variant, ...]
    peer_us: float
    target_us: float
    floor_us: float


def main_kernel(graph: KernelGraph) -> str:
    """Return the name of the first result of the kernel with the longest loop."""
    node = max(graph.graph_defined, key=lambda node: (node.block.forloop_range, prod(node.block.grid_dims)))
    return node.results[0].name


def scheduled(row: str, name: str, graph: KernelGraph, **choices: int | None) -> Variant:
    """Return a variant whose main kernel has a schedule."""
    told = " ".join(f"{key} {value}" for key, value in choices.items() if value is not None)
    return Variant(row, f"{name} {told}".strip(), graph, {main_kernel(graph): Schedule(**choices)})  # type: ignore[arg-type]


Build = Callable[[Tiles], KernelGraph]


def weight_variants(
    row: str, builds: Mapping[str, Build], made: Instance, width: str, weights: int
) -> Iterator[Variant]:
    """Yield one-kernel products with a weight matrix: columns, depth, cluster, threads, stages."""
    rows, out = made["batch"], made[width]
    for (name, build), columns, depth in itertools.product(
        builds.items(), (32, 40, 48, 64, 96, 128), (32, 64, 128, 256)
    ):
        if out % columns and columns not in (96, 40):
            continue
        graph = build(Tiles(rows=64, columns=columns, depth=depth))
        blocks = -(-out // columns)
        stage_bytes = 2 * depth * (weights * columns + max(16, rows))
        for cluster, threads in itertools.product((1, 2, 4), (128, 256)):
            total = blocks * cluster
            if not 90 <= total <= 1.6 * MULTIPROCESSORS:
                continue
            per_block = SHARED if total <= MULTIPROCESSORS and cluster < 4 else SHARED // 2 - 1024
            for in_flight in (60_000, 80_000, 100_000, 130_000, 160_000):
                stages = min(16, 1 + -(-in_flight // stage_bytes))
                if stages * stage_bytes > per_block or stages > made["hidden"] // depth // cluster:
                    continue
                tiles = f"{name} {columns} wide {depth} deep"
                yield scheduled(row, tiles, graph, cluster=cluster, threads=threads, stages=stages)


def attention_variants(row: str, made: Instance) -> Iterator[Variant]:
    """Yield attention over rows, keys in the loop, keys shared by a cluster or split over blocks."""
    groups, rows, context = made.extent("batch*heads"), made["rows"], made["context"]
    normed = made.program.name == "qk_norm_attention"
    prepare: attention_graphs.Prepare = lambda operands: operands  # noqa: E731
    shapes = ((8, 128),) if rows <= 8 else ((64, 128), (128, 256), (256, 512))  # rows and threads of a block
    depths = (64, 128) if rows <= 8 else (64,)
    for (height, threads), depth, parts_ in itertools.product(shapes, depths, (1, 2, 4, 8, 16, 32, 64)):
        blocks = groups * -(-rows // height) * parts_
        if not (60 if rows <= 8 else 120) <= blocks <= 2.1 * MULTIPROCESSORS or context // parts_ < 2 * depth:
            continue
        tiles = Tiles(rows=height, columns=1, depth=depth)
        for is_cluster in (False, True):
            if is_cluster and not 1 < parts_ <= 16:
                continue
            splits = 1 if is_cluster else parts_
            choices = {"cluster": parts_ if is_cluster else 1, "threads": threads}
            graphs = {}
            if normed:
                graphs["norms first"] = attention_graphs._norms_first(made, tiles, splits, attention.EPS)
                weigh = attention_graphs.weigh_normalised(attention.EPS)
                build = attention_graphs.split_kernels if splits > 1 else None
                graphs["norms inside"] = (
                    build(made, tiles, splits, prepare, weigh)
                    if build is not None
                    else attention_graphs._one_kernel(made, tiles, prepare, weigh)
                )
            elif splits > 1:
                graphs["split"] = attention_graphs.split_kernels(made, tiles, splits, prepare)
            else:
                graphs["one"] = attention_graphs._one_kernel(made, tiles, prepare)
            for (name, graph), stages in itertools.product(graphs.items(), (3, 4) if rows <= 8 else (2, 3)):
                held = stages * 4 * depth * made["head_dim"]
                beside = max(1, round(blocks / MULTIPROCESSORS))
                if held > SHARED // beside - 2048 * (beside - 1) or (rows > 8 and held < 30_000):
                    continue
                told = f"{name} {splits} {height} rows {depth} deep"
                yield scheduled(row, told, graph, **choices, stages=stages)


def ntrans_variants(row: str, made: Instance) -> Iterator[Variant]:
    """Yield one row a block under other thread counts."""
    graph = ntrans._one_kernel(made)
    for threads in (128, 192, 256, 384, 512):
        yield scheduled(row, "one row a block", graph, threads=threads)


def lora_small_variants(row: str, made: Instance) -> Iterator[Variant]:
    """Yield both structures of LoRA at a short hidden axis."""
    for columns, depth, threads in itertools.product((16, 32, 64), (64, 128, 256), (64, 128, 256)):
        tiles = Tiles(rows=64, columns=columns, depth=depth)
        for name, build in (("two sums", lora._two_accumulators), ("joined", lora._concatenated)):
            graph = build(made, tiles)
            if fits(graph):
                yield scheduled(row, f"{name} {columns} wide {depth} deep", graph, threads=threads)


def variants_of(row: str, made: Instance) -> Iterator[Variant]:
    """Yield the variants of a program at its sizes, its known good graphs as they are first."""
    for number, graph in enumerate(made.program.known_good(made)):
        yield Variant(row, f"known good {number}", graph)
    match made.program.name:
        case "rms_norm_linear":
            yield from weight_variants(row, {"": lambda tiles: rms_norm_linear._one_block(made, tiles)}, made, "out", 1)
        case "gated_mlp":
            yield from weight_variants(row, {"": lambda tiles: gated_mlp._one_kernel(made, tiles)}, made, "out", 2)
        case "lora" if made["hidden"] > 1024:
            yield from weight_variants(row, {"": lambda tiles: lora._two_accumulators(made, tiles)}, made, "out", 1)
        case "lora":
            yield from lora_small_variants(row, made)
        case "ntrans":
            yield from ntrans_variants(row, made)
        case _:
            yield from attention_variants(row, made)


def usable(found: Iterator[Variant]) -> tuple[Variant, ...]:
    """Return the variants that can be built as µGraphs."""
    kept = []
    while True:
        try:
            kept.append(next(found))
        except StopIteration:
            return tuple(kept)
        except WorkbenchError as error:
            print(f"variants end early: {error}", flush=True)
            return tuple(kept)


def target_row(target: TargetRow) -> Row:
    """Return a row of the speed table."""
    made = instance(target.program, "standard", "float16", target.sizes)
    found = usable(variants_of(target.label, made))
    return Row(
        target.label, target.program, target.sizes, programs.get(target.program, **target.sizes), found,  # type: ignore[arg-type]
        target.best_peer_us, target.target_us, target.floor_us,
    )  # fmt: skip


def unlisted_rows() -> list[Row]:
    """Return two programs of no list: RMSNorm then two linears, and a 24 x 5120 gated MLP with biases."""
    return [two_linears(16, 4096, 4096), biased_gate(24, 5120, 5120)]


def two_linears(batch: int, hidden: int, out: int) -> Row:
    """Return rms_norm(X) @ W1 and rms_norm(X) @ W2 in one kernel."""
    shapes = {"X": (batch, hidden), "G": (hidden,), "W1": (hidden, out), "W2": (hidden, out)}
    reference = trace(
        lambda X, G, W1, W2: (rms_norm(X, gain=G) @ W1, rms_norm(X, gain=G) @ W2), dtype="float16", **shapes
    )

    def build(columns: int, depth: int) -> KernelGraph:
        kernel = KernelBuilder("two_linears")
        x, g, w1, w2 = (kernel.input(name, shape, "float16") for name, shape in shapes.items())
        block = kernel.block(x, g, w1, w2, grid=(-(-out // columns),), loop=hidden // depth)
        a, scale = block.load(x, fmap=1), block.load(g, fmap=0)
        length = block.accumulate(a, "rms", eps=1e-6)
        for weight in (w1, w2):
            product = block.accumulate((a * scale) @ block.load(weight, imap=(1,), fmap=0))
            block.save(product / length, omap=(1,))
        kernel.output(*block.finish(name="two_linears"))
        return kernel.build()

    label = f"rms_norm then two linears {batch}x{hidden} -> 2 x {out}"
    return Row(label, "two_linears", {}, reference, tuple(plain_variants(label, build, out, hidden, batch)), 0, 0, 14.6)


def biased_gate(batch: int, hidden: int, out: int) -> Row:
    """Return silu(X @ W1 + B1) * (X @ W2 + B2)."""
    shapes = {"X": (batch, hidden), "W1": (hidden, out), "W2": (hidden, out), "B1": (out,), "B2": (out,)}
    reference = trace(lambda X, W1, W2, B1, B2: silu(X @ W1 + B1) * (X @ W2 + B2), dtype="float16", **shapes)

    def build(columns: int, depth: int) -> KernelGraph:
        kernel = KernelBuilder("biased_gate")
        inputs = [kernel.input(name, shape, "float16") for name, shape in shapes.items()]
        block = kernel.block(*inputs, grid=(-(-out // columns),), loop=hidden // depth)
        x = block.load(inputs[0], fmap=1)
        w1, w2 = (block.load(weight, imap=(1,), fmap=0) for weight in inputs[1:3])
        b1, b2 = (block.load(bias, imap=(0,)) for bias in inputs[3:])
        gate, up = block.accumulate(x @ w1), block.accumulate(x @ w2)
        block.save(silu(gate + b1) * (up + b2), omap=(1,))
        kernel.output(*block.finish(name="biased_gate"))
        return kernel.build()

    label = f"gated MLP with bias {batch}x{hidden}, 2 x ({hidden} -> {out})"
    return Row(label, "biased_gate", {}, reference, tuple(plain_variants(label, build, out, hidden, batch)), 0, 0, 22.8)


def plain_variants(
    row: str, build: Callable[[int, int], KernelGraph], out: int, hidden: int, batch: int
) -> Iterator[Variant]:
    """Yield a two-weight kernel under tiles and schedules."""
    for columns, depth in itertools.product((32, 40, 64, 80), (64, 128)):
        graph = build(columns, depth)
        for cluster, threads, stages in itertools.product((1, 2), (128, 256), (2, 3, 4, 6, 8)):
            total = -(-out // columns) * cluster
            held = stages * 2 * depth * (2 * columns + -(-batch // 16) * 16)
            if 90 <= total <= 1.7 * MULTIPROCESSORS and 50_000 < held <= (
                SHARED if total <= MULTIPROCESSORS else SHARED // 2 - 1024
            ):
                told = f"{columns} wide {depth} deep"
                yield scheduled(row, told, graph, cluster=cluster, threads=threads, stages=stages)


def all_rows(only: str = "") -> list[Row]:
    """Return every row whose label contains one of the comma-separated words."""
    words = [word for word in only.split(",") if word]
    found = [target_row(target) for target in TARGET_ROWS if not words or any(word in target.label for word in words)]
    return found + [row for row in unlisted_rows() if not words or any(word in row.label for word in words)]
