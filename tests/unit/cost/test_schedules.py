"""Schedule spaces: every row is what `estimate` says of its graph, illegal ones are left out, the best are found."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.strategies import Options, kernel_graphs
from tests.unit.cost.example_graphs import split_attention
from workbench import programs
from workbench.cost.candidates import ScheduleLimits, evenness, evenness_alone, loop_counts, part_count, split_counts
from workbench.cost.estimate import estimate
from workbench.cost.hardware import hardware
from workbench.cost.launch import LaunchChoice
from workbench.cost.lower_bound import lower_bound
from workbench.cost.presets import preset
from workbench.cost.schedules import ScheduleRow, ScheduleSpace
from workbench.cost.symbolic import SymbolicKernel
from workbench.errors import MissingRuleError, NotApplicableError, UnknownNameError, UsageError
from workbench.interpret import evaluate
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.retile import Counts, Retiler, retile
from workbench.ugraph.serialize import load

H200 = hardware("h200")
FEW = ScheduleLimits(
    tiles=(8, 16, 64, 128), depths=(32, 64, 128), splits=(1, 2, 3, 8), stages=(2, 4), threads=(128, 256)
)


def random_row(space: ScheduleSpace, chance: random.Random) -> ScheduleRow:
    """Return a random schedule whose splits agree."""
    rows: list[int] = []
    splits: dict[int, int] = {}
    for table in space.kernels:
        keep = np.ones(table.size, bool)
        for kernel in table.symbolic.tied:
            keep &= table.columns[f"split{kernel}"] == splits[kernel]
        found = np.flatnonzero(keep)
        rows.append(int(chance.choice(found)))
        splits[table.kernel] = int(table.columns["split"][rows[-1]])
    cost = sum(float(t.cost_us[r]) for t, r in zip(space.kernels, rows, strict=True)) + space.fixed_us
    return ScheduleRow(cost, tuple(rows), tuple(t.parameters(r) for t, r in zip(space.kernels, rows, strict=True)))


def check_rows(space: ScheduleSpace, seed: int, tries: int) -> int:
    """Compare columns with estimates; return how many rows could be built."""
    chance, built = random.Random(seed), 0
    for _ in range(tries):
        row = random_row(space, chance)
        try:
            made = space.realize(row)
        except NotApplicableError:
            continue
        built += 1
        cost = estimate(made.graph, hardware=space.hardware, choices=made.choices, preset=space.preset, cold=space.cold)
        assert cost.total_us == pytest.approx(row.cost_us, rel=1e-9)
    return built


@pytest.mark.parametrize("name", programs.names())
def test_columns_and_estimates_agree(name: str) -> None:
    for graph in programs.known_good(name):
        assert check_rows(ScheduleSpace(graph, hardware=H200), seed=1, tries=6) >= 4


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("rms_norm_linear", {"batch": 70, "hidden": 1000, "out": 330}),
        ("gqa", {"heads": 3, "rows": 70, "head_dim": 64, "context": 1000}),
        ("lora", {"batch": 7, "hidden": 640, "out": 330, "rank": 5}),
        ("gated_mlp_down", {"batch": 7, "hidden": 300, "inner": 200, "out": 330}),
    ],
)
@pytest.mark.parametrize("chip", ["a100-40", "b200"])
def test_they_agree_where_nothing_divides_and_on_other_gpus(name: str, sizes: dict[str, Any], chip: str) -> None:
    for graph in programs.known_good(name, **sizes):
        space = ScheduleSpace(graph, hardware=hardware(chip), preset=preset("calibrated"), cold=False)
        assert check_rows(space, seed=2, tries=10) >= 5


@pytest.mark.parametrize(
    "file", ["rmsnorm_bs1", "gated_mlp", "lora", "gqa_bs1", "mqa_bs1", "ntrans_bs1", "qknorm_gqa_bs1"]
)
def test_they_agree_for_graphs_of_mirage(shared_data: Path, file: str) -> None:
    graphs = load(shared_data / "mirage_mugraphs" / f"{file}.json")
    built = 0
    for graph in graphs[:: max(1, len(graphs) // 6)]:
        try:
            space = ScheduleSpace(graph, hardware=H200, limits=FEW)
        except NotApplicableError:  # a product of a whole context by one thread block
            continue
        built += check_rows(space, seed=3, tries=3)
    assert built >= 6


@settings(max_examples=25, deadline=None)
@given(kernel_graphs(Options(max_steps=5)), st.integers(0, 1 << 20))
def test_they_agree_for_random_graphs(graph: KernelGraph, seed: int) -> None:
    try:
        space = ScheduleSpace(graph, hardware=H200, limits=FEW)
    except (NotApplicableError, MissingRuleError):
        return
    check_rows(space, seed, tries=3)


def test_realised_graphs_compute_the_same() -> None:
    graph = split_attention(2, 40, 16, 300, split=4, loop=3)
    rng = np.random.default_rng(0)
    inputs = [rng.normal(0, 0.3, tensor.shape) for tensor in graph.inputs]
    space = ScheduleSpace(graph, hardware=H200)
    expected = evaluate(graph, inputs)[0]
    for row in space.best(6):
        made = space.realize(row)
        np.testing.assert_allclose(evaluate(made.graph, inputs)[0], expected, rtol=1e-9)
        for node, choice in zip(made.graph.graph_defined, made.choices, strict=True):
            assert node.block.block_dims == (choice.threads, 1, 1)
            assert node.block.cluster_dims == (choice.cluster, 1, 1)


def test_the_best_are_the_least_over_all_combinations() -> None:
    graph = split_attention(2, 32, 64, 512, split=2, loop=2)
    limits = ScheduleLimits(
        tiles=(16, 32), depths=(64, 128), splits=(1, 2, 4), clusters=(1, 2), stages=(2, 3), threads=(128,)
    )
    space = ScheduleSpace(graph, hardware=H200, limits=limits)
    first, second = space.kernels
    sums = sorted(
        float(first.cost_us[i] + second.cost_us[j])
        for i in range(first.size)
        for j in range(second.size)
        if first.columns["split"][i] == second.columns["split0"][j]
    )
    found = [row.cost_us for row in space.best(10)]
    assert found == sorted(found)
    np.testing.assert_allclose(found, sums[:10], rtol=1e-12)


def test_the_best_of_each_tiling_differ_in_more_than_threads_and_stages() -> None:
    space = ScheduleSpace(programs.known_good("rms_norm_linear", batch=16)[0], hardware=H200)
    all_of_them, differing = space.best(12), space.best(12, per_tiling=1)

    def cut(row: ScheduleRow) -> tuple[int, ...]:
        return tuple(row.parameters[0][name] for name in ("a", "c", "loop", "split", "cluster"))

    assert len({cut(row) for row in differing}) == 12 > len({cut(row) for row in all_of_them})
    assert differing[0] == all_of_them[0]
    assert [row.cost_us for row in differing] == sorted(row.cost_us for row in differing)
    for row in differing:  # none of its kind is cheaper
        table = space.kernels[0]
        same = np.ones(table.size, bool)
        for name in ("a", "c", "loop", "split", "cluster"):
            same &= table.columns[name] == row.parameters[0][name]
        assert row.cost_us == table.cost_us[same].min() + space.fixed_us
    with pytest.raises(UsageError):
        space.best(1, per_tiling=0)


def test_ten_thousand_schedules_are_scored_in_one_pass() -> None:
    graph = programs.known_good("rms_norm_linear", batch=128, hidden=4096, out=4096)[0]
    start = time.process_time()
    space = ScheduleSpace(graph, hardware=H200)
    elapsed = time.process_time() - start
    assert len(space.kernels[0].all_cost_us) >= 10_000
    assert elapsed < 5.0  # a generous ceiling: about 0.1 s on a quiet core


def test_256_rows_are_split_and_cost_less_than_the_schedule_of_16_rows() -> None:
    small = ScheduleSpace(programs.known_good("rms_norm_linear", batch=16)[0], hardware=H200).best(1)[0].parameters[0]
    graph = programs.known_good("rms_norm_linear", batch=256)[0]
    space = ScheduleSpace(graph, hardware=H200)
    best = space.best(1)[0]
    assert best.parameters[0]["a"] > 1  # a: rows
    choice = LaunchChoice(small["threads"], small["stages"], small["cluster"])
    for rows in (1, 16):  # all 256 rows in a block, as the 16 are; 16 rows in a block, as there
        grid = {"a": rows, "c": small["c"]}
        applied = retile(graph, Counts(grid, loop=small["loop"], cluster=small["cluster"]))
        assert best.cost_us < estimate(applied, hardware=H200, choices=[choice]).total_us


@pytest.mark.parametrize("name", programs.names())
def test_no_schedule_is_below_the_lower_bound(name: str) -> None:
    bound = lower_bound(programs.get(name), H200)
    for graph in programs.known_good(name):
        assert bound.gap(ScheduleSpace(graph, hardware=H200, limits=FEW).best(1)[0].cost_us) >= 0


def test_the_present_tiling_does_not_matter() -> None:
    graph = programs.known_good("rms_norm_linear")[0]
    other = retile(graph, Counts({"a": 2, "c": 16}, loop=64, cluster=4))
    one, two = (ScheduleSpace(g, hardware=H200, limits=FEW) for g in (graph, other))
    assert one.best(1)[0] == two.best(1)[0]


def test_what_does_not_fit_is_refused_and_counted() -> None:
    space = ScheduleSpace(programs.known_good("rms_norm_linear", batch=256)[0], hardware=H200)
    table = space.kernels[0]
    assert space.refused["shared memory"] > 0
    assert table.size + sum(space.refused.values()) == len(table.fits)
    assert np.isfinite(table.cost_us).all()


def test_small_tiles_are_tried_where_no_other_fits_and_what_never_fits_is_told() -> None:
    coarse = ScheduleLimits(tiles=(4096,), depths=(4096,), stages=(2,))
    space = ScheduleSpace(programs.known_good("rms_norm_linear", batch=256)[0], hardware=H200, limits=coarse)
    assert space.kernels[0].size > 0

    kernel = KernelBuilder()
    x, w = kernel.input("X", (16, 4096)), kernel.input("W", (4096, 4096))
    block = kernel.block(x, w, grid=(16,))
    product = block.load(x, imap=(0,)) @ block.load(w)  # the whole of W in every block
    block.save(block.apply("sum", product, axis=-1), omap=(0,))
    kernel.output(*block.finish())
    with pytest.raises(NotApplicableError, match=r"no schedule of kernel 0 .* is legal: shared memory"):
        ScheduleSpace(kernel.build(), hardware=H200)


def test_a_split_that_only_others_see_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where only the composites of a kernel are split: the graph as it stands is asked how, and has no split there."""
    graph = split_attention(1, 16, 16, 256, split=4, loop=2)
    assert ScheduleSpace(graph, hardware=H200).size > 0
    whole = ScheduleSpace._columns

    def columns(space: ScheduleSpace, symbolic: SymbolicKernel, limits: ScheduleLimits) -> dict[str, Any]:
        space.retiler.tilings = tuple(replace(one, split=None) for one in space.retiler.tilings)
        return whole(space, symbolic, limits)

    monkeypatch.setattr(ScheduleSpace, "_columns", columns)
    with pytest.raises(NotApplicableError, match="others follow it"):
        ScheduleSpace(graph, hardware=H200)


