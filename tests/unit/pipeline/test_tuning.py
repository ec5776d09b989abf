"""Which candidates come first: cheap ones, and unlike those before them."""

from __future__ import annotations

from collections.abc import Iterator

import workbench as wb
from workbench.cost.hardware import hardware
from workbench.cost.presets import preset
from workbench.cost.schedules import ScheduleSpace
from workbench.pipeline.tuning import HOPELESS, Certificates, Proposal, Target, as_written, hopeful, various

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
