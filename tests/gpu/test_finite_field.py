"""The field arithmetic on CuPy arrays gives, element by element, what it gives on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest

from workbench.domains.finite_field import PRESETS, FieldArithmetic, FieldValue, random_elements

pytestmark = pytest.mark.gpu

Program = Callable[[FieldArithmetic, FieldValue, FieldValue, FieldValue], FieldValue]

PROGRAMS: dict[str, Program] = {
    "add": lambda f, x, g, w: f.add(x, g),
    "sub": lambda f, x, g, w: f.sub(g, x),
    "mul": lambda f, x, g, w: f.mul(x, g),
    "neg": lambda f, x, g, w: f.neg(x),
    "div": lambda f, x, g, w: f.div(g, x),
    "sqrt": lambda f, x, g, w: f.sqrt(x),
    "power": lambda f, x, g, w: f.power(x, Fraction(-3, 2)),
    "exp": lambda f, x, g, w: f.exp(w),
    "sum": lambda f, x, g, w: f.sum(w, (0, 1)),
    "matmul": lambda f, x, g, w: f.matmul(x, w),
    "tall matmul": lambda f, x, g, w: f.matmul(w.map(lambda a: a.T), x.map(lambda a: a.T)),
    "batched matmul": lambda f, x, g, w: f.matmul(
        w.map(lambda a: a.reshape(7, -1, 300)), w.map(lambda a: a.reshape(7, 300, -1))
    ),
    "const": lambda f, x, g, w: f.mul(x, f.const(Fraction(22, 7))),
    "where": lambda f, x, g, w: f.where(x.p > g.p, x, g),
    "opaque": lambda f, x, g, w: f.opaque([x, g], 5),
    "rms_norm_linear": lambda f, x, g, w: f.matmul(
        f.mul(f.div(x, f.sqrt(f.mul(f.sum(f.mul(x, x)), f.const(Fraction(1, 700))))), g), w
    ),
}


@pytest.mark.parametrize("name", ["course", "w20", "w31", "w61"])
@pytest.mark.parametrize("program", list(PROGRAMS))
def test_same_elements_as_numpy(cupy: ModuleType, name: str, program: str, rng: np.random.Generator) -> None:
    pair = PRESETS[name]
    omega = pair.random_omega(rng)
    host, device = FieldArithmetic(pair, omega), FieldArithmetic(pair, omega, xp=cupy)
    inputs = [random_elements(rng, shape, pair) for shape in ((5, 700), (700,), (700, 300))]
    inputs[0].p[0, 0] = 0
    expected = PROGRAMS[program](host, *inputs)
    got = PROGRAMS[program](device, *(value.map(cupy.asarray) for value in inputs))
    assert isinstance(got.p, cupy.ndarray)
    assert (cupy.asnumpy(got.p) == expected.p).all()
    assert (got.q is None) == (expected.q is None)
    if expected.q is not None:
        assert (cupy.asnumpy(got.q) == expected.q).all()
    assert [(x.kind, x.side) for x in device.faults] == [(x.kind, x.side) for x in host.faults]
    for on_device, on_host in zip(device.faults, host.faults, strict=True):
        assert (cupy.asnumpy(on_device.mask) == on_host.mask).all()


def test_random_elements_are_those_of_the_host(cupy: ModuleType) -> None:
    pair = PRESETS["w61"]
    host = random_elements(np.random.default_rng(1), (100, 100), pair)
    device = random_elements(np.random.default_rng(1), (100, 100), pair, xp=cupy)
    assert (cupy.asnumpy(device.p) == host.p).all()
