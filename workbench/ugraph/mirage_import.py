"""µGraphs from Mirage's JSON files, of both generations of its enumerations.

A file is a list of graphs (or one graph), a graph a list of kernel operators, wired by guid. Invariant: what a file
records (shapes, places after the loop, strides) is compared with what our builder infers, never believed.

What is different here: Mirage's accumulators are float16 in shared memory, ours float32; Mirage's rms_norm has no eps
and is taken over the last axis (its files do not say which axes); gelu is the erf form.
Source: Mirage's `src/kernel/graph.cc`, `src/threadblock/graph.cc` and `include/mirage/type.h`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from workbench.core.dtypes import DType, as_dtype
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor
from workbench.errors import FormatError
from workbench.ugraph.builder import BlockBuilder, KernelBuilder
from workbench.ugraph.inference import Place
from workbench.ugraph.json_value import JsonValue
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.location import located
from workbench.ugraph.mirage_operators import exactly, predefined
from workbench.ugraph.nodes import AccumulatorKind, GraphDefinedNode
from workbench.ugraph.value import Value

ACCUMULATORS = {
    "nored": AccumulatorKind.SUM,
    "red_ld_sum": AccumulatorKind.SUM_DIM,
    "red_ld_mean": AccumulatorKind.MEAN,
    "red_ld_rms": AccumulatorKind.RMS,
    "redtox_ld_sum": AccumulatorKind.SUM_TO_COLUMNS,
    "nored_rescale": AccumulatorKind.RESCALE,
    "red_ld_sum_rescale": AccumulatorKind.RESCALE_SUM,
    "max": AccumulatorKind.MAX,
}
# before June 2025, and since; 920, 930 and 940 mean something else in each
OLD_DATA_TYPES = {900: "int8", 910: "uint16", 920: "bfloat16", 921: "float16", 930: "float32", 940: "float64"}
DATA_TYPES = {
    920: "float4", 925: "int4", 926: "uint4", 930: "float8", 935: "int8", 936: "uint8", 940: "float16",
    941: "bfloat16", 945: "int16", 946: "uint16", 950: "float32", 955: "int32", 956: "uint32", 960: "float64",
    965: "int64", 966: "uint64",
}  # fmt: skip


def looks_like_mirage(document: JsonValue) -> bool:
    """Return whether a document has the outer form of Mirage's files: a list of operators or of lists of them."""
    return isinstance(document.value, list)


def import_mirage(document: JsonValue) -> list[KernelGraph]:
    """Return the graphs of a document of Mirage's.

    Raises: FormatError for what is broken or cannot be imported (with the reason), LegalityError or an operator's error
    for what is not legal; each names the place.
    """
    entries = document.items()
    if entries and all(isinstance(entry.value, dict) for entry in entries):
        return [_Importer(document).graph()]
    return [_Importer(entry).graph() for entry in entries]


def _data_types(graph: JsonValue) -> dict[int, str]:
    """Return which numbering a graph uses, told by names and numbers that only one of them has."""
    old, new = set(), set()
    for entry in _objects(graph.value):
        op, number = entry.get("op_type"), entry.get("data_type")
        if isinstance(op, str) and op.startswith("tb_accum_"):
            old.add(op)
        if isinstance(op, str) and op.startswith("tb_forloop_accum_"):
            new.add(op)
        if isinstance(number, int):
            if number in OLD_DATA_TYPES and number not in DATA_TYPES:
                old.add(f"data_type {number}")
            if number in DATA_TYPES and number not in OLD_DATA_TYPES:
                new.add(f"data_type {number}")
    if old and new:
        raise FormatError(
            f"{graph.place}: names of two generations of Mirage meet: {min(old)} is older, {min(new)} newer; "
            "save the graph again with one version"
        )
    return OLD_DATA_TYPES if old else DATA_TYPES


def _objects(value: object) -> Iterator[dict[str, object]]:
    stack = [value]
    while stack:
        entry = stack.pop()
        if isinstance(entry, dict):
            yield entry
            stack.extend(entry.values())
        elif isinstance(entry, list):
            stack.extend(entry)


