"""Why a program has no µGraph in the space, in one line."""

from __future__ import annotations

import pytest

from tests.unit.search.searched import PRODUCT, Formula, graph_of
from workbench.search.engine import search
from workbench.search.outside import reasons
from workbench.search.problem import problem_of
from workbench.search.space import Space
from workbench.search.summary import collect
from workbench.ugraph.value import broadcast, concat, reshape, transpose


@pytest.mark.parametrize(
    ("formula", "sizes", "said"),
    [
        (lambda x: x, {"X": (4, 6)}, "every output is an input"),
        (lambda x: transpose(x), {"X": (4, 6)}, "every output is an input"),
        (lambda b: broadcast(b, (4, 6)), {"b": (6,)}, "broadcast along an axis (extent 4) that no input has"),
        (lambda x, y: reshape(concat(x, y, axis=-1), (3, 12)), {"X": (4, 6), "Y": (4, 3)}, "reshape regroups"),
    ],
)
def test_it_is_said_and_nothing_aborts(formula: Formula, sizes: dict[str, tuple[int, ...]], said: str) -> None:
    found = collect(search(graph_of(formula, **sizes)), Space())
    assert not found.structures
    assert any(said in reason for reason in found.outside)
    assert all("\n" not in reason for reason in found.outside)
    assert found.finished is not None
    assert found.finished.pruned["out of the space"] == len(found.outside)


def test_a_program_that_can_be_made_has_no_reasons() -> None:
    assert not list(reasons(problem_of(PRODUCT)))
