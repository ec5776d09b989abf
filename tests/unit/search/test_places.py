"""Where values are."""

from __future__ import annotations

from workbench.search.places import AFTER, FIXED, LOOP, Place, inside, operand_places


def test_places_are_ordered_by_time() -> None:
    device = [place for place in Place if place.kernel is None]
    assert device == [Place.BEFORE, Place.BETWEEN, Place.AFTER]
    assert all(Place.BEFORE < place < Place.BETWEEN for place in Place if place.kernel == 0)
    assert all(Place.BETWEEN < place < Place.AFTER for place in Place if place.kernel == 1)
    for kernel in (0, 1):
        for dependent in (False, True) if kernel else (False,):
            stages = [inside(kernel, stage, dependent=dependent) for stage in (FIXED, LOOP, AFTER)]
            assert stages == sorted(stages)
            assert [place.stage for place in stages] == [FIXED, LOOP, AFTER]


def test_an_operator_in_the_loop_has_an_operand_that_varies() -> None:
    assert list(operand_places(Place.A_LOOP, (True, False))) == [(Place.A_LOOP, Place.A_FIXED)]
    assert not list(operand_places(Place.A_LOOP, (False, False)))


def test_after_the_loop_some_operand_is_too_and_none_varies() -> None:
    found = set(operand_places(Place.A_AFTER, (False, False)))
    assert found == {
        (Place.A_AFTER, Place.A_AFTER), (Place.A_AFTER, Place.A_FIXED), (Place.A_FIXED, Place.A_AFTER)
    }  # fmt: skip
    assert not list(operand_places(Place.A_AFTER, (True, False)))


def test_a_dependent_result_has_a_dependent_operand() -> None:
    for place in Place:
        if place.kernel is None:
            continue
        for varies in ((False,), (True,), (False, True), (True, True), (False, True, True, False)):
            for operands in operand_places(place, varies):
                assert all(operand <= place or operand.is_dependent for operand in operands)
                assert any(operand.is_dependent for operand in operands) == place.is_dependent
                assert {operand.kernel for operand in operands} == {place.kernel}
