"""A verdict's plain form, there and back."""

from __future__ import annotations

import json

import pytest

from workbench import programs
from workbench.errors import FormatError
from workbench.ugraph.tracing import trace
from workbench.verify.compare import verify
from workbench.verify.verdict import Instance, Verdict, verdict_from_json


def test_an_equal_verdict_is_the_same_after_json() -> None:
    program = programs.get("gated_mlp", hidden=32, out=24, batch=4)
    verdict = verify(program, programs.known_good("gated_mlp", hidden=32, out=24, batch=4)[0])
    again = verdict_from_json(json.loads(json.dumps(verdict.to_json())))
    assert again.to_json() == verdict.to_json()
    assert again.describe() == verdict.describe()


def test_one_test_is_no_tests() -> None:
    shapes = tuple(Instance(shapes=((2, 3),), reduced=True, tests=tests, cells=tests) for tests in (1, 2))
    text = Verdict(kind="equal", reason="so", tests=1, shapes_tested=shapes, field_pair="w31").describe()
    assert "[2, 3]: 1 test, 1 cell\n" in text
    assert "[2, 3]: 2 tests, 2 cells\n" in text
    assert "w31; 1 test; " in text


@pytest.mark.parametrize(
    ("reason", "proved", "bound", "head"),
    [
        ("proved so", True, 0.0, "equal: proved so"),
        ("by hand", True, 0.0, "equal, proved: by hand"),
        ("tests agree", False, 1e-12, "equal, error bound 1e-12: tests agree"),
        ("tests agree", False, None, "equal: tests agree"),
    ],
)
def test_how_sure_it_is_is_said_once(reason: str, proved: bool, bound: float | None, head: str) -> None:
    verdict = Verdict(kind="equal", reason=reason, proved=proved, error_bound=bound, tests=3)
    assert verdict.describe() == head


def test_a_witness_does_not_come_back_without_its_arrays() -> None:
    verdict = verify(trace(lambda x: x + 1, x=(2,)), trace(lambda x: x + 2, x=(2,)))
    with pytest.raises(FormatError, match="verify again"):
        verdict_from_json(verdict.to_json())


def test_a_form_without_a_field_is_refused() -> None:
    values = verify(trace(lambda x: x + 1, x=(2,)), trace(lambda x: 1 + x, x=(2,))).to_json()
    del values["bounds"]
    with pytest.raises(FormatError, match="bounds"):
        verdict_from_json(values)
