"""Small searches on the algebra: no distance loses a graph at the tightest limit, and backwards finds the same graphs.

The limits are the fewest operators that make the goal, one more and two more: that is where an inadmissible bound shows.
"""

from __future__ import annotations

import pytest

from benchmarks.abstract_meet import Meeting
from benchmarks.abstract_programs import PROGRAMS, Inputs, Program, Sum
from benchmarks.abstract_search import Closure, Space
from workbench.domains import abstract_expr as expr


def _squared_norm(t: Inputs, total: Sum) -> expr.Term:
    return expr.sqrt(total("d", expr.square(total("h", expr.mul(t["X"], t["W"])))))


def _factored(t: Inputs, total: Sum) -> expr.Term:
    return total("h", expr.mul(expr.add(t["X"], t["Y"]), t["Z"]))


def _residual(t: Inputs, total: Sum) -> expr.Term:
    return expr.add(expr.add(total("h", expr.mul(t["X"], t["W"])), t["V"]), t["R"])


EXTRA = {
    "squared_norm": Program("squared_norm", {"X": "bh", "W": "hd"}, "b", _squared_norm),
    "factored": Program("factored", {"X": "bh", "Y": "bh", "Z": "hd"}, "bd", _factored),
    "residual": Program("residual", {"X": "bh", "W": "hd", "V": "d", "R": "bd"}, "bd", _residual),
}
CASES = [
    ("rms_norm_linear", "h", "", (8, 9)),
    ("rms_norm_linear", None, "", (7, 8)),
    ("rms_norm_linear", "h", "rms", (7, 8)),
    ("gated_mlp", "h", "", (6, 7)),
    ("lora", "h", "", (6,)),
    ("lora", None, "", (4, 5, 6)),
    ("attention", "s", "", (6, 7, 8)),
    ("attention", None, "", (5, 6, 7)),
    ("qk_norm_attention", "s", "only", (9, 10)),
    ("squared_norm", "h", "", (5, 6, 7)),
    ("squared_norm", None, "", (4, 5, 6)),
    ("factored", "h", "", (3, 4, 5)),
    ("residual", "h", "", (4, 5, 6)),
]


@pytest.mark.parametrize(("name", "loop", "macro", "limits"), CASES)
def test_bounds_lose_no_graph(name: str, loop: str | None, macro: str, limits: tuple[int, ...]) -> None:
    program = {**PROGRAMS, **EXTRA}[name]
    found = []
    for limit in limits:
        bounded = Closure(Space(program, loop, macro), limit).graphs()
        assert bounded == Closure(Space(program, loop, macro, bounds=False), limit).graphs(), f"at {limit} operators"
        assert bounded == Meeting(Space(program, loop, macro), limit, 3).run().graphs, f"backwards at {limit} operators"
        found.append(bounded)
    assert found == sorted(found)
    assert found[-1] > 0


@pytest.mark.parametrize(
    ("name", "loop", "macro", "limit", "graphs"),
    [
        ("rms_norm_linear", "h", "", 9, 22),
        ("rms_norm_linear", "h", "rms", 7, 2),
        ("gated_mlp", "h", "", 6, 1),
        ("lora", "h", "", 6, 6),
        ("attention", "s", "", 7, 3),
        ("attention", "d", "", 7, 2),
        ("qk_norm_attention", "s", "only", 10, 5),
        ("qk_norm_attention", None, "only", 10, 10),
    ],
)
def test_numbers_of_graphs_that_an_independent_search_verified(
    name: str, loop: str | None, macro: str, limit: int, graphs: int
) -> None:
    """Counted by another implementation that evaluated every graph in a finite field."""
    closure = Closure(Space(PROGRAMS[name], loop, macro), limit)
    assert closure.graphs() == graphs
    assert len(closure.sets) <= 40, "few values are useful"


def test_a_root_of_a_sum_is_found_backwards() -> None:
    meeting = Meeting(Space(PROGRAMS["ntrans"], None, "only"), 7, 3).run()
    assert meeting.graphs == 1
    assert not meeting.decomposition.incomplete
