"""Which candidates come first: cheap ones, and unlike those before them."""

from __future__ import annotations

from collections.abc import Iterator

import workbench as wb
from workbench.cost.hardware import hardware
from workbench.cost.presets import preset
from workbench.cost.schedules import ScheduleSpace
from workbench.pipeline.candidate import Candidate
from workbench.pipeline.tuning import HOPELESS, Certificates, Proposal, Target, as_written, confirmed, hopeful, various
from workbench.ugraph import value as op
from workbench.verify.verdict import Instance, Verdict

H200 = hardware("h200")


def proposals(**families: list[float]) -> list[Proposal]:
    kept = as_written(wb.programs.get("softmax"), Target("h200", H200, None))
    return [Proposal(us, kept.realize, family) for family, costs in families.items() for us in costs]


def test_a_structure_does_not_fill_the_list() -> None:
    found = various(proposals(a=[1.0, 1.01, 1.02, 1.03], b=[1.05], c=[1.11]), handicap=0.1)
    assert [one.family for one in found] == ["a", "b", "c", "a", "a", "a"]
    assert [one.cost_us for one in found if one.family == "a"] == [1.0, 1.01, 1.02, 1.03]


def test_without_a_handicap_the_cost_alone_decides_and_the_hopeless_are_left_out() -> None:
    found = various(proposals(a=[2.0, 1.0, 1.5], b=[1.2, HOPELESS + 0.1]), handicap=0.0)
    assert [one.cost_us for one in found] == [1.0, 1.2, 1.5, 2.0]


def test_what_is_hopeless_is_not_asked_for() -> None:
    asked = list[float]()

    def ascending() -> Iterator[Proposal]:
        for one in proposals(a=[2.0, 3.0, 2.0 * HOPELESS, 2.0 * HOPELESS + 0.1, 9.0]):
            asked.append(one.cost_us)
            yield one

    assert [one.cost_us for one in hopeful(ascending())] == [2.0, 3.0, 2.0 * HOPELESS]
    assert asked[-1] == 2.0 * HOPELESS + 0.1
    assert hopeful([]) == []


def test_alternatives_of_a_tiling_differ_in_the_threads_of_the_longest_kernel() -> None:
    """What a GPU preferred for gqa (128 threads) stood behind three schedules that differed in the combining kernel only."""
    graph = wb.programs.known_good("gqa")[0]
    rows = ScheduleSpace(graph, hardware=H200, preset=preset("calibrated")).best(12, per_tiling=2)
    seen = []
    for row in rows:
        first = dict(row.parameters[0])  # the attention itself; the combination takes a fraction of it
        threads, _ = first.pop("threads"), first.pop("stages")
        seen.append((tuple(first.items()), threads))
    assert len(set(seen)) == len(seen)
    tilings = [tiling for tiling, _ in seen]
    assert max(tilings.count(tiling) for tiling in tilings) == 2


def test_a_changed_graph_shares_the_certificate_only_where_it_computes_the_same() -> None:
    program = wb.programs.get("rms_norm_linear", batch=16, hidden=256, out=192)
    first = wb.programs.known_good("rms_norm_linear", batch=16, hidden=256, out=192)[0]
    certificates = Certificates(program, error=1e-9, seed=0)
    assert certificates.again(first, first).kind == "equal"
    other = wb.trace(lambda X, G, W: (X * G) @ W, X=(16, 256), G=(256,), W=(256, 192))
    assert certificates.again(first, other).kind == "different"


def test_what_true_shapes_refute_is_not_offered_and_what_stands_first_was_tested_there() -> None:
    program = wb.trace(lambda X: op.softmax(X), X=(4, 8), dtype="float16")
    scaled = wb.trace(lambda X: op.softmax(X) * 2, X=(4, 8), dtype="float16")
    on_reduced = Verdict(
        kind="equal",
        reason="proved by exact normal form at a reduced instance only",
        error_bound=0.0,
        proved=True,
        shapes_tested=(Instance(shapes=((2, 2),), reduced=True, tests=0, exact=True),),
    )
    wrong, right, last = (
        Candidate(
            graph=one.graph, choices=one.choices, cost=one.cost, certificate=on_reduced, device="h200", origin=name
        )
        for graph, name in ((scaled, "wrong"), (program, "right"), (scaled, "last"))
        for one in (as_written(graph, Target("h200", H200, None)).realize(),)
    )
    left, refuted = confirmed(program, [wrong, right, last], error=1e-9, seed=0)
    assert [one.origin for one in left] == ["right", "last"]
    assert [instance.reduced for instance in left[0].certificate.shapes_tested][-1] is False
    assert left[1] is last
    assert [(one.stage, one.structure_hash) for one in refuted] == [("verify", scaled.structure_hash)]
    assert confirmed(program, left, error=1e-9, seed=0) == (left, [])
    assert confirmed(program, [wrong], error=1e-9, seed=0)[0] == []
