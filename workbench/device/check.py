"""Does a compiled program compute what it should: run on the GPU and compared with float64 at true shapes.

Invariant: outputs and intermediates are poisoned with NaN before every run, so that what was not written is seen; inputs
must come back unchanged, nothing around an output may be written, and a second run must give the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from workbench.codegen.cuda.storage import Array, from_storage, laid_out, span, storage_dtype
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device.check_inputs import CheckCase, InputKind, make_cases
from workbench.device.comparison import TOLERANCES, OutputComparison, compare
from workbench.device.device_program import DeviceProgram
from workbench.device.executable import Executable
from workbench.device.host_copies import DEVICE_TO_HOST, HOST_TO_DEVICE
from workbench.device.launch import explain_failure, load_cupy
from workbench.errors import LaunchError
from workbench.ugraph.kernel_graph import KernelGraph

GUARD_BYTES = 512
"""Bytes before and after every array that must stay as they are; 0 leaves them to a memory checker."""

POISON = 0xFF  # every float type reads it as NaN


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseReport:
    """What came of one set of inputs; `problems` is empty when it is right."""

    name: str
    outputs: tuple[OutputComparison, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What came of a check: a report per case, seconds."""

    cases: tuple[CaseReport, ...]
    elapsed_s: float

    @property
    def is_right(self) -> bool:
        """True when every case is right."""
        return bool(self.cases) and not any(case.problems for case in self.cases)

    @property
    def reason(self) -> str:
        """What is wrong first, "" when nothing is."""
        return next((f"{case.name} inputs: {case.problems[0]}" for case in self.cases if case.problems), "")

    @property
    def relative_error(self) -> float:
        """The largest relative error of any output in any case; NaN where one is not finite."""
        errors = [output.relative_error for case in self.cases for output in case.outputs]
        return float(np.max(errors)) if errors else float("nan")

    def describe(self) -> str:
        """Return one line for each output of each case."""
        lines = ["right" if self.is_right else f"WRONG: {self.reason}"]
        for case in self.cases:
            lines += [
                f"  {case.name} inputs, {output.name}: error {output.relative_error:.1e}, worst row "
                f"{output.worst_row:.1e} at {output.row}, worst element {output.worst_element:.1e} at {output.element}"
                for output in case.outputs
            ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {"is_right": self.is_right, "reason": self.reason, **asdict(self)}


def check_executable(
    executable: Executable,
    reference: KernelGraph | None = None,
    *,
    seed: int = 0,
    cases: Sequence[CheckCase] | None = None,
    tolerances: Mapping[DType, float] = TOLERANCES,
) -> CheckReport:
    """Return how a compiled program compares with `reference` (default: its own graph) on random and on hard inputs.

    cases: inputs and right outputs that were made before (`make_cases`); else they are made from the seed.
    Raises: LaunchError when there is no GPU, or the kernel faults (then this process' CUDA context is lost: check what is
    not trusted in a worker, `check_worker.check_in_worker`).
    """
    started = time.perf_counter()
    program = executable.load()
    graph = reference or executable.graph
    chosen = cases if cases is not None else cases_for(graph, executable.graph, seed=seed)
    runner = _Runner(executable, program, tolerances)
    reports = tuple(runner.check(case) for case in chosen)
    return CheckReport(cases=reports, elapsed_s=time.perf_counter() - started)


def cases_for(
    reference: KernelGraph, candidate: KernelGraph, *, seed: int = 0, kinds: Sequence[InputKind] = tuple(InputKind)
) -> tuple[CheckCase, ...]:
    """Return a case of each kind, the reference evaluated on the GPU where it is made of predefined operators.

    Tiles of block graphs are cut on the host. Raises: as `make_cases`; LaunchError when there is no GPU.
    """
    namespace = np if reference.graph_defined else load_cupy()
    return make_cases(reference, [candidate], seed=seed, kinds=kinds, namespace=namespace)


class _Guarded:
    """An array on the device between two guards, all bytes poison until something is stored."""

    def __init__(self, tensor: DeviceTensor, cupy: Any) -> None:
        self.tensor, self._runtime = tensor, cupy.cuda.runtime
        self._guard, self._nbytes = GUARD_BYTES, span(tensor) * tensor.dtype.nbytes
        self._host = np.empty(2 * self._guard + self._nbytes, np.uint8)
        self._memory = cupy.cuda.alloc(self._host.nbytes)

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return int(self._memory.ptr) + self._guard

    def _elements_of(self, memory: Array) -> Array:
        return memory[self._guard : self._guard + self._nbytes].view(storage_dtype(self.tensor.dtype))

    def write(self, array: Array | None) -> None:
        """Poison everything, then store an array if one is given."""
        self._host[:] = POISON
        if array is not None:
            laid_out(self._elements_of(self._host), self.tensor)[...] = array
        self._runtime.memcpy(int(self._memory.ptr), self._host.ctypes.data, self._host.nbytes, HOST_TO_DEVICE)

    def read(self) -> Array:
        """Return all bytes, guards included."""
        memory = np.empty_like(self._host)
        self._runtime.memcpy(memory.ctypes.data, int(self._memory.ptr), memory.nbytes, DEVICE_TO_HOST)
        return memory

    def values(self, memory: Array) -> Array:
        """Return the stored elements of what `read` gave."""
        return laid_out(self._elements_of(memory), self.tensor)

    def is_intact(self, memory: Array) -> bool:
        """Return whether all that is not an element still holds poison."""
        rest = memory.copy()
        bits = np.dtype(f"u{self.tensor.dtype.nbytes}")
        laid_out(self._elements_of(rest).view(bits), self.tensor)[...] = np.iinfo(bits).max
        return bool((rest == POISON).all())


class _Runner:
    """Runs one program on cases, in buffers that stay."""

    def __init__(self, executable: Executable, program: DeviceProgram, tolerances: Mapping[DType, float]) -> None:
        self._cupy = load_cupy()
        self._program = program
        self._inputs = [_Guarded(tensor, self._cupy) for tensor in executable.inputs]
        self._outputs = [_Guarded(tensor, self._cupy) for tensor in executable.outputs]
        types = [tensor.dtype for tensor in (*executable.inputs, *executable.graph.tensors.values())]
        types = [dtype for dtype in types if dtype in tolerances]
        self._tolerance = max((tolerances[dtype] for dtype in types), default=max(tolerances.values()))
        self._go = program.bind([array.pointer for array in self._inputs], [array.pointer for array in self._outputs])

    def check(self, case: CheckCase) -> CaseReport:
        """Run twice and compare. Raises: LaunchError."""
        sent = []
        for array, values in zip(self._inputs, case.inputs, strict=True):
            array.write(values)
            sent.append(array.read())
        first, second = self._run(), self._run()
        problems = []
        for array, before in zip(self._inputs, sent, strict=True):
            if not np.array_equal(array.read(), before):
                problems.append(f"input {array.tensor.name} was changed")
        comparisons = []
        for array, memory, again, expected in zip(self._outputs, first, second, case.expected, strict=True):
            found = from_storage(array.values(memory), array.tensor.dtype)
            comparisons.append(compare(array.tensor.name, found, expected, self._tolerance))
            if comparisons[-1].problem:
                problems.append(comparisons[-1].problem)
            if not array.is_intact(memory):
                problems.append(f"memory around output {array.tensor.name} was written")
            if not np.array_equal(memory, again):
                problems.append(f"output {array.tensor.name} differs from run to run")
        return CaseReport(name=case.name, outputs=tuple(comparisons), problems=tuple(problems))

    def _run(self) -> list[Array]:
        for array in self._outputs:
            array.write(None)
        self._program.fill_workspace(POISON)
        try:
            self._go(0)
            self._cupy.cuda.runtime.deviceSynchronize()
        except RuntimeError as error:
            if isinstance(error, LaunchError):
                raise
            raise explain_failure(self._program.program.name, "faulted on the device", error) from error
        return [array.read() for array in self._outputs]
