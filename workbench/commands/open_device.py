"""What does the GPU say, asked from a notebook: measured now where the GPU is, else told from records, and it says which.

Invariant: a replayed time is never passed off as a live one; `is_live` and `source` go with every answer.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from workbench.commands import measure
from workbench.commands.answer import Call
from workbench.cost.hardware import hardware
from workbench.display import Displayed
from workbench.errors import LaunchError, UnknownNameError
from workbench.pipeline.trial import device_is_here
from workbench.programs import registry
from workbench.records.measurements import current_rows, label_of, measurement_store
from workbench.records.store import Record
from workbench.shipped import shipped_path
from workbench.views.measured_table import provenance_line


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDevice(Displayed):
    """A GPU that measures, or its records.

    Attributes: name: "h200"; is_live: True where `measure` runs on the GPU; rows: what is recorded, the last of each
    program at its sizes, those of the speed table first; source: one sentence on where answers come from.
    """

    name: str
    is_live: bool
    rows: tuple[Record, ...]
    source: str

    def measure(self, program: str, **sizes: int) -> Record:
        """Return the row of a studied program at sizes (the others are its defaults), with all its peers; keys as in data/records.

        Raises: UnknownNameError for a program, a size, or a row that is not recorded; live, as `workbench measure`.
        """
        instance = registry.instance(program, "standard", "float16", sizes)
        if self.is_live:
            return _measure_now(self.name, program, dict(instance.sizes))
        for row in self.rows:
            if row["program"] == program and row["parameters"] == dict(instance.sizes):
                return row
        known = [label_of(row) for row in self.rows if row["program"] == program] or sorted(
            {row["program"] for row in self.rows}
        )
        wanted = " ".join(f"{name}={size}" for name, size in instance.sizes.items())
        raise UnknownNameError(f"no record of {program} {wanted} on {self.name}; recorded: {'; '.join(known)}")

    def describe(self) -> str:
        """Return where answers come from, and how many rows are recorded."""
        return f"{self.name}: {self.source} ({len(self.rows)} rows are recorded)"


def open_device(device: str = "h200", *, replay: str | Path | None = None, live: bool | None = None) -> OpenedDevice:
    """Return a GPU to be asked for times: live where it is here, else its records.

    replay: the records, a file as `workbench measure --out` writes it (default: those shipped). live: False replays on any
    machine, True insists on the GPU.
    Raises: UnknownNameError for a GPU; LaunchError for live=True without it; FormatError, OSError for a file that does not load.
    """
    hardware(device)
    is_here = device_is_here(device) if live is not False else False
    if live and not is_here:
        raise LaunchError(f"there is no {device} here; leave live away, and what was recorded is replayed")
    path = Path(replay) if replay is not None else Path(str(shipped_path("data", "records", f"{device}.jsonl")))
    rows = tuple(row for row in current_rows(measurement_store(path).records()) if row.get("device", device) == device)
    if is_here:
        return OpenedDevice(name=device, is_live=True, rows=rows, source="measured now, on the GPU of this machine")
    if not rows:
        raise UnknownNameError(
            f"there is no {device} here, and {path} holds no measurements of one; see `workbench measure`"
        )
    source = f"replayed from {path.name}: {provenance_line(rows)}"
    return OpenedDevice(name=device, is_live=False, rows=rows, source=source)


def _measure_now(device: str, program: str, sizes: dict[str, int]) -> Record:
    """Return a row that was taken now: what an earlier run kept is not asked for."""
    parser = argparse.ArgumentParser()
    measure.add_arguments(parser)
    arguments = parser.parse_args([program, "--device", device, "--fresh"])
    answer = measure.run(Call(arguments, {name: str(size) for name, size in sizes.items()}, _silent))
    (row,) = cast(list[Record], answer.values["rows"])
    return row


def _silent(line: str) -> None:
    """Take no notice."""
