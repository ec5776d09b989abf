"""Runs the notebooks from clean kernels and writes them as HTML: `python -m benchmarks.run_notebooks --html build/notebooks`.

Invariant: a notebook that warns, writes to stderr, raises or takes longer than its limit has failed, and the report says
in which cell. The tests in tests/notebooks/ run notebooks by the same function.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = REPOSITORY / "notebooks"
LIMIT_S = 90
"""Seconds a notebook may take."""

STRICT = """import warnings as _warnings
_warnings.simplefilter("error")
_warnings.filterwarnings("ignore", module=r"ipykernel|jupyter_client|zmq|traitlets")
del _warnings"""
"""What runs first: warnings of anything but the kernel's own machinery are errors."""


@dataclass(frozen=True, slots=True)
class Run:
    """One execution.

    Attributes: notebook, with outputs; seconds: of wall time, kernel start included; cpu_seconds: of processor time, of the
    kernel and what it started; fault: "" if none.
    """

    notebook: NotebookNode
    seconds: float
    cpu_seconds: float
    fault: str

    @property
    def counted_seconds(self) -> float:
        """What is held against a limit: wall time, but no more than twice the processor time and ten seconds to start.

        Where other programs want the processor too, wall time says little about a notebook.
        """
        return min(self.seconds, 2 * self.cpu_seconds + 10)


def notebooks() -> list[Path]:
    """Return the notebooks in order."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))


def titles(paths: Sequence[Path]) -> dict[str, str]:
    """Return the first heading of each notebook, by the name of its page."""
    cells = {path: nbformat.read(path, as_version=4).cells for path in paths}
    return {f"{path.stem}.html": str(first.source).splitlines()[0].lstrip("# ") for path, (first, *_) in cells.items()}


def execute(path: Path, *, notebook: NotebookNode | None = None, limit_s: float = LIMIT_S, go_on: bool = False) -> Run:
    """Run a notebook, or the changed form of it that is given, in a clean kernel and an empty folder.

    go_on: cells after one that raises run as well, and what is raised is no fault. Warnings are errors.
    """
    notebook = nbformat.read(path, as_version=4) if notebook is None else notebook
    notebook.cells.insert(0, nbformat.v4.new_code_cell(STRICT))
    start, cpu_start, fault = time.monotonic(), _cpu_of_children(), ""
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=limit_s,
            kernel_name="python3",
            allow_errors=go_on,
            resources={"metadata": {"path": folder}},
        )
        try:
            client.execute(env=_environment())
        except CellTimeoutError:
            fault = f"a cell was stopped after {limit_s:g} s"
        except (CellExecutionError, DeadKernelError) as error:
            fault = str(error)
    seconds, cpu_seconds = time.monotonic() - start, _cpu_of_children() - cpu_start
    del notebook.cells[0]
    _count_from_one(notebook)
    run = Run(notebook, seconds, cpu_seconds, fault or ("" if go_on else _complaints(notebook)))
    if not run.fault and run.counted_seconds > limit_s:
        return replace(run, fault=f"took {seconds:.0f} s, {limit_s:g} s are allowed")
    return run


def _count_from_one(notebook: NotebookNode) -> None:
    """Number cells as if nothing had run before them."""
    for cell in notebook.cells:
        for counted in [cell, *cell.get("outputs", [])]:
            if counted.get("execution_count"):
                counted.execution_count -= 1


def _cpu_of_children() -> float:
    """Return the seconds of processor time of all processes that this one started and that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system


def _environment() -> dict[str, str]:
    """One BLAS thread, and the package of this checkout also where it is not installed."""
    known = os.environ.get("PYTHONPATH", "")
    return {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), known])),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def _complaints(notebook: NotebookNode) -> str:
    """Return what the cells wrote to stderr, where warnings end up that nobody could catch."""
    texts = [
        f"cell {number} wrote to stderr: {output.text.strip()[:400]}"
        for number, cell in enumerate(notebook.cells)
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stderr"
    ]
    return "\n".join(texts)


def main(arguments: list[str] | None = None) -> int:
    """Run all notebooks, or those whose number is given; print seconds and faults; return 1 if one has failed."""
    parser = argparse.ArgumentParser(description="run the notebooks from clean kernels, warnings as errors")
    parser.add_argument("numbers", nargs="*", help="such as 03; all if none")
    parser.add_argument("--html", type=Path, help="folder for one HTML file a notebook")
    options = parser.parse_args(arguments)
    chosen = [path for path in notebooks() if not options.numbers or path.name[:2] in options.numbers]
    if options.html is not None:  # what writes pages needs more than what runs notebooks
        from benchmarks.notebook_html import write_html, write_index
    faults, total, cpu = 0, 0.0, 0.0
    for path in chosen:
        run = execute(path)
        total, cpu, faults = total + run.seconds, cpu + run.cpu_seconds, faults + bool(run.fault)
        failed = f" FAILED {run.fault}" if run.fault else ""
        print(f"{path.name}: {run.seconds:.1f} s, {run.cpu_seconds:.1f} s of processor time{failed}", flush=True)
        if options.html is not None:
            write_html(run.notebook, options.html / f"{path.stem}.html")
    if options.html is not None:
        write_index(titles(chosen), options.html)
    print(f"{len(chosen)} notebooks, {faults} failed, {total:.0f} s, {cpu:.0f} s of processor time")
    return int(faults > 0 or not chosen)


if __name__ == "__main__":
    sys.exit(main())
