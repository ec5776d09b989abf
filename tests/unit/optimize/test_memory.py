from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import MemoryLimitError, UsageError
from workbench.optimize import memory
from workbench.optimize.memory import (
    FITS,
    Lifetime,
    MemoryPlan,
    least_bytes,
    plan_memory,
    without_reuse,
)


@st.composite
def tensors(draw: st.DrawFn, most: int, sizes: int = 4, times: int = 6) -> list[Lifetime]:
    count = draw(st.integers(0, most))
    found = []
    for number in range(count):
        first = draw(st.integers(0, times))
        found.append(Lifetime(f"t{number}", draw(st.integers(1, sizes)), first, draw(st.integers(first, times))))
    return found


def fits_within(tensors: list[Lifetime], height: int) -> bool:
    """True when some assignment of whole offsets keeps all below `height`: every offset of every tensor is tried."""
    for time in range(20):
        if sum(tensor.nbytes for tensor in tensors if tensor.first <= time <= tensor.last) > height:
            return False
    placed: list[tuple[Lifetime, int]] = []

    def place(number: int) -> bool:
        if number == len(tensors):
            return True
        tensor = tensors[number]
        for offset in range(0, height - tensor.nbytes + 1, tensor.alignment):
            if all(
                offset + tensor.nbytes <= low or low + other.nbytes <= offset or not tensor.meets(other)
                for other, low in placed
            ):
                placed.append((tensor, offset))
                if place(number + 1):
                    return True
                placed.pop()
        return False

    return place(0)


def check(plan: MemoryPlan) -> None:
    placed = list(zip(plan.lifetimes, plan.offsets, strict=True))
    for number, (tensor, low) in enumerate(placed):
        assert low % plan.alignment == 0
        assert low + tensor.nbytes <= plan.total
        for other, other_low in placed[:number]:
            if tensor.meets(other):
                assert low + tensor.nbytes <= other_low or other_low + other.nbytes <= low
    assert plan.lower_bound <= plan.total
    assert plan.total <= without_reuse(plan.lifetimes, alignment=plan.alignment).total


@settings(max_examples=200, deadline=None)
@given(tensors(8, sizes=3, times=5))
def test_up_to_8_tensors_the_plan_is_the_exhaustive_optimum(found: list[Lifetime]) -> None:
    plan = plan_memory(found, alignment=1)
    check(plan)
    assert plan.how == "exact"
    assert plan.gap == 0.0
    assert fits_within(found, plan.total)
    assert not found or not fits_within(found, plan.total - 1)


@settings(max_examples=60, deadline=None)
@given(tensors(12, sizes=40, times=12))
def test_up_to_12_tensors_the_plan_is_exact_and_no_fit_is_better(found: list[Lifetime]) -> None:
    plan = plan_memory(found, alignment=1)
    check(plan)
    assert plan.how == "exact"
    for fit in FITS.values():
        offsets = fit(found, [tensor.nbytes for tensor in found])
        assert max((o + t.nbytes for o, t in zip(offsets, found, strict=True)), default=0) >= plan.total


@settings(max_examples=40, deadline=None)
@given(tensors(30, sizes=100, times=20))
def test_beyond_the_gap_to_the_lower_bound_is_stated(found: list[Lifetime]) -> None:
    plan = plan_memory(found, alignment=1)
    check(plan)
    if plan.how != "exact":
        assert plan.total == pytest.approx(plan.lower_bound * (1 + plan.gap))
        assert plan.gap > 0
    assert plan.lower_bound == least_bytes(found)


def test_a_case_in_which_no_fit_finds_the_optimum() -> None:
    spans = [(3, 1, 2), (5, 0, 1), (2, 1, 6), (2, 5, 6), (3, 2, 3), (2, 2, 6), (1, 4, 5), (4, 6, 6)]
    found = [Lifetime(f"t{number}", size, first, last) for number, (size, first, last) in enumerate(spans)]
    fits = [fit(found, [tensor.nbytes for tensor in found]) for fit in FITS.values()]
    assert min(max(o + t.nbytes for o, t in zip(fit, found, strict=True)) for fit in fits) == 12
    assert plan_memory(found, alignment=1).total == least_bytes(found) == 10
    assert plan_memory(found, alignment=1, exact_up_to=7).gap == pytest.approx(0.2)


