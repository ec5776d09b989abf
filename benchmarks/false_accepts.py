"""How often programs that differ pass one random test, measured in small fields and compared with the printed bound.

    python -m benchmarks.false_accepts [--trials 100000] [--seed 0]

Each family is a program and a near miss of it: a wrong wiring, factor or exponent that most points tell apart and some do
not. The field pairs are small enough for false acceptances to be seen. A row is in order when the measured rate is at most
the bound plus three standard errors; the ratio says how much of the bound is used. Exit code 1 if a row is not in order.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.core.shapes import Shape
from workbench.domains.field_pairs import FieldPair
from workbench.ugraph import value as op
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import Value
from workbench.verify.error_bound import Bound, bound_per_test
from workbench.verify.many_points import Trials, count_accepted
from workbench.verify.radicands import rewrite_square_radicands

# p = 2 q + 1, both 3 modulo 4, so that roots exist on both sides
PAIRS = {
    pair.name: pair for pair in (FieldPair(47, 23, "p47"), FieldPair(167, 83, "p167"), FieldPair(1439, 719, "p1439"))
}
LARGEST_BOUND = 0.1  # rows with a weaker bound say nothing


@dataclass(frozen=True, slots=True)
class Family:
    """A program, a near miss of it, their input shapes, and the field pair in which they are compared."""

    name: str
    program: Callable[..., Value]
    near_miss: Callable[..., Value]
    shapes: dict[str, Shape]
    pair: str

    def graphs(self) -> tuple[KernelGraph, KernelGraph]:
        """Return both as the verifier evaluates them."""
        left, right = (
            rewrite_square_radicands(trace(fn, dtype="float32", **self.shapes)) for fn in (self.program, self.near_miss)
        )
        return left, right


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured for a family."""

    family: Family
    bound: Bound
    trials: Trials

    @property
    def excess(self) -> float:
        """How far the measured rate is above the bound, in standard errors."""
        assert self.bound.per_test is not None
        return (self.trials.rate - self.bound.per_test) / self.trials.standard_error(self.bound.per_test)

    @property
    def ratio(self) -> float:
        """Measured rate over bound."""
        assert self.bound.per_test is not None
        return self.trials.rate / self.bound.per_test


def _swapped(v: Value) -> Value:
    """Return the rows of a matrix with the first two exchanged."""
    first, second, rest = op.split(v, 3, axis=-2)
    return op.concat(second, first, rest, axis=-2)


def _attention(q: Value, k: Value, v: Value) -> Value:
    return op.softmax(q @ k) @ v


_ATTENTION: dict[str, Shape] = {"q": (1, 2), "k": (2, 3), "v": (3, 1)}
_LINEAR: dict[str, Shape] = {"x": (1, 3), "w": (3, 1)}
_GATED: dict[str, Shape] = {"x": (1, 2), "a": (2, 1), "b": (2, 1)}

FAMILIES = (
    Family(
        "matmul chain, a factor 2 too much",
        lambda x, w, v: x @ w @ v,
        lambda x, w, v: 2 * (x @ (w @ v)),
        {"x": (1, 1), "w": (1, 1), "v": (1, 1)},
        "p47",
    ),
    Family(
        "matmul chain, operands exchanged",
        lambda a, b: op.sum(op.sum(a @ b), axis=-2),
        lambda a, b: op.sum(op.sum(b @ a), axis=-2),
        {"a": (2, 2), "b": (2, 2)},
        "p47",
    ),
    Family(
        "quotient, a summand not divided",
        lambda x, y, z: (x + y) / z,
        lambda x, y, z: x / z + y,
        {"x": (1,), "y": (1,), "z": (1,)},
        "p47",
    ),
    Family(
        "attention, two values exchanged",
        _attention,
        lambda q, k, v: _attention(q, k, _swapped(v)),
        _ATTENTION,
        "p47",
    ),
    Family(
        "attention, logits doubled",
        _attention,
        lambda q, k, v: _attention(2 * q, k, v),
        _ATTENTION,
        "p167",
    ),
    Family(
        "attention, query not scaled in the sum",
        lambda q, k, v: (op.exp(q @ k) @ v) / op.sum(op.exp(q @ k)),
        lambda q, k, v: (op.exp(q @ k) @ v) / op.sum(op.exp(-q @ k)),
        _ATTENTION,
        "p167",
    ),
    Family(
        "attention with normalised keys, two values exchanged",
        lambda q, k, v: _attention(q, k / op.rms(k, axis=-2, eps=1), v),
        lambda q, k, v: _attention(q, k / op.rms(k, axis=-2, eps=1), _swapped(v)),
        _ATTENTION,
        "p1439",
    ),
    Family(
        "RMS norm and linear, eps dropped",
        lambda x, w: op.rms_norm(x, eps=1) @ w,
        lambda x, w: op.rms_norm(x, eps=0) @ w,
        _LINEAR,
        "p1439",
    ),
    Family(
        "RMS norm and linear, twice normalised",
        lambda x, w: op.rms_norm(x, eps=1) @ w,
        lambda x, w: (x @ w) / op.square(op.rms(x, eps=1)),
        _LINEAR,
        "p167",
    ),
    Family(
        "gated MLP, gate and projection exchanged",
        lambda x, a, b: op.silu(x @ a) * (x @ b),
        lambda x, a, b: op.silu(x @ b) * (x @ a),
        _GATED,
        "p167",
    ),
    Family(
        "GELU gate (erf opaque), gate and projection exchanged",
        lambda x, a, b: op.gelu(x @ a) * (x @ b),
        lambda x, a, b: op.gelu(x @ b) * (x @ a),
        _GATED,
        "p1439",
    ),
)


def measure(family: Family, trials: int, seed: int) -> Row:
    """Return bound and measured rate of a family, from at least so many points with a meaning."""
    left, right = family.graphs()
    bound = bound_per_test(left, right, PAIRS[family.pair])
    rng = np.random.default_rng(seed)
    valid, accepted = 0, 0
    while valid < trials:
        more = count_accepted(left, right, PAIRS[family.pair], min(trials, 2 * (trials - valid) + 1000), rng)
        valid, accepted = valid + more.valid, accepted + more.accepted
    return Row(family, bound, Trials(valid, accepted))


def render(rows: Sequence[Row]) -> str:
    """Return the table as text."""
    lines = [
        f"{'family':52} {'pair':>6} {'bound':>14} {'per test':>9} {'measured':>9} {'ratio':>6} {'trials':>7}  excess"
    ]
    for row in rows:
        if row.bound.per_test is None:
            lines.append(f"{row.family.name:52} {row.family.pair:>6} no bound: {row.bound.reason}")
            continue
        remark = "" if row.bound.per_test < LARGEST_BOUND else "  (bound too weak to count)"
        lines.append(
            f"{row.family.name:52} {row.family.pair:>6} {row.bound.name:>14} {row.bound.per_test:9.5f} "
            f"{row.trials.rate:9.5f} {row.ratio:6.2f} {row.trials.valid:7d}  {row.excess:+.1f} standard errors{remark}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every family, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=100_000, help="points with a meaning per family")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    rows = [measure(family, options.trials, options.seed) for family in FAMILIES]
    print(render(rows))
    counted = [row for row in rows if row.bound.per_test is not None and row.bound.per_test < LARGEST_BOUND]
    exceeded = [row for row in counted if row.excess > 3]
    print(f"{len(counted)} families with a bound below {LARGEST_BOUND}, {len(exceeded)} above it by 3 standard errors")
    return 1 if exceeded or len(counted) < 3 else 0


if __name__ == "__main__":
    sys.exit(main())
