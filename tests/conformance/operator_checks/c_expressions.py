"""The one-element C expression, compiled by `cc` and called through ctypes, against the oracle. No GPU is needed."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from tests.conformance.operator_checks.cases import CASES, POSITIVE, Case, oracle
from workbench.ops.spec import Array, OpSpec

ORDINARY = np.array([0.3, -0.3, 1.0, -1.0, 1.7, -1.7, 2.5, -0.01, 0.01, -4.0, 4.0, 0.0], dtype=np.float32)
LARGE = np.array([9.0, -9.0, 60.0, -60.0, 95.0, -95.0, 1e4, -1e4, 3e12, -3e12, 1e18, -1e18], dtype=np.float32)
TOLERANCE = 3e-6
LARGEST = float(np.finfo(np.float32).max)


def has_compiler() -> bool:
    """Return whether there is a C compiler to try the expressions with."""
    return shutil.which("cc") is not None


@cache
def _library(expressions: tuple[str, ...]) -> ctypes.CDLL:
    """Compile one loop per expression of x and y into a shared library: `run_0`, `run_1`, ..."""
    lines = ["#include <math.h>"]
    lines += [
        f"void run_{number}(int n, const float *a, const float *b, float *out) "
        f"{{ for (int i = 0; i < n; ++i) {{ float x = a[i], y = b[i]; (void)x; (void)y; out[i] = {expression}; }} }}"
        for number, expression in enumerate(expressions)
    ]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "expressions.c", Path(folder) / "expressions.so"
        source.write_text("\n".join(lines) + "\n")
        command = ["cc", "-O0", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(target), str(source), "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        return ctypes.CDLL(str(target))


def run(expressions: tuple[str, ...], number: int, left: Array, right: Array) -> Array:
    """Return the expression's values on float32 operands."""
    pointer = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
    function = getattr(_library(expressions), f"run_{number}")
    function.argtypes = [ctypes.c_int, pointer, pointer, pointer]
    function.restype = None
    out = np.empty_like(left)
    function(left.size, left, right, out)
    return out


def _one_per_attributes(spec: OpSpec) -> tuple[Case, ...]:
    chosen = {tuple(sorted(case.complete(spec).items(), key=str)): case for case in CASES[spec.name]}
    return tuple(chosen.values())


def check_c_expression(spec: OpSpec) -> None:
    """Compare with the oracle: close for ordinary operands, right in size for large ones, NaN only from NaN."""
    if spec.scalar_c is None:
        return
    cases = _one_per_attributes(spec)
    expressions = tuple(spec.scalar_expression(("x", "y")[: spec.arity], case.complete(spec)) for case in cases)
    for number, case in enumerate(cases):
        attributes = case.complete(spec)
        for values, others, tolerance in ((ORDINARY, ORDINARY[::-1], TOLERANCE), (LARGE, LARGE[::-1], 1e-4)):
            left, right = (np.array(part, dtype=np.float32) for part in (values, others))
            if case.signs and case.signs[0] == POSITIVE:
                left = abs(left) + np.float32(0.125)
            if spec.name in ("div", "pow"):
                right = np.where(right == 0, np.float32(0.5), right)
            if spec.name == "pow":
                right = np.clip(right, np.float32(-5), np.float32(5))
            if spec.name == "power":
                left = np.where(left == 0, np.float32(0.5), left)
            out = run(expressions, number, left, right).astype(np.float64)
            operands = tuple(part.astype(np.float64) for part in (left, right)[: spec.arity])
            with np.errstate(all="ignore"):
                (expected,) = _without_overflow(spec, operands, attributes)
            expected = np.broadcast_to(expected, left.shape)
            assert not np.isnan(out).any(), (case, left, out)
            beyond = abs(expected) > LARGEST
            assert (np.isinf(out[beyond]) & (np.sign(out[beyond]) == np.sign(expected[beyond]))).all(), (case, out)
            error = abs(out[~beyond] - expected[~beyond])
            small = 1e-37 + 1e-7 * (spec.name in ("silu", "gelu", "sigmoid", "tanh", "exp", "add", "sub"))
            assert (error <= tolerance * abs(expected[~beyond]) + small).all(), (case, left, out, expected)
    if spec.name in ("relu", "clamp", "maximum", "minimum", "abs"):
        _check_nan(expressions)


def _without_overflow(spec: OpSpec, operands: tuple[Array, ...], attributes: object) -> tuple[Array, ...]:
    """Return the oracle's results, of `math.exp` capped where it would overflow: float32 overflows long before."""
    if spec.name == "exp":
        return (np.exp(operands[0]),)
    return oracle(spec.name, operands, attributes)  # type: ignore[arg-type]  # attributes as the case completed them


def _check_nan(expressions: tuple[str, ...]) -> None:
    """A NaN in is a NaN out, so that a wrong kernel is seen."""
    nan, one = np.array([np.nan, np.nan], np.float32), np.array([1.0, np.nan], np.float32)
    for number, expression in enumerate(expressions):
        pairs = ((nan, one), (one, nan)) if "y" in expression else ((nan, nan),)
        for left, right in pairs:
            assert np.isnan(run(expressions, number, left.copy(), right.copy())).all(), expression
