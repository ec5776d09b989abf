"""How matrices are multiplied exactly modulo a prime of at most 61 bits, at the speed of floating-point BLAS.

Invariant: every partial sum that a float holds is an integer it represents exactly (below 2^24 in float32, at most
2^53 in float64), so the order in which BLAS adds, and whether it fuses, cannot change the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import broadcast_shapes
from workbench.domains.residues import Modulus, Residues
from workbench.errors import ShapeError

_FLOAT32_EXACT = 1 << 24
_FLOAT64_EXACT = 1 << 53
_SHORTEST_CHUNK = 512  # shorter sums of whole residues spend their time in reductions; limbs are cheaper then
_SMALL_LIMB = 16  # bits of a signed digit of the small operand: at most 2^15 in size
_LARGE_LIMB = 31  # bits of an unsigned digit of the large operand
_LIMB_CHUNK = _FLOAT64_EXACT >> (_SMALL_LIMB - 1 + _LARGE_LIMB)  # 128 terms of at most 2^46
_INT64_CHUNKS = 1 << 9  # this many sums of size 2^53 add up to 2^62 in int64, which leaves room for one residue
_SLAB_HOST = 1 << 19  # elements of the large operand converted at a time: 4 MB of float64 stay near the core
_SLAB_DEVICE = 1 << 26
_FEWEST_COLUMNS = 32


@dataclass(frozen=True, slots=True)
class _Plan:
    """How residues are cut for BLAS: digits of the small and of the large operand, and terms in an exact sum."""

    small_limbs: int
    large_limbs: int
    chunk: int
    float_type: type[np.float32] | type[np.float64] = np.float64


@lru_cache(maxsize=256)
def _plan(m: int, k: int) -> _Plan:
    """Return a fast exact way to add up k products modulo m.

    20 bits need one dgemm on whole residues. 31 bits: the small operand in two signed 16-bit digits, the large one
    whole. 61 bits: four such digits, and the large one in two 31-bit limbs. Converting the large operand costs more
    than multiplying it, so it is cut as little as possible and the digits of the small one are stacked as rows.
    """
    largest = (m - 1) ** 2
    if largest * k < _FLOAT32_EXACT:
        return _Plan(1, 1, k, np.float32)
    if _FLOAT64_EXACT // largest >= min(k, _SHORTEST_CHUNK):
        return _Plan(1, 1, min(k, _FLOAT64_EXACT // largest))
    bits = m.bit_length()
    return _Plan(-(-(bits + 1) // _SMALL_LIMB), -(-bits // _LARGE_LIMB), min(k, _LIMB_CHUNK))


def matmul(a: Residues, b: Residues, modulus: Modulus) -> Residues:
    """Return the matrix product modulo m: a (..., m, k), b (..., k, n), leading axes broadcast -> (..., m, n).

    Operands: int64 arrays of NumPy or CuPy, values in [0, m).
    Raises: ShapeError for vectors, for inner extents that differ, for leading axes that do not broadcast.
    """
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"matmul: cannot multiply {a.shape} by {b.shape}; needs (..., m, k) by (..., k, n)")
    lead = broadcast_shapes([a.shape[:-2], b.shape[:-2]], where="matmul")
    shape = (*lead, a.shape[-2], b.shape[-1])
    xp = array_namespace(a)
    if 0 in shape or a.shape[-1] == 0:
        return cast(Residues, xp.zeros(shape, np.int64))
    if all(extent == 1 for extent in b.shape[:-2]):
        # One right operand for the whole batch: rows of one product, not many small products.
        rows = a.reshape(-1, a.shape[-1])
        return _matmul(rows, b.reshape(b.shape[-2:]), modulus).reshape(shape)
    rank = len(shape)
    a = a.reshape((1,) * (rank - a.ndim) + a.shape)
    b = b.reshape((1,) * (rank - b.ndim) + b.shape)
    if xp is np and max(a[0].size, b[0].size) > _SLAB_HOST and lead[0] > 1:
        return np.stack([matmul(a[i if len(a) > 1 else 0], b[i if len(b) > 1 else 0], modulus) for i in range(lead[0])])
    return _matmul(a, b, modulus)


def _matmul(a: Residues, b: Residues, modulus: Modulus) -> Residues:
    """Return the product of operands of equal rank, the larger one cut into slabs of columns."""
    xp = array_namespace(a)
    if a.size > b.size:
        return cast(
            Residues, xp.ascontiguousarray(_matmul(b.swapaxes(-1, -2), a.swapaxes(-1, -2), modulus).swapaxes(-1, -2))
        )
    k, columns = b.shape[-2:]
    plan = _plan(modulus.m, k)
    lead = broadcast_shapes([a.shape[:-2], b.shape[:-2]])
    out = xp.empty((*lead, a.shape[-2], columns), np.int64)
    chunks = [slice(start, start + plan.chunk) for start in range(0, k, plan.chunk)]
    digits = xp.concatenate(_small_digits(a, plan), axis=-2)
    stacked = [digits[..., chunk] for chunk in chunks]
    matrices = b.size // (k * columns)
    limit = _SLAB_HOST if xp is np else _SLAB_DEVICE
    width = min(columns, max(_FEWEST_COLUMNS, limit // (matrices * plan.chunk)))
    for start in range(0, columns, width):
        piece = slice(start, start + width)
        sums = _digit_sums(stacked, b[..., piece], chunks, plan, modulus.m)
        out[..., piece] = _recombine(sums, a.shape[-2], plan, modulus)
    return cast(Residues, out)


def _digit_sums(
    stacked: list[npt.NDArray[Any]], b: Residues, chunks: list[slice], plan: _Plan, m: int
) -> list[Residues]:
    """Return, per limb of b, the int64 product with the stacked digits: (..., small_limbs * rows, columns)."""
    xp = array_namespace(b)
    totals: list[Residues] = []
    for number, (left, chunk) in enumerate(zip(stacked, chunks, strict=True)):
        for j, limb in enumerate(_large_limbs(b[..., chunk, :], plan)):
            exact = xp.matmul(left, limb).astype(np.int64)
            if number == 0:
                totals.append(exact)
            else:
                totals[j] += exact
            if number % _INT64_CHUNKS == _INT64_CHUNKS - 1:
                totals[j] %= m
    return totals


def _recombine(totals: list[Residues], rows: int, plan: _Plan, modulus: Modulus) -> Residues:
    """Return sum over i, j of 2^(16 i + 31 j) times the product of digit i and limb j, modulo m, by Horner's rule."""
    result: Residues | None = None
    for total in reversed(totals):
        inner: Residues | None = None
        for i in reversed(range(plan.small_limbs)):
            digit = total[..., i * rows : (i + 1) * rows, :] % modulus.m
            inner = digit if inner is None else _shift_and_add(inner, _SMALL_LIMB, digit, modulus)
        assert inner is not None
        result = inner if result is None else _shift_and_add(result, _LARGE_LIMB, inner, modulus)
    assert result is not None
    return result


