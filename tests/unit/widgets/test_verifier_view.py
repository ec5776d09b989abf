"""The view of a verification by its traits: the verdict is that of `wb.verify`, the walk shows where values part."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.errors import UsageError
from workbench.verify.compare import verify
from workbench.views.walk_view import aligned, bound_svg
from workbench.widgets.verifier_view import VerifierView

PROGRAM = wb.programs.get("rms_norm_linear", batch=4, hidden=24, out=10)
GOOD = wb.trace(lambda X, G, W: wb.rms_norm(X) * G @ W, X=(4, 24), G=(24,), W=(24, 10))
FORGOT = wb.trace(lambda X, G, W: wb.rms_norm(X) @ W, X=(4, 24), G=(24,), W=(24, 10))


def test_equal_programs() -> None:
    view = VerifierView(PROGRAM, GOOD)
    try:
        found = view.wait()
        assert found is not None
        assert found.kind == verify(PROGRAM, GOOD).kind == view.verdict_kind == "equal"
        assert view.agrees
        assert view.panels["witness"] == ""
        view.do_last()
        assert (view.left_name, view.right_name) == ("O", view.right_name)
        assert "wb-differs" not in view.panels["left"]
        assert "<svg" in view.panels["bound"]
    finally:
        view.close()


def test_a_forgotten_gain_has_a_witness_and_differs_where_the_gain_is_missing() -> None:
    view = VerifierView(PROGRAM, FORGOT)
    try:
        found = view.wait()
        assert found is not None
        assert found.witness is not None
        assert f"{found.witness.left:.9g}" in view.panels["witness"]
        assert not view.agrees
        view.do_last()
        assert "wb-differs" in view.panels["left"]
        assert "its outputs differ at output 0" in view.notice
        assert "same residues as" in view.panels["left_steps"]
    finally:
        view.close()


def test_the_walk_goes_from_inputs_to_outputs() -> None:
    view = VerifierView(PROGRAM, GOOD)
    try:
        seen = []
        for _ in range(view.length):
            seen.append(view.left_name)
            view.do_step()
        assert seen[:3] == ["X", "G", "W"]
        assert seen[-1] == "O"
        assert view.position == view.length - 1
        view.do_first()
        assert view.position == 0
        before = view.panels["left"]
        view.do_redraw()
        assert view.seed == 1
        assert view.panels["left"] != before
        assert view.walk is not None
        p = view.walk.side("program")[0].p
        assert str(int(np.ravel(p)[0])) in view.panels["left"]
        view.pair = "paper"
        assert view.walk is None or view.walk.pair.p == 227
    finally:
        view.close()


def test_stopping_keeps_the_page() -> None:
    view = VerifierView(PROGRAM, GOOD)
    view.do_cancel()
    assert not view.running
    view.do_verify()
    assert view.wait() is not None
    view.close()
    assert not view._worker.is_running


def test_a_given_verdict_is_shown_as_it_is() -> None:
    given = verify(PROGRAM, FORGOT)
    view = VerifierView(PROGRAM, FORGOT, verdict=given)
    assert view.verdict is given
    assert view.verdict_kind == "different"
    view.close()
    with pytest.raises(UsageError, match="the candidate is str"):
        VerifierView(PROGRAM, "graph")


@pytest.mark.parametrize(("position", "expected"), [(0, 0), (4, 2), (8, 4)])
def test_the_shorter_program_keeps_step(position: int, expected: int) -> None:
    assert aligned(position, 5, 9) == expected


def test_the_bound_falls_with_tests() -> None:
    svg = bound_svg({"mixed sets": 1e-3, "theorem 2": 2.0}, 1e-9, 3)
    assert "mixed sets: 0.001 a test" in svg
    assert "theorem 2" not in svg  # a bound above 1 says nothing
    assert "3 tests were run" in svg
