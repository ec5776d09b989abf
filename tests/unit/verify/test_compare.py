"""True and false identities, each with the verdict it must get; none of them is looked up anywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from workbench import programs
from workbench.domains.field_pairs import FieldPair
from workbench.errors import UsageError
from workbench.interpret import evaluate
from workbench.ugraph import value as op
from workbench.ugraph.builder import BlockBuilder, KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import Value
from workbench.verify.compare import verify
from workbench.verify.error_bound import Bound, bound_per_test
from workbench.verify.probabilistic import run_tests
from workbench.verify.sampling import MIN_ROUNDS, Sampler
from workbench.verify.verdict import Verdict

Program = Callable[..., Value | tuple[Value, ...]]
S = {"x": (3, 5), "y": (3, 5), "z": (3, 5), "A": (3, 4), "B": (4, 5), "G": (5,), "W": (5, 4), "m": (3, 1)}


def judge(left: Program, right: Program, names: str) -> Verdict:
    shapes = {name: S[name] for name in names.split()}
    return verify(trace(left, dtype="float16", **shapes), trace(right, dtype="float16", **shapes))


EQUAL: dict[str, tuple[Program, Program, str]] = {
    "softmax shifted": (lambda x, m: op.softmax(x) + 0 * m, lambda x, m: op.softmax(x - m) + 0 * m, "x m"),
    "softmax minus its maximum": (lambda x: op.softmax(x), lambda x: op.softmax(x - op.max(x)), "x"),
    "exp of a sum": (lambda x, y: op.exp(x) * op.exp(y), lambda x, y: op.exp(x + y), "x y"),
    "product of roots": (lambda x, y: op.sqrt(x) * op.sqrt(y), lambda x, y: op.sqrt(x * y), "x y"),
    "root squared": (lambda x: op.sqrt(x) * op.sqrt(x), lambda x: 1 * x, "x"),
    "root of a square of a positive": (
        lambda x, y: op.sqrt(op.square(op.square(x) + op.square(y))),
        lambda x, y: op.square(x) + op.square(y),
        "x y",
    ),
    "rms_norm of 2x": (lambda x: op.rms_norm(2 * x, eps=0), lambda x: op.rms_norm(x, eps=0), "x"),
    "division moved past a product": (
        lambda x, W: op.rms_norm(x) @ W,
        lambda x, W: (x @ W) / op.sqrt(op.mean(op.square(x)) + 1e-6),
        "x W",
    ),
    "gain on either side": (lambda x, G, W: (x * G) @ W, lambda x, G, W: x @ (op.reshape(G, (5, 1)) * W), "x G W"),
    "relu scaled": (lambda x: op.relu(2 * x), lambda x: 2 * op.relu(x), "x"),
    "odd part of relu": (lambda x: op.relu(x) - op.relu(-x), lambda x: 1 * x, "x"),
    "max and min": (lambda x, y: op.maximum(x, y) + op.minimum(x, y), lambda x, y: x + y, "x y"),
    "max shifted": (lambda x, y, z: op.maximum(x + z, y + z), lambda x, y, z: op.maximum(x, y) + z, "x y z"),
    "absolute value": (lambda x: op.abs(x) * op.abs(x), lambda x: op.square(x), "x"),
    "sigmoid": (lambda x: op.silu(x), lambda x: x / (1 + op.exp(-x)), "x"),
    "opaque of equal arguments": (lambda x, y: op.log(x + y), lambda x, y: op.log(y + x), "x y"),
    "exp of exp of itself": (lambda x: op.exp(op.exp(x)), lambda x: op.exp(op.exp(1 * x)), "x"),
}

DIFFERENT: dict[str, tuple[Program, Program, str]] = {
    "dropped gain": (lambda x, G, W: (x * G) @ W, lambda x, G, W: x @ W + 0 * op.sum(G), "x G W"),
    "transposed operand": (
        lambda x, y: x @ op.transpose(y),
        lambda x, y: y @ op.transpose(x),
        "x y",
    ),
    "sixth digit": (lambda x: 1.234567 * x, lambda x: 1.234568 * x, "x"),
    "root of a square": (lambda x: op.sqrt(op.square(x)), lambda x: 1 * x, "x"),
    "clamp bounds": (lambda x: op.clamp(x, -1, 1), lambda x: op.clamp(x, -1, 2), "x"),
    "relu of a sum": (lambda x, y: op.relu(x + y), lambda x, y: op.relu(x) + op.relu(y), "x y"),
    "exp of a product": (lambda x, y: op.exp(x * y), lambda x, y: op.exp(x) * op.exp(y), "x y"),
    "outputs exchanged": (lambda x, y: (x + y, x - y), lambda x, y: (x - y, x + y), "x y"),
    "quotient turned over": (lambda x, y: x / y, lambda x, y: y / x, "x y"),
    "mean over the wrong axis": (lambda x: x - op.mean(x), lambda x: x - op.mean(x, axis=0), "x"),
    "eps forgotten": (lambda x: op.rms_norm(x, eps=1e-2), lambda x: op.rms_norm(x, eps=0), "x"),
    "erf for tanh": (lambda x: op.gelu(x), lambda x: op.gelu(x, approximate="tanh"), "x"),
    "a huge constant for 1": (lambda x: x * 2147024880.0, lambda x: x * 1.0, "x"),
}


@pytest.mark.parametrize("name", EQUAL)
def test_true_identities_are_equal_with_a_number(name: str) -> None:
    left, right, names = EQUAL[name]
    verdict = judge(left, right, names)
    assert verdict.kind == "equal", verdict.describe()
    assert verdict.proved or (verdict.error_bound is not None and verdict.error_bound <= 1e-9)
    assert judge(right, left, names).kind == "equal"


def test_one_random_test_agrees() -> None:
    program = trace(lambda x, W: op.rms_norm(x) @ W, x=(2048, 2048), W=(2048, 2048))
    verdict = verify(program, trace(lambda x, W: op.rms_norm(1 * x) @ W, x=(2048, 2048), W=(2048, 2048)))
    assert (verdict.kind, verdict.tests) == ("equal", 1)
    assert "; 1 random test agrees as well" in verdict.describe()


@pytest.mark.parametrize("name", DIFFERENT)
def test_false_identities_are_different_with_a_witness_that_holds(name: str) -> None:
    left, right, names = DIFFERENT[name]
    verdict = judge(left, right, names)
    assert verdict.kind == "different", verdict.describe()
    w = verdict.witness
    assert w is not None
    assert w.left != w.right
    if tuple(x.shape for x in w.inputs) == tuple(S[n] for n in names.split()):
        shapes = {n: S[n] for n in names.split()}
        for fn, value in ((left, w.left), (right, w.right)):
            got = evaluate(trace(fn, dtype="float16", **shapes), w.inputs)[w.output][w.index]
            assert got == pytest.approx(value, rel=1e-9)


def test_a_at_b_against_b_at_a() -> None:
    def square(fn: Program) -> KernelGraph:
        return trace(fn, A=(4, 4), B=(4, 4))

    assert verify(square(lambda A, B: A @ B), square(lambda A, B: B @ A)).kind == "different"
    both = verify(square(lambda A, B: (A @ B, B @ A)), square(lambda A, B: (B @ A, A @ B)))
    assert both.kind == "different"


def test_an_index_shifted_by_the_period_of_mirages_input_is_seen() -> None:
    n, shift = 3 * 13861, 13861

    def shifted(x: Value) -> Value:
        first, rest = x.builder.apply_all("split", x, parts=(shift, n - shift), axis=-1)
        return op.concat(rest, first)

    verdict = verify(trace(lambda x: 1 * x, x=(n,)), trace(shifted, x=(n,)), shapes="true")
    assert verdict.kind == "different"


def lora_concatenated() -> KernelGraph:
    return trace(
        lambda X, W, A, B: op.concat(X, X @ A) @ op.concat(W, B, axis=0), X=(3, 6), W=(6, 5), A=(6, 2), B=(2, 5)
    )


def test_lora_concatenation() -> None:
    plain = trace(lambda X, W, A, B: X @ W + X @ A @ B, X=(3, 6), W=(6, 5), A=(6, 2), B=(2, 5))
    assert verify(plain, lora_concatenated()).kind == "equal"


def loop_matmul(loop: int, skip: bool) -> KernelGraph:
    k = KernelBuilder()
    X, W = k.input("X", (3, 12)), k.input("W", (12, 5))
    b = k.block(X, W, loop=loop)
    x, w = b.load(X, fmap=1), b.load(W, fmap=0)
    total = b.accumulate(x @ w)
    b.save(total * (loop - 1) / loop if skip else total)
    k.output(*b.finish())
    return k.build()


def test_off_by_one_loop() -> None:
    program = trace(lambda X, W: X @ W, X=(3, 12), W=(12, 5))
    assert verify(program, loop_matmul(4, skip=False)).kind == "equal"
    assert verify(program, loop_matmul(4, skip=True)).kind == "different"


@pytest.mark.parametrize("name", ["rms_norm_linear", "gated_mlp", "lora", "gqa", "qk_norm_attention", "ntrans",
                                  "attention_safe", "softmax"])  # fmt: skip
def test_known_good_graphs_of_small_programs(name: str) -> None:
    sizes = {parameter.name: min(parameter.default, 12) for parameter in programs.parameters(name)}
    program = programs.get(name, "standard", "float16", **sizes)
    for graph in programs.known_good(name, "standard", "float16", **sizes):
        verdict = verify(program, graph)
        assert verdict.kind == "equal", verdict.describe()
        assert verdict.proved or (verdict.error_bound or 1) <= 1e-9


def test_online_softmax_with_a_running_maximum() -> None:
    safe = programs.known_good("attention_safe", "standard", "float16", context=12, rows=4, head_dim=5)
    program = programs.get("attention_safe", "standard", "float16", context=12, rows=4, head_dim=5)
    assert [verify(program, graph).kind for graph in safe] == ["equal"] * len(safe)


def test_same_seed_gives_the_same_verdict_and_errors_are_said() -> None:
    left, right, names = EQUAL["division moved past a product"]
    first, again = (judge(left, right, names) for _ in range(2))
    assert (first.tests, first.error_bound, first.shapes_tested) == (
        again.tests,
        again.error_bound,
        again.shapes_tested,
    )
    program = trace(lambda x: 1 * x, x=(3,))
    with pytest.raises(UsageError, match="take different inputs"):
        verify(program, trace(lambda x: 1 * x, x=(4,)))
    with pytest.raises(UsageError, match="between 0 and 1"):
        verify(program, program, error=0.0)
    outputs = verify(program, trace(lambda x: op.sum(x), x=(3,)))
    assert outputs.kind == "different"
    assert "outputs differ" in outputs.reason


def test_a_bound_that_cannot_be_reached_is_said() -> None:
    shapes = {"A": (30, 40), "B": (40, 50), "C": (40, 50)}
    left, right = (
        trace(lambda A, B, C: A @ B + A @ C, dtype="float16", **shapes),
        trace(lambda A, B, C: A @ (B + C), dtype="float16", **shapes),
    )
    far = verify(left, right, pair="exercise", error=1e-200)
    assert far.error_bound is not None
    assert far.error_bound > 1e-200
    assert "is not reached" in far.reason
    assert verify(left, right, error=1e-200).error_bound <= 1e-200  # type: ignore[operator]


def test_verdicts_print_their_number() -> None:
    left, right, names = EQUAL["exp of a sum"]
    verdict = judge(left, right, names)
    assert np.isfinite(verdict.error_bound or 0)
    assert "error bound" in verdict.describe() or "proved" in verdict.describe()
    assert verdict.to_json()["verdict"] == "equal"


def test_a_constant_that_mixes_a_size_with_a_number_is_judged_at_true_shapes() -> None:
    def rms(fn: Program) -> KernelGraph:
        return trace(fn, X=(40, 1024))

    program = rms(lambda X: X / op.sqrt(op.mean(op.square(X)) + 1e-2))
    same = rms(lambda X: 32 * X / op.sqrt(op.sum(op.square(X)) + 10.24))
    other = rms(lambda X: 32 * X / op.sqrt(op.sum(op.square(X)) + 10.25))
    assert verify(program, same).kind == "equal"
    assert verify(program, other).kind == "different"


def test_axes_that_happen_to_be_equally_long_are_judged_at_true_shapes() -> None:
    def square(fn: Program, n: int) -> KernelGraph:
        return trace(fn, X=(32, n))

    def left(X: Value) -> Value:
        return op.mean(X) * op.sum(X, axis=0)

    def right(X: Value) -> Value:
        return op.sum(X) * op.mean(X, axis=0)

    assert verify(square(left, 32), square(right, 32)).kind == "equal"
    assert verify(square(left, 31), square(right, 31)).kind == "different"


@pytest.mark.parametrize("name", ["rms_norm_linear", "gqa_decode", "qk_norm_attention", "attention_safe", "ntrans"])
def test_known_good_graphs_are_proved_at_true_shapes(name: str) -> None:
    program = programs.get(name)
    for graph in programs.known_good(name):
        verdict = verify(program, graph)
        assert verdict.kind == "equal"
        assert verdict.proved
        assert verdict.error_bound == 0.0
        assert verdict.tests >= 1
        assert any(not one.reduced and one.exact for one in verdict.shapes_tested)


def test_constants_that_differ_in_the_last_digit_of_a_float_are_told_apart() -> None:
    left = trace(lambda X: op.exp(X) * (0.1 + 0.2), X=(2, 3))
    verdict = verify(left, trace(lambda X: op.exp(X) * 0.3, X=(2, 3)))
    assert verdict.kind == "different"
    assert verdict.witness is not None
    assert verdict.witness.gap == pytest.approx(4e-17 * np.exp(verdict.witness.inputs[0][0, 0]), rel=1e-6)
    assert "apart" in verdict.witness.describe()


def rooted_square(x: Value, y: Value) -> Value:
    """Return |x + y|, not written as one."""
    return op.sqrt(op.square(x) + 2 * (x * y) + op.square(y))


def test_roots_that_are_not_independent_are_not_looked_at_with_another_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[str]()

    def told(program: KernelGraph, candidate: KernelGraph, pair: FieldPair) -> Bound:
        seen.append(pair.name)
        return bound_per_test(program, candidate, pair)

    monkeypatch.setattr(sys.modules[verify.__module__], "bound_per_test", told)
    verdict = judge(
        lambda x, y: rooted_square(x, y) + (x + y) * y, lambda x, y: rooted_square(x, y) + x * y + y * y, "x y"
    )
    assert verdict.proved  # by exact form: no bound is needed
    assert seen
    assert set(seen) == {"w31"}
    seen.clear()
    numbered = judge(
        lambda x, y: op.sqrt(0 * x + 29) + (x + y) * y, lambda x, y: op.sqrt(0 * x + 29) + x * y + y * y, "x y"
    )
    assert numbered.kind == "equal"
    assert "w61" in seen  # a reason that is one of the primes


def test_a_proof_is_not_kept_waiting_for_a_point_at_which_many_roots_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows' roots share W: they exist together at one point in 2^11, and a proof needs none."""
    rounds = list[int]()

    def counted(self: Sampler, faulty: object, points: object) -> int:
        rounds.append(1)
        return redraw(self, faulty, points)  # type: ignore[arg-type]

    redraw = Sampler._redraw
    monkeypatch.setattr(Sampler, "_redraw", counted)
    left = trace(lambda x, w, r: op.rms_norm(x @ w + r), x=(11, 8), w=(8, 6), r=(11, 6))
    right = trace(lambda x, w, r: op.rms_norm(r + x @ w), x=(11, 8), w=(8, 6), r=(11, 6))
    verdict = verify(left, right)
    assert verdict.proved
    assert 0 < len(rounds) <= 3 * MIN_ROUNDS  # two reduced instances, true shapes


