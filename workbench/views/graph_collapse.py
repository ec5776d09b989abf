"""Which graphs inside a kernel graph are drawn as one node, so that the picture stays within a number of nodes.

A graph inside a graph is named by where it stands: `n3` is the block graph of the kernel graph's node 3, `n3.7` the
thread graph of that block graph's node 7.
"""

from __future__ import annotations

from workbench.core.levels import Level
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, OpNode, ThreadNode


def cluster_sizes(graph: KernelGraph) -> dict[str, tuple[Level, int]]:
    """Return level and number of nodes of every graph inside the kernel graph, by cluster id."""
    sizes: dict[str, tuple[Level, int]] = {}
    for number, node in enumerate(graph.nodes):
        if isinstance(node, GraphDefinedNode):
            sizes[f"n{number}"] = (Level.BLOCK, block_size(node.block))
            for position, inner in enumerate(node.block.nodes):
                if isinstance(inner, ThreadNode):
                    sizes[f"n{number}.{position}"] = (Level.THREAD, len(inner.graph.nodes))
    return sizes


def block_size(block: BlockGraph) -> int:
    """Return the number of nodes of a block graph; a thread node counts the operators of its graph."""
    return sum(len(node.graph.nodes) if isinstance(node, ThreadNode) else 1 for node in block.nodes)


def clusters_to_collapse(graph: KernelGraph, max_nodes: int, given: set[str]) -> set[str]:
    """Return the clusters to collapse: `given`, then thread graphs, then block graphs, large ones first, until it fits."""
    sizes = cluster_sizes(graph)
    shown = {cluster: size for cluster, (_, size) in sizes.items()}
    count = len(graph.inputs) + len(graph.output_names) + sum(isinstance(node, OpNode) for node in graph.nodes)
    count += sum(size for level, size in sizes.values() if level is Level.BLOCK)
    folded: set[str] = set()
    wanted = sorted(given & set(sizes), key=lambda cluster: "." not in cluster)
    for level in (Level.THREAD, Level.BLOCK):
        wanted += sorted((c for c in sizes if sizes[c][0] is level and c not in given), key=lambda c: -sizes[c][1])
    for cluster in wanted:
        if cluster not in given and count <= max_nodes:
            break
        folded.add(cluster)
        count -= shown[cluster] - 1
        if "." in cluster:  # its block graph shows fewer nodes by now
            shown[cluster.partition(".")[0]] -= shown[cluster] - 1
    return folded | given
