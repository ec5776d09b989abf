"""Which array library an array belongs to, without importing one. Invariant: nothing but NumPy is imported here."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def array_namespace(*arrays: object) -> Any:
    """Return the module (numpy, cupy) whose functions work on these arrays; NumPy when none belongs elsewhere."""
    for array in arrays:
        if array is not None and not isinstance(array, (np.ndarray, np.generic)):
            module = sys.modules.get(type(array).__module__.partition(".")[0])
            if module is not None and hasattr(module, "ndarray"):
                return module
    return np
