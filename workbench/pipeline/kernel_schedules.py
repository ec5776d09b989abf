"""From launch choices of the cost model and choices of the optimizer to schedules as the emitter takes them, and to JSON.

Invariant: a schedule holds what was chosen, and leaves to the emitter only what nobody chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.codegen.cuda.choices import DEFAULT_CHOICES, Choices
from workbench.codegen.cuda.schedule import Schedule, WarpLayout
from workbench.cost.launch import LaunchChoice
from workbench.ugraph.kernel_graph import KernelGraph


def schedules_of(
    graph: KernelGraph, choices: tuple[LaunchChoice, ...], kernel_choices: tuple[Choices, ...] = ()
) -> dict[str, Schedule]:
    """Return launch choices of graph-defined kernels, in order, as the emitter takes them, by each one's first result.

    kernel_choices: what the optimizer's passes chose for each of them; (): the emitter's own.
    """
    own = kernel_choices or (DEFAULT_CHOICES,) * len(choices)
    return {
        node.results[0].name: Schedule(
            threads=choice.threads,
            stages=choice.stages if choice.stages >= 2 and node.block.forloop_range > 1 else None,
            cluster=choice.cluster,
            layouts={name: WarpLayout(*layout) for name, layout in choice.layouts.items()},
            choices=chosen,
        )
        for node, choice, chosen in zip(graph.graph_defined, choices, own, strict=True)
    }


def choice_to_json(choice: LaunchChoice) -> dict[str, object]:
    """Return a launch choice as a JSON object."""
    return {
        "threads": choice.threads,
        "stages": choice.stages,
        "cluster": choice.cluster,
        "layouts": {name: list(layout) for name, layout in choice.layouts.items()},
    }


def choice_from_json(values: Mapping[str, Any]) -> LaunchChoice:
    """Return the launch choice of a JSON object."""
    layouts = {name: (rows, columns, depth) for name, (rows, columns, depth) in values["layouts"].items()}
    return LaunchChoice(values["threads"], values["stages"], values["cluster"], layouts)
