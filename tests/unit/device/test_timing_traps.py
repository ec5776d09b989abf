"""Each way to look fast is caught by its own check, and goes through when that check alone is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.unit.device.fake_timing_gpu import FakeTimingGpu, contender
from workbench.device import traps
from workbench.device.check_inputs import make_cases
from workbench.device.contenders import Contender, Launch, TimingReport
from workbench.device.timing import TimingOptions, time_contenders
from workbench.device.traps import ALL_TRAPS, HardwareLimit
from workbench.ugraph.tracing import trace

PROGRAM = trace(lambda X, Y: X * Y, X=(8, 16), Y=(8, 16), dtype="float32")
CASES = make_cases(PROGRAM, seed=3)
LIMIT = HardwareLimit(bytes=3 * 8 * 16 * 4, flops=128, bytes_per_s=1e9, flops_per_s=1e12)  # 1.5 us cold


def product(x: Any, y: Any) -> Any:
    return x * y


def timed(gpu: FakeTimingGpu, *contenders: Contender, leave_out: str = "") -> TimingReport:
    options = TimingOptions(rounds=2, round_s=1e-9, least_launches=4, sets=6, traps=ALL_TRAPS - {leave_out})
    return time_contenders(PROGRAM, contenders, CASES, gpu, limit=LIMIT, options=options)


# ------------------------------------------------------------------------------------------------------------- cheats
def no_op(gpu: FakeTimingGpu) -> Contender:
    return contender("cheat", gpu, product, kernel=lambda inputs, outputs, honest: None)


def leaves_out_the_end(gpu: FakeTimingGpu) -> Contender:
    def kernel(inputs: Sequence[Any], outputs: Sequence[Any], honest: Callable[[], None]) -> None:
        outputs[0][:, :-1] = (inputs[0] * inputs[1])[:, :-1]

    return contender("cheat", gpu, product, kernel=kernel)


def side_stream_after(gpu: FakeTimingGpu) -> Contender:
    """A replay starts work that the timed stream does not wait for."""

    def kernel(inputs: Sequence[Any], outputs: Sequence[Any], honest: Callable[[], None]) -> None:
        gpu.pending.setdefault(gpu.side_stream, []).append(honest)

    return contender("cheat", gpu, product, kernel=kernel)


def mutates(gpu: FakeTimingGpu) -> Contender:
    def kernel(inputs: Sequence[Any], outputs: Sequence[Any], honest: Callable[[], None]) -> None:
        honest()
        inputs[1][3, 5] = 0.5

    return contender("cheat", gpu, product, kernel=kernel)


def cached(gpu: FakeTimingGpu) -> Contender:
    """The first run of each set keeps its result; later ones store it again."""

    def prepare(inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> Launch:
        kept: list[Any] = []

        def work() -> None:
            if not kept:
                kept.append(inputs[0].array * inputs[1].array)
            outputs[0].array[...] = kept[0]

        def launch() -> Sequence[Any]:
            if not kept:
                work()
            gpu.enqueue(work, 10.0, stream)
            return outputs

        return launch

    return Contender(name="cheat", prepare=prepare)


def skips_sets(gpu: FakeTimingGpu) -> Contender:
    """Only the first set is computed well; the others get what is cheap."""
    seen: list[Any] = []

    def kernel(inputs: Sequence[Any], outputs: Sequence[Any], honest: Callable[[], None]) -> None:
        if not seen:
            seen.append(outputs[0].ctypes.data)
        if outputs[0].ctypes.data == seen[0]:
            honest()
        else:
            outputs[0][...] = inputs[0]

    return contender("cheat", gpu, product, kernel=kernel)


def wrong_in_one_row(gpu: FakeTimingGpu) -> Contender:
    def kernel(inputs: Sequence[Any], outputs: Sequence[Any], honest: Callable[[], None]) -> None:
        honest()
        outputs[0][5] *= 1.02

    return contender("cheat", gpu, product, kernel=kernel)


def too_fast(gpu: FakeTimingGpu) -> Contender:
    return contender("cheat", gpu, product, microseconds=0.01)


CHEATS: dict[str, list[Callable[[FakeTimingGpu], Contender]]] = {
    traps.NO_OP: [no_op, leaves_out_the_end],
    traps.SIDE_STREAM: [side_stream_after],
    traps.MUTATED_INPUT: [mutates],
    traps.CACHED_RESULT: [cached],
    traps.SKIPPED_SET: [skips_sets],
    traps.WRONG_RESULT: [wrong_in_one_row],
    traps.TOO_FAST: [too_fast],
}
EACH = [(trap, cheat) for trap, cheats in CHEATS.items() for cheat in cheats]


@pytest.mark.parametrize(("trap", "cheat"), EACH)
def test_a_cheat_is_caught_by_its_trap_and_by_no_other(trap: str, cheat: Callable[[FakeTimingGpu], Contender]) -> None:
    gpu = FakeTimingGpu()
    report = timed(gpu, contender("honest", gpu, product), cheat(gpu))
    refusal = report.refusal("cheat")
    assert refusal is not None
    assert report.timing("cheat") is None
    honest = report.timing("honest")
    assert honest is not None, report.describe()
    assert honest.cold_us == pytest.approx(10.0)
    assert refusal.trap == trap, refusal

    gpu = FakeTimingGpu()
    report = timed(gpu, contender("honest", gpu, product), cheat(gpu), leave_out=trap)
    assert report.refusal("cheat") is None, f"without {trap} something else catches it: {report.describe()}"
    assert report.timing("cheat") is not None


def test_the_cheats_cover_every_trap() -> None:
    assert {*CHEATS, traps.NAN_OUTPUT} == ALL_TRAPS


def test_work_that_runs_while_the_graph_is_captured_is_seen() -> None:
    gpu = FakeTimingGpu()

    def prepare(inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> Launch:
        def work() -> None:
            outputs[0].array[...] = inputs[0].array * inputs[1].array

        def launch() -> Sequence[Any]:
            gpu.enqueue(work, 10.0, gpu.side_stream)
            gpu.enqueue(lambda: None, 2.0, stream)
            return outputs

        return launch

    report = timed(gpu, Contender(name="cheat", prepare=prepare))
    refusal = report.refusal("cheat")
    assert refusal is not None
    assert (refusal.trap, "while the graph was captured" in refusal.reason) == (traps.SIDE_STREAM, True)
    without = timed(FakeTimingGpu(), Contender(name="cheat", prepare=prepare), leave_out=traps.SIDE_STREAM).refusal(
        "cheat"
    )
    assert without is not None  # a replay writes nothing: a second check catches it
    assert without.trap == traps.NO_OP


@pytest.mark.parametrize("leave_out", ["", traps.NAN_OUTPUT])
def test_nan_outputs_never_pass(leave_out: str) -> None:
    gpu = FakeTimingGpu()

    def kernel(inputs: Sequence[Any], outputs: Sequence[Any], honest: Callable[[], None]) -> None:
        honest()
        outputs[0][2, 3] = np.nan

    refusal = timed(gpu, contender("cheat", gpu, product, kernel=kernel), leave_out=leave_out).refusal("cheat")
    assert refusal is not None
    assert refusal.trap == (traps.WRONG_RESULT if leave_out else traps.NAN_OUTPUT)
    assert "1 elements" in refusal.reason


def test_a_kernel_that_stops_working_after_some_launches_is_caught() -> None:
    gpu = FakeTimingGpu()
    launches: list[int] = []

    def kernel(inputs: Sequence[Any], outputs: Sequence[Any], honest: Callable[[], None]) -> None:
        launches.append(1)
        if len(launches) < 30:
            honest()

    refusal = timed(gpu, contender("cheat", gpu, product, kernel=kernel)).refusal("cheat")
    assert refusal is not None
    assert refusal.trap == traps.NO_OP


def test_what_a_mutation_spoils_is_put_right_for_those_that_follow() -> None:
    gpu = FakeTimingGpu()
    report = timed(gpu, mutates(gpu), contender("honest", gpu, product))
    assert [timing.name for timing in report.timings] == ["honest"]
