"""The sixteen rows of the speed table: programs at the sizes that we compare on. Invariant: they are written here only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableRow:
    """A program at its sizes (float16, the standard formula).

    Attributes: program; sizes: every size of the program by name; best_peer_us, floor_us: the fastest peer and the floor as
    they were first measured on an H200, L2 cold (driver 580.159, torch 2.11), for orientation; target_us: what ours
    should reach.
    """

    program: str
    sizes: Mapping[str, int]
    best_peer_us: float
    target_us: float
    floor_us: float

    @property
    def label(self) -> str:
        """Program and sizes."""
        return f"{self.program} {' '.join(f'{name}={size}' for name, size in self.sizes.items())}"


def _row(program: str, best_peer_us: float, target_us: float, floor_us: float, **sizes: int) -> TableRow:
    return TableRow(program, sizes, best_peer_us, target_us, floor_us)


_ATTENTION = {"heads": 2, "rows": 256, "head_dim": 64, "context": 4096}
_DECODE = {"heads": 2, "rows": 8, "head_dim": 128, "context": 8192}

TABLE_ROWS = (
    _row("rms_norm_linear", 15.1, 10.5, 7.3, batch=2, hidden=4096, out=4096),
    _row("rms_norm_linear", 15.4, 10.5, 7.4, batch=16, hidden=4096, out=4096),
    _row("rms_norm_linear", 17.4, 13.5, 11.0, batch=16, hidden=4096, out=6144),
    _row("gated_mlp", 28.7, 17.0, 14.6, batch=8, hidden=4096, out=4096),
    _row("gated_mlp", 25.4, 18.0, 14.8, batch=64, hidden=4096, out=4096),
    _row("lora", 9.2, 3.0, 0.5, batch=16, hidden=256, out=4096, rank=16),
    _row("lora", 24.9, 10.5, 7.4, batch=16, hidden=4096, out=4096, rank=16),
    _row("gqa", 13.0, 7.0, 0.8, batch=1, **_ATTENTION),
    _row("gqa", 24.1, 16.0, 6.5, batch=8, **_ATTENTION),
    _row("qk_norm_attention", 22.4, 9.0, 0.8, batch=1, **_ATTENTION),
    _row("qk_norm_attention", 49.0, 22.0, 6.5, batch=8, **_ATTENTION),
    _row("gqa_decode", 21.0, 8.0, 1.8, batch=1, **_DECODE),
    _row("gqa_decode", 27.9, 19.0, 14.6, batch=8, **_DECODE),
    _row("gqa_decode", 45.6, 34.0, 29.2, batch=16, **_DECODE),
    _row("ntrans", 3.0, 2.7, 0.1, batch=8, hidden=4096),
    _row("ntrans", 3.6, 3.2, 0.5, batch=64, hidden=4096),
)


def table_row(program: str, sizes: Mapping[str, int]) -> TableRow | None:
    """Return the row of a program at these sizes, None where the table has none."""
    return next((row for row in TABLE_ROWS if row.program == program and dict(row.sizes) == dict(sizes)), None)
