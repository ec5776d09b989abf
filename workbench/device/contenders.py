"""What is timed: our programs and their peers behind one interface, and what became of each.

Invariant: a contender says which arrays its outputs lie in after a launch; whoever times it decides whether that is true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from workbench.codegen.cuda.emitted import KernelLaunch
from workbench.core.layouts import Strides
from workbench.device.array_kinds import ArrayKind
from workbench.device.executable import Executable
from workbench.errors import LaunchError

Launch = Callable[[], Sequence[Any]]
"""Enqueues one run and returns the arrays that hold the outputs once it is done."""

Prepare = Callable[[Sequence[Any], Sequence[Any], int], Launch]
"""Inputs, outputs that may be written, the address of the stream -> what runs on them, on that stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Something that computes a program.

    Attributes: name; prepare: see `Prepare`; kind: which arrays it takes; layouts: inputs, by position, that it gets in
    strides of its own, laid out before anything is timed; tolerance: largest relative error, None for that of the types.
    """

    name: str
    prepare: Prepare
    kind: ArrayKind = ArrayKind.CUPY
    layouts: Mapping[int, Strides] = field(default_factory=dict)
    tolerance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a right contender takes, in microseconds a run.

    Attributes: cold_us, warm_us: medians over all replays of all rounds, with the L2 cache filled by other inputs, and
    with one set of inputs; *_spread_us: the distance between the quartiles; call_us: the host's time for one call outside
    of a graph, asynchronous; replays: how many each median is of; relative_error: the largest against float64.
    """

    name: str
    cold_us: float
    cold_spread_us: float
    warm_us: float
    warm_spread_us: float
    call_us: float
    replays: int
    relative_error: float

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a contender has no time: which trap caught it ("" where it could not run), and what was seen."""

    name: str
    trap: str
    reason: str

    def describe(self) -> str:
        """Return it as one line."""
        return f"{self.name}: {self.trap + ': ' if self.trap else ''}{' '.join(self.reason.split())}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingReport:
    """What came of timing some contenders side by side.

    Attributes: timings: the right ones, in the order given; refused: the others; node_us: what a kernel that does nothing
    takes in the same kind of graph, contained in every time; sets: input sets that a cold replay turns over; set_bytes;
    l2_bytes; rounds; capture_s: by name, seconds until a contender was captured, what it compiles at its first run included.
    """

    timings: tuple[Timing, ...]
    refused: tuple[Refusal, ...]
    node_us: float
    sets: int
    set_bytes: int
    l2_bytes: int
    rounds: int
    elapsed_s: float
    capture_s: Mapping[str, float] = field(default_factory=dict)

    def timing(self, name: str) -> Timing | None:
        """Return the timing of a contender, None if it has none."""
        return next((timing for timing in self.timings if timing.name == name), None)

    def refusal(self, name: str) -> Refusal | None:
        """Return why a contender has no time, None if it has one."""
        return next((refusal for refusal in self.refused if refusal.name == name), None)

    def describe(self) -> str:
        """Return one line for each contender, the fastest first."""
        lines = [
            f"{self.sets} input sets of {self.set_bytes:,} B; an empty kernel takes {self.node_us:.2f} us of each run"
        ]
        lines += [
            f"  {one.name}: {one.cold_us:.2f} us cold (quartiles {one.cold_spread_us:.2f} apart), {one.warm_us:.2f} us warm, "
            f"error {one.relative_error:.1e}"
            for one in sorted(self.timings, key=lambda timing: timing.cold_us)
        ]
        lines += [f"  {refusal.describe()}" for refusal in self.refused]
        return "\n".join(lines)


def contender_of(executable: Executable, name: str = "ours") -> Contender:
    """Return a compiled program as a contender; it writes the outputs it is given.

    Raises: LaunchError when its first kernel would start before the run ahead of it has ended: runs of a graph would then
    overlap, and what is told would be the time between them, not that of one.
    """
    first = executable.program.steps[0] if executable.program.steps else None
    if isinstance(first, KernelLaunch) and first.kernel.schedule.programmatic:
        raise LaunchError(
            f"{first.kernel.name}, the first kernel of {name}, is launched before what is ahead of it has ended; leave "
            "`programmatic` of its schedule to None to have it timed"
        )

    def prepare(inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> Launch:
        go = executable.prepare(*inputs, out=list(outputs), stream=stream)

        def launch() -> Sequence[Any]:
            go()
            return outputs

        return launch

    return Contender(name=name, prepare=prepare)
