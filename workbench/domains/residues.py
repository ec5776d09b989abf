"""How one computes modulo a prime of at most 61 bits with arrays: elementwise, sums, powers, inverses, roots.

Invariant: arrays are int64 with values in [0, m), and every result is exact. Nothing here relies on more than 64-bit
integers and IEEE float64, and only on what NumPy and CuPy have in common; the array says which of them computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from types import ModuleType
from typing import cast

import numpy as np
import numpy.typing as npt

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape, broadcast_shapes
from workbench.domains.field_pairs import MAX_MODULUS_BITS
from workbench.errors import FieldError

Residues = npt.NDArray[np.int64]  # of NumPy, or of CuPy, whose type is not importable here
Mask = npt.NDArray[np.bool_]

_BLOCK = 8192  # elements: the temporaries of a kernel stay in the L1 and L2 caches, and below malloc's mmap threshold
_TREE_BLOCK = 1 << 16  # the halving tree of `inverse` has small levels, whose calls cost more than the cache saves
_LOW_BITS = 31
_LOW_MASK = np.uint64((1 << _LOW_BITS) - 1)
_LOW_SHIFT = np.uint64(_LOW_BITS)
_ONE_PRODUCT_BITS = 32  # moduli up to 2^32: a product fits uint64
_FEW = 16  # up to this many elements Python's own pow is faster than the calls of a vectorised power or inverse
_WINDOW_BITS = 4


@dataclass(frozen=True, slots=True)
class Modulus:
    """Exact arithmetic with arrays modulo m, m a prime below 2^61.

    Operands: int64 arrays with values in [0, m) (not checked: a pass over the data costs as much as an addition),
    NumPy broadcasting. Results: fresh int64 arrays, in [0, m).
    Raises: FieldError when m is above 61 bits or below 2.
    """

    m: int

    def __post_init__(self) -> None:
        """Refuse a modulus for which the error analysis of `multiply` does not hold."""
        if self.m < 2 or self.m.bit_length() > MAX_MODULUS_BITS:
            raise FieldError(
                f"modulus {self.m}: exact up to {MAX_MODULUS_BITS} bits and from 2 on; use a smaller prime"
            )

    # ------------------------------------------------------------------------------------------- elementwise
    def add(self, a: Residues, b: Residues) -> Residues:
        """Return a + b."""
        return blockwise(self._add, a, b)

    def subtract(self, a: Residues, b: Residues) -> Residues:
        """Return a - b."""
        return blockwise(self._subtract, a, b)

    def negate(self, a: Residues) -> Residues:
        """Return -a."""
        return blockwise(self._negate, a)

    def multiply(self, a: Residues, b: Residues) -> Residues:
        """Return a * b, without overflow also for 61 bits.

        Up to 32 bits the product fits uint64. Above, b = b1 2^31 + b0 and a b is reduced in two steps; each takes off
        the multiple of m that a float64 estimate of the quotient names, in arithmetic modulo 2^64, which is exact
        because what is left fits in 63 bits. The first quotient is below 2^30, the second below 2^33; with at most
        six roundings of relative size 2^-53 the estimate is off by less than 2^-16, so each step ends within
        m 2^-16 of [0, m) and one conditional addition and subtraction make the result canonical. A fused
        multiply-add rounds less, so the same holds on a GPU.
        """
        return blockwise(self.multiply_in_cache, a, b)

    def power(self, a: Residues, exponent: int) -> Residues:
        """Return a to a nonnegative integer power, the same for all elements; 0^0 = 1."""
        if exponent < 0:
            raise FieldError(f"exponent {exponent} is negative; use `inverse` first, which reports zeros")
        return blockwise(lambda x: self._power(x, exponent), a)

    def inverse(self, a: Residues) -> tuple[Residues, Mask]:
        """Return 1/a with 0 where a is 0, and the mask of those zeros.

        Products up a binary tree, one inverse at its root, and back down (Montgomery's trick): three
        multiplications an element instead of the 90 or so of a^(m-2).
        """
        xp = array_namespace(a)
        zero = a == 0
        safe = xp.where(zero, 1, a)
        inverted = blockwise(lambda x: self._inverse(x.reshape(-1)).reshape(x.shape), safe, block=_TREE_BLOCK)
        return xp.where(zero, 0, inverted), zero

    def square_root(self, a: Residues) -> tuple[Residues, Mask]:
        """Return a^((m+1)/4), and the mask of elements that are no squares.

        For m = 3 mod 4. On a square it is the root that is itself a square (unique, as -1 is no square); 0 is its own
        root. On a non-square it is no root: its square is -a. It is multiplicative everywhere,
        sqrt(a) sqrt(b) = sqrt(ab), and so a fixed function under which true identities of roots still hold.
        Raises: FieldError when m = 1 mod 4: there no choice of roots is multiplicative.
        """
        if self.m % 4 != 3:
            raise FieldError(
                f"no square root modulo {self.m} is multiplicative, since it is {self.m % 4} mod 4; use a prime 3 mod 4"
            )
        root = self.power(a, (self.m + 1) // 4)
        return root, self.multiply(root, root) != a

    def sum(self, a: Residues, axis: int | tuple[int, ...], *, keepdims: bool) -> Residues:
        """Return the sum over axes; up to 2^31 elements a sum."""
        xp = array_namespace(a)
        axes = (axis,) if isinstance(axis, int) else axis
        count = int(np.prod([a.shape[i] for i in axes], dtype=np.int64))
        if count * (self.m - 1) < 1 << 63:
            return cast(Residues, xp.asarray(xp.sum(a, axis=axes, keepdims=keepdims) % self.m))
        low = xp.asarray(xp.sum(a & np.int64(_LOW_MASK), axis=axes, keepdims=keepdims)) % self.m
        high = xp.asarray(xp.sum(a >> np.int64(_LOW_BITS), axis=axes, keepdims=keepdims)) % self.m
        return self.add(self.multiply(high, xp.asarray((1 << _LOW_BITS) % self.m)), low)

    # --------------------------------------------------------------------------- kernels: 1-d and up, in cache
    def _add(self, a: Residues, b: Residues) -> Residues:
        xp = array_namespace(a)
        total = (a + b).view(np.uint64)
        # total - m wraps to a huge number exactly where total < m, so the minimum is the reduced one.
        return cast(Residues, xp.minimum(total, total - np.uint64(self.m)).view(np.int64))

    def _negate(self, a: Residues) -> Residues:
        xp = array_namespace(a)
        negative = (-a).view(np.uint64)
        return cast(Residues, xp.minimum(negative, negative + np.uint64(self.m)).view(np.int64))

    def _subtract(self, a: Residues, b: Residues) -> Residues:
        xp = array_namespace(a)
        difference = (a - b).view(np.uint64)
        return cast(Residues, xp.minimum(difference, difference + np.uint64(self.m)).view(np.int64))

    def multiply_in_cache(self, a: Residues, b: Residues) -> Residues:
        """Return a * b for operands small enough that temporaries stay in cache, at least one-dimensional."""
        modulus = np.uint64(self.m)
        if self.m <= 1 << _ONE_PRODUCT_BITS:
            product = a.view(np.uint64) * b.view(np.uint64)
            # NumPy divides by a scalar in SIMD, but takes remainders one at a time.
            quotient = product // modulus
            quotient *= modulus
            product -= quotient
            return product.view(np.int64)
        xp = array_namespace(a)
        if a.size < b.size:
            a, b = b, a  # split the smaller operand
        ua, ub = a.view(np.uint64), b.view(np.uint64)
        high, low = ub >> _LOW_SHIFT, ub & _LOW_MASK
        a_float, inverse = a.astype(np.float64), 1.0 / self.m
        quotient = (a_float * (high.view(np.int64) * inverse)).astype(np.int64).view(np.uint64)
        quotient *= modulus
        rest = ua * high
        rest -= quotient
        estimate = a_float * (low.view(np.int64) * inverse)
        estimate += rest.view(np.int64) * (inverse * (1 << _LOW_BITS))
        quotient = estimate.astype(np.int64).view(np.uint64)
        quotient *= modulus
        rest <<= _LOW_SHIFT
        rest += ua * low
        rest -= quotient
        rest = xp.minimum(rest, rest + modulus)
        return cast(Residues, xp.minimum(rest, rest - modulus).view(np.int64))

    def _power(self, a: Residues, exponent: int) -> Residues:
        xp = array_namespace(a)
        if exponent == 0:
            return cast(Residues, xp.ones_like(a))
        if exponent.bit_length() <= 2 * _WINDOW_BITS:  # a table of powers would cost more than it saves
            result = a
            for bit in bin(exponent)[3:]:
                result = self.multiply_in_cache(result, result)
                if bit == "1":
                    result = self.multiply_in_cache(result, a)
            return result.copy() if result is a else result
        if a.size <= _FEW:
            few = [pow(x, exponent, self.m) for x in a.reshape(-1).tolist()]
            return cast(Residues, xp.asarray(few, dtype=np.int64).reshape(a.shape))
        powers = [xp.ones_like(a), a]
        while len(powers) < 1 << _WINDOW_BITS:
            powers.append(self.multiply_in_cache(powers[-1], a))
        digits = [
            exponent >> shift & (1 << _WINDOW_BITS) - 1 for shift in range(0, exponent.bit_length(), _WINDOW_BITS)
        ]
        result = powers[digits[-1]]
        for digit in digits[-2::-1]:
            for _ in range(_WINDOW_BITS):
                result = self.multiply_in_cache(result, result)
            if digit:
                result = self.multiply_in_cache(result, powers[digit])
        return result

    def _inverse(self, a: Residues) -> Residues:
        """Return the inverses of a: (n,), no zeros."""
        xp = array_namespace(a)
        if a.size <= _FEW:
            return cast(Residues, xp.asarray([pow(x, -1, self.m) for x in a.tolist()], dtype=np.int64))
        half = a.size // 2
        left, right, odd = a[:half], a[half : 2 * half], a[2 * half :]
        inverted = self._inverse(xp.concatenate((self.multiply_in_cache(left, right), odd)))
        pairs = inverted[:half]
        return cast(
            Residues,
            xp.concatenate(
                (self.multiply_in_cache(pairs, right), self.multiply_in_cache(pairs, left), inverted[half:])
            ),
        )


def blockwise(kernel: Callable[..., Residues], *operands: Residues, block: int = _BLOCK) -> Residues:
    """Return the kernel's result over broadcast operands, computed in pieces of about `block` elements, in cache.

    The kernel sees slices along leading axes, at least one-dimensional, and broadcasts by itself; nothing is copied.
    On a GPU the whole array is one piece.
    """
    shape: Shape = operands[0].shape
    if any(x.shape != shape for x in operands):
        shape = broadcast_shapes([x.shape for x in operands])
    elif shape and isinstance(operands[0], np.ndarray) and operands[0].size <= block:
        return kernel(*operands)  # most calls of a reduced instance: nothing to cut, nothing to broadcast
    rank = max(len(shape), 1)
    full = [x.reshape((1,) * (rank - x.ndim) + x.shape) for x in operands]
    xp = array_namespace(operands[0])
    if xp is not np or prod(shape) <= block:
        return kernel(*full).reshape(shape)
    out = np.empty(shape, np.int64)
    _fill(kernel, full, out, block)
    return out


def _fill(kernel: Callable[..., Residues], operands: list[Residues], out: Residues, block: int) -> None:
    inner = out[0].size
    if inner > block:
        for i in range(len(out)):
            _fill(kernel, [x[i if len(x) > 1 else 0] for x in operands], out[i], block)
        return
    rows = max(1, block // max(inner, 1))
    for start in range(0, len(out), rows):
        piece = slice(start, start + rows)
        out[piece] = kernel(*(x[piece] if len(x) > 1 else x for x in operands))


def random_residues(rng: np.random.Generator, shape: Shape, m: int, xp: ModuleType = np) -> Residues:
    """Return independent residues, exactly uniform on [0, m), as an array of module `xp`.

    A few times as fast as `Generator.integers` with a bound. Up to 32 bits a 32-bit word w gives w m div 2^32, and is
    drawn again where w m mod 2^32 < 2^32 mod m (Lemire, ACM TOMACS 29, 2019); above, a 64-bit word is cut to the bits
    of m, and drawn again where it is not below m.
    """
    draw = _draw_short if m <= 1 << 32 else _draw_long
    out = np.empty(int(np.prod(shape, dtype=np.int64)), np.int64)
    for start in range(0, out.size, _BLOCK):
        block = out[start : start + _BLOCK]
        block[:], again = draw(rng, block.size, m)
        while again.size:
            block[again], rejected = draw(rng, again.size, m)
            again = again[rejected]
    return cast(Residues, xp.asarray(out.reshape(shape)))


def _draw_short(rng: np.random.Generator, count: int, m: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.intp]]:
    """Return candidates in [0, m) and the indices of those that must be drawn again."""
    product = rng.integers(0, 1 << 32, count, dtype=np.uint32) * np.uint64(m)
    return product >> np.uint64(32), np.flatnonzero((product & np.uint64((1 << 32) - 1)) < np.uint64((1 << 32) % m))


def _draw_long(rng: np.random.Generator, count: int, m: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.intp]]:
    """Return candidates of the bits of m and the indices of those that are not below m."""
    words = rng.integers(0, 1 << 64, count, dtype=np.uint64) >> np.uint64(64 - m.bit_length())
    return words, np.flatnonzero(words >= np.uint64(m))
