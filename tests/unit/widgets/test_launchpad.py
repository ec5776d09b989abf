"""The launchpad by its traits: what is asked, a run, its candidates, stopping, export, and typed formulas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench.errors import ShapeError, UsageError, WorkbenchError
from workbench.widgets.launchpad import TYPED, Launchpad
from workbench.widgets.typed_program import read_shapes, typed_program


@pytest.fixture
def pad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launchpad]:
    """A launchpad for a small program whose answers are kept in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = Launchpad("rms_norm_linear", sizes="batch=16 hidden=256 out=256", max_block_ops=7, keep=2)
    made.folder = str(tmp_path / "exported")
    yield made
    made.close()


def test_a_run_gives_candidates_with_reasons_and_exports_one(pad: Launchpad, tmp_path: Path) -> None:
    pad.set_state({"command": {"do": "search", "n": 1}})
    result = pad.wait(50)
    assert result is not None, pad.status
    assert pad.candidates == len(result.candidates) > 0
    assert not pad.running
    assert "above the lower bound" in pad.panels["candidates"]
    assert "proved equal" in pad.panels["candidates"] or "error ≤" in pad.panels["candidates"]
    assert "search: unreachable" in pad.panels["refused"]
    assert f"{result.best.time_us:.2f} us" in pad.status
    assert "<circle" in pad.panels["roofline"]
    assert "the program as written" in pad.panels["times"]
    if not pad.has_gpu:
        assert "there is no h200 here" in pad.notice
        pad.do_profile()
        pad.wait(20)
        assert "replayed" in pad._note
    pad.do_move(1)
    assert pad.chosen == min(1, pad.candidates - 1)
    pad.do_export()
    pad.wait(30)
    assert (tmp_path / "exported" / "kernel.cu").exists()


# an interruption that reaches the thread inside a callback of the collector is swallowed there, with a warning
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_stopping_keeps_the_page_and_ends_the_thread(pad: Launchpad) -> None:
    pad.sizes = "batch=16 hidden=4096 out=4096"
    pad.max_block_ops = 11
    took = list[float]()
    while not took or (min(took) >= 0.5 and len(took) < 3):  # other work on this machine only adds
        pad.search()
        time.sleep(0.3)
        start = time.monotonic()
        pad.cancel()
        took.append(time.monotonic() - start)
        assert pad._worker.wait(20)
        end = time.monotonic() + 5
        while pad.running and time.monotonic() < end:
            time.sleep(0.02)
        assert not pad.running
    assert min(took) < 0.5


def test_what_cannot_be_made_is_said_in_its_panel(pad: Launchpad) -> None:
    pad.sizes = "batch=sixteen"
    assert "batch=sixteen" in pad.panels["request"]
    with pytest.raises(UsageError):
        pad.search()
    pad.set_state({"command": {"do": "compile", "n": 1}})
    assert "search first" in pad.status
    pad.program = TYPED
    assert "rms_norm" in pad.panels["request"]
    assert [spec["trait"] for spec in pad.controls if spec.get("trait") == "formula"]


@pytest.mark.parametrize(
    ("formula", "shapes", "expected"),
    [
        ("exp(X) @ Y", "X=3x4 Y=4x5", lambda x, y: np.exp(x) @ y),
        ("-X / 2 + Y", "X=3x4, Y=4", lambda x, y: -x / 2 + y),
        ("2 * sum(X, axis=-1) - Y", "X=3x4 Y=3x1", lambda x, y: 2 * x.sum(-1, keepdims=True) - y),
        ("concat(X, Y, axis=-1)", "X=3x4 Y=3×2", lambda x, y: np.concatenate([x, y], -1)),
    ],
)
def test_formulas_mean_what_they_say(formula: str, shapes: str, expected: object) -> None:
    graph = typed_program(formula, shapes, dtype="float32")
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape) for shape in read_shapes(shapes).values()]
    (found,) = wb.evaluate(graph, inputs)
    np.testing.assert_allclose(found, expected(*inputs), rtol=1e-12)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("formula", "shapes", "message"),
    [
        ("__import__('os').system('true')", "X=2x2", "means nothing|no operator"),
        ("open('x')", "X=2x2", "no operator"),
        ("X.dtype", "X=2x2", "means nothing"),
        ("[X for X in X]", "X=2x2", "means nothing"),
        ("X @", "X=2x2", "cannot be read"),
        ("X @ Q", "X=2x2", "Q is no input"),
        ("X", "X=2x2 X=3x3", "two shapes"),
        ("X", "2x2", "no shape"),
        ("X", "", "give a shape"),
    ],
)
def test_formulas_run_no_code(formula: str, shapes: str, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        typed_program(formula, shapes)
    with pytest.raises(ShapeError):
        typed_program("X @ Y", "X=2x3 Y=2x3")
