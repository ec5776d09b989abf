from __future__ import annotations

import numpy as np
import pytest

from workbench.domains.field_pairs import FieldPair, field_pair
from workbench.domains.finite_field import FieldArithmetic
from workbench.errors import NotApplicableError
from workbench.interpret.field import FieldDomain, evaluate_in_field
from workbench.ugraph import value as op
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.tracing import trace
from workbench.verify.probabilistic import first_mismatch, run_tests
from workbench.verify.sampling import MIN_ROUNDS, MOST_TOGETHER, Sampler, features, root_part


def arithmetic(name: str = "w31", seed: int = 0) -> FieldArithmetic:
    pair = field_pair(name)
    return FieldArithmetic(pair, pair.random_omega(np.random.default_rng(seed)))


def rms_program(rows: int = 16) -> KernelGraph:
    return trace(lambda X, W: op.rms_norm(X) @ W, X=(rows, 8), W=(8, 4))


def rms_block(rows: int = 16) -> KernelGraph:
    k = KernelBuilder()
    X, W = k.input("X", (rows, 8)), k.input("W", (8, 4))
    b = k.block(X, W, grid=(2, 2), loop=2)
    x, w = b.load(X, imap=(0,), fmap=1), b.load(W, imap=(None, 1), fmap=0)
    b.save(b.accumulate(x @ w) / b.accumulate(x, "rms", eps=1e-6), omap=(0, 1))
    k.output(*b.finish())
    return k.build()


@pytest.mark.parametrize("name", ["w20", "w31", "w61"])
def test_every_root_has_a_square_and_the_root_squared_is_the_radicand(name: str) -> None:
    f = arithmetic(name)
    rows = 40  # 2^-40 by luck alone, and again modulo q
    draw = Sampler((rms_program(rows), rms_block(rows)), f, np.random.default_rng(1)).draw(5)
    assert draw.resampled >= rows / 2
    radicand = trace(lambda X, W: op.mean(op.square(X)) + 1e-6, X=(rows, 8), W=(8, 4))
    (value,) = evaluate_in_field(radicand, draw.points, FieldDomain(f))
    root = f.sqrt(value.residues)
    assert not f.take_faults()
    assert not f.differs(f.mul(root, root), value.residues).any()
    assert first_mismatch(draw, f) is None


def test_roots_inside_block_graphs_alone_are_settled_too() -> None:
    f = arithmetic()
    draw = Sampler((rms_block(40),), f, np.random.default_rng(2)).draw(0)
    assert not draw.traces[0].faults


def test_zero_denominators_are_drawn_again_and_counted() -> None:
    pair = FieldPair(11, 5, omega=4)
    f = FieldArithmetic(pair, 4)
    graph = trace(lambda X, Y: X / Y, X=(50, 3), Y=(50, 3))
    draw = Sampler((graph,), f, np.random.default_rng(0)).draw(0)
    assert draw.resampled > 10  # 150 elements, one in 11 and one in 5 are zero
    assert not (draw.points[1].residues.p == 0).any()
    assert draw.points[1].residues.q is not None
    assert not (draw.points[1].residues.q == 0).any()


def test_a_quotient_that_never_exists_is_said() -> None:
    f = arithmetic()
    graph = trace(lambda X: X / (X - X), X=(2, 3))
    with pytest.raises(NotApplicableError, match=f"in {MIN_ROUNDS} rounds .* zero denominator"):
        Sampler((graph,), f, np.random.default_rng(0), seconds=0.0).draw(0)
    with pytest.raises(NotApplicableError, match="zero denominator") as late:
        Sampler((graph,), f, np.random.default_rng(0), seconds=0.3).draw(0)
    assert f"in {MIN_ROUNDS} rounds" not in str(late.value)


def test_features_look_into_composites_sugar_and_blocks() -> None:
    assert features(rms_program()) == features(rms_block())
    assert features(rms_program()).root
    assert not features(rms_program()).exponential
    assert features(trace(lambda X: op.silu(X), X=(2,))).exponential
    assert features(trace(lambda X: op.max(X), X=(2,))).piecewise
    assert root_part(trace(lambda X: op.exp(X), X=(2,))) is None


def test_root_part_computes_the_roots_and_nothing_else() -> None:
    part = root_part(rms_program())
    assert part is not None
    x = np.random.default_rng(0).standard_normal((16, 8))
    from workbench.interpret import evaluate

    (root,) = evaluate(part, [x, np.zeros((8, 4))])
    np.testing.assert_allclose(root, np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6), rtol=1e-12)


def test_equal_programs_pass_and_others_fail_at_once() -> None:
    rng = np.random.default_rng(0)
    assert run_tests(rms_program(), rms_block(), field_pair("w31"), 3, rng).passed == 3
    wrong = trace(lambda X, W: op.rms_norm(X, eps=2e-6) @ W, X=(16, 8), W=(8, 4))
    found = run_tests(rms_program(), wrong, field_pair("w31"), 3, rng)
    assert found.passed == 0
    assert found.mismatch is not None
    assert found.mismatch.left != found.mismatch.right


def test_same_seed_same_points() -> None:
    draws = [
        Sampler((rms_program(),), arithmetic(), np.random.default_rng(9)).draw(1).points[0].residues.p for _ in range(2)
    ]
    np.testing.assert_array_equal(draws[0], draws[1])


def shared(rows: int) -> KernelGraph:
    """Return the norms of rows that share a factor, so that all their roots must exist at once."""
    return trace(lambda X, W: op.rms_norm(X @ W, eps=0), X=(rows, 3), W=(3, 2))


def test_roots_that_hardly_exist_together_are_not_looked_for() -> None:
    f, rows = arithmetic(), MOST_TOGETHER + 1
    sampler = Sampler((shared(rows),), f, np.random.default_rng(0))
    with pytest.raises(NotApplicableError, match=rf"{rows} roots share inputs: .* one point in 2\^{rows}"):
        sampler.draw(0)
    few = Sampler((shared(5),), f, np.random.default_rng(0), seconds=60.0).draw(0)
    assert few.resampled > 0
    apart = trace(lambda X: op.rms_norm(X, eps=0), X=(4 * MOST_TOGETHER, 3))  # each row by itself
    assert Sampler((apart,), f, np.random.default_rng(0), seconds=60.0).draw(0).resampled > 0
