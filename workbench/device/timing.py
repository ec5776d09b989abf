"""How long do programs take: CUDA-graph replay and events, cold and warm L2 cache, ours and their peers turn by turn.

Invariant: what is timed is what is checked: the captured graph itself, on inputs written after its capture, before and
after the timed rounds. A contender that is wrong, or caught by a trap (`traps.py`), has a reason and no time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.codegen.cuda.storage import Array, laid_out, span, storage_dtype
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device.array_kinds import stored_type
from workbench.device.array_view import ArrayView, view_array
from workbench.device.check_inputs import CheckCase
from workbench.device.comparison import TOLERANCES
from workbench.device.contenders import Contender, Launch, Refusal, Timing, TimingReport
from workbench.device.timing_gpu import Graph, TimingGpu, host_seconds
from workbench.device.timing_sets import POISON, ArraySets
from workbench.device.traps import (
    ALL_TRAPS,
    CACHED_RESULT,
    MUTATED_INPUT,
    NO_OP,
    TOO_FAST,
    Examination,
    HardwareLimit,
    Outputs,
    check_too_fast,
    examine,
)
from workbench.device.worker import is_fatal
from workbench.errors import LaunchError, UsageError
from workbench.ugraph.kernel_graph import KernelGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOptions:
    """How times are taken.

    Attributes: rounds: turns over all contenders; round_s: seconds of replays in one turn of a contender, cold, and half
    of that warm; least_launches: in one graph; drop_factor: one that is slower than the fastest by this factor after the
    first turn is not timed again (None: all are); sets: input sets (None: as many as turn the L2 cache over); traps.
    """

    rounds: int = 5
    round_s: float = 0.02
    least_launches: int = 32
    drop_factor: float | None = None
    sets: int | None = None
    traps: frozenset[str] = field(default=ALL_TRAPS)


DEFAULT_TIMING = TimingOptions()
LEAST_REPLAYS, MOST_REPLAYS = 3, 60


@dataclass(slots=True)
class _Entrant:
    """A contender that was captured."""

    contender: Contender
    runs: list[Launch]
    cold: Graph
    warm: Graph
    results: list[list[ArrayView]]
    unlaunched: Outputs | None
    tolerance: float
    relative_error: float = 0.0
    is_dropped: bool = False
    cold_s: list[float] = field(default_factory=list)
    warm_s: list[float] = field(default_factory=list)


def time_contenders(
    program: KernelGraph,
    contenders: Sequence[Contender],
    cases: Sequence[CheckCase],
    gpu: TimingGpu,
    *,
    limit: HardwareLimit | None = None,
    options: TimingOptions = DEFAULT_TIMING,
) -> TimingReport:
    """Return the times of all contenders that compute `program`, taken turn by turn, and why the others have none.

    cases: inputs and right outputs, at least two (`check.cases_for`): graphs are captured on the first, checked on the
    second before they are timed and on the last, then the first, after; limit: what no kernel can undercut.
    Raises: UsageError for fewer than two cases or two contenders of one name; LaunchError when the device has faulted,
    after which nothing can be timed in this process.
    """
    if len(cases) < 2:
        raise UsageError(f"timing needs two cases or more, got {len(cases)}: inputs to capture on, and fresh ones")
    names = [contender.name for contender in contenders]
    if len(set(names)) < len(names):
        raise UsageError(f"contenders have equal names: {', '.join(names)}")
    started = time.perf_counter()
    session = _Session(program, contenders, cases[0], gpu, options)
    try:
        session.capture_all(contenders)
        session.examine_all(cases[1])
        session.take_rounds()
        for case in dict.fromkeys((len(cases) - 1, 0)):
            session.examine_all(cases[case])
        timings = session.timings(limit)
        return TimingReport(
            timings=timings,
            refused=tuple(session.refused),
            node_us=gpu.empty_node_s() * 1e6,
            sets=session.sets.count,
            set_bytes=session.sets.set_bytes,
            l2_bytes=gpu.l2_bytes,
            rounds=options.rounds,
            elapsed_s=time.perf_counter() - started,
            capture_s=session.capture_s,
        )
    finally:
        session.entrants.clear()
        gpu.free()


class _Session:
    """Contenders on their way from capture to a time."""

    def __init__(
        self,
        program: KernelGraph,
        contenders: Sequence[Contender],
        case: CheckCase,
        gpu: TimingGpu,
        options: TimingOptions,
    ) -> None:
        self._gpu, self._options, self._traps = gpu, options, options.traps
        self._outputs = program.outputs
        layouts = [contender.layouts for contender in contenders]
        self.sets = ArraySets(gpu, program.inputs, program.outputs, layouts, options.sets)
        types = [tensor.dtype for tensor in program.tensors.values() if tensor.dtype in TOLERANCES]
        self._tolerance = max((TOLERANCES[dtype] for dtype in types), default=max(TOLERANCES.values()))
        self.entrants: list[_Entrant] = []
        self.refused: list[Refusal] = []
        self.capture_s: dict[str, float] = {}
        self._store(case)

    def _store(self, case: CheckCase) -> None:
        self._stored = case
        self.sets.store(case.inputs)

    def _refuse(self, name: str, error: Exception) -> None:
        """List one that could not run. Raises: LaunchError when the device is lost."""
        text = f"{type(error).__name__}: {error}"
        if is_fatal(text):
            raise LaunchError(f"{name} faulted on the device, which ends this process' work: {text}") from error
        self.refused.append(Refusal(name, "", text))

    # -------------------------------------------------------------------------------------------------------- capture
    def capture_all(self, contenders: Sequence[Contender]) -> None:
        """Capture every contender on the inputs that are stored."""
        for contender in contenders:
            started = time.perf_counter()
            try:
                self.entrants.append(self._capture(contender))
            except Exception as error:  # whatever a contender does, the others are timed and it is listed
                self._refuse(contender.name, error)
            self.capture_s[contender.name] = time.perf_counter() - started

    def _capture(self, contender: Contender) -> _Entrant:
        gpu, sets = self._gpu, self.sets
        runs = []
        for number in range(sets.count):
            inputs = sets.input_arrays(number, contender.kind, contender.layouts)
            runs.append(contender.prepare(inputs, sets.output_arrays(number, contender.kind), gpu.stream))
        with gpu.current():
            for _ in range(3):  # compilers and allocators settle before a capture
                runs[0]()
        gpu.synchronize()
        sets.poison()
        count = -(-max(sets.count, self._options.least_launches) // sets.count) * sets.count
        cold, made = gpu.capture(lambda: [runs[number % sets.count]() for number in range(count)])
        results = [[self._result(array, i) for i, array in enumerate(arrays)] for arrays in made[-sets.count :]]
        given = all(not self._is_own(view) for view in results[0])
        gpu.synchronize()
        unlaunched = self._read(results[0], None) if given and NO_OP in self._traps else None
        warm, _ = gpu.capture(lambda: [runs[0]() for _ in range(self._options.least_launches)])
        tolerance = contender.tolerance or self._tolerance
        return _Entrant(contender, runs, cold, warm, results, unlaunched, tolerance)

    def _result(self, array: object, position: int) -> ArrayView:
        """Return where an output lies. Raises: UsageError when it is not what the program makes."""
        tensor = self._outputs[position]
        view = view_array(array, f"output {tensor.name}")
        if stored_type(view.dtype, tensor.dtype) != view.dtype or view.shape != tensor.shape:
            raise UsageError(
                f"output {tensor.name} is {view.dtype}{list(view.shape)}, not {tensor.dtype}{list(tensor.shape)}"
            )
        start, end = _range(view)
        if self.sets.holds_input(start, end):
            raise UsageError(f"output {tensor.name} lies in the memory of an input")
        return view

    def _is_own(self, view: ArrayView) -> bool:
        """Return whether an output lies in memory of the contender's, which was not poisoned before the capture."""
        return not self.sets.holds_output(*_range(view))

    # ---------------------------------------------------------------------------------------------------- examination
    def examine_all(self, case: CheckCase) -> None:
        """Replay every contender once on fresh inputs; those that a trap catches leave."""
        stale = self._stored
        if CACHED_RESULT in self._traps:
            self._store(case)
        kept = []
        for entrant in self.entrants:
            try:
                trap, reason = self._examine(entrant, stale)
            except Exception as error:  # a replay that fails, as above
                self._refuse(entrant.contender.name, error)
                continue
            if trap:
                self.refused.append(Refusal(entrant.contender.name, trap, reason))
                if trap == MUTATED_INPUT:
                    self._store(self._stored)
                continue
            kept.append(entrant)
        self.entrants = kept

    def _examine(self, entrant: _Entrant, stale: CheckCase) -> tuple[str, str]:
        gpu = self._gpu
        if NO_OP in self._traps:
            self._poison(entrant)
        before = self.sets.checksum() if MUTATED_INPUT in self._traps else 0
        entrant.cold.launch()
        ordered = self._read(entrant.results[0], gpu.stream)
        gpu.synchronize()
        settled = [self._read(views, None) for views in entrant.results]
        after = self.sets.checksum() if MUTATED_INPUT in self._traps else 0
        seen = Examination(
            tensors=self._outputs, expected=self._stored.expected, unlaunched=entrant.unlaunched, ordered=ordered,
            settled=settled, inputs_changed=before != after, stale=stale.expected, tolerance=entrant.tolerance,
        )  # fmt: skip
        entrant.unlaunched = None
        found = examine(seen, self._traps)
        if not found[0]:
            errors = [comparison.relative_error for comparison in seen.comparisons()]
            entrant.relative_error = max([entrant.relative_error, *errors])
        return found

    def _poison(self, entrant: _Entrant) -> None:
        self.sets.poison()
        for views in entrant.results:
            for view in views:
                if self._is_own(view):
                    start, end = _range(view)
                    self._gpu.fill(start, POISON, end - start)

    def _read(self, views: Sequence[ArrayView], stream: int | None) -> Outputs:
        found: list[Array] = []
        for view, tensor in zip(views, self._outputs, strict=True):
            there = DeviceTensor(tensor.name, tensor.shape, tensor.dtype, view.strides)
            data = self._gpu.read(view.pointer, span(there) * there.dtype.nbytes, stream)
            found.append(np.ascontiguousarray(laid_out(data.view(storage_dtype(tensor.dtype)), there)))
        return tuple(found)

    # ---------------------------------------------------------------------------------------------------------- times
    def take_rounds(self) -> None:
        """Time everyone turn by turn; the first turn only warms up, and tells how many replays fill a turn."""
        replays: dict[str, tuple[int, int]] = {}
        for number in range(self._options.rounds + 1):
            for entrant in self.entrants:
                if entrant.is_dropped:
                    continue
                first = [self._gpu.elapsed_s(entrant.cold), self._gpu.elapsed_s(entrant.warm)]
                if not number:
                    replays[entrant.contender.name] = (
                        _count(self._options.round_s, first[0]), _count(self._options.round_s / 2, first[1])
                    )  # fmt: skip
                cold_count, warm_count = replays[entrant.contender.name]
                cold = [self._gpu.elapsed_s(entrant.cold) for _ in range(cold_count)]
                warm = [self._gpu.elapsed_s(entrant.warm) for _ in range(warm_count)]
                if number:
                    entrant.cold_s += cold
                    entrant.warm_s += warm
            if number == 1 and self._options.drop_factor is not None:
                fastest = min((float(np.median(one.cold_s)) for one in self.entrants), default=0.0)
                for entrant in self.entrants:
                    entrant.is_dropped = float(np.median(entrant.cold_s)) > self._options.drop_factor * fastest

    def timings(self, limit: HardwareLimit | None) -> tuple[Timing, ...]:
        """Return the times of those that are left and possible."""
        launches = -(-max(self.sets.count, self._options.least_launches) // self.sets.count) * self.sets.count
        found = []
        for entrant in self.entrants:
            name = entrant.contender.name
            cold = np.asarray(entrant.cold_s) / launches
            warm = np.asarray(entrant.warm_s) / self._options.least_launches
            cold_s, warm_s = float(np.median(cold)), float(np.median(warm))
            if limit is not None and TOO_FAST in self._traps:
                reason = check_too_fast(cold_s, warm_s, limit, self.sets.count, self._gpu.l2_bytes)
                if reason:
                    self.refused.append(Refusal(name, TOO_FAST, reason))
                    continue
            with self._gpu.current():
                call_s = host_seconds(entrant.runs[0])
            self._gpu.synchronize()
            found.append(
                Timing(
                    name=name, cold_us=cold_s * 1e6, cold_spread_us=_spread(cold) * 1e6, warm_us=warm_s * 1e6,
                    warm_spread_us=_spread(warm) * 1e6, call_us=call_s * 1e6, replays=len(cold),
                    relative_error=entrant.relative_error,
                )
            )  # fmt: skip
        return tuple(found)


def _range(view: ArrayView) -> tuple[int, int]:
    """Return the addresses from an array's first byte to behind its last."""
    size = 1 + sum((extent - 1) * step for extent, step in zip(view.shape, view.strides, strict=True))
    nbytes = DType("bfloat16" if view.dtype in ("uint16", "bfloat16") else view.dtype).nbytes
    return view.pointer, view.pointer + size * nbytes


def _count(wanted_s: float, one_s: float) -> int:
    return max(LEAST_REPLAYS, min(MOST_REPLAYS, math.ceil(wanted_s / max(one_s, 1e-9))))


def _spread(samples: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    low, high = np.percentile(samples, [25, 75])
    return float(high - low)
