"""The algebraic structure of a µGraph: what is left when sizes and schedule are erased.

Composites, sugar and thread graphs are expanded; constants are carried outwards as far as the operators' laws allow, the
1/n of a mean as a count; equal values are one. Invariant: two graphs have one structure exactly if their texts are equal;
the text numbers values by their place in the computation, never by name or order in the graph.

Kept: operators, wiring, the place of each (kernel, block, loop, after the loop), looped dimensions, and dimensions split
over blocks that the outputs do not show whole. Erased: extents, types, strides, grid, loop, block and cluster counts, the
grid's tiling of other dimensions, accumulators over no loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import assert_never

from workbench.core.tensors import DeviceTensor
from workbench.ops.movement import reshape_sources
from workbench.ops.spec import Concatenated, DimSource, Factor, Homogeneity, OpKind, Piece, Product, Regrouped, Same
from workbench.ugraph.atoms import AtomKind, Atoms, Run
from workbench.ugraph.counts import constant_value, recognize_counts
from workbench.ugraph.dataflow import Dataflow, Step
from workbench.ugraph.dimensions import SIZE_ATTRIBUTES, Dimensions
from workbench.ugraph.expanded_dataflow import flatten_expanded
from workbench.ugraph.hashes import digest
from workbench.ugraph.inference import LOOP, Place
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, InputIterator, OpNode, OutputSaver, RunningMax
from workbench.ugraph.scalars import ONE, scalar
from workbench.ugraph.structure_terms import MINUS, UNIT, Coefficient, Exponent, Printer, Term, Vertex, exponent_of


def structure_hash(graph: KernelGraph) -> str:
    """Return the hash of `structure_text`, 32 hexadecimal digits."""
    return digest("structure", structure_text(graph))


def structure_text(graph: KernelGraph) -> str:
    """Return the structure of a program, one value a line in the order of the computation.

    `t5 = matmul (t3, t4) [loop of A]`: in the loop of block graph A; `n(t4)^-1 * t6`: t6 over the number of elements that
    the sum t4 folds; `t6 stretched -1`: a dimension of extent 1 meets a longer one, counted from the end.
    """
    structure = _Structure(graph)
    ranks = "inputs of rank " + " ".join(str(rank) for rank in structure.ranks)
    return f"{ranks}\n{Printer(structure.vertices).text(structure.outputs)}"


class _Structure:
    """The vertices of a program, each value once.

    Attributes: vertices; outputs: terms in the order of the program's outputs; ranks: of the program's inputs.
    """

    def __init__(self, graph: KernelGraph) -> None:
        self.flow: Dataflow = flatten_expanded(graph)
        self.dimensions = Dimensions(self.flow, Atoms(watched=False))
        self.dimensions.derive()
        self.counts = recognize_counts(self.dimensions, roots=True)
        self.ranks = [len(tensor.shape) for tensor in graph.inputs]
        self._positions = {tensor.name: position for position, tensor in enumerate(graph.inputs)}
        self._makers = self.flow.makers()
        self._stored: dict[int, list[Run]] = {}
        self.vertices: list[Vertex] = []
        self._known: dict[tuple[int | None, str], int] = {}
        self._of_step: dict[int, int] = {}
        self._terms: dict[int, Term] = {}
        self._saved: list[tuple[int, Term]] = []
        self._looped = [
            block.forloop_range > 1 or any(node.fmap is not None for node in block.iterators)
            for block in (node.block for node in self.flow.launches)
        ]
        self._one = self._vertex("1", (), "", None)
        launch: int | None = None
        for number, step in enumerate(self.flow.steps):
            if step.launch != launch:
                self._store()
                launch = step.launch
            self._step(number, step)
        self._store()
        self.outputs = [self._settled(self._terms[value]) for value in self.flow.outputs]

    def digest_of(self, vertex: int) -> str:
        """Return the digest of a vertex."""
        return self.vertices[vertex].digest

    def _vertex(self, label: str, terms: Sequence[Term], place: str, launch: int | None, salt: str = "") -> int:
        code = digest(label, place, salt, *(term.text(self.digest_of) for term in terms))
        if (launch, code) not in self._known:
            self._known[launch, code] = number = len(self.vertices)
            below = 1 << number
            for term in terms:
                below |= self.vertices[term.vertex].below
            self.vertices.append(Vertex(label, tuple(terms), place, launch, code, below))
        return self._known[launch, code]

    def _store(self) -> None:
        """Make kernel values of what a launch saves; which values are saved together belongs to the structure."""
        together = digest(*sorted(self.digest_of(term.vertex) for _, term in self._saved))
        for value, term in self._saved:
            vertex = self._vertex("store", [Term(term.vertex, port=term.port)], "kernel", None, together)
            self._terms[value] = Term(vertex, term.coefficient)
        self._saved = []

    # ------------------------------------------------------------------------------------------------------ per step
    def _step(self, number: int, step: Step) -> None:
        operands = [self._terms[value] for value in step.operands]
        match step.node:
            case DeviceTensor():
                position = self._positions[step.node.name]
                result = Term(self._vertex(f"input {position}", (), "kernel", None))
            case InputIterator():
                result = self._plain(step, self._load_label(step), operands)
            case Accumulator():
                result = self._accumulator(number, step, operands)
            case RunningMax():
                result = self._homogeneous(
                    step, "running max", operands, (Homogeneity((0,), Fraction(1), positive=True),)
                )
            case OutputSaver():
                self._saved.append((step.results[0], operands[0]))
                return
            case OpNode():
                result = self._operator(number, step, operands)
            case _:
                assert_never(step.node)
        self._of_step[number] = result.vertex
        for port, value in enumerate(step.results):
            self._terms[value] = Term(result.vertex, result.coefficient, result.port or port)

    def _place(self, step: Step) -> str:
        if step.launch is None:
            return "kernel"
        if not self._looped[step.launch]:
            return "block"
        if step.place is Place.LOOP:
            return "loop"
        return "after the loop" if step.place is Place.AFTER else "at any time"

    def _plain(self, step: Step, label: str, operands: Sequence[Term]) -> Term:
        """Return a vertex through whose only operand every constant passes."""
        (operand,) = operands
        vertex = self._vertex(label, [Term(operand.vertex, port=operand.port)], self._place(step), step.launch)
        return Term(vertex, operand.coefficient)

    def _load_label(self, step: Step) -> str:
        node = step.node
        assert isinstance(node, InputIterator)
        rank = len(self.flow.shapes[step.operands[0]])
        cut = sorted({dim for dim in node.imap if dim is not None})
        split = [f"split {dim - rank}" for dim in cut if self._is_split(step, dim)]
        looped = [] if node.fmap is None else [f"looped {node.fmap - rank}"]
        return " ".join(["load", *looped, *split])

    def _is_split(self, step: Step, dim: int) -> bool:
        """Return True when the grid cuts a dimension that no output of the launch shows whole, or that it shows in parts."""
        node, launch = step.node, step.launch
        assert isinstance(node, InputIterator)
        assert launch is not None
        atoms = self.dimensions.atoms
        axes = [axis for axis in range(LOOP) if node.imap[axis] == dim]
        saved = self._saved_runs(launch)
        base = atoms.normal(self.dimensions.values[step.operands[0]][dim])
        counts = [atoms.find(self.dimensions.grid[launch][axis]) for axis in axes]
        if any(count in run for count in counts for run in saved):
            return True
        whole = any(base == run[at : at + len(base)] for run in saved for at in range(len(run)))
        return not whole and any(atoms.extents[count] > 1 for count in counts)

    def _saved_runs(self, launch: int) -> list[Run]:
        """Return the dimensions of what a launch stores."""
        if launch not in self._stored:
            self._stored[launch] = [
                self.dimensions.atoms.normal(run)
                for step in self.flow.steps
                if step.launch == launch and isinstance(step.node, OutputSaver)
                for run in self.dimensions.values[step.results[0]]
            ]
        return self._stored[launch]

    def _accumulator(self, number: int, step: Step, operands: list[Term]) -> Term:
        node, launch = step.node, step.launch
        assert isinstance(node, Accumulator)
        assert launch is not None
        law = (Homogeneity((0,), Fraction(1), positive=node.kind is AccumulatorKind.MAX),)
        folds = self.flow.block(launch).forloop_range > 1 or self._varies(step.operands[0])
        if node.kind is AccumulatorKind.MEAN:
            place = "loop" if self._looped[launch] else "block"
            inner = Term(operands[0].vertex, port=operands[0].port)
            vertices = [self._vertex("sum -1", [inner], place, launch)]
            if folds:
                vertices.append(self._vertex("accumulate sum", [Term(vertices[0])], self._place(step), launch))
            counted = Coefficient(ONE, tuple([(vertex, -1) for vertex in sorted(vertices)]))
            return Term(vertices[-1], operands[0].coefficient.times(counted))
        if not folds:
            return operands[0]
        return self._homogeneous(step, f"accumulate {node.kind.value}", operands, law)

    def _varies(self, value: int) -> bool:
        """Return True when a value of a block graph is made in the loop."""
        return self._makers[value].place is Place.LOOP

    # ----------------------------------------------------------------------------------------------------- operators
    def _operator(self, number: int, step: Step, operands: list[Term]) -> Term:
        node = step.node
        assert isinstance(node, OpNode)
        operands = [self._noted(step, position, operand) for position, operand in enumerate(operands)]
        laws = node.spec.homogeneous(node.attribute_map)
        match node.op:
            case "constant" | "scale":
                base = operands[0] if operands else Term(self._one)
                value = constant_value(self.flow, number)
                if value == 0:
                    return Term(self._vertex("times 0", [Term(base.vertex)], self._place(step), step.launch))
                factor = Coefficient(ONE if value > 0 else MINUS.number, (), ((number, 1),))
                return Term(base.vertex, base.coefficient.times(factor), base.port)
            case "neg":
                return Term(operands[0].vertex, operands[0].coefficient.times(MINUS), operands[0].port)
            case "sub":
                both = [operands[0], operands[1].scaled(MINUS)]
                return self._homogeneous(step, "add", both, laws, commutative=True)
            case "mul" | "div" if any(operand.vertex == self._one for operand in operands):
                return self._by_constant(step, node.op, operands, laws)
            case "mul":
                return self._product(step, operands, laws)
            case "mean":
                inner = Term(operands[0].vertex, port=operands[0].port)
                vertex = self._vertex(f"sum {node.attribute_map['axis']}", [inner], self._place(step), step.launch)
                counted = Coefficient(ONE, ((vertex, -1),))
                return Term(vertex, operands[0].coefficient.times(counted))
            case _:
                label = node.op + self._attributes(number, step, node)
                return self._homogeneous(step, label, operands, laws, commutative=node.spec.commutative)

    def _settled(self, term: Term) -> Term:
        """Return a term whose constants have been carried as far as they go: counts of sums below it, or numbers."""
        if not term.coefficient.pending:
            return term
        coefficient = Coefficient(term.coefficient.number, term.coefficient.counts)
        for number, exponent in term.coefficient.pending:
            value = Coefficient(scalar(abs(constant_value(self.flow, number))))
            if number in self.counts:
                spans = self.counts[number].spans
                powers: dict[int, Exponent] = {
                    self._of_step.get(step, -1): exponent_of(span.exponent) for span in spans for step in span.steps
                }
                below = self.vertices[term.vertex].below
                if all(vertex >= 0 and below >> vertex & 1 for vertex in powers):
                    value = Coefficient(ONE, tuple(sorted(powers.items())))
            coefficient = coefficient.times(value, exponent)
        return Term(term.vertex, coefficient, term.port, term.note)

    def _by_constant(self, step: Step, op: str, operands: list[Term], laws: Sequence[Homogeneity]) -> Term:
        left, right = operands
        if op == "mul" and left.vertex == self._one:
            left, right = right, left
        if right.vertex == self._one:
            degree = 1 if op == "mul" else -1
            return Term(left.vertex, left.coefficient.times(right.coefficient, degree), left.port)
        return self._homogeneous(step, op, [left, right], laws)

    def _product(self, step: Step, operands: list[Term], laws: Sequence[Homogeneity]) -> Term:
        """Return a product; x * (1 / y) is x / y, as rsqrt and sigmoid are spelt both ways."""
        inverse = [operand for operand in operands if self._is_reciprocal(operand, step)]
        if len(inverse) == 1:
            other = operands[1] if operands[0] is inverse[0] else operands[0]
            (_, below) = self.vertices[inverse[0].vertex].terms
            denominator = Term(below.vertex, below.coefficient, below.port, inverse[0].note)
            quotient = self._homogeneous(step, "div", [other, denominator], laws[:1])
            return Term(quotient.vertex, quotient.coefficient.times(inverse[0].coefficient))
        return self._homogeneous(step, "mul", operands, laws, commutative=True)

    def _is_reciprocal(self, term: Term, step: Step) -> bool:
        vertex = self.vertices[term.vertex]
        here = (vertex.place, vertex.launch) == (self._place(step), step.launch)
        return here and vertex.label == "div" and vertex.terms[0].vertex == self._one

    def _homogeneous(
        self,
        step: Step,
        label: str,
        operands: Sequence[Term],
        laws: Sequence[Homogeneity],
        *,
        commutative: bool = False,
    ) -> Term:
        """Return a vertex, what its laws let through carried out of its operands."""
        if all([term.coefficient is UNIT for term in operands]):
            terms, outside = list(operands), UNIT
        else:
            terms, outside = self._carried_out(operands, laws, commutative)
        if commutative:
            terms.sort(key=lambda term: term.text(self.digest_of))
        return Term(self._vertex(label, terms, self._place(step), step.launch), outside)

    def _carried_out(
        self, operands: Sequence[Term], laws: Sequence[Homogeneity], commutative: bool
    ) -> tuple[list[Term], Coefficient]:
        """Return operands without the constants that laws let through, and what these are together."""
        alone = {position for law in laws for position in law.operands if len(law.operands) == 1}
        alone |= {0} if len(operands) == 1 and laws else set()
        terms = [term if number in alone else self._settled(term) for number, term in enumerate(operands)]
        outside = UNIT
        for law in laws:
            which = list(law.operands) or list(range(len(terms)))
            pivot = terms[self._pivot(terms, which, commutative)].coefficient
            if law.positive and pivot.number.sign < 0:
                pivot = Coefficient(pivot.number.magnitude, pivot.counts, pivot.pending)
            if pivot is UNIT:
                continue
            outside = outside.times(pivot, exponent_of(law.degree))
            inverse = UNIT.times(pivot, -1)
            for position in which:
                terms[position] = terms[position].scaled(inverse)
        return terms, outside

    def _pivot(self, terms: Sequence[Term], which: Sequence[int], commutative: bool) -> int:
        """Return the operand whose constant is carried out of a sum: a proper one, the first in a canonical order."""
        proper = [position for position in which if terms[position].vertex != self._one] or list(which)
        if not commutative:
            return proper[0]
        return min(
            proper, key=lambda position: (self.digest_of(terms[position].vertex), terms[position].text(self.digest_of))
        )

    def _noted(self, step: Step, position: int, operand: Term) -> Term:
        """Return an operand with the dimensions noted in which broadcasting stretches it."""
        node = step.node
        assert isinstance(node, OpNode)
        if node.spec.kind not in (OpKind.ELEMENTWISE, OpKind.CONTRACTION) or len(step.operands) < 2:
            return operand
        if 1 not in self.flow.shapes[step.operands[position]]:
            return operand
        first = -1 if node.spec.kind is OpKind.ELEMENTWISE else -3
        dims, result = self.dimensions.values[step.operands[position]], self.dimensions.values[step.results[0]]
        shape, unit = self.flow.shapes[step.operands[position]], self.dimensions.atoms.is_unit
        stretched = [
            axis
            for axis in range(first, -len(dims) - 1, -1)
            if shape[axis] == 1 and unit(dims[axis]) and not unit(result[axis])
        ]
        note = f" stretched {' '.join(map(str, stretched))}" if stretched else ""
        return Term(operand.vertex, operand.coefficient, operand.port, note)

    def _attributes(self, number: int, step: Step, node: OpNode) -> str:
        """Return an operator's attributes with every extent left out."""
        if not node.attributes:
            return ""
        shapes = [self.flow.shapes[value] for value in step.operands]
        texts = []
        for name, value in node.attributes:
            if (node.op, name) not in SIZE_ATTRIBUTES:
                texts.append(str(value) if name == "axis" else f"{name}={value}")
        match node.op:
            case "reshape":
                result = self.flow.shapes[step.results[0]]
                texts += [_source_text(source) for source in reshape_sources(shapes[0], result)]
            case "broadcast":
                sources = node.spec.axes(tuple(shapes), node.attribute_map).results[0]
                texts += [_source_text(source) for source in sources]
            case "split":
                texts.append(f"into {len(step.results)}")
            case "sum_to_columns":
                texts.append("over blocks" if self._are_blocks(self.dimensions.reduced[number][0]) else "over a part")
            case _:
                pass
        return "".join(f" {text}" for text in texts)

    def _are_blocks(self, run: Run) -> bool:
        atoms = self.dimensions.atoms
        return bool(run) and all(atoms.has_kind(atom, AtomKind.GRID) for atom in atoms.resolve(run))


def _source_text(source: DimSource) -> str:
    match source:
        case Same(dims=()):
            return "new"
        case Same(dims=dims):
            return str(dims[0].axis)
        case Product(dims=dims):
            return f"({' '.join(str(dim.axis) for dim in dims)})"
        case Factor(dim=dim, position=position, extents=extents):
            return f"{dim.axis}:{position + 1}/{len(extents)}"
        case Regrouped(dims=dims, position=position, extents=extents):
            return f"({' '.join(str(dim.axis) for dim in dims)}):{position + 1}/{len(extents)}"
        case Concatenated() | Piece():
            return "part"
        case _:
            assert_never(source)
