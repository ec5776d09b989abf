"""How a block graph is laid over the threads of a block, as the cost model sees it: threads, stages, cluster, layouts.

Invariant: a choice says nothing about the meaning; whether a backend can write it is the backend's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from workbench.errors import UsageError
from workbench.ugraph.block_graph import MAX_CLUSTER, MAX_THREADS, BlockGraph

WARP = 32
MAX_STAGES = 16
DEFAULT_STAGES = 4


@dataclass(frozen=True, slots=True)
class LaunchChoice:
    """One kernel's choices.

    Attributes: threads of a block, a multiple of 32; stages: tiles of each looped input in flight or in use, 1 for a
    graph without a loop; cluster: blocks that share the iterations; layouts: per product, by the name of its tile, how
    warps share it as (rows, columns, depth), none where the backend is to choose.
    """

    threads: int = 128
    stages: int = DEFAULT_STAGES
    cluster: int = 1
    layouts: Mapping[str, tuple[int, int, int]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check the ranges. Raises: UsageError."""
        if self.threads % WARP or not WARP <= self.threads <= MAX_THREADS:
            raise UsageError(f"{self.threads} threads a block; give a multiple of {WARP} from {WARP} to {MAX_THREADS}")
        if not 1 <= self.stages <= MAX_STAGES:
            raise UsageError(f"{self.stages} stages; give 1 to {MAX_STAGES}")
        if not 1 <= self.cluster <= MAX_CLUSTER:
            raise UsageError(f"a cluster of {self.cluster} blocks; give 1 to {MAX_CLUSTER}")


def own_choice(block: BlockGraph) -> LaunchChoice:
    """Return the choice that a block graph itself makes: its threads and cluster, four stages where it loops."""
    cluster = prod(block.cluster_dims)
    looped = block.forloop_range > 1 and any(node.fmap is not None for node in block.iterators)
    threads = -(-prod(block.block_dims) // WARP) * WARP
    each = -(-block.forloop_range // cluster)
    return LaunchChoice(threads, min(DEFAULT_STAGES, max(2, each)) if looped else 1, cluster)
