"""What a mutant of an operator record is. Invariant: it differs from the original in one rule."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.ops.spec import OpSpec


@dataclass(frozen=True)
class Mutant:
    """A record with one rule changed. `same_because`: why the change makes no difference, if so."""

    rule: str
    mutation: str
    spec: OpSpec
    same_because: str = ""

    @property
    def name(self) -> str:
        """Operator, rule and mutation."""
        return f"{self.spec.name}.{self.rule}: {self.mutation}"
