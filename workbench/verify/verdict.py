"""What a comparison of two programs says, and what it rests on. Invariant: never "equal" without a number.

`equal` means: equal wherever both sides are defined over the reals. `different` carries a witness over the reals, or
says which part of the interface differs. Everything else is `unknown`, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workbench.core.shapes import Shape
from workbench.display import Displayed
from workbench.errors import FormatError
from workbench.ops.spec import Array
from workbench.units import counted

VerdictKind = Literal["equal", "different", "unknown"]


@dataclass(frozen=True, slots=True, eq=False)
class Witness:
    """Real inputs on which two programs differ by more than their arithmetic can explain.

    Attributes: output: position of the output; index: the element; left, right: its values in the two programs;
    shapes: the input shapes; inputs: the arrays (float64); how: the arithmetic ("float64", "longdouble", "rational");
    gap: left - right before they were rounded to floats, None where it is that of the floats.
    """

    output: int
    index: tuple[int, ...]
    left: float
    right: float
    shapes: tuple[Shape, ...]
    inputs: tuple[Array, ...]
    how: str = "float64"
    gap: float | None = None

    def describe(self) -> str:
        """Return one line: which element, both values, at which shapes."""
        shapes = ", ".join(str(list(shape)) for shape in self.shapes)
        left, right = f"{self.left:.9g}", f"{self.right:.9g}"
        apart = f", {self.gap:.3g} apart" if left == right and self.gap is not None else ""
        return f"output {self.output}{list(self.index)}: {left} against {right}{apart} (inputs {shapes}; {self.how})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One pair of shapes at which the programs were compared.

    Attributes: shapes: the input shapes; reduced: True when they are not the programs' own; tests: random points in the
    field; exact: True when the instance was proved by normal form; cells: decided cells of piecewise operators (0 if none).
    """

    shapes: tuple[Shape, ...]
    reduced: bool
    tests: int
    exact: bool = False
    cells: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Displayed):
    """The answer to "do these two programs compute the same?".

    Attributes:
        kind: "equal", "different" or "unknown".
        error_bound: probability that different programs would be called equal, for the shapes in `shapes_tested` (0.0
            when proved); None unless kind is "equal", or when no bound below 1 is known.
        proved: True when an exact normal form decided it (at the shapes in `shapes_tested`).
        tests: random points evaluated in the field, all instances together.
        shapes_tested: the instances, reduced ones first.
        field_pair: name and primes of the field pair.
        degree: degree of the difference that the bound used, None if there is none.
        seconds: wall time.
        witness: real inputs that show a difference.
        reason: one readable sentence: what the answer rests on, or why there is none.
        assumptions: premises of the bound that were not checked, in words (empty: all were).
        bounds: every bound that was computed, by name ("mixed sets", "theorem 2").
        cells_tested: decided cells of piecewise operators.
        opaque: operators that were taken as random functions of their arguments.
    """

    kind: VerdictKind
    reason: str
    error_bound: float | None = None
    proved: bool = False
    tests: int = 0
    shapes_tested: tuple[Instance, ...] = ()
    field_pair: str = ""
    degree: int | None = None
    seconds: float = 0.0
    witness: Witness | None = None
    assumptions: tuple[str, ...] = ()
    bounds: dict[str, float] = field(default_factory=dict)
    cells_tested: int = 0
    opaque: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True only for "equal"."""
        return self.kind == "equal"

    def describe(self) -> str:
        """Return the verdict with its number, in a few lines."""
        head: str = self.kind
        if self.kind == "equal" and self.proved:
            head += "" if self.reason.startswith("proved") else ", proved"
        elif self.kind == "equal" and self.error_bound is not None:
            head += f", error bound {self.error_bound:.3g}"
        lines = [f"{head}: {self.reason}"]
        if self.witness:
            lines.append(f"  witness: {self.witness.describe()}")
        for instance in self.shapes_tested:
            shapes = ", ".join(str(list(shape)) for shape in instance.shapes)
            how = "proved" if instance.exact else counted(instance.tests, "test")
            cells = f", {counted(instance.cells, 'cell')}" if instance.cells else ""
            lines.append(f"  {'reduced' if instance.reduced else 'true'} shapes {shapes}: {how}{cells}")
        lines += [f"  assumes: {assumption}" for assumption in self.assumptions]
        if self.field_pair:
            lines.append(f"  field: {self.field_pair}; {counted(self.tests, 'test')}; {self.seconds:.2f} s")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the plain form that the command line prints (arrays of a witness left out, shapes and values kept)."""
        witness = None
        if self.witness:
            w = self.witness
            witness = {"output": w.output, "index": list(w.index), "left": w.left, "right": w.right,
                       "shapes": [list(shape) for shape in w.shapes], "arithmetic": w.how}  # fmt: skip
        return {
            "verdict": self.kind,
            "error_bound": self.error_bound,
            "proved": self.proved,
            "tests": self.tests,
            "shapes_tested": [
                {"shapes": [list(shape) for shape in i.shapes], "reduced": i.reduced, "tests": i.tests, "exact": i.exact,
                 "cells": i.cells}
                for i in self.shapes_tested
            ],
            "field": self.field_pair,
            "degree": self.degree,
            "seconds": self.seconds,
            "witness": witness,
            "reason": self.reason,
            "assumptions": list(self.assumptions),
            "bounds": dict(self.bounds),
            "cells_tested": self.cells_tested,
            "opaque": list(self.opaque),
        }  # fmt: skip


def verdict_from_json(values: Mapping[str, Any]) -> Verdict:
    """Return the verdict whose plain form this is; a witness's arrays are not in it, so one with a witness is refused.

    Raises: FormatError for a form that lacks a field, or has a witness.
    """
    if values.get("witness") is not None:
        raise FormatError("a verdict with a witness cannot be read back: its arrays are not written; verify again")
    try:
        instances = tuple(
            Instance(
                shapes=tuple(tuple(shape) for shape in one["shapes"]),
                reduced=one["reduced"],
                tests=one["tests"],
                exact=one["exact"],
                cells=one["cells"],
            )
            for one in values["shapes_tested"]
        )
        return Verdict(
            kind=values["verdict"],
            reason=values["reason"],
            error_bound=values["error_bound"],
            proved=values["proved"],
            tests=values["tests"],
            shapes_tested=instances,
            field_pair=values["field"],
            degree=values["degree"],
            seconds=values["seconds"],
            assumptions=tuple(values["assumptions"]),
            bounds=dict(values["bounds"]),
            cells_tested=values["cells_tested"],
            opaque=tuple(values["opaque"]),
        )
    except (KeyError, TypeError) as error:
        raise FormatError(f"a verdict lacks {error}; it was written by another version") from error
