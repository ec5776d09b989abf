"""The declared space."""

from __future__ import annotations

import json

import pytest

from workbench.errors import UnknownNameError, UsageError
from workbench.search.space import NEVER, TABLE_1, Space


def test_the_default_is_the_design_s() -> None:
    space = Space()
    assert (space.max_kernel_ops, space.max_block_ops, space.max_block_graphs, space.mapping) == (5, 11, 2, "axes")
    assert space.palette == TABLE_1
    assert not space.free_scale


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_block_graphs": 3}, "max_block_graphs 3: use 0, 1 or 2"),
        ({"max_block_ops": 0}, "at least 1"),
        ({"max_kernel_ops": 0}, "at least 1"),
        ({"mapping": "all"}, "use 'axes' or 'enumerate'"),
        ({"chains": "some"}, "use 'needed' or 'all'"),
        ({"max_block_ops": 2.5}, "max_block_ops 2.5: give a whole number"),
        ({"max_block_graphs": True}, "max_block_graphs True: give a whole number"),
        ({"palette": "matmul"}, "palette 'matmul': give a tuple, for example"),
        ({"loops": 4}, r"loops 4: give a tuple, for example \(1, 16\)"),
        ({"grids": (16,)}, "up to 3 counts a grid"),
        ({"max_block_ops": 99}, "max_block_ops 99 and max_kernel_ops 5: use less than 99 together"),
        ({"max_block_ops": 94}, "use less than 99 together"),
        ({"max_kernel_ops": 88}, "use less than 99 together"),
        ({"kernel_palette": ("exp",)}, "the search offers matmul at the kernel level"),
    ],
)
def test_limits_that_make_no_sense_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Space(**given)  # type: ignore[arg-type]


def test_limits_below_never_are_taken() -> None:
    assert Space(max_block_ops=93).max_block_ops == NEVER - 1 - Space().max_kernel_ops


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="convolve"):
        Space(palette=("convolve",))


def test_lists_are_taken_as_tuples() -> None:
    assert Space(palette=["exp"], grids=[[4, 2]]) == Space(palette=("exp",), grids=((4, 2),))  # type: ignore[arg-type]


def test_it_says_what_it_is() -> None:
    text = Space(outer_products=True).describe()
    assert "11 operators" in text
    assert "outer_products" in text
    plain = json.loads(json.dumps(Space().to_json()))
    assert plain["max_block_ops"] == 11
    assert plain["palette"] == list(TABLE_1)
