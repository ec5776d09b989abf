from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.domains.finite_field import FieldArithmetic, field_pair, random_elements
from workbench.errors import OutsideLaxError
from workbench.interpret.field import FieldDomain, FieldPoint, evaluate_in_field
from workbench.ugraph import value as op
from workbench.ugraph.builder import KernelBuilder


def arithmetic(name: Any = "w31", seed: Any = 0) -> Any:
    pair = field_pair(name)
    return FieldArithmetic(pair, pair.random_omega(np.random.default_rng(seed)))


def points(graph: Any, pair: Any, seed: Any = 0, real: Any = False) -> Any:
    rng = np.random.default_rng(seed)
    return [
        FieldPoint(random_elements(rng, t.shape, pair), rng.standard_normal(t.shape) if real else None)
        for t in graph.inputs
    ]


def agree(a: Any, b: Any, name: Any = "w31", seed: Any = 0, real: Any = False, squares: Any = False) -> Any:
    """Return the share of elements that agree (on p) at one random point; elements with faults left out."""
    f = arithmetic(name, seed)
    inputs = points(a, f.pair, seed, real)
    left = evaluate_in_field(a, inputs, FieldDomain(f, seed=seed))
    right = evaluate_in_field(b, inputs, FieldDomain(f, seed=seed))
    return min(float(1 - f.differs(x.residues, y.residues).mean()) for x, y in zip(left, right, strict=True))


def program(fn: Any, **shapes: Any) -> Any:
    k = KernelBuilder()
    out = fn(**{name: k.input(name, shape) for name, shape in shapes.items()})
    k.output(*(out if isinstance(out, tuple) else (out,)))
    return k.build()


def attention(g: Any = 2, rows: Any = 3, d: Any = 5, ctx: Any = 12) -> Any:
    def fn(Q: Any, K: Any, V: Any) -> Any:
        e = op.exp(Q @ K)
        return (e @ V) / op.sum(e)

    return program(fn, Q=(g, rows, d), K=(g, d, ctx), V=(g, ctx, d))


def split_attention(g: Any = 2, rows: Any = 3, d: Any = 5, ctx: Any = 12, splits: Any = 3, loop: Any = 2) -> Any:
    k = KernelBuilder()
    Q, K, V = k.input("Q", (g, rows, d)), k.input("K", (g, d, ctx)), k.input("V", (g, ctx, d))
    b = k.block(Q, K, V, grid=(g, splits), loop=loop)
    q, kk, v = b.load(Q, imap=(0,)), b.load(K, imap=(0, 2), fmap=2), b.load(V, imap=(0, 1), fmap=1)
    e = op.exp(q @ kk)
    b.save(b.accumulate(e @ v), omap=(0, 2))
    b.save(b.accumulate(e, "sum_dim"), omap=(0, 2))
    o, s = b.finish()
    c = k.block(o, s, grid=(g,), loop=1)
    total = c.accumulate(c.load(o, imap=(0,)), "sum_to_columns", columns=d)
    c.save(total / c.accumulate(c.load(s, imap=(0,)), "sum_dim"), omap=(0,))
    k.output(*c.finish())
    return k.build()


def halves(on_blocks: bool) -> Any:
    """Return the program that exchanges the halves of each row, computed on its whole input or by two blocks."""

    def exchanged(X: Any) -> Any:
        left, right = op.split(X, 2, axis=-1)
        return op.concat(right, left, axis=-1)

    if not on_blocks:
        return program(exchanged, X=(4, 6))
    k = KernelBuilder()
    b = k.block(k.input("X", (4, 6)), grid=(2,), loop=1)
    b.save(exchanged(b.load(0, imap=(0,))), omap=(0,))
    k.output(*b.finish())
    return k.build()


@pytest.mark.parametrize("on_blocks", [False, True])
def test_every_part_of_a_split_is_its_own(on_blocks: Any) -> None:
    graph, f = halves(on_blocks), arithmetic()
    (x,) = points(graph, f.pair, real=True)
    (out,) = evaluate_in_field(graph, [x], FieldDomain(f))
    assert x.real is not None
    assert out.real is not None
    for found, given in ((out.residues.p, x.residues.p), (out.residues.q, x.residues.q), (out.real, x.real)):
        np.testing.assert_array_equal(found, np.concatenate([given[:, 3:], given[:, :3]], axis=1))


@pytest.mark.parametrize("name", ["w20", "w31", "w61"])
def test_split_attention_equals_attention_in_every_working_pair(name: Any) -> None:
    assert agree(attention(), split_attention(), name) == 1.0


def test_ragged_split_attention_equals_attention() -> None:
    assert agree(attention(ctx=13), split_attention(ctx=13, splits=3, loop=2)) == 1.0


def test_wrong_merge_is_seen() -> None:
    def unnormalised(Q: Any, K: Any, V: Any) -> Any:
        return op.softmax(Q @ K) @ V + op.softmax(Q @ K) @ V

    wrong = program(unnormalised, Q=(2, 3, 5), K=(2, 5, 12), V=(2, 12, 5))
    assert agree(attention(), wrong) < 0.01


def test_second_exp_is_opaque_and_equal_to_itself_only() -> None:
    twice = program(lambda X: op.exp(op.exp(X)), X=(3, 4))
    f = arithmetic()
    domain = FieldDomain(f, seed=3)
    inputs = points(twice, f.pair)
    (first,) = evaluate_in_field(twice, inputs, domain)
    assert domain.trace.opaque == ["exp"]
    (again,) = evaluate_in_field(twice, inputs, FieldDomain(f, seed=3))
    assert not f.differs(first.residues, again.residues).any()
    other = program(lambda X: op.exp(op.exp(X * 2)), X=(3, 4))
    (third,) = evaluate_in_field(other, inputs, FieldDomain(f, seed=3))
    assert f.differs(first.residues, third.residues).all()


def test_piecewise_identities_hold_in_the_cell_of_the_float_coordinate() -> None:
    left = program(lambda X: op.relu(X) - op.relu(-X), X=(30,))
    right = program(lambda X: X * 1, X=(30,))
    assert agree(left, right, real=True) == 1.0
    wrong = program(lambda X, Y: op.relu(X + Y), X=(30,), Y=(30,))
    sums = program(lambda X, Y: op.relu(X) + op.relu(Y), X=(30,), Y=(30,))
    assert agree(wrong, sums, real=True) < 1.0
    with pytest.raises(OutsideLaxError, match="no float coordinate"):
        agree(left, right)


def test_maximum_over_an_axis_and_running_maximum() -> None:
    safe = program(lambda X: op.exp(X - op.max(X)) / op.sum(op.exp(X - op.max(X))), X=(4, 6))
    plain = program(lambda X: op.exp(X) / op.sum(op.exp(X)), X=(4, 6))
    assert agree(safe, plain, real=True) == 1.0


def test_composites_equal_their_hand_expansion() -> None:
    silu = program(lambda X: op.silu(X), X=(5, 5))
    hand = program(lambda X: X / (1 + op.exp(-X)), X=(5, 5))
    assert agree(silu, hand) == 1.0
    softmax = program(lambda X: op.softmax(X), X=(5, 5))
    assert agree(softmax, program(lambda X: op.exp(X) / op.sum(op.exp(X)), X=(5, 5))) == 1.0
