"""Estimates: sensible beside what an H200 measured, parts that mean what they say, choices that are checked."""

from __future__ import annotations

import pickle

import pytest

from tests.unit.cost.example_graphs import split_attention
from workbench import programs
from workbench.core.layouts import TileAccess
from workbench.cost.breakdown import Cost
from workbench.cost.calibration import spearman
from workbench.cost.estimate import Features, estimate, features, price
from workbench.cost.hardware import hardware
from workbench.cost.launch import LaunchChoice, own_choice
from workbench.cost.presets import preset
from workbench.cost.time_model import PARTS
from workbench.errors import UsageError
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.retile import Counts, retile

H200 = hardware("h200")
CALIBRATED = preset("calibrated")

# measured on an H200, cold L2, microseconds: program, sizes, grid and loop, launch choice (a tuning run of 2026-11-29)
MEASURED = [
    ("rms_norm_linear", {"batch": 16}, Counts({"c": 128}, loop=16), LaunchChoice(256, 4, 1), 10.6),
    ("rms_norm_linear", {"batch": 16}, Counts({"c": 64}, loop=64, cluster=2), LaunchChoice(128, 7, 2), 11.5),
    ("rms_norm_linear", {"batch": 16}, Counts({"c": 128}, loop=64), LaunchChoice(256, 16, 1), 15.6),
    ("rms_norm_linear", {"batch": 16}, Counts({"c": 103}, loop=64), LaunchChoice(128, 16, 1), 17.4),
    ("gated_mlp", {"batch": 8}, Counts({"c": 128}, loop=16), LaunchChoice(256, 3, 1), 17.3),
    ("gated_mlp", {"batch": 8}, Counts({"c": 128}, loop=128), LaunchChoice(256, 16, 1), 26.9),
    ("gated_mlp", {"batch": 64}, Counts({"c": 128}, loop=16), LaunchChoice(256, 3, 1), 20.8),
    ("lora", {"hidden": 4096}, Counts({"c": 128}, loop=16), LaunchChoice(256, 4, 1), 11.2),
]


def test_times_beside_measured_ones() -> None:
    predicted, measured = [], []
    for name, sizes, counts, choice, us in MEASURED:
        graph = retile(programs.known_good(name, **sizes)[0], counts)  # type: ignore[arg-type]
        predicted.append(estimate(graph, hardware=H200, choices=[choice], preset=CALIBRATED).total_us)
        measured.append(us)
        assert predicted[-1] == pytest.approx(us, rel=0.3), (name, sizes, counts)
    assert spearman(predicted, measured) > 0.85


def test_grouped_attention_at_batch_8_is_within_a_third() -> None:
    graph = split_attention(16, 256, 64, 4096, split=8, loop=8)
    graph = retile(graph, {0: Counts({"a": 16, "b": 2}, loop=8, split=8), 1: Counts({"a": 16, "b": 64})})
    choices = [LaunchChoice(128, 2), LaunchChoice(128, 1)]
    cost = estimate(graph, hardware=H200, choices=choices, preset=CALIBRATED)
    assert cost.total_us == pytest.approx(21.1, rel=0.33)  # measured: 21.14 us
    assert cost.kernels[0].total_us > cost.kernels[1].total_us


def test_parts_say_what_limits() -> None:
    weights = estimate(programs.known_good("gated_mlp")[0], hardware=H200)
    assert max(weights.parts, key=lambda part: weights.parts[part]) in ("device memory", "latency")
    narrow = retile(split_attention(2, 256, 64, 4096, split=16, loop=4), {0: Counts({"b": 4}, loop=64, split=1)})
    assert max((p := estimate(narrow, hardware=H200).parts), key=lambda part: p[part]) not in ("device memory", "L2")
    assert set(weights.parts) == set(PARTS)
    assert "blocks in" in weights.describe()