def _shift_and_add(high: Residues, bits: int, low: Residues, modulus: Modulus) -> Residues:
    factor = array_namespace(high).asarray((1 << bits) % modulus.m)
    return modulus.add(modulus.multiply(high, factor), low)


def _small_digits(a: Residues, plan: _Plan) -> list[npt.NDArray[Any]]:
    """Return the signed digits of a, lowest first: a = sum of d_i 2^(16 i) with |d_i| <= 2^15."""
    if plan.small_limbs == 1:
        return [a.astype(plan.float_type)]
    half = 1 << _SMALL_LIMB - 1
    # Adding half at every place but the highest makes unsigned digits that are signed ones plus half.
    shifted = a + np.int64(sum(half << _SMALL_LIMB * i for i in range(plan.small_limbs - 1)))
    lower = [
        (shifted >> np.int64(_SMALL_LIMB * i) & np.int64(2 * half - 1)) - np.int64(half)
        for i in range(plan.small_limbs - 1)
    ]
    return [digit.astype(np.float64) for digit in (*lower, shifted >> np.int64(_SMALL_LIMB * (plan.small_limbs - 1)))]


def _large_limbs(b: Residues, plan: _Plan) -> Iterator[npt.NDArray[Any]]:
    """Yield the unsigned 31-bit limbs of b, lowest first."""
    for j in range(plan.large_limbs):
        limb = b >> np.int64(_LARGE_LIMB * j) if j else b
        if j < plan.large_limbs - 1:
            limb = limb & np.int64((1 << _LARGE_LIMB) - 1)
        yield limb.astype(plan.float_type)
