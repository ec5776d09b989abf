from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import (
    AttributeValueError,
    DTypeError,
    FormatError,
    ImapError,
    LegalityError,
    RaggedTileError,
    ResultMismatchError,
    ShapeError,
    UnknownNameError,
    UnknownTensorError,
    WorkbenchError,
)
from workbench.ugraph import value as op
from workbench.ugraph.builder import KernelBuilder, ThreadBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.serialize import SCHEMA, VERSION, dumps, from_json, load, loads, save, to_json


def everything() -> KernelGraph:
    """A graph with every kind of node, two outputs, strides, a ragged axis, a cluster and exact constants."""
    kernel = KernelBuilder("everything")
    x, w = kernel.input("X", (4, 10)), kernel.input("W", (10, 6), "float16", (1, 10))
    bias = kernel.input("bias", (6,), "float32")
    block = kernel.block(x, w, bias, grid=(4,), loop=3, cluster=(3,), threads=(32, 4))
    left, right = block.load(x, fmap=1), block.load(w, imap=(1,), fmap=0)
    logits = block.apply("matmul", block.apply("scale", left, factor=0.1), right)
    maximum, shift = block.running_max(logits)
    weights = op.exp(logits - maximum)
    kept = block.accumulate(weights, "rescale", rescale=op.exp(shift))
    total = block.accumulate(weights, "rescale_sum", rescale=op.exp(shift))
    tree = ThreadBuilder()
    p, q = tree.input("p", kept.shape), tree.input("q", total.shape)
    quotient = block.thread(tree.build(op.clamp(p, -1, 2) * q), kept, total)
    block.save(quotient + block.load(bias, imap=(0,)), omap=(1,))
    block.save(block.accumulate(left, "rms", eps=1e-6), omap=(1,))
    made = block.finish(names=["O", "R"], dtypes=["float16", "float32"], name="fused")
    kernel.output(*reversed(op.split(op.transpose(made[0]), 2)), made[1])
    return kernel.build()


def test_a_saved_file_loads_to_equal_graphs_in_order(tmp_path: Path) -> None:
    graph, other = everything(), KernelBuilder("other")
    other.output(op.exp(other.input("X", ())))
    path = tmp_path / "graphs.json"
    save(path, [graph, other.build()])
    assert load(path) == [graph, other.build()]
    assert [found.name for found in load(str(path))] == ["everything", "other"]
    save(path, graph)
    assert load(path) == [graph]
    assert path.read_text(encoding="utf-8").endswith("}\n")


def test_the_document_has_schema_version_and_exact_numbers() -> None:
    document: Any = to_json(everything())
    assert (document["schema"], document["version"]) == (SCHEMA, VERSION) == ("mugraph-workbench", 1)
    block = document["graph"]["nodes"][0]["block"]
    scale = next(node for node in block["nodes"] if node.get("op") == "scale")
    assert scale["attributes"] == {"factor": "1/10"}
    assert block["nodes"][0]["results"][0]["ragged"] == [None, {"extent": 10, "cuts": [[3, 3]]}]
    assert document["graph"]["inputs"][1]["strides"] == [1, 10]
    assert from_json(json.loads(json.dumps(document))) == everything()
    assert loads(json.dumps(document)) == [everything()]


def test_an_axis_counted_from_the_front_is_stored_counted_from_the_end() -> None:
    kernel = KernelBuilder()
    kernel.output(op.sum(kernel.input("X", (2, 3)), axis=-1))
    document: Any = to_json(kernel.build())
    document["graph"]["nodes"][0]["attributes"]["axis"] = 1
    assert from_json(document) == kernel.build()


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "marked.json"
    path.write_bytes(b"\xef\xbb\xbf" + dumps(everything()).encode())
    assert load(path) == [everything()]


def edit(change: Callable[[Any], None]) -> str:
    document: Any = json.loads(dumps(everything()))
    change(document)
    return json.dumps(document)