def test_heat_maps_show_costs_that_schedules_have() -> None:
    space = ScheduleSpace(programs.known_good("rms_norm_linear", batch=64)[0], hardware=H200)
    table = space.kernels[0]
    found = space.heatmap("c", "loop", {"threads": 128})
    assert found.cost_us.shape == found.fits.shape == (len(found.y_values), len(found.x_values))
    assert (np.isnan(found.cost_us) == ~found.fits).all()
    assert not found.fits.all()
    for column, x in enumerate(found.x_values):
        for row, y in enumerate(found.y_values):
            if found.fits[row, column]:
                keep = (table.columns["c"] == x) & (table.columns["loop"] == y) & (table.columns["threads"] == 128)
                assert found.cost_us[row, column] == table.cost_us[keep].min()
    assert None in [value for line in found.to_json()["cost_us"] for value in line]  # type: ignore[attr-defined]


def test_heat_maps_refuse_what_there_is_not() -> None:
    space = ScheduleSpace(programs.known_good("softmax")[0], hardware=H200)
    with pytest.raises(UnknownNameError, match="no parameter 'rows'; there are: a"):
        space.heatmap("rows", "threads")
    with pytest.raises(UnknownNameError, match="no kernel 3"):
        space.heatmap("a", "threads", kernel=3)
    with pytest.raises(UsageError, match="threads may be"):
        space.heatmap("a", "stages", {"threads": 96})
    with pytest.raises(UsageError, match="differ"):
        space.heatmap("a", "a")


