"""Float rules on arrays of another library: they use its functions only and never mix its arrays with NumPy's.

The library here is a stand-in for CuPy: it has NumPy's functions under another module's name and, like CuPy, refuses
NumPy arrays.
"""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.conformance.operator_checks.cases import CASES, operands_of
from workbench.ops import operator, operators
from workbench.ops.spec import Array, Branch, OpKind

NAME = "foreign_arrays"


class ForeignArray:  # the class by which an array library is recognised
    """An array that works with its own kind and with Python numbers only."""

    __array_ufunc__ = None  # NumPy's operators give way, as they do to CuPy's arrays

    def __init__(self, value: Array) -> None:
        self.value = value

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.value, name)
        return (lambda *args, **named: _wrap(found(*args, **named))) if callable(found) else found

    def __neg__(self) -> Any:
        return _wrap(-self.value)

    def __abs__(self) -> Any:
        return _wrap(abs(self.value))


def _operation(name: str) -> Any:
    return lambda self, other: _wrap(getattr(self.value, name)(_unwrap(other)))


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "gt", "ge", "lt", "le", "eq"):
    setattr(ForeignArray, f"__{_name}__", _operation(f"__{_name}__"))
ForeignArray.__module__ = NAME


def _wrap(value: Any) -> Any:
    if isinstance(value, list):
        return [_wrap(part) for part in value]
    return ForeignArray(np.asarray(value)) if isinstance(value, np.ndarray | np.generic) else value


def _unwrap(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        raise TypeError("a NumPy array is not converted implicitly")
    if isinstance(value, list | tuple):
        return type(value)(_unwrap(part) for part in value)
    return value.value if isinstance(value, ForeignArray) else value


class _Library(ModuleType):
    ndarray = ForeignArray  # the name by which an array library is recognised

    @staticmethod
    def asarray(value: Any) -> ForeignArray:
        return value if isinstance(value, ForeignArray) else ForeignArray(np.asarray(value))

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        return lambda *args, **named: _wrap(function(*_unwrap(args), **named))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    special = ModuleType("cupyx.scipy.special")
    for name in ("erf", "erfc"):
        through = np.vectorize(getattr(math, name), otypes=[float])
        setattr(special, name, lambda x, through=through: _wrap(through(_unwrap(x))))
    made = _Library(NAME)
    for module, name in (
        (made, NAME),
        (ModuleType("cupyx"), "cupyx"),
        (ModuleType("cupyx.scipy"), "cupyx.scipy"),
        (special, "cupyx.scipy.special"),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    return made


@pytest.mark.parametrize("name", [spec.name for spec in operators() if spec.kind is not OpKind.CONSTANT])
def test_float_rules_stay_within_the_library(name: str, library: ModuleType) -> None:
    spec, rng = operator(name), np.random.default_rng(0)
    for case in CASES[name]:
        attributes = case.complete(spec)
        operands = operands_of(case, rng)
        foreign: Any = tuple(ForeignArray(array) for array in operands)
        expected = spec.on_float(operands, attributes, 0)
        for result, right in zip(spec.on_float(foreign, attributes, 0), expected, strict=True):
            assert isinstance(result, ForeignArray)
            assert (result.value == right).all()
        if isinstance(spec.field, Branch) and len({len(shape) for shape in case.shapes}) == 1:
            choice: Any = spec.field.select(foreign, attributes)
            assert isinstance(choice, ForeignArray)
            assert (choice.value == spec.field.select(operands, attributes)).all()


def test_a_constant_joins_the_other_operands_library(library: ModuleType) -> None:
    (constant,) = operator("constant").on_float((), operator("constant").check_attributes({"value": 2}), 0)
    mixed: Any = (ForeignArray(np.ones((2, 3))), constant)
    (total,) = operator("add").on_float(mixed, {}, 0)
    assert isinstance(total, ForeignArray)
    assert (total.value == 3.0).all()


def test_the_library_refuses_numpy_arrays(library: ModuleType) -> None:
    with pytest.raises(TypeError, match="not converted implicitly"):
        library.exp(np.ones(3))
