"""What stands for an operator without algebraic meaning (a second exp, erf, log): a random function of residues.

Invariant: a function of the operands' residues and the key alone, so programs that apply one operator to equal
arguments always agree, and programs that do not are told apart as often as random values are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import broadcast_shapes
from workbench.domains.residues import Modulus, Residues

Words = npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def random_function(operands: Sequence[Residues], key: int, modulus: Modulus) -> Residues:
    """Return residues modulo m that depend on the operands' elements (broadcast) and the key as if drawn at random.

    operands: at least one int64 array. key: any integer; it stands for the function (operator, attributes, result
    number, the seed of the test). The residue is that of a 128-bit word, so its bias is below 2^-66.
    Source: the mixing function is splitmix64's (Steele, Lea, Flood, OOPSLA 2014), one round per operand.
    """
    xp = array_namespace(operands[0])
    shape = broadcast_shapes([x.shape for x in operands])
    residues = []
    for word in range(2):
        state = xp.full(1, np.uint64(_mix_integer(_mix_integer(key & _MASK) ^ word)))
        for operand in operands:
            state = _mix(state + _mix(operand.reshape(operand.shape or (1,)).view(np.uint64)))
        residues.append((state % np.uint64(modulus.m)).view(np.int64))
    shifted = modulus.multiply(residues[0], xp.asarray((1 << 64) % modulus.m))
    return cast(Residues, modulus.add(shifted, residues[1]).reshape(shape))


def _mix(state: Words) -> Words:
    state = state + np.uint64(_GOLDEN)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _mix_integer(state: int) -> int:
    return int(_mix(np.full(1, state, np.uint64))[0])
