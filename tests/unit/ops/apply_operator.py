"""One way to apply an operator to arrays in the tests of this folder."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from workbench.ops import complete_attributes, operator
from workbench.ops.spec import Array


def results(name: str, *operands: npt.ArrayLike, **attributes: object) -> tuple[Array, ...]:
    """Return an operator's float64 results on arrays, no leading axes."""
    arrays = tuple(np.asarray(operand, dtype=np.float64) for operand in operands)
    spec = operator(name)
    return spec.on_float(arrays, complete_attributes(spec, attributes, tuple(array.shape for array in arrays)), 0)


def result(name: str, *operands: npt.ArrayLike, **attributes: object) -> Array:
    """Return the only result."""
    (only,) = results(name, *operands, **attributes)
    return only
