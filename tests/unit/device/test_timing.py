"""Times: medians over interleaved turns, cold over many sets and warm over one, contenders that fail listed with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.unit.device.fake_timing_gpu import FakeGraph, FakeTimingGpu, contender
from workbench.codegen.cuda.schedule import Schedule
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device.array_kinds import ArrayKind
from workbench.device.check_inputs import make_cases
from workbench.device.contenders import Contender, Launch, TimingReport, contender_of
from workbench.device.executable import compile
from workbench.device.timing import TimingOptions, time_contenders
from workbench.device.timing_gpu import Graph
from workbench.device.timing_sets import ArraySets, sets_needed
from workbench.errors import KernelCompileError, LaunchError, UsageError
from workbench.ugraph.tracing import trace

PROGRAM = trace(lambda X, Y: X @ Y, X=(4, 8), Y=(8, 16), dtype="float32")
CASES = make_cases(PROGRAM, seed=5)
QUICK = TimingOptions(rounds=3, round_s=1e-9, least_launches=4, sets=6)


def product(x: Any, y: Any) -> Any:
    return x @ y


def timed(gpu: FakeTimingGpu, *contenders: Contender, options: TimingOptions = QUICK) -> TimingReport:
    return time_contenders(PROGRAM, contenders, CASES, gpu, options=options)


def test_a_time_is_that_of_one_run_in_the_order_given() -> None:
    gpu = FakeTimingGpu()
    report = timed(gpu, contender("slow", gpu, product, 30.0), contender("fast", gpu, product, 7.0))
    assert [timing.name for timing in report.timings] == ["slow", "fast"]
    assert [timing.cold_us for timing in report.timings] == pytest.approx([30.0, 7.0])
    assert [timing.warm_us for timing in report.timings] == pytest.approx([30.0, 7.0])
    assert (report.sets, report.rounds, report.node_us) == (6, 3, 1.2)
    assert report.set_bytes == 4 * (4 * 8 + 8 * 16 + 4 * 16)
    assert gpu.freed == 1
    assert report.capture_s.keys() == {"slow", "fast"}
    lines = report.describe().splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["fast", "slow"]


class Listening(FakeTimingGpu):
    """Notes which graph each elapsed time was of, and lets time run slower from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[FakeGraph] = []

    def elapsed_s(self, graph: Graph) -> float:
        assert isinstance(graph, FakeGraph)
        self.order.append(graph)
        return super().elapsed_s(graph)


def test_contenders_take_turns() -> None:
    gpu = Listening()
    timed(gpu, contender("a", gpu, product), contender("b", gpu, product))
    changes = sum(one is not other for one, other in zip(gpu.order, gpu.order[1:], strict=False))
    graphs = {id(graph) for graph in gpu.order}
    assert len(graphs) == 4  # cold and warm of each
    assert changes >= 2 * 4 * (QUICK.rounds)  # every turn goes through all of them


def test_drift_touches_all_alike() -> None:
    gpu = FakeTimingGpu(drift=lambda call: 1 + call / 100)
    report = timed(gpu, contender("a", gpu, product), contender("b", gpu, product), options=TimingOptions(
        rounds=20, round_s=1e-9, least_launches=4, sets=2,
    ))  # fmt: skip
    a, b = report.timings
    assert a.cold_us > 11  # the clocks went down by a lot
    assert b.cold_us / a.cold_us == pytest.approx(1.0, abs=0.05)
    assert a.cold_spread_us > 0.5


def test_the_median_ignores_a_hiccup_and_the_spread_is_between_quartiles() -> None:
    gpu = FakeTimingGpu(drift=lambda call: 50.0 if call % 19 == 0 else 1.0)
    (timing,) = timed(gpu, contender("a", gpu, product)).timings
    assert timing.cold_us == pytest.approx(10.0)
    assert timing.cold_spread_us == pytest.approx(0.0)
    assert timing.replays == 3 * 3


def test_slow_ones_are_dropped_early_but_keep_their_time() -> None:
    gpu = Listening()
    options = TimingOptions(rounds=8, round_s=1e-9, least_launches=4, sets=2, drop_factor=1.5)
    report = timed(gpu, contender("a", gpu, product, 10.0), contender("b", gpu, product, 40.0), options=options)
    a, b = report.timings
    assert (a.replays, b.replays) == (8 * 3, 3)
    assert b.cold_us == pytest.approx(40.0)


