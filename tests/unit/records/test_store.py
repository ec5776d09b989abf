"""The store: lines are only added, two writers do not mix, a torn line costs itself, lookups answer by equality of keys."""

from __future__ import annotations

import json
import math
import multiprocessing
from pathlib import Path

import pytest

from workbench.errors import FormatError
from workbench.records.store import RecordStore, last_of_each

SCHEMA = "mugraph-workbench/test"


def store(folder: Path, *required: str) -> RecordStore:
    return RecordStore(folder / "deep" / "records.jsonl", SCHEMA, 2, frozenset(required))


def test_what_is_appended_is_read_back_in_order(tmp_path: Path) -> None:
    records = store(tmp_path)
    assert records.records() == ()
    written = records.append({"name": "µ", "sizes": {"batch": 2}, "us": 1.5, "bad": math.nan, "pair": (1, 2)})
    assert written["bad"] is None
    assert written["pair"] == [1, 2]
    records.append({"name": "b"})
    assert [record["name"] for record in records.records()] == ["µ", "b"]
    assert records.records()[0] == {"schema": SCHEMA, "version": 2, **written}
    assert records.path.read_bytes().count(b"\n") == 2


def test_earlier_bytes_never_change(tmp_path: Path) -> None:
    records = store(tmp_path)
    records.append({"n": 0})
    before = records.path.read_bytes()
    records.append({"n": 1})
    assert records.path.read_bytes().startswith(before)


@pytest.mark.parametrize(
    "torn", [b'{"schema": "mugraph-workbench/test", "vers', b"\xff\xfe", b"[1, 2]", b"7", b"\x00" * 9]
)
def test_a_torn_last_line_costs_itself_only(tmp_path: Path, torn: bytes) -> None:
    records = store(tmp_path)
    records.append({"n": 0})
    with records.path.open("ab") as file:
        file.write(torn)  # a writer died here
    assert [record["n"] for record in records.records()] == [0]
    records.append({"n": 1})
    contents = records.read()
    assert [record["n"] for record in contents.records] == [0, 1]
    assert [damage.line for damage in contents.damaged] == [2]
    assert contents.damaged[0].reason


def test_a_last_line_without_its_end_that_is_whole_is_kept(tmp_path: Path) -> None:
    records = store(tmp_path)
    records.append({"n": 0})
    records.path.write_bytes(records.path.read_bytes()[:-1])
    records.append({"n": 1})
    assert [record["n"] for record in records.records()] == [0, 1]


def test_foreign_records_are_damage(tmp_path: Path) -> None:
    records = store(tmp_path, "n")
    records.append({"n": 0})
    with records.path.open("a") as file:
        file.write(json.dumps({"schema": SCHEMA, "version": 1, "n": 5}) + "\n")
        file.write(json.dumps({"schema": "other", "version": 2, "n": 5}) + "\n")
        file.write(json.dumps({"schema": SCHEMA, "version": 2}) + "\n")
    contents = records.read()
    assert [record["n"] for record in contents.records] == [0]
    assert [damage.line for damage in contents.damaged] == [2, 3, 4]


def test_records_that_are_none_are_refused_and_write_nothing(tmp_path: Path) -> None:
    records = store(tmp_path, "n")
    for wrong in ({}, {"n": object()}, {"n": 1, "version": 3}):
        with pytest.raises(FormatError):
            records.append(wrong)
    assert not records.path.exists()


def test_lookups_answer_by_every_key_and_with_the_last(tmp_path: Path) -> None:
    records = store(tmp_path)
    for number, (program, device) in enumerate([("a", "h200"), ("a", "h100"), ("a", "h200"), ("b", "h200")]):
        records.append({"program": program, "device": device, "sizes": {"x": 1}, "n": number})
    found = records.latest(program="a", device="h200", sizes={"x": 1})
    assert found is not None
    assert found["n"] == 2
    assert records.latest(program="a", device="a100") is None
    assert records.latest(program="a", absent=None) is None  # a key that a record lacks is not null
    with pytest.raises(FormatError, match="at least one key"):
        records.latest()


def write_many(path: Path, writer: int, count: int) -> None:
    records = RecordStore(path, SCHEMA, 2)
    for number in range(count):
        records.append({"writer": writer, "number": number, "ballast": "x" * (5000 + 7 * number)})


def test_two_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    records, count = store(tmp_path), 40
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(records.path, writer, count)) for writer in range(2)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(50)
        assert process.exitcode == 0
    contents = records.read()
    assert not contents.damaged
    for writer in range(2):
        assert [r["number"] for r in contents.records if r["writer"] == writer] == list(range(count))


def test_the_last_of_each_key_counts() -> None:
    rows = [
        {"p": "a", "s": {"x": 1, "y": 2}, "n": 0},
        {"p": "b", "s": {}, "n": 1},
        {"p": "a", "s": {"y": 2, "x": 1}, "n": 2},
    ]
    assert [row["n"] for row in last_of_each(rows, "p", "s")] == [2, 1]
