"""`python -m benchmarks.verify_random_pairs [--pairs N]`: verdicts on random pairs of programs, judged by float64.

Half of the candidates are the program rewritten by the operators' own laws, half are mutated (a false law, another
operator, exchanged operands, another constant, a dropped term). Float64 on many inputs says what is true; no verdict may
contradict it. Prints the verdicts by truth, the share of `unknown`, and the rate.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from workbench.errors import WorkbenchError
from workbench.interpret import evaluate
from workbench.ops.registry import operators
from workbench.ops.spec import Law
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import Value
from workbench.verify.compare import verify
from workbench.verify.floats import STYLES, draw_inputs

ROWS, COLUMNS = 3, 4
UNARY = ("exp", "square", "neg", "relu", "abs", "silu", "sigmoid", "softmax", "rms_norm", "sqrt")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
LAWS = [law for spec in operators() for law in spec.laws if law.variables <= 3]

Step = Callable[[KernelBuilder, list[Value]], Value]


def positive(builder: KernelBuilder, value: Value) -> Value:
    """Return a value that is positive whatever its argument is."""
    return builder.apply("add", builder.apply("square", value), Fraction(1, 2))


def law_step(law: Law, sides: str, places: tuple[int, ...]) -> Step:
    """Return the step that applies one side ("left" or "right") of a law to earlier values."""

    def step(builder: KernelBuilder, values: list[Value]) -> Value:
        chosen = [values[place] for place in places]
        if law.positive:
            chosen = [positive(builder, value) for value in chosen]
        result: Value = getattr(law, sides)(builder.apply, *chosen)
        return result

    return step


def op_step(op: str, places: tuple[int, ...], **attributes: float) -> Step:
    """Return the step that applies an operator to earlier values."""

    def step(builder: KernelBuilder, values: list[Value]) -> Value:
        return builder.apply(op, *(values[place] for place in places), name=None, **attributes)

    return step


def root_step(place: int) -> Step:
    """Return the step that takes the root of a positive value."""
    return lambda builder, values: builder.apply("sqrt", positive(builder, values[place]))


def build(steps: list[Step], outputs: tuple[int, ...] = (-1,)) -> KernelGraph:
    """Return the program of these steps over three inputs of one shape and a square weight."""
    builder = KernelBuilder("random")
    values = [builder.input(name, (ROWS, COLUMNS), "float32") for name in "XYZ"]
    weight = builder.input("W", (COLUMNS, COLUMNS), "float32")
    values.append(builder.apply("matmul", values[0], weight))
    for step in steps:
        values.append(step(builder, values))
    builder.output(*(values[output] for output in outputs))
    return builder.build()


def random_steps(rng: np.random.Generator, count: int, known: int) -> list[Step]:
    """Return random operator steps; step n may read the `known + n` values before it."""
    steps: list[Step] = []
    for number in range(count):
        size = known + number
        recent = [int(i) for i in rng.integers(max(0, size - 4), size, 2)]
        if rng.random() < 0.5:
            op = str(rng.choice(UNARY))
            if op == "sqrt":
                steps.append(root_step(recent[0]))
            else:
                steps.append(op_step(op, (recent[0],)))
        else:
            steps.append(op_step(str(rng.choice(BINARY)), (recent[0], recent[1])))
    return steps


def random_pair(rng: np.random.Generator, *, mutated: bool) -> tuple[KernelGraph, KernelGraph, str]:
    """Return a program, a candidate, and what was done to it. Raises: WorkbenchError for a pair that cannot be built."""
    before = random_steps(rng, int(rng.integers(0, 3)), 4)
    known = 4 + len(before)
    after = random_steps(rng, int(rng.integers(0, 3)), known + 1)
    if mutated and rng.random() < 0.5:
        kind = int(rng.integers(4))
        a, b = (int(i) for i in rng.integers(0, known, 2))
        left, right, name = [
            (op_step("sub", (a, b)), op_step("sub", (b, a)), "operands exchanged"),
            (op_step("mul", (a, b)), op_step("add", (a, b)), "another operator"),
            (op_step("scale", (a,), factor=1.000123), op_step("scale", (a,), factor=1.000124), "another constant"),
            (op_step("rms_norm", (a,)), op_step("rms_norm", (a,), eps=1e-5), "another eps"),
        ][kind]
    else:
        law = rng.choice([law for law in LAWS if law.false_law is mutated])  # type: ignore[arg-type]
        places = tuple(int(i) for i in rng.integers(0, known, law.variables))
        left, right, name = law_step(law, "left", places), law_step(law, "right", places), law.statement
    programs = [build([*before, middle, *after]) for middle in (left, right)]
    return programs[0], programs[1], name


def truth(program: KernelGraph, candidate: KernelGraph, rng: np.random.Generator) -> str:
    """Return what float64 says: "equal", "different", or "unclear" (nowhere finite, or a gap that rounding may explain)."""
    shapes = [tensor.shape for tensor in program.inputs]
    largest, seen = 0.0, False
    for style in (*STYLES, "normal", "positive", "small"):
        inputs = draw_inputs(shapes, rng, style)
        (a,), (b,) = evaluate(program, inputs), evaluate(candidate, inputs)
        finite = np.isfinite(a) & np.isfinite(b) & (np.abs(a) < 1e100)
        if finite.any():
            seen = True
            scale = max(float(np.abs(a[finite]).max()), 1e-300)
            largest = max(largest, float(np.abs(a[finite] - b[finite]).max()) / scale)
    if not seen or 1e-11 < largest < 1e-7:
        return "unclear"
    return "equal" if largest <= 1e-11 else "different"


def main(pairs: int, seed: int) -> int:
    """Run the pairs, print the table, return the number of wrong verdicts."""
    rng = np.random.default_rng(seed)
    table: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    start = time.perf_counter()
    number = 0
    while number < pairs:
        try:
            program, candidate, name = random_pair(rng, mutated=number % 2 == 1)
        except WorkbenchError:
            continue
        right = truth(program, candidate, rng)
        verdict = verify(program, candidate, seed=number)
        table[right, verdict.kind] += 1
        if {right, verdict.kind} == {"equal", "different"}:
            wrong.append(f"pair {number} ({name}): float64 says {right}, the verdict {verdict.describe()}")
        number += 1
    seconds = time.perf_counter() - start
    for (right, kind), count in sorted(table.items()):
        print(f"float64 {right:10} verdict {kind:10} {count}")
    unknown = sum(count for (_, kind), count in table.items() if kind == "unknown")
    print(
        f"{pairs} pairs, {len(wrong)} wrong, {100 * unknown / pairs:.1f}% unknown, {pairs / seconds * 60:.0f} a minute"
    )
    print(*wrong, sep="\n")
    return len(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    sys.exit(min(1, main(arguments.pairs, arguments.seed)))
