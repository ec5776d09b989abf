"""Presets of the cost model: the few numbers that no data sheet gives, each with its unit, range and meaning.

Invariant: a preset is a data file; the formulas hold no number that could be fitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

from workbench.errors import FormatError, UnknownNameError
from workbench.shipped import shipped_path

SCHEMA, VERSION = "mugraph-workbench/cost-preset", 1


@dataclass(frozen=True, slots=True)
class Coefficient:
    """What a coefficient means. Attributes: low, high: between which a fit may move it; meaning, with its unit."""

    low: float
    high: float
    meaning: str


COEFFICIENTS: dict[str, Coefficient] = {
    "start_us": Coefficient(0.2, 3.0, "us from the start of a kernel to its first load and from its last store to its end"),
    "cold_us": Coefficient(0.0, 3.0, "us that the first access of device memory takes longer than of the L2 cache"),
    "latency_us": Coefficient(0.3, 2.0, "us from a load to its data while memory is busy (Little's law)"),
    "read_wait": Coefficient(0.5, 8.0, "latencies that a tile takes which threads read where they need it, four loads each ahead"),
    "ingest_gb_s": Coefficient(30.0, 200.0, "GB/s that one multiprocessor takes from the L2 cache"),
    "uneven_gb_s": Coefficient(5.0, 200.0, "the same where tiles end early in some blocks or their rows are no whole sectors"),
    "memory_efficiency": Coefficient(0.5, 1.0, "share of the bandwidth of device memory that a kernel reaches"),
    "run_exponent": Coefficient(0.0, 1.5, "how much bandwidth tiles with runs below 128 B lose: share (run / 128)^exponent"),
    "memory_sharpness": Coefficient(1.5, 16.0, "how sharply the slowest level of memory decides: order of a p-norm"),
    "mma_efficiency": Coefficient(0.15, 1.0, "share of the tensor rate that mma.sync reaches with enough warps"),
    "tensor_warps": Coefficient(2.0, 32.0, "warps of a multiprocessor that keep its tensor cores busy"),
    "issue_warps": Coefficient(4.0, 64.0, "warps of a multiprocessor that keep its lanes busy"),
    "lane_scale": Coefficient(0.3, 12.0, "instructions for one that the rules count"),
    "wide_lanes": Coefficient(0.5, 16.0, "instructions that read and round an element of a float32 factor for tensor cores"),
    "shared_scale": Coefficient(0.5, 8.0, "passes through shared memory for one that the rules count (bank conflicts)"),
    "compute_overlap": Coefficient(0.0, 1.0, "share of the lesser units' time that hides behind the busiest unit"),
    "memory_overlap": Coefficient(0.3, 1.0, "share of the lesser of memory and computing that a pipeline hides"),
    "barrier_us": Coefficient(0.005, 0.3, "us of one block barrier and of what waits at it"),
    "cluster_us": Coefficient(0.0, 4.0, "us of a cluster's meetings and start"),
    "store_weight": Coefficient(0.0, 1.0, "share of bytes for a later kernel that reach device memory"),
    "library_efficiency": Coefficient(0.3, 1.0, "share of bandwidth or tensor rate that predefined kernels reach"),
    "library_us": Coefficient(0.0, 4.0, "us that a product of the library takes beyond a kernel of its bytes and flops"),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """The coefficients; `COEFFICIENTS` says what each means."""

    start_us: float
    cold_us: float
    latency_us: float
    read_wait: float
    ingest_gb_s: float
    uneven_gb_s: float
    memory_efficiency: float
    run_exponent: float
    memory_sharpness: float
    mma_efficiency: float
    tensor_warps: float
    issue_warps: float
    lane_scale: float
    wide_lanes: float
    shared_scale: float
    compute_overlap: float
    memory_overlap: float
    barrier_us: float
    cluster_us: float
    store_weight: float
    library_efficiency: float
    library_us: float


@dataclass(frozen=True, slots=True)
class Preset:
    """A named set of coefficients. Attributes: name; coefficients; note: where they come from."""

    name: str
    coefficients: Coefficients
    note: str = ""

    def describe(self) -> str:
        """Return one line per coefficient."""
        lines = [f"preset {self.name}: {self.note}" if self.note else f"preset {self.name}"]
        lines += [
            f"  {name} = {value:.4g}: {COEFFICIENTS[name].meaning}" for name, value in asdict(self.coefficients).items()
        ]
        return "\n".join(lines)


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets that ship."""
    files = shipped_path("data", "cost").iterdir()
    return tuple(sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json")))


@cache
def preset(name: str = "analytic") -> Preset:
    """Return the preset of this name. Raises: UnknownNameError, with the names there are; FormatError."""
    known = preset_names()
    if name not in known:
        raise UnknownNameError(f"no cost preset {name!r}; there are: {', '.join(known)} (and `course`, in cost.course)")
    return parse_preset(shipped_path("data", "cost", f"{name}.json").read_text(encoding="utf-8"))


def parse_preset(text: str) -> Preset:
    """Return a preset read from JSON. Raises: FormatError for another schema or wrong coefficients."""
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(f"a cost preset is JSON: {error}") from error
    if not isinstance(record, Mapping) or (record.get("schema"), record.get("version")) != (SCHEMA, VERSION):
        raise FormatError(f"a cost preset has schema {SCHEMA} version {VERSION}")
    try:
        found = Coefficients(**{name: float(value) for name, value in record["coefficients"].items()})
    except (TypeError, KeyError, ValueError) as error:
        raise FormatError(f"coefficients do not fit: {error}") from error
    for item in fields(found):
        value, allowed = getattr(found, item.name), COEFFICIENTS[item.name]
        if not allowed.low <= value <= allowed.high:
            raise FormatError(f"coefficient {item.name} = {value} is outside {allowed.low} .. {allowed.high}")
    return Preset(str(record["name"]), found, str(record.get("note", "")))


def dump_preset(chosen: Preset) -> str:
    """Return a preset as the JSON text that `parse_preset` reads."""
    record = {"schema": SCHEMA, "version": VERSION, "name": chosen.name, "note": chosen.note}
    return json.dumps({**record, "coefficients": asdict(chosen.coefficients)}, indent=1) + "\n"


def save_preset(chosen: Preset, path: Path) -> None:
    """Write a preset as a file."""
    path.write_text(dump_preset(chosen), encoding="utf-8")
