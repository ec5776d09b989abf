"""What a search hears of a structure: a verdict, from whoever was asked. Invariant: nothing here computes anything.

`screen` gives a `Screening`, `workbench.verify` its own verdict; a record that is replayed gives a `RecordedVerdict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from workbench.ugraph.kernel_graph import KernelGraph


class VerdictLike(Protocol):
    """What a verifier says; `verify.Verdict` is one."""

    @property
    def kind(self) -> str:
        """`equal`, `different` or `unknown`."""
        ...

    @property
    def reason(self) -> str:
        """What the answer rests on."""
        ...


class Verifier(Protocol):
    """Says whether a candidate computes what a program computes; `verify` is one."""

    def __call__(self, program: KernelGraph, candidate: KernelGraph, /) -> VerdictLike:
        """Return the verdict."""
        ...


@dataclass(frozen=True, slots=True)
class Screening:
    """What the first test says of a structure.

    Attributes: kind: "equal" (agrees at every random point), "different" or "unknown"; reason; tests: points; shapes: the
    input shapes of each instance.
    """

    kind: str
    reason: str
    tests: int = 0
    shapes: tuple[tuple[tuple[int, ...], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedVerdict:
    """A verdict read from a record. Attributes: kind; reason; values: everything the record holds of it, as plain JSON."""

    kind: str
    reason: str
    values: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the verdict as it was recorded."""
        return dict(self.values)