@pytest.mark.parametrize(
    "spans",
    [
        [(4, 0, 1), (2, 0, 0), (1, 1, 3), (1, 1, 2), (3, 2, 2), (1, 2, 3), (4, 3, 5), (2, 4, 5)],
        [(2, 0, 3), (2, 0, 1), (1, 0, 0), (1, 1, 4), (1, 2, 4), (1, 2, 5), (1, 4, 4), (1, 4, 5), (3, 5, 6), (2, 6, 6)],
    ],
)
def test_the_optimum_may_lie_above_the_lower_bound(spans: list[tuple[int, int, int]]) -> None:
    found = [Lifetime(f"t{number}", size, first, last) for number, (size, first, last) in enumerate(spans)]
    plan = plan_memory(found, alignment=1)
    check(plan)
    assert plan.how == "exact"
    assert plan.total == plan.lower_bound + 1
    assert not fits_within(found, plan.lower_bound)
    assert fits_within(found, plan.total)


@settings(max_examples=100, deadline=None)
@given(st.integers(3, 6), st.randoms(use_true_random=False))
def test_tightly_packed_times_are_exact(height: int, rng: random.Random) -> None:
    """Instances that fill every time to the brim, where fits and bounds fail most; up to 8 tensors."""
    found: list[Lifetime] = []
    for time in range(4):
        load = sum(t.nbytes for t in found if t.first <= time <= t.last)
        while load < height and len(found) < 8:
            size, last = rng.randint(1, min(4, height - load)), min(3, time + rng.choice([0, 0, 1, 2]))
            found.append(Lifetime(f"t{len(found)}", size, time, last))
            load += size
    plan = plan_memory(found, alignment=1)
    check(plan)
    assert fits_within(found, plan.total)
    assert not fits_within(found, plan.total - 1)


def test_offsets_are_aligned_and_roles_are_summed_without_padding() -> None:
    plan = plan_memory([Lifetime("a", 100, 0, 1), Lifetime("b", 30, 1, 2), Lifetime("c", 128, 2, 3)], alignment=128)
    check(plan)
    assert (plan.total, plan.without_reuse) == (256, 384)
    assert plan.offset("a") == plan.offset("c") == 0
    assert "the least possible" in plan.describe()
    apart = without_reuse(plan.lifetimes)
    assert (apart.total, apart.offsets) == (384, (0, 128, 256))


def from_the_worst_start(found: list[Lifetime]) -> MemoryPlan:
    """The plan that branch and bound finds when it starts from tensors side by side, so that every step counts."""
    fits = dict(memory.FITS)
    memory.FITS.clear()
    memory.FITS["apart"] = lambda tensors, sizes: [sum(sizes[:number]) for number in range(len(sizes))]
    try:
        return plan_memory(found, alignment=1)
    finally:
        memory.FITS.clear()
        memory.FITS.update(fits)


@settings(max_examples=150, deadline=None)
@given(tensors(7, sizes=4, times=4))
def test_branch_and_bound_needs_no_good_start(found: list[Lifetime]) -> None:
    plan = from_the_worst_start(found)
    check(plan)
    assert plan.how == "exact"
    assert plan.total == plan_memory(found, alignment=1).total
    assert fits_within(found, plan.total)


def test_ways_to_different_heights_are_not_taken_for_one() -> None:
    spans = [(3, 0, 2), (4, 0, 1), (2, 2, 2), (2, 2, 3), (4, 3, 4), (1, 3, 3), (3, 4, 4)]
    found = [Lifetime(f"t{number}", size, first, last) for number, (size, first, last) in enumerate(spans)]
    assert fits_within(found, 7)
    assert from_the_worst_start(found).total == 7


@settings(max_examples=80, deadline=None)
@given(tensors(6, sizes=3, times=4), st.lists(st.sampled_from([1, 1, 2, 4]), min_size=6, max_size=6))
def test_own_alignments_are_kept_and_the_plan_stays_exact(found: list[Lifetime], alignments: list[int]) -> None:
    found = [replace(tensor, alignment=own) for tensor, own in zip(found, alignments, strict=False)]
    plan = plan_memory(found, alignment=1)
    check(plan)
    assert all(offset % tensor.alignment == 0 for tensor, offset in zip(found, plan.offsets, strict=True))
    assert fits_within(found, plan.total)
    assert not found or not fits_within(found, plan.total - 1)
    apart = without_reuse(found, alignment=1)
    assert all(offset % tensor.alignment == 0 for tensor, offset in zip(found, apart.offsets, strict=True))


def test_limits_and_bad_lifetimes_are_refused() -> None:
    plan = plan_memory([Lifetime("a", 300, 0, 1)], alignment=128)
    plan.check(384, "block")
    with pytest.raises(MemoryLimitError, match="384 B of 383 B"):
        plan.check(383, "block")
    with pytest.raises(UsageError, match="first time"):
        Lifetime("a", 1, 2, 1)
    with pytest.raises(UsageError, match="one name"):
        plan_memory([Lifetime("a", 1, 0, 0), Lifetime("a", 1, 0, 0)])
