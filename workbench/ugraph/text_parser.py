"""Reading the text form of µGraphs. Invariant: graphs are made by the builders, so what parses is legal.

A stated type is compared with the inferred one; a type that is left out is the inferred one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from workbench.core.tensors import DeviceTensor, RegisterTensor, SharedTensor
from workbench.ops.registry import operator
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import BlockBuilder, KernelBuilder, ThreadBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.location import located
from workbench.ugraph.nodes import AccumulatorKind, Tensor
from workbench.ugraph.text_phrases import Call, Phrases, StatedResult
from workbench.ugraph.text_tokens import Token, expected
from workbench.ugraph.thread_graph import ThreadGraph
from workbench.ugraph.value import Value

Graph = KernelGraph | BlockGraph | ThreadGraph
KEYWORDS = frozenset({"input", "output", "save"})


class Parser(Phrases):
    """A recursive-descent parser over the tokens of one text."""

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

    def _kernel_node(self, builder: KernelBuilder, values: dict[str, Value], stated: Sequence[StatedResult]) -> None:
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
        self, builder: KernelBuilder, values: dict[str, Value], stated: Sequence[StatedResult], head: Token
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

    def _block_node(self, builder: BlockBuilder, values: dict[str, Value], stated: Sequence[StatedResult]) -> None:
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

    def _thread_node(self, builder: ThreadBuilder, values: dict[str, Value], stated: Sequence[StatedResult]) -> None:
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

    # ------------------------------------------------------------------------------------------------------ shared
    def _operator(
        self, builder: KernelBuilder | BlockBuilder | ThreadBuilder, values: dict[str, Value], call: Call
    ) -> None:
        with located(call.word.place):
            known = {attribute.name for attribute in operator(call.word.text).attributes}
        for name in call.attributes:
            if name not in known:
                raise expected(call.word, f"an operator with an attribute {name!r}")
        operands = [self._lookup(values, token) for token in call.operands]
        with located(call.word.place):
            builder.apply_all(call.word.text, *operands, name=None, **call.attributes)

    def _lookup(self, values: dict[str, Value], token: Token) -> Value:
        if token.text not in values:
            known = ", ".join(values) or "none"
            raise expected(token, f"the name of a tensor defined before (a cycle cannot be ordered); known: {known}")
        return values[token.text]

    def _matched(
        self, made: Sequence[Tensor], stated: Sequence[StatedResult], head: Token
    ) -> list[tuple[Tensor, StatedResult]]:
        if len(made) != len(stated):
            raise expected(head, f"an operator with {len(stated)} results (this one has {len(made)})")
        return list(zip(made, stated, strict=True))
