"""Which lines of an emitted kernel belong to which node of its block graph. Invariant: a line's links are nodes it names.

The emitter names every value after its node (`t2`, `t2_sum`, `t2_tile`), and what it reads after the kernel's operand, so
names tell; a line that names several nodes belongs to all of them. A node that no statement names was merged into those
that read it (a product into its sum over iterations), so their lines are its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.codegen.cuda.emitted import EmittedProgram, KernelLaunch, KernelSource
from workbench.ugraph.nodes import GraphDefinedNode, InputIterator, OutputSaver, ThreadNode
from workbench.views.markup import words

_WORD = re.compile(r"(?<![.\w])[A-Za-z_]\w*")  # not a member: `blockIdx.x` is no tile x


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line. Attributes: number, from 1; text; links: ids of nodes, as in the picture."""

    number: int
    text: str
    links: tuple[str, ...]


def kernel_of(program: EmittedProgram, launch: GraphDefinedNode) -> KernelSource | None:
    """Return the kernel that a graph-defined operator became, None if it has none of its own."""
    wanted = launch.results[0].name
    for step in program.steps:
        if isinstance(step, KernelLaunch):
            outputs = (parameter.tensor.name for parameter in step.kernel.outputs)  # its memory may have another name
            if wanted in outputs:
                return step.kernel
    return None


def code_lines(text: str, launch: GraphDefinedNode, prefix: str) -> tuple[CodeLine, ...]:
    """Return a kernel's text line by line, with the nodes that each line is about. prefix: id of the block graph."""
    names = node_names(launch, prefix)
    found = []
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        links: dict[str, None] = {}
        for word in _WORD.findall(line):
            links |= dict.fromkeys(_nodes_of(word, names))
        found.append(CodeLine(number, line, tuple(links)))
    merged = _merged(found, launch, prefix)
    return tuple(
        replace(
            line, links=tuple(dict.fromkeys((*line.links, *(n for link in line.links for n in merged.get(link, ())))))
        )
        for line in found
    )


def _merged(lines: Sequence[CodeLine], launch: GraphDefinedNode, prefix: str) -> dict[str, list[str]]:
    """Return, by the id of a node, those that no statement names and that were merged into it."""
    named = {link for line in lines if not line.text.lstrip().startswith("//") for link in line.links}
    nodes = launch.block.nodes
    found: dict[str, list[str]] = {}
    for number in range(len(nodes) - 1, -1, -1):
        key = f"{prefix}.{number}"
        made = {tensor.name for tensor in nodes[number].results}
        if key in named or not made:
            continue
        for reader in range(number + 1, len(nodes)):
            if made & set(nodes[reader].operands):
                into = f"{prefix}.{reader}"
                found.setdefault(into, []).append(key)
                for other in found:  # one that was merged itself
                    if into in found[other]:
                        found[other].append(key)
    return found


def node_names(launch: GraphDefinedNode, prefix: str) -> dict[str, tuple[str, ...]]:
    """Return the ids of nodes by the names that the kernel's text may use for them."""
    names: dict[str, list[str]] = {}
    saved = 0
    for number, node in enumerate(launch.block.nodes):
        key = f"{prefix}.{number}"
        for tensor in node.results:
            names.setdefault(tensor.name, []).append(key)
        if isinstance(node, ThreadNode):
            for inner, operator in enumerate(node.graph.nodes):
                for register in operator.results:
                    names.setdefault(register.name, []).append(f"{key}.{inner}")
        if isinstance(node, InputIterator):
            names.setdefault(launch.operands[node.operand], []).append(key)
        if isinstance(node, OutputSaver):
            names.setdefault(launch.results[saved].name, []).append(key)
            saved += 1
    return {name: tuple(dict.fromkeys(keys)) for name, keys in names.items()}


def _nodes_of(word: str, names: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return the nodes whose name a word is, or begins with: the longest such name."""
    while word:
        if word in names:
            return names[word]
        word, _, _ = word.rpartition("_")
    return ()


def link_of(line: int) -> str:
    """Return the name by which a line of a kernel and the instructions made of it light up together."""
    return f"line:{line}"


def code_html(lines: Sequence[CodeLine], compiled: Collection[int] = ()) -> str:
    """Return the lines as HTML; those of a node light up with it. compiled: lines that instructions are shown for."""
    body = []
    for line in lines:
        links = (*line.links, link_of(line.number)) if line.number in compiled else line.links
        link = f' data-link="{" ".join(links)}"' if links else ""
        css = ' class="wb-comment"' if line.text.lstrip().startswith("//") else ""
        body.append(f'<div{css}{link}><span class="wb-line-number">{line.number}</span>{words(line.text)}</div>')
    return f'<div class="wb-code">{"".join(body)}</div>'
