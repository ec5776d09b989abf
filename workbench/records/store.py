"""Records that are only ever added to: one JSON object a line, each with its schema, version and provenance.

Invariant: a line once written is never changed; two writers do not mix their lines; a line that was cut off, by a full disk
or a killed process, costs itself only; what is asked for is answered by equality of every key asked for, or not at all.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import FormatError

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Damage:
    """A line that is no record of the store's schema."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds: records in the order they were written, and lines that are none."""

    records: tuple[Record, ...]
    damaged: tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class RecordStore:
    """A file of records of one schema. Attributes: path; schema; version; required: keys that every record has."""

    path: Path
    schema: str
    version: int = 1
    required: frozenset[str] = field(default_factory=frozenset)

    def append(self, record: Mapping[str, Any]) -> Record:
        """Add a record and return it as it was written: schema and version first, numbers that JSON lacks as null.

        A last line without its end, which a writer left that died, is closed first, so that it spoils no other.
        Raises: FormatError for a record that lacks a required key or does not turn into JSON; OSError.
        """
        written: Record = {"schema": self.schema, "version": self.version, **record}
        self._check(written)
        try:
            text = json.dumps(_finite(written), allow_nan=False, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise FormatError(f"a record for {self.path} does not turn into JSON: {error}") from error
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            with _locked(handle):
                end = os.lseek(handle, 0, os.SEEK_END)
                is_open = end > 0 and os.pread(handle, 1, end - 1) != b"\n"
                data = ("\n" if is_open else "").encode() + text.encode() + b"\n"
                while data:  # one write in practice; a short one is continued under the same lock
                    data = data[os.write(handle, data) :]
                with suppress(OSError):  # some file systems cannot
                    os.fsync(handle)
        finally:
            os.close(handle)
        loaded: Record = json.loads(text)
        return loaded

    def read(self) -> Contents:
        """Return what the file holds; a missing file holds nothing. Raises: OSError."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Contents((), ())
        return parse_records(data, self._check)

    def records(self) -> tuple[Record, ...]:
        """Return the records in the order they were written, damaged lines left out."""
        return self.read().records

    def latest(self, **wanted: Any) -> Record | None:
        """Return the last record whose keys equal all that is wanted, None if there is none.

        Raises: FormatError when nothing is asked for, since any record would do.
        """
        if not wanted:
            raise FormatError("ask a store for a record by at least one key")
        sought = json.loads(json.dumps(wanted))
        for record in reversed(self.records()):
            if all(key in record and record[key] == value for key, value in sought.items()):
                return record
        return None

    def _check(self, record: Mapping[str, Any]) -> None:
        if (record.get("schema"), record.get("version")) != (self.schema, self.version):
            found = f"{record.get('schema')!r} version {record.get('version')!r}"
            raise FormatError(f"a record of schema {found}; this store keeps {self.schema!r} version {self.version}")
        if missing := self.required - record.keys():
            raise FormatError(f"a record of {self.schema} lacks {', '.join(sorted(missing))}")


def parse_records(data: bytes, check: Callable[[Record], None]) -> Contents:
    """Return the records of a file's bytes; `check` raises FormatError for an object that is no record."""
    records: list[Record] = []
    damaged: list[Damage] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise FormatError(f"a record is a JSON object, not {type(record).__name__}")
            check(record)
        except (ValueError, FormatError, RecursionError) as error:  # ValueError: JSON and UTF-8
            damaged.append(Damage(number, " ".join(str(error).split())[:200]))
            continue
        records.append(record)
    return Contents(tuple(records), tuple(damaged))


def last_of_each(records: Sequence[Record], *keys: str) -> list[Record]:
    """Return the last record of each combination of values of these keys, in the order in which each first appeared."""
    found: dict[str, Record] = {}
    for record in records:
        found[json.dumps([record.get(key) for key in keys], sort_keys=True)] = record
    return list(found.values())


@contextmanager
def _locked(handle: int) -> Iterator[None]:
    """Hold the file for this process alone; where the system has no such lock, O_APPEND still keeps lines apart."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        yield
        return
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
