"""Public functions that are given something else than a kernel graph say so in one line, with the cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import workbench as wb
from workbench.errors import UsageError
from workbench.verify.compare import verify

GRAPH = wb.trace(lambda X: wb.exp(X), X=(2, 3))


@wb.program
def uncalled(X: "b h", W: "h d") -> Any:  # type: ignore[valid-type]  # noqa: F722
    """A program that was not called with its sizes."""
    return wb.exp(X) @ W


CALLS: dict[str, Callable[[Any], object]] = {
    "verify, program": lambda given: verify(given, GRAPH),
    "verify, candidate": lambda given: verify(GRAPH, given),
    "search": lambda given: list(wb.search(given)),
    "compile": lambda given: wb.compile(given),
    "evaluate": lambda given: wb.evaluate(given, []),
    "stability": lambda given: wb.stability(given),
    "split_lax": lambda given: wb.split_lax(given),
    "dumps": lambda given: wb.dumps([given]),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("given", [3, uncalled, lambda X: X], ids=["number", "uncalled program", "function"])
def test_what_is_no_kernel_graph_is_refused_with_a_cure(name: str, given: Any) -> None:
    cure = "call a program with its sizes" if callable(given) else "trace or load one"
    with pytest.raises(UsageError, match=cure):
        CALLS[name](given)


def test_files_and_texts_are_told_apart() -> None:
    with pytest.raises(UsageError, match="use load for the path"):
        wb.loads(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="use loads for a text"):
        wb.load(3)  # type: ignore[arg-type]
