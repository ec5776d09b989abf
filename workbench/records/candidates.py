"""What searches found and measured, kept for later: which µGraph, under which schedule, is best for a program on a device.

Invariant: a lookup answers for exactly the program asked about: its hash and, since a hash is only a hash, its text in
canonical names must both agree, besides the device and the version of the workbench.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.records.store import Record, RecordStore
from workbench.shipped import shipped_path
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode
from workbench.ugraph.serialize import dumps, loads

SCHEMA = "mugraph-workbench/candidate"
REQUIRED = frozenset({"program_hash", "program", "hash", "graph", "schedules", "device", "workbench"})
SHIPPED = "candidates.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCandidate:
    """A µGraph that computes a program.

    Attributes: graph; schedules: by the name of a kernel's first result, the fields of a `Schedule`; cold_us: as measured,
    None if it was not; cost_us: as modelled; certificate: as the verifier put it; provenance.
    """

    graph: KernelGraph
    schedules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cold_us: float | None = None
    cost_us: float | None = None
    certificate: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)


def candidate_store(path: Path) -> RecordStore:
    """Return the store of candidates in a file."""
    return RecordStore(path, SCHEMA, 1, REQUIRED)


def shipped_candidates() -> RecordStore:
    """Return the candidates that ship with the workbench; for reading."""
    return candidate_store(Path(str(shipped_path("data", "records", SHIPPED))))


def save_candidate(
    store: RecordStore, program: KernelGraph, candidate: StoredCandidate, *, device: str, version: str
) -> Record:
    """Add a candidate for a program on a device. Raises: FormatError; OSError."""
    return store.append(
        {
            "program_hash": program.hash,
            "program": dumps(program),
            "hash": candidate.graph.hash,
            "graph": dumps(candidate.graph),
            "schedules": {name: dict(fields) for name, fields in candidate.schedules.items()},
            "device": device,
            "workbench": version,
            "cold_us": candidate.cold_us,
            "cost_us": candidate.cost_us,
            "certificate": dict(candidate.certificate),
            "provenance": dict(candidate.provenance),
        }
    )


def find_candidates(
    stores: Sequence[RecordStore], program: KernelGraph, *, device: str, version: str
) -> list[StoredCandidate]:
    """Return the candidates kept for a program on a device, measured ones first, the fastest first; none is there twice.

    A record whose graphs do not load, or load into something else than their hashes say, is passed over. Raises: OSError.
    """
    found: dict[str, StoredCandidate] = {}
    for store in stores:
        for record in store.records():
            if (record["program_hash"], record["device"], record["workbench"]) != (program.hash, device, version):
                continue
            candidate = _load(record, program)
            if candidate is None:
                continue
            key = f"{candidate.graph.hash} {sorted(candidate.schedules.items())}"
            found[key] = candidate  # the last measurement of the same counts
    return sorted(found.values(), key=lambda one: (one.cold_us is None, one.cold_us or one.cost_us or 0.0))


def _load(record: Record, program: KernelGraph) -> StoredCandidate | None:
    try:
        stored, graph = loads(record["program"])[0], loads(record["graph"])[0]
        same = stored.hash == program.hash and wiring(stored) == wiring(program) and graph.hash == record["hash"]
    except (WorkbenchError, IndexError, TypeError, KeyError):
        return None
    if not same or not isinstance(record["schedules"], dict):
        return None
    return StoredCandidate(
        graph=graph,
        schedules=record["schedules"],
        cold_us=record.get("cold_us"),
        cost_us=record.get("cost_us"),
        certificate=record.get("certificate") or {},
        provenance=record.get("provenance") or {},
    )


def wiring(graph: KernelGraph) -> tuple[object, ...]:
    """Return what a program computes with the names of its intermediates left out: inputs, nodes in order, outputs.

    Commuted operands and another order of nodes make another wiring: a lookup then misses, which costs a search.
    """
    numbers = {tensor.name: number for number, tensor in enumerate(graph.tensors.values())}
    inputs = tuple((tensor.shape, tensor.dtype, tensor.strides) for tensor in graph.inputs)
    nodes = []
    for node in graph.nodes:
        results = tuple((tensor.shape, tensor.dtype) for tensor in node.results)
        what: tuple[object, ...] = (node.op, node.attributes) if isinstance(node, OpNode) else (node.block,)
        nodes.append((what, tuple(numbers[name] for name in node.operands), results))
    return inputs, tuple(nodes), tuple(numbers[name] for name in graph.output_names)
