"""Good µGraphs of attention: keys in the loop, keys split over blocks with a combining kernel, and the safe forms.

Invariant: the division by the softmax sum comes after the last product, so keys may be summed in any grouping.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from workbench.programs.record import Instance
from workbench.programs.tiling import MULTIPROCESSORS, Tiles, fitted
from workbench.ugraph import value
from workbench.ugraph.builder import BlockBuilder, KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.rule_blocks import parts
from workbench.ugraph.value import Value, exp, rms, sum_to_columns

Operands = tuple[Value, Value, Value]
Prepare = Callable[[Operands], Operands]
Weigh = Callable[[BlockBuilder, Value, Value], Value]
"""Block, tiles of Q and K -> the softmax weights before their division, exp of the logits."""

_START = Tiles(rows=64, columns=1, depth=64)
KEYS_A_SPLIT = 256
"""Keys of a split at least: fewer cost more to combine than they gain."""

KEYS_A_BLOCK = 64
"""Keys whose norms one block computes."""


def known_good(instance: Instance, prepare: Prepare) -> list[KernelGraph]:
    """Return one kernel over all keys, and keys split over blocks with a combining kernel; the better for the sizes first.

    prepare: what happens to the tiles of Q, K and V before the attention (norms, or nothing).
    """
    splits, start, threads = key_splits(instance), start_tiles(instance), block_threads(instance)
    one = fitted(lambda tiles: _one_kernel(instance, tiles, prepare, threads=threads), start)
    if instance["context"] == 1:
        return [one]
    split = fitted(lambda tiles: split_kernels(instance, tiles, max(splits, 2), prepare, threads=threads), start)
    return [split, one] if splits > 1 else [one, split]


def known_good_normalised(instance: Instance, prepare: Prepare, eps: Fraction) -> list[KernelGraph]:
    """Return graphs in which the norms of Q and K, numbers per row and per column of the logits, come after Q @ K.

    So neither operand is rounded a second time. First all blocks compute the norms of K that they need, then a kernel of
    its own computes them once; then the graphs of `known_good`, which normalise as `prepare` has it.
    """
    splits, start, threads = key_splits(instance), start_tiles(instance), block_threads(instance)
    weigh = weigh_normalised(eps)
    graphs = []
    if splits > 1:
        graphs.append(
            fitted(lambda tiles: split_kernels(instance, tiles, splits, lambda o: o, weigh, threads=threads), start)
        )
    graphs += [
        fitted(lambda tiles: _norms_first(instance, tiles, splits, eps, threads=threads), start),
        fitted(lambda tiles: _one_kernel(instance, tiles, lambda o: o, weigh, threads=threads), start),
    ]
    return [*graphs, *known_good(instance, prepare)]


def weigh_normalised(eps: Fraction) -> Weigh:
    """Return exp((Q @ K) * (1 / rms(K)) / rms(Q)): the norms of both divided out after the product."""
    return lambda block, q, k: exp((q @ k) * (1 / rms(k, axis=-2, eps=eps)) / rms(q, eps=eps))


def known_good_safe(instance: Instance) -> list[KernelGraph]:
    """Return row maximum then attention in two kernels, and the online form with a running maximum in one."""
    return [
        fitted(lambda tiles: _maximum_first(instance, tiles), _START),
        fitted(lambda tiles: _online(instance, tiles), _START),
    ]


def start_tiles(instance: Instance) -> Tiles:
    """Return the tiles to begin with: 128 query rows where those still fill the GPU twice, so that keys are read less often."""
    blocks = instance.extent("batch*heads") * parts(instance["rows"], 2 * _START.rows)
    is_plenty = blocks * (instance["context"] // KEYS_A_SPLIT) >= 2 * MULTIPROCESSORS
    if instance["rows"] >= 2 * _START.rows and is_plenty:
        return Tiles(rows=2 * _START.rows, columns=_START.columns, depth=_START.depth)
    return _START


def block_threads(instance: Instance) -> int:
    """Return the threads of a block: a warp for 16 query rows, and at least four warps."""
    return 2 * start_tiles(instance).rows


def key_splits(instance: Instance) -> int:
    """Return over how many blocks the keys of a group are split: enough to fill the GPU, at least 256 keys each.

    Two blocks a multiprocessor where there are rows enough to keep tensor cores busy, one where memory is the bound.
    """
    blocks = instance.extent("batch*heads") * parts(instance["rows"], start_tiles(instance).rows)
    most = MULTIPROCESSORS * (2 if instance["rows"] >= _START.rows else 1)
    splits = 1
    while blocks * splits * 2 <= most and instance["context"] >= splits * 2 * KEYS_A_SPLIT:
        splits *= 2
    return splits


def _grid(instance: Instance, tiles: Tiles) -> tuple[int, int]:
    return instance.extent("batch*heads"), parts(instance["rows"], tiles.rows)


def _load(block: BlockBuilder, inputs: Operands) -> Operands:
    """Load Q by group and rows; K and V by group and by split (grid z, where there is one), their keys in the loop."""
    q, k, v = inputs
    return (
        block.load(q, imap=(0, 1)),
        block.load(k, imap=(0, None, 2), fmap=2),
        block.load(v, imap=(0, None, 1), fmap=1),
    )


def _plain_weights(block: BlockBuilder, q: Value, k: Value) -> Value:
    return exp(q @ k)


def _one_kernel(
    instance: Instance,
    tiles: Tiles,
    prepare: Prepare,
    weigh: Weigh = _plain_weights,
    *,
    threads: int = 128,
    cluster: int = 1,
) -> KernelGraph:
    kernel, (q, k, v) = instance.start()
    block = kernel.block(
        q, k, v, grid=_grid(instance, tiles), loop=parts(instance["context"], tiles.depth), threads=(threads,),
        cluster=(cluster,),
    )  # fmt: skip
    q_tile, k_tile, v_tile = prepare(_load(block, (q, k, v)))
    weights = weigh(block, q_tile, k_tile)
    block.save(block.accumulate(weights @ v_tile) / block.accumulate(weights, "sum_dim"), omap=(0, 1))
    block.finish(name="attention")
    return instance.finish(kernel)


def split_kernels(
    instance: Instance,
    tiles: Tiles,
    splits: int,
    prepare: Prepare,
    weigh: Weigh = _plain_weights,
    *,
    threads: int = 128,
    cluster: int = 1,
) -> KernelGraph:
    """Build Flash-Decoding without rescaling: partial products and sums per split of the keys, then their combination.

    The partial products of the splits lie side by side, (groups, rows, splits * head_dim); summing them to head_dim
    columns in strides of head_dim adds up the splits.
    """
    kernel, (q, k, v) = instance.start()
    share = -(-instance["context"] // splits)
    splits = parts(instance["context"], share)
    block = kernel.block(
        q, k, v, grid=(*_grid(instance, tiles), splits), loop=parts(share, tiles.depth), threads=(threads,),
        cluster=(cluster,),
    )  # fmt: skip
    q_tile, k_tile, v_tile = prepare(_load(block, (q, k, v)))
    _save_split(block, weigh(block, q_tile, k_tile), v_tile)
    _combine(kernel, instance, _finish_split(block))
    return instance.finish(kernel)


def _save_split(block: BlockBuilder, weights: Value, v: Value) -> None:
    block.save(block.accumulate(weights @ v), omap=(0, 1, 2))
    block.save(block.accumulate(weights, "sum_dim"), omap=(0, 1, 2))


def _finish_split(block: BlockBuilder) -> tuple[Value, ...]:
    return block.finish(
        names=["split_products", "split_sums"], dtypes=["float32", "float32"], name="attention_of_split"
    )


def _norms_first(
    instance: Instance,
    tiles: Tiles,
    splits: int,
    eps: Fraction,
    *,
    threads: int = 128,
    cluster: int = 1,
) -> KernelGraph:
    """Build one over the norm of every key in a first kernel, then attention whose logits it scales, split or not."""
    kernel, (q, k, v) = instance.start()
    context = instance["context"]
    block = kernel.block(k, grid=(k.shape[0], parts(context, KEYS_A_BLOCK)))
    block.save(1 / rms(block.load(k, imap=(0, 2)), axis=-2, eps=eps), omap=(0, 2))
    (norms,) = block.finish(names=["k_inverse_norms"], dtypes=["float32"], name="norms_of_keys")

    share = -(-context // splits)
    splits = parts(context, share)
    grid = (*_grid(instance, tiles), splits) if splits > 1 else _grid(instance, tiles)
    block = kernel.block(
        q, k, v, norms, grid=grid, loop=parts(share, tiles.depth), threads=(threads,), cluster=(cluster,)
    )
    q_tile, k_tile, v_tile = _load(block, (q, k, v))
    scaled = (q_tile @ k_tile) * block.load(norms, imap=(0, None, 2), fmap=2)
    weights = exp(scaled / rms(q_tile, eps=eps))
    if splits > 1:
        _save_split(block, weights, v_tile)
        _combine(kernel, instance, _finish_split(block))
    else:
        block.save(block.accumulate(weights @ v_tile) / block.accumulate(weights, "sum_dim"), omap=(0, 1))
        block.finish(name="attention")
    return instance.finish(kernel)


def _combine(kernel: KernelBuilder, instance: Instance, partial: tuple[Value, ...]) -> None:
    """Add the kernel that sums products and weights over the splits and divides; few rows a block fill the GPU."""
    products, sums = partial
    row_bytes = 4 * (products.shape[-1] + sums.shape[-1] + 2 * instance["head_dim"] + 1)
    busy = products.shape[0] * instance["rows"] // (2 * MULTIPROCESSORS)
    rows = max(1, min(16, busy, 128 * 1024 // row_bytes))
    block = kernel.block(products, sums, grid=(products.shape[0], parts(instance["rows"], rows)))
    product, total = block.load(products, imap=(0, 1)), block.load(sums, imap=(0, 1))
    block.save(sum_to_columns(product, instance["head_dim"]) / value.sum(total), omap=(0, 1))
    block.finish(name="combination")


def _maximum_first(instance: Instance, tiles: Tiles) -> KernelGraph:
    """Build the largest logit of each row in one kernel, and attention with it subtracted in a second."""
    kernel, (q, k, v) = instance.start()
    grid, loop = _grid(instance, tiles), parts(instance["context"], tiles.depth)
    block = kernel.block(q, k, grid=grid, loop=loop)
    logits = block.load(q, imap=(0, 1)) @ block.load(k, imap=(0,), fmap=2)
    block.save(block.accumulate(logits, "max_dim"), omap=(0, 1))
    (largest,) = block.finish(names=["row_maxima"], dtypes=["float32"], name="row_maxima")

    block = kernel.block(q, k, v, largest, grid=grid, loop=loop)
    q_tile, k_tile, v_tile = _load(block, (q, k, v))
    weights = exp(q_tile @ k_tile - block.load(largest, imap=(0, 1)))
    block.save(block.accumulate(weights @ v_tile) / block.accumulate(weights, "sum_dim"), omap=(0, 1))
    block.finish(name="attention")
    return instance.finish(kernel)


def _online(instance: Instance, tiles: Tiles) -> KernelGraph:
    """Build FlashAttention: a running maximum, what was accumulated before rescaled when it grows."""
    kernel, (q, k, v) = instance.start()
    block = kernel.block(q, k, v, grid=_grid(instance, tiles), loop=parts(instance["context"], tiles.depth))
    q_tile, k_tile, v_tile = _load(block, (q, k, v))
    logits = q_tile @ k_tile
    largest, shift = block.running_max(logits)
    weights, rescale = exp(logits - largest), exp(shift)
    product = block.accumulate(weights @ v_tile, "rescale", rescale=rescale)
    block.save(product / block.accumulate(value.sum(weights), "rescale", rescale=rescale), omap=(0, 1))
    block.finish(name="attention")
    return instance.finish(kernel)
