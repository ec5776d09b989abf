"""How a kernel is launched: its name, grid, threads, cluster and shared memory, the same for the host and the device.

Invariant: a `LaunchShape` that exists can be launched on a GPU with enough shared memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from workbench.errors import LaunchShapeError

Triple = tuple[int, int, int]
WARP, MAX_THREADS, MAX_CLUSTER = 32, 1024, 16
MAX_GRID: Triple = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchShape:
    """One kernel launch; `grid` counts blocks (not clusters), `threads` one-dimensional threads a block.

    Raises: LaunchShapeError for a shape that no GPU of ours takes (limits: CUDA C++ Programming Guide, "Technical
    Specifications per Compute Capability"; clusters above 8 blocks are not portable but allowed on Hopper).
    """

    kernel: str
    grid: Triple
    threads: int
    cluster: Triple = (1, 1, 1)
    shared_bytes: int = 0

    def __post_init__(self) -> None:
        """Check the limits."""
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_:]*", self.kernel):
            raise LaunchShapeError(f"kernel name {self.kernel!r} is no C++ name; give the kernel a plain name")
        if self.threads % WARP or not WARP <= self.threads <= MAX_THREADS:
            raise LaunchShapeError(
                f"{self.kernel}: {self.threads} threads a block; take a multiple of 32 from 32 to {MAX_THREADS}"
            )
        if any(not 1 <= n <= most for n, most in zip(self.grid, MAX_GRID, strict=True)):
            raise LaunchShapeError(f"{self.kernel}: grid {self.grid} is not within (1, 1, 1) .. {MAX_GRID}")
        if any(n < 1 for n in self.cluster) or self.cluster_blocks > MAX_CLUSTER:
            raise LaunchShapeError(f"{self.kernel}: cluster {self.cluster} is not 1 to {MAX_CLUSTER} blocks")
        if any(n % c for n, c in zip(self.grid, self.cluster, strict=True)):
            raise LaunchShapeError(
                f"{self.kernel}: grid {self.grid} is no multiple of cluster {self.cluster}; pad the grid and let the "
                "blocks beyond the data store nothing"
            )
        if self.shared_bytes < 0:
            raise LaunchShapeError(f"{self.kernel}: {self.shared_bytes} bytes of shared memory; give zero or more")

    @property
    def cluster_blocks(self) -> int:
        """Blocks in a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @property
    def blocks(self) -> int:
        """Blocks in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


def check_attributes(source: str, launch: LaunchShape) -> None:
    """Compare a launch with the literal attributes that the source gives its kernel (WB_CLUSTER, __launch_bounds__).

    Attributes written with names instead of numbers are not compared.
    Raises: LaunchShapeError where they disagree: on a GPU the launch would fail or run with another cluster.
    """
    declared = re.search(
        rf"__global__([^;{{}}()]*(?:\([^()]*\)[^;{{}}()]*)*?)\b{re.escape(launch.kernel)}\s*\(", source
    )
    if declared is None:
        return
    attributes = declared.group(1)
    cluster = re.search(r"(?:WB_CLUSTER|__cluster_dims__)\s*\(([^()]*)\)", attributes)
    numbers = [part.strip() for part in cluster.group(1).split(",")] if cluster else ["1", "1", "1"]
    if all(part.isdigit() for part in numbers):
        shape = tuple(int(part) for part in [*numbers, "1", "1"][:3])
        if shape != launch.cluster:
            raise LaunchShapeError(
                f"{launch.kernel}: launched with cluster {launch.cluster}, but its source says {shape}; make them equal"
            )
    bounds = re.search(r"__launch_bounds__\s*\(\s*(\d+)", attributes)
    if bounds and launch.threads > int(bounds.group(1)):
        raise LaunchShapeError(
            f"{launch.kernel}: launched with {launch.threads} threads, but __launch_bounds__ allows {bounds.group(1)}"
        )