def test_the_largest_of_a_row_that_ends_early_is_not_proved_that_of_a_longer_row() -> None:
    """Random inputs seldom show it: the 36th of 36 numbers is rarely the largest."""

    def largest_of_first(columns: int) -> KernelGraph:
        kernel = KernelBuilder("first")
        part = op.split(kernel.input("X", (1, 1260), "float32"), 1260 // columns, axis=-1)[0]
        block = kernel.block(part, loop=6)
        block.save(block.accumulate(block.load(part, fmap=1), "max_dim"))
        kernel.output(*block.finish())
        return kernel.build()

    assert verify(largest_of_first(35), largest_of_first(36)).kind == "different"


@pytest.mark.parametrize(
    "nowhere",
    [
        lambda x, y: y + x / (x - x),
        lambda x, y: y * op.exp(x / (x - x)),
        lambda x, y: y + 3 + op.square(op.sqrt(0 * x - 3)),
        lambda x, y: y + op.square(op.sqrt(0 - op.square(x) - 1)) + op.square(x) + 1,
    ],
    ids=["quotient", "exponential", "root of a number", "root"],
)
def test_what_has_no_value_anywhere_is_equal_to_nothing(nowhere: Program) -> None:
    """Where forms cancel, nothing is left to be proved different: a proof "wherever both have values" would be empty."""
    for left, right in ((lambda x, y: y, nowhere), (nowhere, lambda x, y: y)):
        assert judge(left, right, "x y").kind != "equal"


def test_a_proof_at_a_reduced_instance_is_looked_at_at_true_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four columns cut into three parts of two leave the last without any; a reduced instance cuts evenly."""
    monkeypatch.setattr(sys.modules[verify.__module__], "run_tests", partial(run_tests, seconds=0.0))

    def parts(columns: int, loop: int, folded: Callable[[BlockBuilder, Value], Value]) -> KernelGraph:
        kernel = KernelBuilder("parts")
        x = kernel.input("X", (2, 12), "float32")
        part = x if columns == 12 else op.split(x, 12 // columns, axis=-1)[0]
        block = kernel.block(part, grid=(3,), loop=loop)
        block.save(folded(block, block.load(part, imap=(1,), fmap=1)), omap=(1,))
        kernel.output(op.exp(2 * block.finish()[0]))
        return kernel.build()

    def largest_rest(block: BlockBuilder, tile: Value) -> Value:
        rest = block.accumulate(op.max(tile) - tile, "max_dim")
        _ = rest / rest  # of no use, and without a value: no point is found at which the programs could be tested
        return rest

    left, right = parts(4, 3, largest_rest), parts(12, 2, lambda block, tile: block.accumulate(tile - tile, "mean"))
    inputs = [np.random.default_rng(0).normal(size=(2, 12))]
    assert evaluate(left, inputs)[0][0, 2] == 0
    assert evaluate(right, inputs)[0][0, 2] == 1
    assert verify(left, right).kind == "different"
