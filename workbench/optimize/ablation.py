"""What each pass of the optimizer is worth: a table of the program with all passes and without each in turn.

Invariant: every row is the same program, verified like any other; only passes differ. Costs come from a cost model that is
given, times are added by whoever can measure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from workbench.display import Displayed
from workbench.errors import UnknownNameError
from workbench.optimize.optimizer import LAYOUTS, MEMORY, ORDER, THREADS, Metrics, Optimized, Verifier, optimize
from workbench.ugraph.kernel_graph import KernelGraph

ALL = "all passes"
ABLATED = (LAYOUTS, ORDER, MEMORY, THREADS)


class CostModel(Protocol):
    """How long an optimized µGraph should take."""

    def __call__(self, optimized: Optimized, /) -> float:
        """Return the modelled time, in microseconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AblationRow:
    """One variant.

    Attributes: name: "all passes" or "without ..."; optimized; cost_us: modelled, None without a model.
    """

    name: str
    optimized: Optimized
    cost_us: float | None = None

    @property
    def metrics(self) -> Metrics:
        """The variant's metrics."""
        return self.optimized.metrics


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ablation(Displayed):
    """The table. Attributes: program: its name; rows, the first with all passes."""

    program: str
    rows: tuple[AblationRow, ...]

    def row(self, name: str) -> AblationRow:
        """Return the row of this name. Raises: UnknownNameError."""
        found = next((row for row in self.rows if row.name == name), None)
        if found is None:
            raise UnknownNameError(f"no row {name!r}; rows: {', '.join(row.name for row in self.rows)}")
        return found

    def loss(self, name: str) -> float | None:
        """Return by what share a variant is slower than all passes together, by the model; None without one."""
        base, row = self.rows[0].cost_us, self.row(name).cost_us
        return None if base is None or row is None or base <= 0 else row / base - 1

    def to_json(self) -> list[dict[str, object]]:
        """Return the rows in plain form."""
        return [
            {
                "program": self.program,
                "variant": row.name,
                "without": sorted(row.optimized.without),
                "barriers": row.metrics.barriers,
                "shared_bytes": row.metrics.shared_bytes,
                "device_bytes": row.metrics.device_bytes,
                "register_bytes": row.metrics.register_bytes,
                "passes": row.metrics.passes,
                "cost_us": row.cost_us,
                "loss": self.loss(row.name),
            }
            for row in self.rows
        ]

    def describe(self) -> str:
        """Return the table as text."""
        titles = {"barriers": 9, "shared B": 9, "registers B": 12, "passes": 9, "model us": 9, "loss": 7}
        head = " ".join([" " * 20, *(f"{title:>{width}}" for title, width in titles.items())])
        lines = [self.program, head]
        for row in self.rows:
            m, loss = row.metrics, self.loss(row.name)
            lines.append(
                f"{row.name:20} {m.barriers:>9,} {m.shared_bytes:>9,} {m.register_bytes:>12,} {m.passes:>9,} "
                f"{_number(row.cost_us):>9} {'' if loss is None else f'{loss:+.1%}':>7}"
            )
        return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def ablation(
    program: KernelGraph,
    *,
    verifier: Verifier | None,
    cost: CostModel | None = None,
    passes: Sequence[str] = ABLATED,
    run: Callable[..., Optimized] = optimize,
) -> Ablation:
    """Return the table of a µGraph: all passes, then without each of `passes` in turn.

    cost: a model of an optimized graph's time; None leaves that column empty. run: what optimizes (for other defaults).
    Raises: UnknownNameError for a pass that does not exist.
    """
    rows = []
    for name, without in [(ALL, ()), *((f"without {each}", (each,)) for each in passes)]:
        optimized = run(program, without, verifier=verifier)
        rows.append(AblationRow(name=name, optimized=optimized, cost_us=None if cost is None else cost(optimized)))
    return Ablation(program=program.name, rows=tuple(rows))
