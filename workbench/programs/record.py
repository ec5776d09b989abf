"""What a studied program is: sizes, named inputs, one formula per style, and the µGraphs the literature knows for it.

Invariant: shapes are declared once, as names of sizes, so that building a program and reading its sizes off a graph
cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod

from workbench.core.dtypes import DType
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import Value

Dimensions = tuple[str, ...]

OUTPUT = "O"
"""The name of every program's output."""


class Style(Enum):
    """Whose formula: the one users write, or Mirage's own, as in its benchmarks and saved graphs."""

    STANDARD = "standard"
    MIRAGE = "mirage"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One size of a program: its name, its value when not given, and what it counts."""

    name: str
    default: int
    help: str


@dataclass(frozen=True, slots=True)
class Instance:
    """A program whose sizes, style and data type are settled."""

    program: Program
    sizes: Mapping[str, int]
    style: Style
    dtype: DType

    def __getitem__(self, size: str) -> int:
        return self.sizes[size]

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """Shape of each input, in order."""
        declared = self.program.dimensions(self.style)
        return {name: tuple(self.extent(dim) for dim in dims) for name, dims in declared.items()}

    def extent(self, dimension: str) -> int:
        """Return the extent of a declared dimension, `a*b` being a product of sizes."""
        return prod(self.sizes[name] for name in dimension.split("*"))

    def start(self) -> tuple[KernelBuilder, tuple[Value, ...]]:
        """Return a kernel builder that has the program's inputs, and the inputs in order."""
        kernel = KernelBuilder(self.program.name)
        return kernel, tuple(kernel.input(name, shape, self.dtype) for name, shape in self.input_shapes.items())

    def build(self) -> KernelGraph:
        """Return the program as a graph of predefined operators."""
        kernel, inputs = self.start()
        self.program.formula(self, *inputs)
        return self.finish(kernel)

    def finish(self, kernel: KernelBuilder) -> KernelGraph:
        """Return the graph whose output is what the kernel added last makes, under its fixed name and in the data type."""
        (made,) = kernel.nodes[-1].results
        kernel.output(*kernel.restate(DeviceTensor(OUTPUT, made.shape, self.dtype)))
        return kernel.build()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A studied tensor program.

    Attributes:
        name: its one name.
        summary: what it computes and where it stands in a model, in one sentence.
        equations: per style, the formula in readable form.
        inputs: input names in order -> dimensions, each the name of a size or a product `a*b` of two.
        mirage_inputs: the same for Mirage's style, None when it does not differ.
        parameters: its sizes.
        formula: builds the output from the inputs with the operators of `ugraph.value`.
        known_good: builds the µGraphs that the literature knows, best first.
        source: where formula and shapes are taken from.
    """

    name: str
    summary: str
    equations: Mapping[Style, str]
    inputs: Mapping[str, Dimensions]
    mirage_inputs: Mapping[str, Dimensions] | None = None
    parameters: tuple[Parameter, ...]
    formula: Callable[..., Value]
    known_good: Callable[[Instance], list[KernelGraph]]
    source: str

    def dimensions(self, style: Style) -> Mapping[str, Dimensions]:
        """Return the declared inputs of a style."""
        if style is Style.MIRAGE and self.mirage_inputs is not None:
            return self.mirage_inputs
        return self.inputs

    @property
    def defaults(self) -> dict[str, int]:
        """Every size's default."""
        return {parameter.name: parameter.default for parameter in self.parameters}
