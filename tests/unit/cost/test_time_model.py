"""Occupancy, waves, Little's law and overlap, each computed by hand from counts that are set here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from workbench.cost.counts import COUNTED, Counts
from workbench.cost.hardware import hardware
from workbench.cost.library import library_times
from workbench.cost.presets import Coefficients, preset
from workbench.cost.time_model import PARTS, kernel_times, occupancy, total_of, usable_multiprocessors

H200 = hardware("h200")
PLAIN = replace(
    preset().coefficients, memory_efficiency=1.0, run_exponent=0.0, memory_sharpness=16.0, memory_overlap=1.0,
    compute_overlap=1.0, latency_us=0.5, ingest_gb_s=200.0,
)  # fmt: skip


def counts(**given: float) -> Counts:
    base = dict.fromkeys(COUNTED, 0.0)
    base |= {
        "blocks": 132,
        "iterations": 8,
        "threads": 128,
        "stages": 4,
        "cluster": 1,
        "registers": 64,
        "run_bytes": 128,
    }
    return {name: np.asarray(float(value)) for name, value in (base | given).items()}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"shared_bytes": 100_000, "shared_at_least": 100_000}, 2),  # 228 KB / (100,000 + 1 KB)
        ({"shared_bytes": 232_448, "shared_at_least": 232_448}, 1),
        ({"shared_bytes": 232_449, "shared_at_least": 232_449}, 0),
        ({"shared_bytes": 300_000, "shared_at_least": 1_000}, 1),  # an estimate refuses nothing
        ({"registers": 128}, 4),  # 65,536 / (128 * 128)
        ({"registers": 30}, 16),  # 2,048 threads / 128
        ({"threads": 1024, "registers": 100}, 1),  # the compiler keeps to 64 registers
        ({"threads": 32, "registers": 30}, 32),  # blocks
    ],
)
def test_occupancy_by_hand(given: dict[str, float], expected: int) -> None:
    assert occupancy(counts(**given), H200) == expected


def test_clusters_leave_multiprocessors_idle() -> None:
    found = [float(usable_multiprocessors(counts(cluster=size), H200)) for size in (1, 2, 4, 8, 16)]
    assert found[:2] == [132, 132]
    assert found == sorted(found, reverse=True)
    assert all(used % size == 0 for used, size in zip(found, (1, 2, 4, 8, 16), strict=True))


def times(given: Counts, coefficients: Coefficients = PLAIN, *, cold: bool = True) -> dict[str, float]:
    return {name: float(value) for name, value in kernel_times(given, H200, coefficients, cold=cold).items()}


def test_streaming_takes_bytes_over_bandwidth() -> None:
    stream = counts(unique_bytes=46.4e6, requested_bytes=46.4e6, stage_bytes=46.4e6 / 132 / 8)
    found = times(stream)
    assert found["device memory"] == pytest.approx(10.0)
    assert found["launch"] == 1.2
    assert found["tensor cores"] == 0
    assert total_of(kernel_times(stream, H200, PLAIN)) == pytest.approx(sum(found.values()))
    assert times(stream, cold=False)["device memory"] < 2.0  # 46 MB: most of it is still in the cache


def test_few_bytes_in_flight_bind_by_littles_law() -> None:
    # 132 blocks, 8 iterations of 2,000 B each, 4 stages: 2.5 of them in flight for 0.5 us
    found = times(counts(unique_bytes=1e6, requested_bytes=132 * 16_000, stage_bytes=2_000))
    assert found["latency"] == pytest.approx(16_000 / (2.5 * 2_000 / 0.5))
    more = times(counts(unique_bytes=1e6, requested_bytes=132 * 16_000, stage_bytes=2_000, stages=8))
    assert more["latency"] < found["latency"]


def test_waves_and_their_tail() -> None:
    def work(blocks: int) -> dict[str, float]:
        given = counts(blocks=blocks, tensor_flops=1e6, threads=1024, shared_bytes=200_000, shared_at_least=200_000)
        return times(given)

    one = work(132)
    assert one["tail"] == 0
    assert work(264)["tensor cores"] == pytest.approx(2 * one["tensor cores"])
    over = work(133)
    assert over["tensor cores"] + over["tail"] == pytest.approx(2 * one["tensor cores"], rel=0.1)
    assert work(1)["tensor cores"] == pytest.approx(one["tensor cores"])


def test_the_busiest_unit_counts_whole_and_others_by_what_they_do_not_hide() -> None:
    both = counts(tensor_flops=1e6, special=1e3)
    alone = {name: times(counts(**{name: float(both[name])})) for name in ("tensor_flops", "special")}
    half = times(both, replace(PLAIN, compute_overlap=0.5))
    large, small = sorted((alone["tensor_flops"]["tensor cores"], alone["special"]["special functions"]), reverse=True)
    assert sorted((half["tensor cores"], half["special functions"]), reverse=True) == [
        pytest.approx(large),
        pytest.approx(small / 2),
    ]


def test_without_a_pipeline_memory_and_computing_add_up() -> None:
    def total(stages: int, iterations: int) -> float:
        given = counts(
            tensor_flops=4e6 / iterations, unique_bytes=5e7, requested_bytes=5e7, stage_bytes=4e5 / iterations, stages=stages,
            iterations=iterations, shared_bytes=200_000, shared_at_least=200_000,
        )  # fmt: skip
        return sum(times(given).values())

    assert total(1, 1) > total(4, 8) + 1.0


def test_what_does_not_fit_takes_forever() -> None:
    found = times(counts(shared_at_least=1e6, shared_bytes=1e6))
    assert sum(found.values()) == float("inf")
    assert set(found) == set(PARTS)


def test_columns_are_priced_as_numbers() -> None:
    given = {
        name: np.stack([value, value * 2]) for name, value in counts(unique_bytes=1e6, requested_bytes=2e6).items()
    }
    columns = total_of(kernel_times(given, H200, PLAIN))
    for place in range(2):
        single = {name: value[place] for name, value in given.items()}
        assert columns[place] == float(total_of(kernel_times(single, H200, PLAIN)))


def test_a_library_product_takes_the_larger_of_memory_and_products() -> None:
    base = {"unique_bytes": 46.4e6, "made_bytes": 0.0, "stored_bytes": 0.0, "handed_bytes": 0.0, "lanes": 0.0}
    base |= {"products": 1.0, "tiles": 1e3}
    chosen = replace(PLAIN, library_efficiency=0.5)
    small = library_times({**base, "tensor_flops": 1e6}, H200, chosen)
    assert small["device memory"] == pytest.approx(20.0)
    large = library_times({**base, "tensor_flops": 661e6 * 100}, H200, chosen)
    assert large["tensor cores"] == pytest.approx(200.0)
    assert large["device memory"] == 0  # memory_overlap is 1 here
    few = library_times({**base, "tensor_flops": 661e6 * 100, "tiles": H200.multiprocessors / 4}, H200, chosen)
    assert few["tensor cores"] == pytest.approx(800.0)  # a quarter of the multiprocessors have a tile
    assert small["launch"] == pytest.approx(H200.node_us + chosen.library_us)
