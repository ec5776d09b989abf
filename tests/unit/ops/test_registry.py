"""The registry: names once, near names on a miss, a reason for what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workbench.errors import UnknownNameError
from workbench.ops import operator, operators, register


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'exp' is registered twice"):
        register(replace(operator("exp"), source="elsewhere"))


def test_lookup_by_name() -> None:
    assert operator("matmul").name == "matmul"
    assert [spec.name for spec in operators()].count("matmul") == 1


def test_a_miss_with_no_near_name_lists_what_there_is() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown operator 'zzzz'; known: abs, add,.*transpose"):
        operator("zzzz")


def test_refused_operators_say_what_to_write_instead() -> None:
    with pytest.raises(UnknownNameError, match="matmul over unfolded patches"):
        operator("conv2d")
