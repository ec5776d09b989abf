"""Writes µGraphs in the form of Mirage's files: tensors repeated by whoever reads them, wired by guid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.interpret import evaluate
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.serialize import loads

Json = dict[str, Any]
XYZ = "xyz"
OLD, NEW = 921, 940


class Writer:
    """Writes a graph as Mirage does: tensors repeated by whoever reads them, wired by guid."""

    def __init__(self, data_type: int = NEW) -> None:
        self.operators: list[Json] = []
        self.data_type = data_type
        self._guid = 10_000_000

    def tensor(self, shape: Sequence[int], **extra: Any) -> Json:
        self._guid += 1
        return {
            "data_type": self.data_type,
            "dim": [*shape, 0, 0, 0, 0][:4],
            "num_dims": len(shape),
            "guid": self._guid,
            "layout": "DmemRowMajor",
            **extra,
        }

    def input(self, *shape: int, strides: Sequence[int] | None = None) -> Json:
        made = self.tensor(shape)
        dense = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
        self.add("kn_input_op", [], [made], input_strides=list(strides or dense), input_map=dims(-1, -1, -1))
        return made

    def add(self, op: str, inputs: Sequence[Json], outputs: Sequence[Json], **extra: Any) -> Json:
        entry = {"op_type": op, "input_tensors": list(inputs), "output_tensors": list(outputs), **extra}
        self.operators.append(entry)
        return entry

    def op(self, op: str, inputs: Sequence[Json], *shapes: Sequence[int], **extra: Any) -> list[Json]:
        made = [self.tensor(shape) for shape in shapes]
        self.add(op, inputs, made, **extra)
        return made

    def output(self, *tensors: Json) -> None:
        for tensor in tensors:
            self.add("kn_output_op", [tensor], [], output_map=dims(-1, -1, -1))

    def graph(self) -> KernelGraph:
        (graph,) = loads(json.dumps([self.operators]))
        return graph


class Block:
    """Writes the block graph of a customized operator."""

    def __init__(self, writer: Writer, grid: Sequence[int], loop: int, dimx: int = 64) -> None:
        self.writer, self.operators = writer, list[Json]()
        self.inputs, self.outputs = list[Json](), list[Json]()
        self.head = {
            "graph_level": "thread_block_graph",
            "grid_dim": dims(*grid),
            "block_dim": dims(128, 1, 1),
            "forloop_range": loop,
            "reduction_dimx": dimx,
            "smem_offset": 0,
        }

    def load(self, tensor: Json, shape: Sequence[int], imap: Sequence[int] = (-1, -1, -1), fmap: int = -1) -> Json:
        if tensor not in self.inputs:
            self.inputs.append(tensor)
        return self.op("tb_input_op", [], shape, dtensor=tensor, input_map=dims(*imap), forloop_dim=fmap)[0]

    def op(
        self, op: str, inputs: Sequence[Json], *shapes: Sequence[int], after: bool = False, **extra: Any
    ) -> list[Json]:
        made = [self.writer.tensor(shape, after_accum=after, smem_offset=0) for shape in shapes]
        self.operators.append({"op_type": op, "input_tensors": list(inputs), "output_tensors": made, **extra})
        return made

    def save(self, tile: Json, shape: Sequence[int], omap: Sequence[int] = (-1, -1, -1)) -> Json:
        made = self.writer.tensor(shape)
        self.outputs.append(made)
        entry = {"op_type": "tb_output_op", "input_tensors": [tile], "output_tensors": []}
        self.operators.append({**entry, "dtensor": made, "output_map": dims(*omap)})
        return made

    def finish(self) -> None:
        graph = {**self.head, "operators": self.operators}
        self.writer.add("kn_customized_op", self.inputs, self.outputs, bgraph=graph)


def dims(*values: int) -> dict[str, int]:
    return dict(zip(XYZ, values, strict=True))


def run(graph: KernelGraph, *inputs: np.ndarray[Any, Any]) -> list[Any]:
    return evaluate(graph, list(inputs))
