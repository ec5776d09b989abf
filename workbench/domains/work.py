"""The work an operator does, as a value that adds up. Invariant: an unknown operator is an error elsewhere, never zero here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic and traffic of one operator or of a whole graph.

    Attributes: flops (a multiply-add counts 2, any elementary function 1 per element); elements_read and
    elements_written (elements, not bytes: bytes need a data type).
    """

    flops: int = 0
    elements_read: int = 0
    elements_written: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.elements_read + other.elements_read,
            self.elements_written + other.elements_written,
        )

    def times(self, count: int) -> Work:
        """Return the work of `count` repetitions."""
        return Work(self.flops * count, self.elements_read * count, self.elements_written * count)
