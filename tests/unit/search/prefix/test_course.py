"""The lecture's demonstration: its structures and its mistake are among the complete graphs."""

from __future__ import annotations

import pytest

from workbench.search.prefix.course import LECTURE_PREFIXES, Course, agrees, course, lecture_program


@pytest.fixture(scope="module")
def shown() -> Course:
    return course(seconds=20.0, unpruned=False)


def test_pruned_searches_end_and_show_their_share(shown: Course) -> None:
    assert [(row.pruning, row.unique) for row in shown.rows] == [
        ("axes", True), ("axes", False), ("sizes", True), ("sizes", False),
    ]  # fmt: skip
    for row in shown.rows:
        assert row.is_complete
        assert row.prefixes == row.pruned + row.kept
        assert 0.85 < row.share < 1
    assert shown.rows[0].prefixes < LECTURE_PREFIXES < shown.rows[2].prefixes
    text = shown.describe()
    assert "5,260" in text
    assert "2,454" in text
    assert "88%" in text


def test_both_structures_of_the_lecture_and_its_mistake_are_complete_graphs(shown: Course) -> None:
    right = [found.graph.describe() for found in shown.named("right")]
    on_x = [text for text in right if "mul(g, x)" in text and "matmul(t1, w)" in text]
    on_w = [text for text in right if "mul(w, t1)" in text and "matmul(x, t2)" in text]
    assert on_x
    assert on_w
    assert all(found.distance == 0 for found in shown.named("right"))
    forgotten = shown.named("forgot G")
    assert forgotten
    assert all(found.distance > 0 and not found.is_right for found in forgotten)
    assert any("load(G)" not in found.graph.describe() for found in forgotten)
    assert shown.named("forgot 1/H")


def test_verifier_tells_the_wrong_programs_apart() -> None:
    right = lecture_program()
    assert agrees(right, lecture_program())
    assert not agrees(right, lecture_program(gain=False))
    assert not agrees(right, lecture_program(scale=False))


def test_unpruned_search_is_stopped_and_gives_a_lower_bound() -> None:
    small = course(seconds=0.2, loop=3, after=2)
    unpruned = [row for row in small.rows if row.pruning == "none"]
    assert not any(row.is_complete for row in unpruned)
    assert not any(row.pruned for row in unpruned if not row.unique)
    ratio = small.ratio("axes", unique=False)
    assert ratio is not None
    assert ratio > 1
    assert "> " in small.describe()
    assert isinstance(small.to_json()["rows"], list)