def test_a_cluster_costs_its_meetings_and_a_tail_shows() -> None:
    graph = programs.known_good("rms_norm_linear", batch=16)[0]
    alone = estimate(retile(graph, Counts({"c": 64}, loop=32)), hardware=H200)
    met = estimate(retile(graph, Counts({"c": 64}, loop=32, cluster=2)), hardware=H200)
    assert alone.parts["cluster"] == 0 < met.parts["cluster"]
    assert met.parts["latency"] < alone.parts["latency"] or met.total_us < alone.total_us
    for blocks, has_tail in ((128, False), (140, True)):
        made = retile(graph, Counts({"c": blocks}, loop=4))
        cost = estimate(made, hardware=H200, choices=[LaunchChoice(128, 2)])
        assert cost.kernels[0].facts["occupancy"] == 1
        assert (cost.parts["tail"] > 0) is has_tail


def test_warm_is_not_slower_and_intermediates_stay_in_the_cache() -> None:
    for name in programs.names():
        graph = programs.known_good(name)[0]
        assert estimate(graph, hardware=H200, cold=False).total_us <= estimate(graph, hardware=H200).total_us
    small = estimate(split_attention(2, 256, 64, 4096, split=16, loop=4), hardware=H200)
    assert small.kernels[1].parts["device memory"] < 0.2


def test_what_does_not_fit_costs_infinitely() -> None:
    graph = retile(programs.known_good("rms_norm_linear", batch=256)[0], Counts({"c": 2}, loop=8))
    assert estimate(graph, hardware=H200).total_us == float("inf")


def test_choices_are_checked() -> None:
    graph = split_attention(2, 64, 64, 1024, split=4, loop=4)
    with pytest.raises(UsageError, match="1 launch choices for 2"):
        estimate(graph, hardware=H200, choices=[LaunchChoice()])
    with pytest.raises(UsageError, match="1 mappings of accesses for 2"):
        estimate(graph, hardware=H200, accesses=[{}])
    for threads, stages, cluster in ((100, 4, 1), (2048, 4, 1), (128, 0, 1), (128, 99, 1), (128, 4, 17), (128, 4, 0)):
        with pytest.raises(UsageError):
            LaunchChoice(threads, stages, cluster)


def test_conflicts_are_a_part_that_adds_up_and_chosen_layouts_have_none() -> None:
    """Eight passes are seven more than one, four are three more: conflicts cost in proportion, and nothing else moves."""
    graph = programs.known_good("gqa_decode")[0]

    def cost(passes: int) -> Cost:
        accesses = [{"k": TileAccess(passes), "v": TileAccess(passes)}, {}]
        return estimate(graph, hardware=H200, preset=CALIBRATED, accesses=accesses)

    plain = estimate(graph, hardware=H200, preset=CALIBRATED)
    assert cost(1).parts == plain.parts
    assert plain.parts["bank conflicts"] == 0
    four, eight = cost(4), cost(8)
    assert eight.total_us == pytest.approx(sum(eight.parts.values()))
    assert {name: us for name, us in eight.parts.items() if name != "bank conflicts"} == pytest.approx(
        {name: us for name, us in plain.parts.items() if name != "bank conflicts"}
    )
    assert eight.parts["bank conflicts"] / 7 == pytest.approx(four.parts["bank conflicts"] / 3)
    assert plain.total_us < four.total_us < eight.total_us


def test_a_tile_across_its_tensor_waits_for_device_memory_too() -> None:
    graph = programs.known_good("rms_norm_linear", batch=16)[0]
    plain = estimate(graph, hardware=H200, preset=CALIBRATED)
    across = estimate(graph, hardware=H200, preset=CALIBRATED, accesses=[{"w": TileAccess(is_across=True)}])
    assert across.parts["bank conflicts"] > 0
    assert across.parts["latency"] > plain.parts["latency"]
    assert across.total_us > 2 * plain.total_us
    assert across.kernels[0].facts["across_bytes"] == 2 * 256 * 32