def test_those_that_cannot_run_are_listed_and_stop_nobody() -> None:
    gpu = FakeTimingGpu()

    def refuses(inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> Launch:
        raise RuntimeError("No available kernel. Aborting execution.")

    def gives_float64(inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> Launch:
        own = gpu.own_array(DeviceTensor("o", (4, 17), DType.FLOAT32))
        return lambda: [own]

    def gives_an_input(inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> Launch:
        view = gpu.array(inputs[1].array.ctypes.data, DeviceTensor("v", (4, 16), DType.FLOAT32), ArrayKind.CUPY)
        return lambda: [view]

    made = {"refuses": refuses, "wrong shape": gives_float64, "a view": gives_an_input}
    cheats = [Contender(name=name, prepare=prepare) for name, prepare in made.items()]
    report = timed(gpu, *cheats, contender("good", gpu, product))
    assert [timing.name for timing in report.timings] == ["good"]
    assert "No available kernel" in report.refused[0].reason
    assert "not float32[4, 16]" in report.refused[1].reason
    assert "lies in the memory of an input" in report.refused[2].reason
    assert all(refusal.trap == "" for refusal in report.refused)
    assert report.describe().count("\n") == 4


def test_outputs_of_a_librarys_own_are_checked_too() -> None:
    gpu = FakeTimingGpu()

    def peer(wrong: float) -> Contender:
        def prepare(inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> Launch:
            def launch() -> Sequence[Any]:
                own = gpu.own_array(DeviceTensor("o", (4, 16), DType.FLOAT32, (1, 4)))  # a library's own layout
                x, y = inputs[0].array, inputs[1].array

                def work() -> None:
                    own.array[...] = (x @ y) * wrong

                gpu.enqueue(work, 5.0, stream)
                return [own]

            return launch

        return Contender(name=f"peer {wrong}", prepare=prepare, kind=ArrayKind.TORCH)

    report = timed(gpu, peer(1.0), peer(1.01))
    assert [timing.name for timing in report.timings] == ["peer 1.0"]
    assert report.refused[0].trap == "wrong result"
    loose = Contender(name="loose", prepare=peer(1.01).prepare, kind=ArrayKind.TORCH, tolerance=0.02)
    assert timed(gpu, loose).timings[0].relative_error == pytest.approx(0.01, rel=0.01)


def test_a_faulted_device_ends_everything() -> None:
    gpu = FakeTimingGpu()

    def prepare(inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> Launch:
        def launch() -> Sequence[Any]:
            raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

        return launch

    with pytest.raises(LaunchError, match="bad faulted on the device"):
        timed(gpu, Contender(name="bad", prepare=prepare))
    assert gpu.freed == 1


def test_requests_that_cannot_be_met_are_refused() -> None:
    gpu = FakeTimingGpu()
    with pytest.raises(UsageError, match="two cases or more"):
        time_contenders(PROGRAM, [contender("a", gpu, product)], CASES[:1], gpu)
    with pytest.raises(UsageError, match="equal names"):
        timed(gpu, contender("a", gpu, product), contender("a", gpu, product))


def test_inputs_come_in_the_layout_a_contender_wants() -> None:
    gpu = FakeTimingGpu()
    seen: list[tuple[int, ...]] = []

    def compute(x: Any, y: Any) -> Any:
        seen.append(y.strides)
        return x @ y

    report = timed(gpu, contender("turned", gpu, compute, layouts={1: (1, 8)}), contender("plain", gpu, product))
    assert len(report.timings) == 2, report.describe()
    assert set(seen) == {(4, 32)}


# --------------------------------------------------------------------------------------------------------------- sets
def test_sets_turn_the_cache_over() -> None:
    l2 = 60 << 20
    for size in (100, 262_144, 33_595_392, 400_000_000):
        count = sets_needed(size, l2)
        assert count >= 2
        assert count * size > 2 * l2 or count == 2000
        assert count * size > 200_000_000 or count == 2000
    assert sets_needed(100, l2) == 2000
    assert sets_needed(33_595_392, l2) == 6


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32])
def test_every_set_holds_the_inputs_at_addresses_of_its_own(dtype: DType, rng: np.random.Generator) -> None:
    program = trace(lambda X, Y: X + Y, X=(3, 5), Y=(3, 5), dtype=dtype.value)
    (case, _) = make_cases(program, seed=1)
    gpu = FakeTimingGpu()
    sets = ArraySets(gpu, program.inputs, program.outputs, [{1: (1, 3)}], count=7)
    before = sets.checksum()
    sets.store(case.inputs)
    assert sets.checksum() != before
    addresses = set()
    for number in range(7):
        x, y = sets.input_arrays(number, ArrayKind.CUPY, {})
        _, turned = sets.input_arrays(number, ArrayKind.CUPY, {1: (1, 3)})
        (out,) = sets.output_arrays(number, ArrayKind.CUPY)
        for array, values in ((x, case.inputs[0]), (y, case.inputs[1]), (turned, case.inputs[1])):
            assert np.array_equal(array.array, values)
            addresses.add(array.array.ctypes.data)
        assert turned.array.strides == (dtype.nbytes, 3 * dtype.nbytes)
        assert np.all(out.array.view(f"u{dtype.nbytes}") == np.iinfo(f"u{dtype.nbytes}").max)
        start = x.array.ctypes.data
        assert sets.holds_input(start, start + 1)
        assert not sets.holds_output(start, start + 1)
        assert sets.holds_output(out.array.ctypes.data, out.array.ctypes.data + 1)
    assert len(addresses) == 21
    last = sets.input_arrays(6, ArrayKind.CUPY, {})[1]
    settled = sets.checksum()
    last.array[2, 4] = 0
    assert sets.checksum() != settled


def test_runs_that_would_overlap_are_not_timed() -> None:
    program = trace(lambda X: X * 2, X=(64, 64), dtype="float32")
    name = program.nodes[0].results[0].name
    try:
        overlapping = compile(program, schedules={name: Schedule(programmatic=True)})
    except KernelCompileError:
        pytest.skip("no CUDA compiler here")
    with pytest.raises(LaunchError, match="before what is ahead of it has ended"):
        contender_of(overlapping)
    assert contender_of(compile(program)).name == "ours"
