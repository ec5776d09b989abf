"""Which operators there are. Invariant: a name is registered once; a lookup miss is an error with the near names."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from workbench.errors import UnknownNameError
from workbench.ops.spec import OpSpec

_REGISTRY: dict[str, OpSpec] = {}

REFUSED_OPERATORS = {
    "convolution": "convolutions are not part of the µGraph fragment; write it as matmul over unfolded patches",
    "conv2d": "convolutions are not part of the µGraph fragment; write it as matmul over unfolded patches",
    "attention": "attention is a program, not an operator; use wb.programs.get('mha') or write matmul, exp, sum, div",
}


def register(spec: OpSpec) -> OpSpec:
    """Add an operator and return it. Raises: ValueError when the name is taken."""
    if spec.name in _REGISTRY:
        raise ValueError(f"operator {spec.name!r} is registered twice")
    _REGISTRY[spec.name] = spec
    return spec


def operator(name: str) -> OpSpec:
    """Return the operator of this name. Raises: UnknownNameError with the nearest names, or why it is refused."""
    spec = _REGISTRY.get(name)
    if spec is not None:
        return spec
    if name in REFUSED_OPERATORS:
        raise UnknownNameError(f"operator {name!r} is not supported: {REFUSED_OPERATORS[name]}")
    near = difflib.get_close_matches(name, _REGISTRY, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(sorted(_REGISTRY))}"
    raise UnknownNameError(f"unknown operator {name!r}; {hint}")


def operators() -> Iterator[OpSpec]:
    """Yield every operator in the order of registration."""
    yield from list(_REGISTRY.values())
