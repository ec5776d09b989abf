"""Reading the text form of µGraphs. Invariant: graphs are made by the builders, so what parses is legal.

A stated type is compared with the inferred one; a type that is left out is the inferred one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from workbench.core.dtypes import DType, as_dtype
from workbench.core.layouts import Strides
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor, RaggedSplit, RegisterTensor, SharedTensor
from workbench.ops.registry import operator
from workbench.ops.spec import AttributeValue
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import BlockBuilder, KernelBuilder, ThreadBuilder
from workbench.ugraph.inference import GRID_AXES, LOOP
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.location import located
from workbench.ugraph.nodes import AccumulatorKind, Tensor
from workbench.ugraph.text_tokens import Token, expected, tokens
from workbench.ugraph.thread_graph import ThreadGraph
from workbench.ugraph.value import Value

Graph = KernelGraph | BlockGraph | ThreadGraph
KEYWORDS = frozenset({"input", "output", "save"})
MAX_DIGITS = 18  # extents, counts and positions; constants may be longer
_CUT_AXES = {**{name: axis for axis, name in enumerate(GRID_AXES)}, "loop": LOOP}
_LONGEST_NUMBER, _LARGEST_EXPONENT = 2000, 500  # a decimal such as 1e-999999999 must not fill the memory
_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?(?:[eE](?P<exponent>[+-]?\d+))?(?:/(?P<denominator>\d+))?")


@dataclass(frozen=True, slots=True)
class _Type:
    dtype: DType
    shape: Shape
    ragged: tuple[RaggedSplit | None, ...]
    strides: Strides
    token: Token


@dataclass(frozen=True, slots=True)
class _Stated:
    """A result as the text states it: its name, and its type if given."""

    token: Token
    type: _Type | None


@dataclass(frozen=True, slots=True)
class _Call:
    """`word(operands, attributes)`."""

    word: Token
    operands: tuple[Token, ...]
    attributes: dict[str, AttributeValue]


class Parser:
    """A recursive-descent parser over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._tokens = list(tokens(text))
        self._position = 0

    def graph(self) -> Graph:
        """Return the one graph of the text. Raises: FormatError, LegalityError and errors of operators with their line."""
        self._skip_lines()
        start = self._next("name", "'kernel_graph', 'block_graph' or 'thread_graph'")
        graph: Graph
        match start.text:
            case "kernel_graph":
                graph = self._kernel_graph(start)
            case "block_graph":
                graph = self._block_body(self._launch(self._block_parameters(), start), start)
            case "thread_graph":
                graph = self._thread_body()
            case _:
                raise expected(start, "'kernel_graph', 'block_graph' or 'thread_graph'")
        self._skip_lines()
        if self._peek().kind != "end":
            raise expected(self._peek(), "the end of the text")
        return graph

    # ------------------------------------------------------------------------------------------------------- kernel
    def _kernel_graph(self, start: Token) -> KernelGraph:
        builder = KernelBuilder(self._take().text if self._peek().kind == "string" else "")
        values: dict[str, Value] = {}
        for first in self._statements():
            if self._is_keyword(first, "input"):
                name, stated = self._declaration("the name of the input")
                with located(name.place):
                    values[name.text] = builder.input(name.text, stated.shape, stated.dtype, stated.strides or None)
                self._no_cuts(stated)
            elif self._is_keyword(first, "output"):
                builder.output(*(self._lookup(values, token) for token in self._names()))
            else:
                self._kernel_node(builder, values, self._results(first))
        with located(start.place):
            return builder.build()

    def _kernel_node(self, builder: KernelBuilder, values: dict[str, Value], stated: Sequence[_Stated]) -> None:
        head = self._next("name", "'block_graph' or the name of an operator")
        if head.text == "block_graph":
            self._graph_defined(builder, values, stated, head)
        else:
            self._operator(builder, values, self._call(head))
        tensors = []
        for made, result in self._matched(builder.nodes[-1].results, stated, head):
            assert isinstance(made, DeviceTensor)
            if result.type is None:
                tensors.append(replace(made, name=result.token.text))
                continue
            self._no_cuts(result.type)
            with located(result.type.token.place):
                tensors.append(
                    DeviceTensor(result.token.text, result.type.shape, result.type.dtype, result.type.strides)
                )
        with located(stated[0].token.place):
            for value in builder.restate(*tensors):
                values[value.name] = value

    def _graph_defined(
        self, builder: KernelBuilder, values: dict[str, Value], stated: Sequence[_Stated], head: Token
    ) -> None:
        names, operands = [], []
        by_name = {tensor.name: tensor for tensor in builder.inputs}
        by_name |= {t.name: t for node in builder.nodes for t in node.results if isinstance(t, DeviceTensor)}
        self._mark("(")
        while not self._is_mark(")"):
            value = self._lookup(values, self._name("the name of an operand or ')'"))
            tensor = by_name[value.name]
            if self._peek().kind == "name" and self._peek().text == "as":
                self._take()
                tensor = replace(tensor, name=self._name("the name of the operand inside").text)
            names.append(value)
            operands.append(tensor)
            if not self._is_mark(")"):
                self._mark(",", "',' or ')'")
        self._mark(")")
        label = ""
        if self._peek().kind == "name" and self._peek().text == "name":
            self._take()
            self._mark("(")
            label = self._next("string", "a quoted name").text
            self._mark(")")
        block = self._block_body(self._launch(operands, head), head)
        types = [result.type.dtype for result in stated if result.type is not None]
        dtypes = types if len(types) == len(stated) == len(block.savers) else None
        with located(head.place):
            builder.graph_defined(block, names, dtypes=dtypes, name=label)

    # -------------------------------------------------------------------------------------------------------- block
    def _block_parameters(self) -> list[DeviceTensor]:
        parameters = []
        self._mark("(")
        while not self._is_mark(")"):
            name, stated = self._declaration("the name of an operand or ')'")
            self._no_cuts(stated)
            with located(name.place):
                parameters.append(DeviceTensor(name.text, stated.shape, stated.dtype, stated.strides))
            if not self._is_mark(")"):
                self._mark(",", "',' or ')'")
        self._mark(")")
        return parameters

    def _launch(self, operands: Sequence[DeviceTensor], head: Token) -> BlockBuilder:
        found: dict[str, tuple[int, ...]] = {}
        while not self._is_mark("{"):
            word = self._next("name", "'grid', 'loop', 'threads', 'cluster' or '{'")
            if word.text not in ("grid", "loop", "threads", "cluster") or word.text in found:
                raise expected(word, "'grid', 'loop', 'threads', 'cluster' (each once) or '{'")
            found[word.text] = self._integers("(", ")", count=1 if word.text == "loop" else None)
        with located(head.place):
            return BlockBuilder(
                operands,
                grid=found.get("grid", (1,)),
                loop=found.get("loop", (1,))[0],
                threads=found.get("threads", (128,)),
                cluster=found.get("cluster", (1,)),
            )

    def _block_body(self, builder: BlockBuilder, head: Token) -> BlockGraph:
        values: dict[str, Value] = {}
        for first in self._statements():
            if self._is_keyword(first, "save"):
                self._mark("(")
                value = self._lookup(values, self._name("the name of a tile"))
                self._mark(")")
                omap = self._axis_map("omap")
                with located(first.place):
                    builder.save(value, omap=omap)
                continue
            self._block_node(builder, values, self._results(first))
        with located(head.place):
            return builder.build()

    def _block_node(self, builder: BlockBuilder, values: dict[str, Value], stated: Sequence[_Stated]) -> None:
        head = self._next("name", "'load', 'accumulate', 'running_max', 'thread_graph' or the name of an operator")
        match head.text:
            case "load":
                self._load(builder, head)
            case "accumulate":
                self._accumulate(builder, values, head)
            case "running_max":
                call = self._call(head, operands=1, attributes=())
                with located(head.place):
                    builder.running_max(self._lookup(values, call.operands[0]))
            case "thread_graph":
                call = self._call(head, attributes=())
                operands = [self._lookup(values, token) for token in call.operands]
                inner = self._thread_body()
                with located(head.place):
                    builder.thread(inner, *operands)
            case _:
                self._operator(builder, values, self._call(head))
        tiles = []
        for made, result in self._matched(builder.nodes[-1].results, stated, head):
            assert isinstance(made, SharedTensor)
            if result.type is None:
                tiles.append(replace(made, name=result.token.text))
                continue
            self._no_strides(result.type)
            with located(result.type.token.place):
                tiles.append(SharedTensor(result.token.text, result.type.shape, result.type.dtype, result.type.ragged))
        with located(stated[0].token.place):
            for value in builder.restate(*tiles):
                values[value.name] = value

    def _load(self, builder: BlockBuilder, head: Token) -> None:
        self._mark("(")
        source = self._peek()
        operand = self._integer() if source.kind == "number" else self._name("the name or position of an operand").text
        self._mark(")")
        imap = self._axis_map("imap")
        fmap = None
        if self._peek().kind == "name" and self._peek().text == "fmap":
            self._take()
            (fmap,) = self._integers("(", ")", count=1)
        with located(head.place):
            builder.load(operand, imap=imap, fmap=fmap)

    def _accumulate(self, builder: BlockBuilder, values: dict[str, Value], head: Token) -> None:
        kinds = ", ".join(kind.value for kind in AccumulatorKind)
        word = self._next("name", f"a kind of accumulator ({kinds})")
        if word.text not in {kind.value for kind in AccumulatorKind}:
            raise expected(word, f"a kind of accumulator ({kinds})")
        call = self._call(word, attributes=("columns", "eps"))
        if not 1 <= len(call.operands) <= 2:
            raise expected(word, "a tile, and a rescaling factor if the kind needs one")
        operands = [self._lookup(values, token) for token in call.operands]
        columns, eps = call.attributes.get("columns"), call.attributes.get("eps", 0)
        if not isinstance(columns, int | None) or not isinstance(eps, int | Fraction):
            raise expected(word, "a whole number of columns and a number eps")
        rescale = operands[1] if len(operands) > 1 else None
        with located(head.place):
            builder.accumulate(operands[0], word.text, rescale=rescale, columns=columns, eps=Fraction(eps))

    # ------------------------------------------------------------------------------------------------------- thread
    def _thread_body(self) -> ThreadGraph:
        builder = ThreadBuilder()
        values: dict[str, Value] = {}
        output: Value | None = None
        for first in self._statements():
            if self._is_keyword(first, "input"):
                name, stated = self._declaration("the name of the input")
                self._no_cuts(stated)
                self._no_strides(stated)
                with located(name.place):
                    values[name.text] = builder.input(name.text, stated.shape, stated.dtype)
            elif self._is_keyword(first, "output"):
                if output is not None:
                    raise expected(first, "'}' (a thread graph has one output)")
                output = self._lookup(values, self._name("the name of the output"))
            else:
                self._thread_node(builder, values, self._results(first))
        closing = self._tokens[self._position - 1]
        if output is None:
            raise expected(closing, "'output' before it")
        with located(closing.place):
            return builder.build(output)

    def _thread_node(self, builder: ThreadBuilder, values: dict[str, Value], stated: Sequence[_Stated]) -> None:
        head = self._next("name", "the name of an operator")
        self._operator(builder, values, self._call(head))
        registers = []
        for made, result in self._matched(builder.nodes[-1].results, stated, head):
            assert isinstance(made, RegisterTensor)
            if result.type is None:
                registers.append(replace(made, name=result.token.text))
                continue
            self._no_cuts(result.type)
            self._no_strides(result.type)
            registers.append(RegisterTensor(result.token.text, result.type.shape, result.type.dtype))
        with located(stated[0].token.place):
            for value in builder.restate(*registers):
                values[value.name] = value

    # ------------------------------------------------------------------------------------------------ parts of lines
    def _statements(self) -> Iterator[Token]:
        """Yield the first word of every statement between braces; whoever takes it reads the rest of the statement."""
        self._mark("{")
        self._skip_lines()
        while not self._is_mark("}"):
            yield self._name("a statement or '}'")
            if not self._skip_lines() and not self._is_mark("}"):
                raise expected(self._peek(), "the end of the line or '}'")
        self._mark("}")

    def _operator(
        self, builder: KernelBuilder | BlockBuilder | ThreadBuilder, values: dict[str, Value], call: _Call
    ) -> None:
        with located(call.word.place):
            known = {attribute.name for attribute in operator(call.word.text).attributes}
        for name in call.attributes:
            if name not in known:
                raise expected(call.word, f"an operator with an attribute {name!r}")
        operands = [self._lookup(values, token) for token in call.operands]
        with located(call.word.place):
            builder.apply_all(call.word.text, *operands, name=None, **call.attributes)

    def _call(self, word: Token, *, operands: int | None = None, attributes: Sequence[str] | None = None) -> _Call:
        names: list[Token] = []
        found: dict[str, AttributeValue] = {}
        self._mark("(")
        while not self._is_mark(")"):
            token = self._name("an operand, an attribute or ')'")
            if self._is_mark("="):
                if token.text in found or (attributes is not None and token.text not in attributes):
                    raise expected(token, f"an attribute of {word.text}, each once")
                self._take()
                found[token.text] = self._attribute()
            elif found:
                raise expected(self._peek(), "'=' (operands stand before attributes)")
            else:
                names.append(token)
            if not self._is_mark(")"):
                self._mark(",", "',' or ')'")
        self._mark(")")
        if operands is not None and len(names) != operands:
            raise expected(word, f"{operands} operand{'s' * (operands != 1)} of {word.text}")
        return _Call(word, tuple(names), found)

    def _attribute(self) -> AttributeValue:
        token = self._peek()
        if token.kind == "string":
            return self._take().text
        if self._is_mark("("):
            return self._integers("(", ")")
        return self._number()

    def _number(self) -> int | Fraction:
        token = self._next("number", "a number, a quoted word or '('")
        found = _DECIMAL.fullmatch(token.text)
        assert found is not None
        exponent, denominator = found["exponent"] or "0", found["denominator"] or "1"
        too_long = len(token.text) > _LONGEST_NUMBER or len(exponent) > 5 or abs(int(exponent)) > _LARGEST_EXPONENT
        if too_long or not int(denominator):
            raise expected(token, f"a number of at most {_LONGEST_NUMBER} digits, with a denominator above 0")
        if found["exponent"] is None and "." not in token.text and found["denominator"] is None:
            return int(token.text)
        numerator, _, _ = token.text.partition("/")
        return Fraction(numerator) / int(denominator)

    def _integer(self) -> int:
        token = self._next("number", "a whole number")
        if not token.text.lstrip("-").isdigit() or len(token.text) > MAX_DIGITS:
            raise expected(token, f"a whole number of at most {MAX_DIGITS} digits")
        return int(token.text)

    def _integers(self, opening: str, closing: str, *, count: int | None = None) -> tuple[int, ...]:
        found = []
        start = self._mark(opening)
        while not self._is_mark(closing):
            found.append(self._integer())
            if not self._is_mark(closing):
                self._mark(",", f"',' or '{closing}'")
        self._mark(closing)
        if count is not None and len(found) != count:
            raise expected(start, f"{count} number{'s' * (count != 1)} in {opening}{closing}")
        return tuple(found)

    def _axis_map(self, word: str) -> tuple[int | None, ...]:
        entries: list[int | None] = [None, None, None]
        if self._peek().kind != "name" or self._peek().text != word:
            return tuple(entries)
        self._take()
        self._mark("(")
        while not self._is_mark(")"):
            axis = self._next("name", "a grid axis x, y or z")
            if axis.text not in GRID_AXES or entries[GRID_AXES.index(axis.text)] is not None:
                raise expected(axis, "a grid axis x, y or z, each once")
            self._mark(":")
            entries[GRID_AXES.index(axis.text)] = self._integer()
            if not self._is_mark(")"):
                self._mark(",", "',' or ')'")
        self._mark(")")
        return tuple(entries)

    def _declaration(self, what: str) -> tuple[Token, _Type]:
        name = self._name(what)
        self._mark(":")
        return name, self._type()

    def _type(self) -> _Type:
        word = self._next("name", "a data type")
        with located(word.place):
            dtype = as_dtype(word.text)
        self._mark("[")
        shape: list[int] = []
        ragged: list[RaggedSplit | None] = []
        while not self._is_mark("]"):
            shape.append(self._integer())
            ragged.append(self._split())
            if not self._is_mark("]"):
                self._mark(",", "',' or ']'")
        self._mark("]")
        strides: Strides = ()
        if self._peek().kind == "name" and self._peek().text == "strides":
            self._take()
            strides = self._integers("(", ")", count=len(shape))
        return _Type(dtype, tuple(shape), tuple(ragged), strides, word)

    def _split(self) -> RaggedSplit | None:
        if self._peek().kind != "name" or self._peek().text != "of":
            return None
        self._take()
        extent, parts = self._integer(), []
        while self._is_mark("/"):
            self._take()
            axis = self._next("name", "x, y, z or loop")
            if axis.text not in _CUT_AXES:
                raise expected(axis, "x, y, z or loop")
            self._mark(":")
            parts.append((_CUT_AXES[axis.text], self._integer()))
        if not parts:
            raise expected(self._peek(), "'/' and the cuts of the ragged extent")
        return RaggedSplit(extent, tuple(parts))

    def _results(self, first: Token) -> list[_Stated]:
        stated, token = [], first
        while True:
            if token.kind not in ("name", "string"):
                raise expected(token, "the name of a result")
            kind = None
            if self._is_mark(":"):
                self._take()
                kind = self._type()
            stated.append(_Stated(token, kind))
            if not self._is_mark(","):
                break
            self._take()
            token = self._name("the name of a result")
        self._mark("=", "':', ',' or '='")
        return stated

    def _matched(self, made: Sequence[Tensor], stated: Sequence[_Stated], head: Token) -> list[tuple[Tensor, _Stated]]:
        if len(made) != len(stated):
            raise expected(head, f"an operator with {len(stated)} results (this one has {len(made)})")
        return list(zip(made, stated, strict=True))

    def _no_cuts(self, stated: _Type) -> None:
        if any(split is not None for split in stated.ragged):
            raise expected(stated.token, "a type without cuts (only tiles of a block graph are cut)")

    def _no_strides(self, stated: _Type) -> None:
        if stated.strides:
            raise expected(stated.token, "a type without strides (only tensors in device memory have them)")

    def _lookup(self, values: dict[str, Value], token: Token) -> Value:
        if token.text not in values:
            known = ", ".join(values) or "none"
            raise expected(token, f"the name of a tensor defined before (a cycle cannot be ordered); known: {known}")
        return values[token.text]

    # ------------------------------------------------------------------------------------------------------- tokens
    def _peek(self) -> Token:
        return self._tokens[self._position]

    def _take(self) -> Token:
        token = self._tokens[self._position]
        if token.kind != "end":
            self._position += 1
        return token

    def _next(self, kind: str, what: str) -> Token:
        if self._peek().kind != kind:
            raise expected(self._peek(), what)
        return self._take()

    def _name(self, what: str) -> Token:
        if self._peek().kind not in ("name", "string"):
            raise expected(self._peek(), what)
        return self._take()

    def _names(self) -> list[Token]:
        found = [self._name("the name of a tensor")]
        while self._is_mark(","):
            self._take()
            found.append(self._name("the name of a tensor"))
        return found

    def _is_mark(self, mark: str) -> bool:
        return self._peek().kind == "mark" and self._peek().text == mark

    def _is_keyword(self, token: Token, word: str) -> bool:
        return token.kind == "name" and token.text == word

    def _mark(self, mark: str, what: str | None = None) -> Token:
        if not self._is_mark(mark):
            raise expected(self._peek(), what or repr(mark))
        return self._take()

    def _skip_lines(self) -> bool:
        skipped = False
        while self._peek().kind == "newline":
            self._take()
            skipped = True
        return skipped