class _Importer:
    """Imports one graph."""

    def __init__(self, graph: JsonValue) -> None:
        self._operators = graph.items()
        self._place = graph.place
        self._data_types = _data_types(graph)
        self._kernel = KernelBuilder()
        self._values: dict[int, Value] = {}
        self._strides = {
            _guid(tensor): entry.field("output_strides").integers()
            for entry in self._operators
            if entry.has("output_strides")
            for tensor in entry.field("input_tensors").items()
        }

    def graph(self) -> KernelGraph:
        for entry in self._operators:
            self._kernel_operator(entry)
        if not self._kernel.outputs:
            raise FormatError(
                f"{self._place or 'the document'}: the graph has no kn_output_op, so nothing is its output"
            )
        with located(self._place or "the document"):
            return self._kernel.build()

    # -------------------------------------------------------------------------------------------------------- kernel
    def _kernel_operator(self, entry: JsonValue) -> None:
        op = entry.field("op_type").text()
        place = f"{entry.place} ({op})"
        inputs, outputs = entry.field("input_tensors").items(), entry.field("output_tensors").items()
        if op == "kn_input_op":
            self._input(entry, outputs, place)
        elif op == "kn_output_op":
            self._kernel.output(*(self._find(tensor) for tensor in inputs))
        elif op == "kn_customized_op":
            self._customized(entry, inputs, outputs, place)
        else:
            operands = [self._find(tensor) for tensor in inputs]
            shapes = [_shape(tensor) for tensor in outputs]
            made = predefined(self._kernel, op, operands, entry, shapes, place)
            self._define(outputs, made, place)

    def _input(self, entry: JsonValue, outputs: Sequence[JsonValue], place: str) -> None:
        (tensor,) = exactly(outputs, 1, place)
        stated = entry.optional("input_strides")
        strides = None if stated is None else stated.integers()
        shape, dtype = _shape(tensor), self._dtype(tensor)
        if _guid(tensor) in self._values:
            raise FormatError(f"{place}: guid {_guid(tensor)} is made twice")
        with located(place):
            self._values[_guid(tensor)] = self._kernel.input(f"I{len(self._kernel.inputs)}", shape, dtype, strides)

    def _define(self, outputs: Sequence[JsonValue], made: Sequence[Value], place: str) -> None:
        """Give the last node's results the recorded types (and strides, if they are outputs) and remember their guids."""
        _compare(made, outputs, place)
        tensors = []
        for tensor, value in zip(outputs, made, strict=True):
            if _guid(tensor) in self._values:
                raise FormatError(f"{place}: guid {_guid(tensor)} is made twice")
            strides, dtype = self._strides.get(_guid(tensor), ()), self._dtype(tensor)
            with located(place):
                tensors.append(DeviceTensor(value.name, value.shape, dtype, strides))
        with located(place):
            stated = self._kernel.restate(*tensors)
        self._values |= {_guid(tensor): value for tensor, value in zip(outputs, stated, strict=True)}

    def _customized(
        self, entry: JsonValue, inputs: Sequence[JsonValue], outputs: Sequence[JsonValue], place: str
    ) -> None:
        operands = [self._find(tensor) for tensor in inputs]
        graph = entry.field("bgraph")
        level = graph.optional("graph_level")
        if level is not None and level.text() != "thread_block_graph":
            raise level.fail("'thread_block_graph'")
        grid, threads = _dims(graph.field("grid_dim")), _dims(graph.field("block_dim"))
        loop, columns = graph.field("forloop_range").integer(), graph.field("reduction_dimx").integer()
        with located(place):
            block = self._kernel.block(*operands, grid=grid, loop=loop, threads=threads)
        importer = _BlockImporter(
            block, [_guid(tensor) for tensor in inputs], columns, graph.field("operators").items()
        )
        saved = importer.run()
        by_guid = {_guid(tensor): tensor for tensor in outputs}
        if sorted(saved) != sorted(by_guid):
            raise FormatError(f"{place}: it makes guids {sorted(by_guid)}, its tb_output_ops store {sorted(saved)}")
        ordered = [by_guid[guid] for guid in saved]
        dtypes = [self._dtype(tensor) for tensor in ordered]
        with located(place):
            results = block.finish(dtypes=dtypes)
        node = self._kernel.nodes[-1]
        assert isinstance(node, GraphDefinedNode)
        importer.compare_places(node.block.places)
        self._define(ordered, results, place)

    def _dtype(self, tensor: JsonValue) -> DType:
        number = tensor.field("data_type")
        if number.integer() not in self._data_types:
            raise number.fail(f"a data type of Mirage's ({', '.join(map(str, sorted(self._data_types)))})")
        with located(number.place):
            return as_dtype(self._data_types[number.integer()])

    def _find(self, tensor: JsonValue) -> Value:
        return _wired(tensor, self._values, self._operators)


