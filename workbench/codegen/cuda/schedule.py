"""How a block graph is laid over the threads of a block: what the emitter may choose without changing the meaning.

Invariant: a `Schedule` is data; whether a block graph can be written with it is decided by `plan.py`, which says why not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType

from workbench.codegen.cuda.choices import DEFAULT_CHOICES, Choices
from workbench.codegen.cuda.launch_shape import MAX_CLUSTER, MAX_THREADS, WARP
from workbench.errors import UsageError

SHARED_LIMIT = 227 * 1024
"""Bytes of shared memory a block may use on H100 and H200 (CUDA C++ Programming Guide, compute capability 9.0)."""

MAX_STAGES = 16


@dataclass(frozen=True, slots=True)
class WarpLayout:
    """How warps share one product: `rows` x `columns` over the result and `depth` over the contracted axis."""

    rows: int = 1
    columns: int = 1
    depth: int = 1

    def __post_init__(self) -> None:
        """Check the counts. Raises: UsageError."""
        if min(self.rows, self.columns, self.depth) < 1:
            raise UsageError(f"warp layout {self} has a count below 1; give at least 1 warp each way")

    @property
    def warps(self) -> int:
        """Warps that take part."""
        return self.rows * self.columns * self.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Choices for one kernel; None leaves a choice to the plan.

    Attributes:
        threads: threads of a block, a multiple of 32; None: the block graph's `block_dims`, more where registers need it.
        stages: tiles in flight of each looped input, at least 2 where there is a loop; None: as many as keep enough
            bytes on their way, fewer if memory is short.
        cluster: blocks that share the iterations; None: the block graph's `cluster_dims`.
        layouts: per product, by the name of its tile, how warps share it.
        shared_limit: bytes of shared memory a block may use.
        fast_math: exp, division and roots by one or two hardware instructions (about 2 ulp of float32); None: where
            every input and output has 16 bits.
        programmatic: launched before the kernel ahead of it has ended, for which it waits (sm_90); None: where a kernel of
            the same program is ahead.
        releases: when a programmatic kernel behind this one may take free multiprocessors, where it waits for this one's
            end: "start", "end" of each block of this one, or "" only when it has ended (sm_90).
        choices: what the optimizer's passes chose (`choices.py`).
    """

    threads: int | None = None
    stages: int | None = None
    cluster: int | None = None
    layouts: Mapping[str, WarpLayout] = field(default_factory=lambda: MappingProxyType({}))
    shared_limit: int = SHARED_LIMIT
    fast_math: bool | None = None
    programmatic: bool | None = None
    releases: str = ""
    choices: Choices = DEFAULT_CHOICES

    def __post_init__(self) -> None:
        """Check the ranges. Raises: UsageError."""
        if self.threads is not None and (self.threads % WARP or not WARP <= self.threads <= MAX_THREADS):
            raise UsageError(f"{self.threads} threads a block; give a multiple of 32 from 32 to {MAX_THREADS}")
        if self.stages is not None and not 2 <= self.stages <= MAX_STAGES:
            raise UsageError(f"{self.stages} stages; give 2 to {MAX_STAGES}, or None")
        if self.cluster is not None and not 1 <= self.cluster <= MAX_CLUSTER:
            raise UsageError(f"a cluster of {self.cluster} blocks; give 1 to {MAX_CLUSTER}, or None")
        if self.releases not in ("", "start", "end"):
            raise UsageError(f"releases {self.releases!r}; give 'start', 'end' or ''")
        if self.shared_limit < 0:
            raise UsageError(f"{self.shared_limit} bytes of shared memory; give zero or more")

    def __reduce__(self) -> tuple[Callable[[], Schedule], tuple[()]]:
        """Pickle with the layouts in a plain dictionary: a read-only view of one does not pickle."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return partial(Schedule, **values | {"layouts": dict(self.layouts)}), ()


DEFAULT_SCHEDULE = Schedule()
