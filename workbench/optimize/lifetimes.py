"""From when to when tensors are needed: tiles of a block graph in shared memory, intermediates of a program on the device.

Invariant: two tiles whose times are disjoint have a barrier between the last use of one and the first of the other, in
every iteration; so a plan that gives them one place is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.core.dtypes import DType
from workbench.core.shapes import num_elements
from workbench.optimize.memory import Lifetime, Role
from workbench.optimize.order import Order, Section, order_operators, section_of
from workbench.optimize.tile_views import lies_in
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, InputIterator, RunningMax

DOUBLE_BUFFERED = 2


def block_lifetimes(
    block: BlockGraph,
    *,
    order: Order | None = None,
    registers: Iterable[str] = (),
    stages: int = DOUBLE_BUFFERED,
    sizes: Mapping[str, int] | None = None,
    computed: DType | None = None,
) -> tuple[Lifetime, ...]:
    """Return the tiles of a block graph that lie in shared memory, with their times: levels of the order. Views are left out.

    order: with the fewest barriers unless given; registers: tiles that are never in shared memory; stages: buffers of a
    tile that is loaded in every iteration; sizes: bytes by tile where padding adds some; computed: data type of all that
    is no input, instead of each tile's own.

    An input copied once is there from the start (its copy is started first) until it is read last. What the loop reads or
    carries from iteration to iteration stays until the loop ends. Of a tile made in an iteration each time anew, the times
    are levels within the iteration; on its first level the iteration before may still be at its last.
    """
    kept, given = frozenset(registers), dict(sizes or {})
    order = order or order_operators(block, kept)
    sections = section_of(block)
    is_looped = order.iterations > 1 and order.loop > 0
    start, end = order.before, order.before + order.loop
    bases = lies_in(block)
    readers: dict[str, list[int]] = {}
    for number, node in enumerate(block.nodes):
        for name in node.operands:
            readers.setdefault(bases[name], []).append(number)
    found: list[Lifetime] = []
    for number, node in enumerate(block.nodes):
        for tensor in node.results:
            name = tensor.name
            if name in kept or bases[name] != name:
                continue
            is_input = isinstance(node, InputIterator)
            copies = stages if is_input and sections[number] is Section.LOOP and order.iterations > 1 else 1
            nbytes = given.get(name)
            if nbytes is None:
                dtype = tensor.dtype if is_input or computed is None else computed
                nbytes = num_elements(tensor.shape) * dtype.nbytes
            first = order.levels[number]
            last = max([first, *(order.levels[reader] for reader in readers.get(name, ()))])
            is_carried = isinstance(node, Accumulator | RunningMax)
            if is_input:
                first = 0
            if is_looped:
                uses = [sections[reader] for reader in readers.get(name, ())]
                if sections[number] is Section.LOOP and (is_carried or copies > 1 or order.levels[number] == start):
                    first, last = min(first, start), max(last, end)
                elif sections[number] is Section.BEFORE and Section.LOOP in uses:
                    last = max(last, end)
            role = Role.INPUT if is_input else Role.ACCUMULATOR if isinstance(node, Accumulator) else Role.INTERMEDIATE
            found.append(Lifetime(name, nbytes * copies, first, last, role))
    return tuple(found)


def device_lifetimes(graph: KernelGraph) -> tuple[Lifetime, ...]:
    """Return the intermediate tensors of a program with their times: from the kernel that writes to the last that reads."""
    found = []
    for number, node in enumerate(graph.nodes):
        for tensor in node.results:
            if tensor.name in graph.output_names:
                continue
            stored = graph.tensors[tensor.name]
            reach = sum((extent - 1) * stride for extent, stride in zip(stored.shape, stored.strides, strict=True)) + 1
            last = max([number, *(place for place, other in enumerate(graph.nodes) if tensor.name in other.operands)])
            found.append(Lifetime(tensor.name, reach * stored.dtype.nbytes, number, last))
    return tuple(found)
