"""Candidates that cannot overflow: structures of the search with their exponentials' maxima subtracted.

Invariant: a stable form is a rewrite of a structure that the search found, under one of its schedules; it is verified against
the program like any other candidate.

The search finds exponentials as they stand in a program. One that subtracts the row's maximum is searched for without it
(which is equal over the reals), and every structure found so is rewritten: that gives the forms with a running maximum,
split over blocks too, that a search over the operators alone does not reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from workbench.cost.candidates import ScheduleLimits
from workbench.cost.estimate import estimate
from workbench.optimize.stable_softmax import stabilise_softmax
from workbench.pipeline.structure_schedules import cheapest_rows
from workbench.pipeline.tuning import Proposal, Scheduled, Target, proposal_of
from workbench.search.summary import Structure
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import KernelNode, OpNode
from workbench.verify.compare import verify

ORIGIN = "search, stable softmax"
MOST_STRUCTURES = 6
"""Structures that are rewritten, the cheapest first: their schedules are made before their cost is known."""

NO_CLUSTERS = ScheduleLimits(clusters=(1,))
"""A running maximum needs its iterations in order, which the blocks of a cluster share."""


def without_maxima(program: KernelGraph) -> KernelGraph | None:
    """Return a program whose exponentials do not subtract their row's maximum, None where none does or it is not equal."""
    makers = {tensor.name: node for node in program.nodes for tensor in node.results}
    shifted: dict[str, str] = {}
    for node in program.nodes:
        if isinstance(node, OpNode) and node.op == "sub":
            value, maximum = node.operands
            made = makers.get(maximum)
            if isinstance(made, OpNode) and made.op == "max" and made.operands == (value,):
                shifted[node.results[0].name] = value
    if not shifted:
        return None
    nodes: list[KernelNode] = []
    for node in program.nodes:
        if isinstance(node, OpNode):
            if node.results[0].name in shifted:
                continue
            is_exponential = node.op == "exp"
            operands = tuple(shifted.get(name, name) if is_exponential else name for name in node.operands)
            nodes.append(OpNode(node.op, operands, node.results, node.attributes))
    read = {name for node in nodes for name in node.operands}
    if read & shifted.keys() or set(program.output_names) & shifted.keys():
        return None  # something else than an exponential needs the difference
    live = tuple(
        node for node in nodes
        if any(tensor.name in read or tensor.name in program.output_names for tensor in node.results)
    )  # fmt: skip
    found = KernelGraph(program.inputs, live, program.output_names, program.name)
    return found if verify(program, found).kind == "equal" else None


def schedule_stable(structures: Sequence[Structure], target: Target, *, per_structure: int) -> list[Proposal]:
    """Return the stable forms of structures that have exponentials, each under its best schedules by the model."""
    found: list[Proposal] = []
    exponential = [one for one in structures if stabilise_softmax(one.graph).changes]
    rows = cheapest_rows(exponential, target, per_structure=per_structure, limits=NO_CLUSTERS)
    cheapest = (one for one in rows if one.rank == 0)  # unscheduled ones are told of without stable forms
    for one in islice(cheapest, MOST_STRUCTURES):
        space = one.space
        for row in one.rows:
            real = space.realize(row)
            graph = stabilise_softmax(real.graph).graph
            if len(graph.graph_defined) != len(real.choices):
                continue
            cost = estimate(graph, hardware=target.hardware, choices=real.choices, preset=target.preset)
            scheduled = Scheduled(graph, real.choices, cost, ORIGIN)
            found.append(proposal_of(scheduled, f"stable {space.graph.structure_hash}"))
    return sorted(found, key=lambda one: one.cost_us)