def at(*path: Any, to: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = to

    return change


GRAPH = ("graphs", 0)
BLOCK = (*GRAPH, "nodes", 0, "block")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (at("schema", to="onnx"), FormatError, "schema: expected 'mugraph-workbench', found \"onnx\""),
        (at("version", to=2), FormatError, "version: schema version 2 is not known; this workbench reads 1"),
        (at("version", to="1"), FormatError, 'version: expected an integer, found "1"'),
        (at("extra", to=1), FormatError, "the document: unknown field 'extra'"),
        (at(*GRAPH, "nodes", to={}), FormatError, r"graphs\[0\].nodes: expected a list, found {}"),
        (at(*GRAPH, "kind", to="graph"), FormatError, r"graphs\[0\].kind: expected 'kernel_graph'"),
        (at(*GRAPH, "outputs", to=["Z"]), UnknownTensorError, r"graphs\[0\]: Z: output 'Z' is not defined"),
        (at(*GRAPH, "inputs", 0, "shape", to=[4, 0]), ShapeError, r"graphs\[0\].inputs\[0\]: .*at least 1"),
        (at(*GRAPH, "inputs", 0, "shape", to=[4, 1.5]), FormatError, r"graphs\[0\].inputs\[0\].shape\[1\]: expected an integer"),
        (at(*GRAPH, "inputs", 0, "shape", to=[4, True]), FormatError, r"shape\[1\]: expected an integer, found true"),
        (at(*GRAPH, "inputs", 0, "dtype", to="float8"), DTypeError, r"graphs\[0\].inputs\[0\].dtype: data type 'float8' is not"),
        (at(*GRAPH, "inputs", 1, "strides", to=[1, 1]), ShapeError, r"graphs\[0\].inputs\[1\]: .*overlap"),
        (at(*GRAPH, "nodes", 1, "op", to="transposed"), UnknownNameError, r"nodes\[1\]: unknown operator .transposed."),
        (at(*GRAPH, "nodes", 2, "attributes", "parts", to=0), AttributeValueError, r"nodes\[2\]: .*attribute parts = 0"),
        (at(*GRAPH, "nodes", 2, "attributes", to={}), AttributeValueError, r"nodes\[2\]: .*'parts' is missing"),
        (at(*GRAPH, "nodes", 2, "attributes", "parts", to="1e999999999"), FormatError, "parts: expected an exact number"),
        (at(*GRAPH, "nodes", 2, "results", 0, "shape", to=[3, 4]), ResultMismatchError, r"graphs\[0\]: split .*recorded results"),
        (at(*BLOCK, "grid", to=[2]), LegalityError, "block: input iterator w: recorded tile"),
        (at(*BLOCK, "grid", to=[0, 1, 1]), LegalityError, r"nodes\[0\].block: .*positive integers"),
        (at(*BLOCK, "threads", to=[4096]), LegalityError, r"nodes\[0\].block: block graph: 4096 threads in a block"),
        (at(*BLOCK, "nodes", 0, "imap", to=[5, None, None]), ImapError, r"nodes\[0\].block: input iterator x: .*dimension 5"),
        (at(*BLOCK, "nodes", 0, "imap", to=[-1, None, None]), FormatError, r"imap\[0\]: expected a dimension counted from 0"),
        (at(*BLOCK, "nodes", 0, "imap", to=[0]), FormatError, "imap: expected three dimensions or nulls"),
        (at(*BLOCK, "nodes", 0, "operand", to=9), UnknownTensorError, "input iterator x: there is no operand 9"),
        (at(*BLOCK, "nodes", 0, "results", 0, "ragged", to=[None]), FormatError, "ragged: expected 2 entries"),
        (at(*BLOCK, "nodes", 0, "results", 0, "ragged", to=None), LegalityError, "recorded tile"),
        (at(*BLOCK, "nodes", 0, "fmap", to=None), LegalityError, "recorded tile"),
        (at(*BLOCK, "nodes", 8, "how", to="median"), FormatError, "how: expected one of sum, sum_dim"),
        (at(*BLOCK, "nodes", -1, "omap", to=[0, None, None]), WorkbenchError, "block: output saver|recorded results"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_document_is_said_with_its_place(
    change: Callable[[Any], None], error: type[WorkbenchError], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(edit(change), encoding="utf-8")
    with pytest.raises(error, match=message) as caught:
        load(path)
    assert "bad.json: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_ragged_axis_laid_otherwise_is_refused() -> None:
    with pytest.raises(RaggedTileError, match="was cut along"):
        loads(edit(at(*BLOCK, "nodes", -3, "omap", to=[0, None, None])))


def test_a_cycle_and_a_misspelt_operand_are_told_apart() -> None:
    def swap(document: Any) -> None:
        nodes = document["graphs"][0]["nodes"]
        nodes[1], nodes[2] = nodes[2], nodes[1]

    with pytest.raises(
        UnknownTensorError, match=r"nodes\[1\]: operand 't0' is made only later; the nodes form a cycle"
    ):
        loads(edit(swap))
    cyclic = at(*GRAPH, "nodes", 1, "operands", to=["t1"])  # t0 = transpose(t1), t1 and t2 = split(t0)
    with pytest.raises(UnknownTensorError, match="form a cycle or are out of order"):
        loads(edit(cyclic))
    with pytest.raises(UnknownTensorError, match=r"operand 'Y' is not defined; defined before: X, W, bias, O, R"):
        loads(edit(at(*GRAPH, "nodes", 1, "operands", to=["Y"])))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1, column 1: broken JSON: the text ends too early"),
        (
            b'{"schema": "mugraph-workbench", "version": 1, "graphs": [',
            r"line 1, column 58: broken JSON: the text ends too early",
        ),
        (b'{"schema": }', "line 1, column 12: broken JSON: Expecting value"),
        (b'{"schema": NaN}', "broken JSON: NaN is not a JSON number"),
        (b"[" * 100_000, "broken JSON: nested too deeply"),
        (b"1" * 5000, "broken JSON"),
        (b"\xff\xfe", "is no UTF-8 text"),
        (b"{}", 'expected an object with "schema"'),
        (b"3", 'expected an object with "schema"'),
        (b'"text"', 'expected an object with "schema"'),
    ],
)
def test_what_is_no_document_is_refused_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_a_format_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"nowhere\.json: cannot be read: No such file"):
        load(tmp_path / "nowhere.json")
    with pytest.raises(FormatError, match="cannot be read"):
        load(tmp_path)


def test_an_empty_list_is_a_file_without_graphs(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    save(path, [])
    assert load(path) == []