def test_axes_that_must_be_cut_evenly_are() -> None:
    graph = programs.known_good("lora", batch=16, hidden=240, out=128, rank=16)[
        1
    ]  # x and x a are joined: no ragged loop
    table = ScheduleSpace(graph, hardware=H200).kernels[0]
    assert all(240 % count == 0 for count in table.columns["loop"].tolist())
    assert any(128 % count for count in table.columns["c"].tolist())


@pytest.mark.parametrize("name", programs.names())
def test_cuts_that_are_asked_for_together_need_to_be_as_even_as_when_asked_for_alone(name: str) -> None:
    for graph in (*programs.known_good(name), split_attention(2, 40, 16, 300, split=6, loop=2)):
        retiler = Retiler(graph)
        assert list(evenness(retiler)) == [evenness_alone(retiler, tiling) for tiling in retiler.tilings]


@settings(max_examples=40, deadline=None)
@given(kernel_graphs(Options(max_steps=5)))
def test_so_they_do_in_random_graphs(graph: KernelGraph) -> None:
    retiler = Retiler(graph)
    assert list(evenness(retiler)) == [evenness_alone(retiler, tiling) for tiling in retiler.tilings]


def test_limits_and_counts() -> None:
    assert part_count(10, 4) == 3
    assert part_count(10, 6) == 2
    assert part_count(9, 5) == 2
    assert all(
        part_count(n, t) * -(-n // part_count(n, t)) - n < -(-n // part_count(n, t))
        for n in range(1, 60)
        for t in range(1, n + 1)
    )
    limits = ScheduleLimits(depths=(16, 32, 48))
    assert loop_counts(96, limits, even=True) == [2, 3, 6]
    assert loop_counts(80, limits, even=True) == [2, 5]
    assert loop_counts(80, limits, even=False) == [2, 3, 5]
    assert split_counts(70, ScheduleLimits(depths=(16,)), even=True) == [1, 2]
    with pytest.raises(UsageError, match="threads"):
        ScheduleLimits(threads=())
    with pytest.raises(UsageError, match="at least one schedule"):
        ScheduleSpace(programs.known_good("softmax")[0], hardware=H200).best(0)
