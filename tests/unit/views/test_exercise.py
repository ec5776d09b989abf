"""Answers are compared with what is right, and the right answer is not shown."""

from __future__ import annotations

import pytest

from workbench.views.exercise import check_answer


@pytest.mark.parametrize(
    ("answer", "right", "expected"),
    [
        (..., 3, None),
        (3, 3, True),
        (4, 3, False),
        (0.3333333, 1 / 3, True),
        (0.333, 1 / 3, False),
        (134_217_728, 134_217_728.0, True),
        ([1, 2], (1, 2), True),
        ((1,), (1, 2), False),
        ((1, 3), (1, 2), False),
        ("sum", "sum", True),
        (True, True, True),
        (False, True, False),
        (None, 3, False),
        ("3", 3, False),
    ],
)
def test_an_answer_is_compared(answer: object, right: object, expected: bool | None) -> None:
    assert check_answer(answer, right).right is expected


def test_a_function_may_judge() -> None:
    assert check_answer(8, lambda n: n % 2 == 0).right
    assert check_answer(7, lambda n: n % 2 == 0).right is False


def test_what_cannot_be_judged_is_wrong_and_says_why() -> None:
    found = check_answer("seven", lambda n: n % 2 == 0)
    assert found.right is False
    assert "TypeError" in found.words


def test_the_right_answer_is_not_shown_and_the_hint_is() -> None:
    wrong = check_answer(41, 42, hint="think of the loop")
    assert "42" not in wrong.describe()
    assert wrong.describe() == "✗ 41 is not it. think of the loop"
    assert repr(check_answer(..., 42)) == "… not answered yet."
    assert check_answer(42, 42, hint="think").describe() == "✓ right"