def test_outside_the_loop_a_tile_across_its_tensor_waits_for_its_own_bytes() -> None:
    """As much slower as in a loop, not by the size of the tile: 8 kB are no milliseconds."""
    kernel = KernelBuilder()
    x, w = kernel.input("X", (8, 96)), kernel.input("W", (96, 32))
    block = kernel.block(x, w)
    block.save(block.load(x, name="x") @ block.load(w, name="w"))
    kernel.output(*block.finish())
    graph = kernel.build()
    plain = estimate(graph, hardware=H200, preset=CALIBRATED)
    across = estimate(graph, hardware=H200, preset=CALIBRATED, accesses=[{"w": TileAccess(is_across=True)}])
    assert across.kernels[0].facts["last_across_bytes"] == 96 * 32 * 2
    assert plain.parts["latency"] < across.parts["latency"] < 10 * plain.parts["latency"]


def test_plain_rows_cost_about_what_they_were_measured_to() -> None:
    """RMSNorm + Linear without layouts, tiles of x and W of 512 and 64 B a row: 6.2 us on top of 9.95 us on an H200."""
    graph = programs.known_good("rms_norm_linear", batch=16)[0]
    accesses = [{"t0": TileAccess(8), "w": TileAccess(4)}]
    more = estimate(graph, hardware=H200, preset=CALIBRATED, accesses=accesses).total_us
    assert more - estimate(graph, hardware=H200, preset=CALIBRATED).total_us == pytest.approx(6.2, rel=0.25)


def test_choices_and_costs_travel_between_processes_and_hash() -> None:
    choice = LaunchChoice(256, 3, 2, {"t1": (1, 2, 2)})
    assert pickle.loads(pickle.dumps(choice)) == choice
    assert hash(choice) == hash(LaunchChoice(256, 3, 2, {"t1": (1, 2, 2)}))
    cost = estimate(programs.known_good("softmax")[0], hardware=H200)
    assert pickle.loads(pickle.dumps(cost)) == cost
    assert pickle.loads(pickle.dumps(H200)) == H200
    assert hash(H200) == hash(hardware("h200"))


def test_a_graph_without_a_choice_takes_its_own() -> None:
    kernel = KernelBuilder()
    x, w = kernel.input("X", (16, 4096)), kernel.input("W", (4096, 64))
    block = kernel.block(x, w, loop=8, threads=(40, 4), cluster=(2,))
    block.save(block.accumulate(block.load(x, fmap=1) @ block.load(w, fmap=0)))
    kernel.output(*block.finish())
    graph = kernel.build()
    assert own_choice(graph.graph_defined[0].block) == LaunchChoice(160, 4, 2)
    found = dict(features(graph, H200).kernels[0][1])
    assert found["stages"] == 2  # 3 and 4 tiles of 80 kB do not fit; a backend that may choose takes what does


def test_features_price_as_the_estimate() -> None:
    graph = programs.known_good("gated_mlp_down")[1]
    found = Features.from_json(features(graph, H200).to_json())
    assert price(found, H200).parts == estimate(graph, hardware=H200).parts
    assert [name for name, _ in found.kernels] == ["gated_mlp", "matmul"]


def test_views_cost_nothing_and_copies_something() -> None:
    kernel = KernelBuilder()
    x = kernel.input("X", (64, 64))
    rows = kernel.apply("softmax", kernel.apply("reshape", x, shape=(16, 256)))
    kernel.output(kernel.apply("reshape", rows, shape=(4096,)), kernel.apply("transpose", x))
    assert [cost.name for cost in estimate(kernel.build(), hardware=H200).kernels] == ["softmax", "transpose"]
    assert estimate(kernel.build(), hardware=H200).total_us > 2 * H200.node_us


def test_an_output_that_is_an_input_or_is_asked_for_twice_is_copied() -> None:
    kernel = KernelBuilder()
    x = kernel.input("X", (64, 64))
    kernel.output(x)
    cost = estimate(kernel.build(), hardware=H200)
    assert [one.name for one in cost.kernels] == ["copy"]
    assert cost.kernels[0].facts["stored_bytes"] == cost.kernels[0].facts["unique_bytes"] == 64 * 64 * 2
    y = kernel.apply("exp", x)
    kernel.output(y, y)
    assert [one.name for one in estimate(kernel.build(), hardware=H200).kernels] == ["exp", "copy", "copy"]
