"""How omega^x is taken for millions of exponents: a few table look-ups and products each.

Invariant: the table holds omega^(d 2^(w i)) for every digit d of w bits at every place i of an exponent below the order.
"""

from __future__ import annotations

from types import ModuleType
from typing import cast

import numpy as np

from workbench.core.namespaces import array_namespace
from workbench.domains.residues import Modulus, Residues, blockwise

_SMALL_WINDOW = 8  # bits: 256 entries a place, built in tens of microseconds
_LARGE_WINDOW = 15  # bits: 32768 entries a place; four of them (60-bit exponents) stay in an L2 cache
_LARGE_FROM = 1 << 14  # exponents from which the large table repays its building


class PowerTable:
    """Powers of one base modulo m for exponents in [0, order).

    Tables are built on first use in the array module of the exponents, a small one for few exponents and a large one
    for many, and kept.
    """

    def __init__(self, base: int, order: int, modulus: Modulus) -> None:
        """Remember the base, the bound of the exponents and the modulus; builds nothing yet."""
        self._base, self._order, self._modulus = base, order, modulus
        self._tables: dict[tuple[str, int], Residues] = {}

    def __call__(self, exponents: Residues) -> Residues:
        """Return base^x modulo m for int64 exponents in [0, order), elementwise."""
        bits = max(1, (self._order - 1).bit_length())
        window = min(bits, _LARGE_WINDOW if exponents.size >= _LARGE_FROM else _SMALL_WINDOW)
        table = self._table(window, -(-bits // window), array_namespace(exponents))
        mask = np.int64((1 << window) - 1)

        def look_up(x: Residues) -> Residues:
            result = cast(Residues, table[0].take(x & mask))
            for place in range(1, len(table)):
                digits = x >> np.int64(window * place) & mask
                result = self._modulus.multiply_in_cache(result, table[place].take(digits))
            return result

        return blockwise(look_up, exponents)

    def _table(self, window: int, places: int, xp: ModuleType) -> Residues:
        """Return base^(d 2^(window i)) at [i, d]: (places, 2^window), by doubling."""
        key = (xp.__name__, window)
        if key not in self._tables:
            table = xp.ones((places, 1 << window), np.int64)
            for bit in range(window):
                m = self._modulus.m
                steps = [[pow(self._base, 1 << (window * place + bit), m)] for place in range(places)]
                half = 1 << bit
                table[:, half : 2 * half] = self._modulus.multiply(table[:, :half], xp.asarray(steps, dtype=np.int64))
            self._tables[key] = cast(Residues, table)
        return self._tables[key]
