"""Records: replayed without searching, indexed lazily, and robust against a process that was killed while writing."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

import workbench as wb
from tests.unit.search.small_works import lines_of
from workbench.errors import FormatError, UsageError
from workbench.search.events import Event, Pruned, Said, Verified
from workbench.search.recording import record
from workbench.search.replay import replay
from workbench.search.space import Space
from workbench.search.summary import collect
from workbench.verify.compare import verify

PROGRAM = wb.programs.get("rms_norm_linear", batch=4, hidden=24, out=10)
SPACE = Space(max_block_ops=7)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    """A finished record and its events."""
    path = tmp_path_factory.mktemp("records") / "run.jsonl"
    return path, list(wb.search(PROGRAM, space=SPACE, record=path))


def test_a_replay_says_the_same(recorded: tuple[Path, list[Event]]) -> None:
    path, events = recorded
    run = wb.replay(path)
    assert list(run) == events
    assert lines_of(list(run)) == lines_of(events) == lines_of(list(wb.search(PROGRAM, space=SPACE)))
    assert (len(run), run.is_finished, run.message) == (len(events), True, "")
    assert (run.header.program, run.space, run.header.seed) == (PROGRAM, SPACE, 0)
    assert (run.header.workbench, run.header.engine) == (wb.__version__, "values")
    found, live = collect(run, run.space), collect(events, SPACE)
    assert found.describe() == live.describe()
    assert len(found.structures) > 3


def test_any_event_by_number(recorded: tuple[Path, list[Event]]) -> None:
    path, events = recorded
    run = replay(path)
    assert run[len(events) // 2] == events[len(events) // 2]
    assert run[-1] == events[-1]
    assert run[3:9:2] == events[3:9:2]
    assert [run.kind(number) for number in range(len(run))] == [type(event).__name__ for event in events]
    assert [run[number] for number in run.find("Verified")] == [e for e in events if isinstance(e, Verified)]
    with pytest.raises(IndexError):
        run[len(events)]


def test_a_replay_loads_no_search(recorded: tuple[Path, list[Event]]) -> None:
    script = (
        "import sys; from workbench.search.replay import replay\n"
        "events = list(replay(sys.argv[1])); [event.describe() for event in events]\n"
        "print(len(events), [m for m in sys.modules if 'abstract' in m or m.startswith('workbench.search.e')])"
    )
    done = subprocess.run([sys.executable, "-c", script, recorded[0]], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == [
        str(len(recorded[1])),
        "['workbench.search.events', 'workbench.search.event_lines']\n",
    ]


def test_many_events_open_at_once(tmp_path: Path) -> None:
    events: list[Event] = [
        Pruned("loops h", "demand", Said(f"Σ_h[X·W] / {number}"), Said("it takes too many operators"))
        for number in range(50_000)
    ]
    path = tmp_path / "many.jsonl"
    assert sum(1 for _ in record(events, path, PROGRAM, SPACE)) == len(events)
    start = time.process_time()
    run = replay(path)
    assert time.process_time() - start < 1.0
    start = time.process_time()
    assert [run[number] for number in range(0, 50_000, 50)] == events[::50]
    assert time.process_time() - start < 1.0  # a thousand steps
    last = run[49_999]
    assert isinstance(last, Pruned)
    assert last.subject() == "Σ_h[X·W] / 49999"


def test_a_damaged_last_line_loses_that_line(
    recorded: tuple[Path, list[Event]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = recorded[0].read_bytes()
    last = whole[:-1].rfind(b"\n") + 1
    path = tmp_path / "cut.jsonl"
    number = whole.count(b"\n")
    for ending in (whole[last : last + 5], whole[last:-2], b'{"event":"Star\n', b"\x00\x00\n", whole[last:-1]):
        path.write_bytes(whole[:last] + ending)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            run = replay(path)
        assert list(run) == recorded[1][:-1]
        assert not run.is_finished
        assert run.message == f"{path}: line {number}, the last one, is cut off or damaged and left out"
        assert [entry.message for entry in caplog.records] == [run.message]


def test_other_damage_names_the_line(recorded: tuple[Path, list[Event]], tmp_path: Path) -> None:
    lines = recorded[0].read_bytes().split(b"\n")
    at = next(number for number, line in enumerate(lines) if line.startswith(b'{"event":"Extended"'))
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(b"\n".join([*lines[:at], lines[at][:30], *lines[at + 1 :]]))
    run = replay(path)
    with pytest.raises(FormatError, match=f"damaged.jsonl: line {at + 1}: "):
        list(run)
    kept = [line for line in lines if not line.startswith(b'{"graph"')]
    path.write_bytes(b"\n".join(kept))
    with pytest.raises(FormatError, match=r"the graph .* is not in the record"):
        list(replay(path))


@pytest.mark.parametrize("text", ["", "{}\n", "[]\n", "x\n", '{"graphs":[]}\n', '{"search":99}\n', '{"search":1}\n'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"other\.jsonl"):
        replay(path)
    if text:  # an empty file is written to
        with pytest.raises(UsageError, match="it is left as it is"):
            wb.search(PROGRAM, record=path)
    assert path.read_text() == text


def test_a_record_of_another_search_is_kept(recorded: tuple[Path, list[Event]]) -> None:
    path = recorded[0]
    before = path.read_bytes()
    other = wb.programs.get("rms_norm_linear", batch=4, hidden=24, out=11)
    for program, space, seed, words in [
        (other, SPACE, 0, "the program is rms_norm_linear"),
        (PROGRAM, Space(), 0, "space"),
        (PROGRAM, SPACE, 1, "seed 0 instead of 1"),
    ]:
        with pytest.raises(UsageError, match=f"holds another search .{words}"):
            wb.search(program, space=space, seed=seed, record=path)
    with pytest.raises(UsageError, match="options"):
        wb.search(PROGRAM, space=SPACE, verifier=verify, record=path)
    assert path.read_bytes() == before


def test_a_finished_record_is_not_searched_again(recorded: tuple[Path, list[Event]], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(recorded[0].read_bytes())
    changed = path.read_bytes().replace(b'"rule":"unreachable"', b'"rule":"as recorded"')
    path.write_bytes(changed)
    events = list(wb.search(PROGRAM, space=SPACE, record=path))
    assert any(isinstance(event, Pruned) and event.rule == "as recorded" for event in events)
    again = list(wb.search(PROGRAM, space=SPACE, record=path, resume=False))
    assert again == recorded[1]
    assert path.read_bytes() != changed


def test_the_space_comes_back() -> None:
    space = Space(max_block_ops=5, palette=("matmul", "exp"), chains="all")
    assert Space.from_json(json.loads(json.dumps(space.to_json()))) == space
    with pytest.raises(UsageError, match="a space has no colour"):
        Space.from_json({"colour": 1})


def test_graphs_stand_once(recorded: tuple[Path, list[Event]]) -> None:
    lines = recorded[0].read_text().splitlines()
    graphs = [line for line in lines if line.startswith('{"graph"')]
    assert len(graphs) == len(set(graphs)) == len({e.graph.hash for e in recorded[1] if isinstance(e, Verified)})


def test_a_line_in_the_middle_that_is_none_of_a_record_is_named(
    recorded: tuple[Path, list[Event]], tmp_path: Path
) -> None:
    lines = recorded[0].read_text().splitlines(keepends=True)
    lines[5] = '{"event": oops}\n'
    path = tmp_path / "foreign.jsonl"
    path.write_text("".join(lines))
    with pytest.raises(FormatError, match=r"foreign.jsonl: line 6: no event, graph or mark"):
        replay(path)


def test_a_damaged_mark_or_a_missing_line_is_named_before_anything_is_read(
    recorded: tuple[Path, list[Event]], tmp_path: Path
) -> None:
    lines = recorded[0].read_bytes().splitlines(keepends=True)
    marks = [number for number, line in enumerate(lines) if line.startswith(b'{"unit"')]
    event = next(number for number in range(marks[1] - 1, 0, -1) if lines[number].startswith(b'{"event"'))
    path = tmp_path / "damaged.jsonl"
    for changed, words in [
        ({marks[0]: lines[marks[0]][:40] + b"\n"}, f"line {marks[0] + 1}: no mark of a unit: "),
        ({marks[0]: lines[marks[0]].replace(b"outcome", b"outcast")}, f"line {marks[0] + 1}: no mark of a unit: "),
        ({event: b""}, rf"line {marks[1]}: the unit 'plan group 1.*' has (\d+) events, \d+ are in the record"),
        ({event: lines[event] * 2}, rf"line {marks[1] + 2}: the unit 'plan group 1.*' has \d+ events, \d+ are in"),
    ]:
        path.write_bytes(b"".join(changed.get(number, line) for number, line in enumerate(lines)))
        before = path.read_bytes()
        with pytest.raises(FormatError, match=f"damaged.jsonl: {words}"):
            replay(path)
        with pytest.raises(UsageError, match=words):
            wb.search(PROGRAM, space=SPACE, record=path)
        assert path.read_bytes() == before


def test_a_damaged_graph_is_named(recorded: tuple[Path, list[Event]], tmp_path: Path) -> None:
    lines = recorded[0].read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if line.startswith(b'{"graph"'))
    path = tmp_path / "damaged.jsonl"
    for broken in (
        lines[at][:-40] + b"\n",
        lines[at].replace(b'"value"', b'"worth"'),
        lines[at].replace(b"load", b"lead"),
    ):
        path.write_bytes(b"".join([*lines[:at], broken, *lines[at + 1 :]]))
        run = replay(path)
        with pytest.raises(
            FormatError, match=rf"damaged.jsonl: line {at + 2}: its graph, line {at + 1}, cannot be read"
        ):
            list(run)
