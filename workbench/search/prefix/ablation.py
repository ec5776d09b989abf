"""The paper's ablation: how many prefixes are searched with all pruners, with abstract expressions alone, and with none.

Invariant: a cell that did not end says so, and its counts are lower bounds; cells that ended agree on what they find.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from workbench.display import Displayed
from workbench.errors import FormatError, UsageError
from workbench.search.prefix.one_plan import PrefixSearch
from workbench.search.prefix.options import Options, Setting
from workbench.search.pruners.expression import AbstractExpression
from workbench.search.pruners.names import DEFAULT, pruners_of
from workbench.search.pruners.rule import Pruner
from workbench.search.pruners.solvers import NoPruner
from workbench.search.shared import Shared
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph

COLUMNS = ("all", "sizes", "axes", "none")
"""All pruners; abstract expressions alone, by sizes (the paper's form) and by axes; no pruner."""

TESTED = 400
"""Structures of a cell that are verified at most."""

_TITLES = {"all": "all pruners", "sizes": "by sizes", "axes": "by axes", "none": "none"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One search.

    Attributes: operators: of the block graph at most; column; prefixes: generated; kept; structures: complete and
    different; verified: of them, None where there were too many or the search did not end; ended: False if it was stopped
    or not begun because a smaller one was stopped; seconds: of process time.
    """

    operators: int
    column: str
    prefixes: int
    kept: int
    structures: int
    verified: int | None
    ended: bool
    seconds: float


@dataclass(slots=True)
class Ablation(Displayed):
    """The table. Attributes: program: its name; digest: its hash; seconds: for a cell; cells."""

    program: str
    digest: str
    seconds: float
    cells: list[Cell] = field(default_factory=list)

    def cell(self, operators: int, column: str) -> Cell | None:
        """Return a cell, None if it is not there yet."""
        return next((c for c in self.cells if (c.operators, c.column) == (operators, column)), None)

    def describe(self) -> str:
        """Return the table: prefixes and seconds, "> N" for a search that was stopped at N prefixes."""
        columns = [column for column in COLUMNS if any(cell.column == column for cell in self.cells)]
        lines = [
            f"{self.program}: prefixes (seconds of process time), one block graph, every loop; {self.seconds:g} s a cell at most",
            "operators" + "".join(f"{_TITLES[column]:>26}" for column in columns) + f"{'verified':>10}",
        ]
        for operators in sorted({cell.operators for cell in self.cells}):
            row = [self.cell(operators, column) for column in columns]
            verified = {cell.verified for cell in row if cell is not None and cell.verified is not None}
            words = " / ".join(map(str, sorted(verified))) or "-"
            lines.append(f"{operators:>9}" + "".join(f"{_text(cell):>26}" for cell in row) + f"{words:>10}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the plain form, which `read` takes back."""
        cells = [asdict(cell) for cell in self.cells]
        return {"program": self.program, "digest": self.digest, "seconds": self.seconds, "cells": cells}


def _text(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if not cell.prefixes and not cell.ended:
        return "not begun"
    return f"{'' if cell.ended else '> '}{cell.prefixes:,} ({cell.seconds:.2f})"


def ablate(
    program: KernelGraph,
    *,
    operators: Sequence[int] = range(5, 12),
    columns: Sequence[str] = COLUMNS,
    seconds: float = 60.0,
    space: Space | None = None,
    file: Path | None = None,
    every: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Ablation:
    """Return the ablation of a program, row by row.

    operators: of the block graph at most, a row each; seconds: of process time, after which a cell is stopped; space: its
    palette counts, with one block graph and no predefined kernels; file: where cells are kept as they come and, on
    another call, taken from; every: begin a cell also where a smaller one of its column was stopped.
    Raises: UsageError for an unknown column or a file of another ablation; FormatError for a file that cannot be read.
    """
    unknown = set(columns) - set(COLUMNS)
    if unknown:
        raise UsageError(f"column {sorted(unknown)[0]!r}: use {', '.join(COLUMNS)}")
    if seconds <= 0:
        raise UsageError(f"seconds {seconds:g}: a cell needs more than 0")
    base = space or Space()
    result = Ablation(program.name or "program", program.hash, seconds)
    if file is not None and file.exists():
        result = _continued(file, result)
    for count in operators:
        for column in columns:
            if result.cell(count, column) is not None:
                continue
            stopped = any(c.column == column and c.operators < count and not c.ended for c in result.cells)
            if stopped and not every:
                result.cells.append(Cell(count, column, 0, 0, 0, None, False, 0.0))
                continue
            if tell is not None:
                tell(f"{count} operators, {_TITLES[column]}")
            result.cells.append(_cell(program, base, count, column, seconds))
            if file is not None:
                file.write_text(json.dumps(result.to_json(), indent=1))
    if file is not None:
        file.write_text(json.dumps(result.to_json(), indent=1))
    return result


def read(file: Path) -> Ablation:
    """Return an ablation from its file. Raises: FormatError."""
    try:
        plain = json.loads(file.read_text())
        cells = [Cell(**cell) for cell in plain["cells"]]
        return Ablation(str(plain["program"]), str(plain["digest"]), float(plain["seconds"]), cells)
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{file}: expected an ablation as this command writes it: {error}") from error


def _continued(file: Path, new: Ablation) -> Ablation:
    found = read(file)
    if (found.digest, found.seconds) != (new.digest, new.seconds):
        raise UsageError(
            f"{file} holds an ablation of {found.program} at {found.seconds:g} s a cell; give another file for "
            f"{new.program} at {new.seconds:g} s"
        )
    found.cells = [cell for cell in found.cells if cell.prefixes or cell.ended]  # what was not begun may be begun now
    return found


def column_pruners(column: str) -> tuple[Pruner, ...]:
    """Return what a column prunes with."""
    if column == "all":
        return pruners_of(DEFAULT)
    return (NoPruner(),) if column == "none" else (AbstractExpression("sizes" if column == "sizes" else "axes"),)


def _cell(program: KernelGraph, base: Space, count: int, column: str, seconds: float) -> Cell:
    start = time.process_time()
    space = Space(
        palette=base.palette,
        kernel_palette=(),
        max_kernel_ops=1,
        max_block_ops=count,
        max_block_graphs=1,
        free_scale=base.free_scale,
        outer_products=base.outer_products,
    )
    pruners = column_pruners(column)
    unique = any(pruner.needs_expressions for pruner in pruners)
    prefixes = kept = 0
    found: set[tuple[int, tuple[int, ...]]] = set()
    ended = True
    searches = []
    for search in _searches(program, space, Options(pruners=pruners, unique=unique, quiet=True)):
        left = seconds - (time.process_time() - start)
        if left <= 0:
            ended = False
            break
        counts = search.run(left)
        prefixes, kept, ended = prefixes + counts.generated, kept + counts.kept, ended and not counts.ended
        found |= {(search.number, key) for key in search.found}
        searches.append(search)
    spent = time.process_time() - start
    verified = _verified(searches) if ended and len(found) <= TESTED else None
    return Cell(count, column, prefixes, kept, len(found), verified, ended, spent)


def _searches(program: KernelGraph, space: Space, options: Options) -> Iterator[PrefixSearch]:
    setting = Setting(Shared(program, space, 0), None, options)
    for number, plan in enumerate(setting.shared.plans):
        yield PrefixSearch(setting, number, plan)


def _verified(searches: Sequence[PrefixSearch]) -> int:
    sketches = [(search, sketch) for search in searches for sketch, _ in search.found.values()]
    return sum(search.shared.screen.screen(sketch).kind == "equal" for search, sketch in sketches)
