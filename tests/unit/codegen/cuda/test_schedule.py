"""Schedules: what is refused, and that they travel to other processes."""

from __future__ import annotations

import pickle
from types import MappingProxyType
from typing import Any

import pytest

from workbench.codegen.cuda.schedule import Schedule, WarpLayout
from workbench.errors import UsageError


@pytest.mark.parametrize(
    "given", [{"threads": 100}, {"threads": 2048}, {"stages": 1}, {"cluster": 17}, {"shared_limit": -1}]
)
def test_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Schedule(**given)
    with pytest.raises(UsageError):
        WarpLayout(0, 1, 1)


def test_pickled() -> None:
    schedule = Schedule(threads=64, stages=3, layouts=MappingProxyType({"t": WarpLayout(1, 2, 4)}), programmatic=True)
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert pickle.loads(pickle.dumps(Schedule())) == Schedule()
