"""The nodes of µGraphs: a closed union per level. Invariant: a node names its operands and owns its result tensors.

A predefined operator is one `OpNode` at all three levels; what only block graphs have (input iterators, accumulators,
the running maximum, output savers, thread-graph nodes) are node classes of their own (STYLE 2.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from operator import index
from typing import TYPE_CHECKING, SupportsIndex

from workbench.core.tensors import DeviceTensor, RegisterTensor, SharedTensor
from workbench.errors import ImapError, LegalityError
from workbench.ops.registry import operator
from workbench.ops.spec import AttributeValue, OpSpec

if TYPE_CHECKING:
    from workbench.ugraph.block_graph import BlockGraph
    from workbench.ugraph.thread_graph import ThreadGraph

Tensor = DeviceTensor | SharedTensor | RegisterTensor
DimMap = tuple[int | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class OpNode:
    """A predefined operator. Attributes are sorted pairs, so that equal nodes compare equal and hash."""

    op: str
    operands: tuple[str, ...]
    results: tuple[Tensor, ...]
    attributes: tuple[tuple[str, AttributeValue], ...] = ()

    @property
    def spec(self) -> OpSpec:
        """The operator's record."""
        return operator(self.op)

    @property
    def attribute_map(self) -> dict[str, AttributeValue]:
        """The attributes by name."""
        return dict(self.attributes)


@dataclass(frozen=True, slots=True)
class GraphDefinedNode:
    """A graph-defined kernel operator: its behaviour is its block graph's (paper, section 2.1)."""

    block: BlockGraph
    operands: tuple[str, ...]
    results: tuple[DeviceTensor, ...]
    name: str = ""


KernelNode = OpNode | GraphDefinedNode


@dataclass(frozen=True, slots=True)
class InputIterator:
    """Brings a tile of a kernel tensor into shared memory, once per iteration (once if `fmap` is None).

    Attributes: operand: position among the graph-defined operator's operands; imap: per grid axis x, y, z the data
    dimension it splits, or None (replica); fmap: the data dimension that the loop splits, or None (replica).
    """

    operand: int
    imap: DimMap
    fmap: int | None
    result: SharedTensor

    @property
    def results(self) -> tuple[SharedTensor, ...]:
        """The tile."""
        return (self.result,)

    @property
    def operands(self) -> tuple[str, ...]:
        """No tile is read."""
        return ()


class AccumulatorKind(Enum):
    """How an accumulator folds the iterations (and, where it says so, the last axis); Mirage's names in brackets."""

    SUM = "sum"  # sum over iterations [nored]
    SUM_DIM = "sum_dim"  # and over the last axis, to extent 1 [red_ld_sum]
    SUM_TO_COLUMNS = "sum_to_columns"  # and over strided groups of the last axis, to D columns [redtox_ld_sum]
    MAX = "max"  # maximum over iterations [max]
    MAX_DIM = "max_dim"  # and over the last axis, to extent 1
    MEAN = "mean"  # SUM_DIM over the number of elements [red_ld_mean]
    RMS = "rms"  # sqrt(eps + mean of squares) [red_ld_rms]
    RESCALE = "rescale"  # acc <- acc * r + x [nored_rescale]
    RESCALE_SUM = "rescale_sum"  # the same, then summed over the last axis after the loop [red_ld_sum_rescale]

    @property
    def reduces_last_axis(self) -> bool:
        """True when the last axis is folded to extent 1."""
        return self in (
            AccumulatorKind.SUM_DIM,
            AccumulatorKind.MEAN,
            AccumulatorKind.RMS,
            AccumulatorKind.RESCALE_SUM,
            AccumulatorKind.MAX_DIM,
        )


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Folds a value of the loop body over the iterations; its result lives after the loop.

    Attributes: columns: D of SUM_TO_COLUMNS, `out[..., j] = sum_k x[..., k*D + j]`; rescale: the factor r of the
    rescaled kinds; eps: added under the root of RMS.
    """

    kind: AccumulatorKind
    operand: str
    result: SharedTensor
    rescale: str | None = None
    columns: int | None = None
    eps: Fraction = Fraction(0)

    @property
    def results(self) -> tuple[SharedTensor, ...]:
        """The accumulated tile."""
        return (self.result,)

    @property
    def operands(self) -> tuple[str, ...]:
        """What is accumulated, then the rescaling factor if there is one."""
        return (self.operand,) if self.rescale is None else (self.operand, self.rescale)


@dataclass(frozen=True, slots=True)
class RunningMax:
    """The running maximum over the last axis and the iterations so far, inside the loop.

    Results: `maximum` m_t = max(m_{t-1}, max over the last axis of x_t), the lowest finite number where all of them are
    -inf (so that x - m is -inf there and not undefined), and `shift` = m_{t-1} - m_t, whose exponential
    rescales what was accumulated before; as long as no element was seen (in the first iteration, after empty tiles)
    there is nothing to rescale and shift is 0.
    """

    operand: str
    maximum: SharedTensor
    shift: SharedTensor

    @property
    def results(self) -> tuple[SharedTensor, ...]:
        """Maximum, shift."""
        return (self.maximum, self.shift)

    @property
    def operands(self) -> tuple[str, ...]:
        """The value whose maximum is kept."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class ThreadNode:
    """A graph-defined block operator: its behaviour is its thread graph's, whose values stay in registers."""

    graph: ThreadGraph
    operands: tuple[str, ...]
    results: tuple[SharedTensor, ...]


@dataclass(frozen=True, slots=True)
class OutputSaver:
    """Writes a tile back to device memory; `omap` says which dimension each grid axis lays side by side."""

    operand: str
    omap: DimMap

    @property
    def results(self) -> tuple[SharedTensor, ...]:
        """No tile is made."""
        return ()

    @property
    def operands(self) -> tuple[str, ...]:
        """The tile that is stored."""
        return (self.operand,)


BlockNode = InputIterator | OpNode | Accumulator | RunningMax | ThreadNode | OutputSaver


def dim_map(entries: Sequence[int | None], error: type[LegalityError] = ImapError) -> DimMap:
    """Return a map of exactly three entries; missing grid axes are replicas, -1 is Mirage's spelling of a replica.

    Raises: `error` for more than three entries, or for what is no sequence of dimensions.
    """
    cure = "give at most three entries, each a dimension or None"
    if isinstance(entries, str | bytes) or not isinstance(entries, Sequence):
        raise error(f"a map is a tuple with one entry per grid axis x, y, z, got {entries!r}", f"map {entries!r}", cure)
    if len(entries) > 3 or not all(entry is None or isinstance(entry, int | SupportsIndex) for entry in entries):
        raise error(f"a map has one entry per grid axis x, y, z, got {tuple(entries)}", f"map {tuple(entries)}", cure)
    dims: list[int | None] = [None if entry is None or index(entry) < 0 else index(entry) for entry in entries]
    dims += [None] * (3 - len(dims))
    return dims[0], dims[1], dims[2]
