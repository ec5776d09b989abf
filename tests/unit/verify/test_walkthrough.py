from __future__ import annotations

import numpy as np
import pytest

from workbench import programs
from workbench.errors import UsageError
from workbench.ugraph import value as op
from workbench.ugraph.tracing import trace
from workbench.verify.walkthrough import walk_through


def test_exponents_add_in_the_exercise_field_step_by_step() -> None:
    """Lecture, exercise 3: p = 11, q = 5, omega = 4; recomputed here with Python integers."""
    shown = walk_through(
        trace(lambda x, y: op.exp(x) * op.exp(y), x=(4,), y=(4,)),
        trace(lambda x, y: op.exp(x + y), x=(4,), y=(4,)),
        pair="exercise",
    )
    assert shown.mismatch is None
    by_name = {(step.side, step.path[0]): step for step in shown.steps}
    x, y = by_name["program", "x"], by_name["program", "y"]
    assert x.q is not None
    assert y.q is not None
    want = [pow(shown.omega, int(a) + int(b), 11) for a, b in zip(x.q, y.q, strict=True)]
    for side in ("program", "candidate"):
        (output,) = [step for step in shown.steps if step.side == side and step.is_output]
        assert output.p.tolist() == want
        assert output.q is None
        assert (by_name[side, "x"].p == x.p).all()


def test_tiles_of_block_graphs_are_shown_and_a_mismatch_is_named() -> None:
    sizes = {"batch": 4, "hidden": 8, "out": 6}
    program = programs.get("rms_norm_linear", "standard", "float16", **sizes)
    candidate = programs.known_good("rms_norm_linear", "standard", "float16", **sizes)[0]
    shown = walk_through(program, candidate, seed=3)
    assert shown.mismatch is None
    tiles = [step for step in shown.side("candidate") if step.level == "block"]
    assert len(tiles) >= 7
    assert all(len(step.shape) >= 4 for step in tiles)
    wrong = trace(lambda X, G, W: op.rms_norm(X) @ W, X=(4, 8), G=(8,), W=(8, 6))
    mismatch = walk_through(program, wrong, seed=3).mismatch
    assert mismatch is not None
    outputs = [step.p for step in walk_through(program, wrong, seed=3).steps if step.is_output]
    assert outputs[0][mismatch.index] == mismatch.left != mismatch.right == outputs[1][mismatch.index]


def test_large_programs_are_refused_with_the_cure() -> None:
    program = programs.get("rms_norm_linear")
    with pytest.raises(UsageError, match="reduced instance"):
        walk_through(program, program)
    np.testing.assert_equal(len(walk_through(trace(lambda x: 1 * x, x=(2,)), trace(lambda x: 1 * x, x=(2,))).steps), 4)
