"""Data types of tensors. Invariant: a type that is known but not supported is refused by name, never silently widened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from workbench.errors import DTypeError


@dataclass(frozen=True, slots=True)
class _Refusal:
    why: str
    cure: str


class DType(Enum):
    """A supported floating-point type; the value is its name as NumPy and torch spell it."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[self.value]

    @property
    def machine_epsilon(self) -> float:
        """Distance from 1.0 to the next larger number (2 to the minus number of stored fraction bits)."""
        return {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}[self.value]

    @property
    def largest(self) -> float:
        """Largest finite number of the type."""
        return {
            "float16": 65504.0,
            "bfloat16": 3.3895313892515355e38,
            "float32": 3.4028234663852886e38,
            "float64": 1.7976931348623157e308,
        }[self.value]

    def __str__(self) -> str:
        return self.value


_REFUSED = {
    name: _Refusal(
        "8-bit floats need a scale per tensor or block, which µGraphs do not carry", "use float16 or bfloat16"
    )
    for name in ("float8", "float8_e4m3", "float8_e5m2", "float8_e4m3fn")
} | {
    name: _Refusal("integer tensors have no meaning in the verified fragment", "use a floating-point type")
    for name in ("int4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
}
_ALIASES = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32",
            "fp64": "float64", "double": "float64"}  # fmt: skip


def as_dtype(dtype: DType | str) -> DType:
    """Return the data type of this name (aliases such as `fp16`, `half`, `bf16` allowed).

    Raises: DTypeError, with the supported names, when it is unknown or known and refused (float8, integers).
    """
    if isinstance(dtype, DType):
        return dtype
    name = str(dtype).lower().removeprefix("torch.")
    name = _ALIASES.get(name, name)
    for member in DType:
        if member.value == name:
            return member
    supported = ", ".join(member.value for member in DType)
    if name in _REFUSED:
        refusal = _REFUSED[name]
        raise DTypeError(f"data type {name!r} is not supported: {refusal.why}; {refusal.cure} (supported: {supported})")
    raise DTypeError(f"unknown data type {name!r}; supported: {supported}")
