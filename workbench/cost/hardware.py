"""What a GPU can do, as one record per GPU: rates, sizes, limits, and where each figure is from.

Invariant: every figure has a source; what was measured on our own GPU stands in fields of its own and is used first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from workbench.core.dtypes import DType
from workbench.errors import FormatError, MissingRuleError, UnknownNameError
from workbench.shipped import shipped_path
from workbench.units import format_bytes

SCHEMA, VERSION = "mugraph-workbench/hardware", 1
_TENSOR = "tensor_tflops_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One GPU.

    Attributes: name, title; compute_capability; multiprocessors; clock_ghz (boost); shared memory a block may use, a
    multiprocessor has, and is reserved per block, in bytes; registers, threads and blocks a multiprocessor holds;
    fp32_lanes, special_lanes: results a cycle and multiprocessor; shared_bytes_per_cycle; l2_bytes, l2_tb_s;
    memory_bytes, memory_tb_s: device memory; tensor_tflops: dense rate of tensor cores by type (float32: tf32);
    fp32_tflops; max_cluster: blocks in a cluster, 1 where there are none; launch_us: one kernel in a CUDA graph;
    measured_*: ceilings measured on our own GPU, None where we have none; sources: figure -> document; units.
    """

    name: str
    title: str
    compute_capability: str
    multiprocessors: int
    clock_ghz: float
    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    shared_bytes_reserved: int
    registers_per_multiprocessor: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    fp32_lanes: int
    special_lanes: int
    shared_bytes_per_cycle: int
    l2_bytes: int
    l2_tb_s: float
    memory_bytes: int
    memory_tb_s: float
    tensor_tflops: Mapping[str, float] = field(hash=False)
    fp32_tflops: float
    max_cluster: int
    launch_us: float
    measured_memory_tb_s: float | None = None
    measured_tensor_tflops: float | None = None
    measured_launch_us: float | None = None
    sources: Mapping[str, str] = field(hash=False)
    units: Mapping[str, str] = field(hash=False)

    @property
    def bandwidth_tb_s(self) -> float:
        """Bandwidth of device memory: the measured ceiling where there is one, else the data sheet's."""
        return self.memory_tb_s if self.measured_memory_tb_s is None else self.measured_memory_tb_s

    def tensor_rate(self, dtype: DType) -> float:
        """Return the rate of tensor cores in TFLOP/s: measured for 16 bits where we have it, in proportion for others.

        Raises: MissingRuleError for a type without a rate.
        """
        if dtype.value not in self.tensor_tflops:
            raise MissingRuleError(
                f"{self.name} has no tensor-core rate for {dtype}; it has: {', '.join(self.tensor_tflops)}"
            )
        rate = self.tensor_tflops[dtype.value]
        if self.measured_tensor_tflops is None or dtype is DType.FLOAT64:
            return rate
        return rate * self.measured_tensor_tflops / self.tensor_tflops[DType.FLOAT16.value]

    @property
    def node_us(self) -> float:
        """Time of one kernel of a CUDA graph that does nothing, in microseconds: measured where there is a figure."""
        return self.launch_us if self.measured_launch_us is None else self.measured_launch_us

    def describe(self) -> str:
        """Return one line per figure with its source."""
        lines = [f"{self.title} ({self.name})"]
        for figure, source in self.sources.items():
            value: object = self.tensor_tflops[figure.removeprefix(_TENSOR)] if figure.startswith(_TENSOR) else (
                getattr(self, figure)
            )  # fmt: skip
            unit = self.units[figure]
            shown = format_bytes(float(str(value))) if unit == "B" else f"{value} {unit}".strip()
            lines.append(f"  {figure}: {shown}  [{source}]")
        return "\n".join(lines)


def hardware_names() -> tuple[str, ...]:
    """Return the names of the GPUs there is a record of."""
    files = shipped_path("data", "hardware").iterdir()
    return tuple(sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json")))


def hardware(name: str) -> Hardware:
    """Return the record of a GPU: "h200", "a100-40", ...; case does not matter.

    Raises: UnknownNameError, with the names there are; FormatError for a broken record.
    """
    known = hardware_names()
    found = str(name).strip().lower()
    if found not in known:
        raise UnknownNameError(f"no GPU {name!r}; there are records of: {', '.join(known)}")
    return _read(found)


@cache
def _read(name: str) -> Hardware:
    text = shipped_path("data", "hardware", f"{name}.json").read_text(encoding="utf-8")
    try:
        return parse_hardware(json.loads(text))
    except (json.JSONDecodeError, FormatError) as error:
        raise FormatError(f"data/hardware/{name}.json: {error}; restore it from the repository") from error


def parse_hardware(record: Mapping[str, object]) -> Hardware:
    """Return the record read from JSON. Raises: FormatError for another schema, a missing figure or one without source."""
    if (record.get("schema"), record.get("version")) != (SCHEMA, VERSION):
        raise FormatError(f"schema {record.get('schema')!r} version {record.get('version')!r}, want {SCHEMA} {VERSION}")
    figures = record.get("figures")
    if not isinstance(figures, Mapping):
        raise FormatError("no figures")
    values: dict[str, object] = {}
    tensor: dict[str, float] = {}
    sources: dict[str, str] = {}
    units: dict[str, str] = {}
    for figure, entry in figures.items():
        if not entry.get("source"):
            raise FormatError(f"figure {figure} has no source")
        sources[figure], units[figure] = entry["source"], entry["unit"]
        if figure.startswith(_TENSOR):
            tensor[figure.removeprefix(_TENSOR)] = float(entry["value"])
        else:
            values[figure] = entry["value"]
    try:
        return Hardware(
            name=str(record["name"]),
            title=str(record["title"]),
            tensor_tflops=tensor,
            sources=sources,
            units=units,
            **values,  # type: ignore[arg-type]  # the dataclass itself names what is missing or unknown
        )
    except (TypeError, KeyError) as error:
        raise FormatError(f"figures do not fit the record: {error}") from error