class _BlockImporter:
    """Imports the operators of one block graph."""

    def __init__(
        self, block: BlockBuilder, operands: Sequence[int], columns: int, operators: Sequence[JsonValue]
    ) -> None:
        self._block, self._operands, self._columns, self._operators = block, operands, columns, operators
        self._tiles: dict[int, Value] = {}
        self._after: list[tuple[str, str, bool]] = []  # place in the file, tile, recorded after_accum

    def run(self) -> list[int]:
        """Import every operator; return the guids of the tensors stored, in the order of the savers."""
        saved = []
        for entry in self._operators:
            op = entry.field("op_type").text()
            place = f"{entry.place} ({op})"
            inputs, outputs = entry.field("input_tensors").items(), entry.field("output_tensors").items()
            if op == "tb_output_op":
                (tensor,) = exactly(inputs, 1, place)
                tile, omap = _wired(tensor, self._tiles, self._operators), _dims(entry.field("output_map"))
                with located(place):
                    self._block.save(tile, omap=omap)
                saved.append(_guid(entry.field("dtensor")))
                continue
            if op == "tb_input_op":
                made: Sequence[Value] = [self._load(entry, place)]
            else:
                operands = [_wired(tensor, self._tiles, self._operators) for tensor in inputs]
                made = self._operator(op, operands, entry, [_shape(tensor) for tensor in outputs], place)
            _compare(made, outputs, place)
            for tensor, value in zip(outputs, made, strict=True):
                if _guid(tensor) in self._tiles:
                    raise FormatError(f"{place}: guid {_guid(tensor)} is made twice")
                self._tiles[_guid(tensor)] = value
                after = tensor.optional("after_accum")
                if after is not None:
                    self._after.append((place, value.name, after.value is True))
        return saved

    def compare_places(self, places: Mapping[str, Place]) -> None:
        """Raises: FormatError where the file says otherwise than the wiring whether a tile exists after the loop."""
        for place, name, after in self._after:
            if after != (places[name] is Place.AFTER):
                raise FormatError(
                    f"{place}: after_accum is {str(after).lower()}, by its wiring the tile is {places[name].value}"
                )

    def _load(self, entry: JsonValue, place: str) -> Value:
        guid = _guid(entry.field("dtensor"))
        if guid not in self._operands:
            raise FormatError(f"{place}: reads guid {guid}, the kernel's operands are {list(self._operands)}")
        imap, fmap = _dims(entry.field("input_map")), entry.field("forloop_dim").integer()
        with located(place):
            return self._block.load(self._operands.index(guid), imap=imap, fmap=fmap)

    def _operator(
        self, op: str, operands: Sequence[Value], entry: JsonValue, shapes: Sequence[Shape], place: str
    ) -> Sequence[Value]:
        kind = ACCUMULATORS.get(re.sub(r"^tb_(forloop_)?accum_|_op$", "", op)) if "accum_" in op else None
        reduced = re.fullmatch(r"tb_reduction_(\d)_max_op", op)
        if kind is not None:
            count = 2 if kind in (AccumulatorKind.RESCALE, AccumulatorKind.RESCALE_SUM) else 1
            tile, *factor = exactly(operands, count, place)
            columns = self._columns if kind is AccumulatorKind.SUM_TO_COLUMNS else None
            with located(place):
                return [self._block.accumulate(tile, kind, rescale=factor[0] if factor else None, columns=columns)]
        if reduced is not None:
            (tile,) = exactly(operands, 1, place)
            if int(reduced[1]) != len(tile.shape) - 1:
                raise FormatError(
                    f"{place}: a running maximum is kept over the last of {len(tile.shape)} dimensions only"
                )
            with located(place):
                return self._block.running_max(tile)
        if op == "tb_concat_then_matmul_op":
            left, right, upper, lower = exactly(operands, 4, place)
            with located(place):
                joined = self._block.apply("concat", left, right, axis=-1)
                return [self._block.apply("matmul", joined, self._block.apply("concat", upper, lower, axis=-2))]
        return predefined(self._block, op, operands, entry, shapes, place)


# --------------------------------------------------------------------------------------------------------- shared parts
def _wired(tensor: JsonValue, made: Mapping[int, Value], operators: Sequence[JsonValue]) -> Value:
    """Return the value that was made under a tensor's guid."""
    guid = _guid(tensor)
    if guid in made:
        return made[guid]
    later = any(
        other.has("guid") and other.field("guid").value == guid
        for entry in operators
        if entry.has("output_tensors")
        for other in entry.field("output_tensors").items()
    )
    why = "made only later: the operators form a cycle or are out of order" if later else "made by no operator"
    raise FormatError(f"{tensor.place}: guid {guid} is {why}")


def _compare(made: Sequence[Value], recorded: Sequence[JsonValue], place: str) -> None:
    if len(made) != len(recorded):
        raise FormatError(f"{place}: {len(recorded)} results are recorded, the operator yields {len(made)}")
    for value, tensor in zip(made, recorded, strict=True):
        if value.shape != _shape(tensor):
            raise FormatError(f"{place}: shape {_shape(tensor)} is recorded, the operator yields {value.shape}")


def _guid(tensor: JsonValue) -> int:
    return tensor.field("guid").integer()


def _shape(tensor: JsonValue) -> Shape:
    dims, rank = tensor.field("dim"), tensor.field("num_dims")
    if not 0 <= rank.integer() <= len(dims.items()):
        raise rank.fail(f"a number of dimensions up to {len(dims.items())}")
    return dims.integers()[: rank.integer()]


def _dims(value: JsonValue) -> tuple[int, int, int]:
    return value.field("x").integer(), value.field("y").integer(), value.field("z").integer()
