"""What a program would otherwise run on: torch eager and compiled, its fused attentions, cuBLAS, each as a contender.

Invariant: a peer is made from the program's graph alone, in the layout that suits it best, and is checked and timed by the
same code as ours; what a peer cannot do is said in one line and is no error.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.codegen.cuda.emitted import LibraryMatmul
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.core.layouts import Strides
from workbench.device.array_kinds import ArrayKind
from workbench.device.attention_pattern import find_attention, key_layouts
from workbench.device.contenders import Contender, Launch, Refusal, contender_of
from workbench.device.executable import compile as compile_graph
from workbench.device.torch_program import torch_program
from workbench.errors import EmitError, KernelCompileError, LaunchError, MissingRuleError
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph

EAGER, COMPILE, MAX_AUTOTUNE = "eager", "compile", "compile max-autotune"
SDPA_FLASH, SDPA_CUDNN, SDPA_EFFICIENT = "sdpa flash", "sdpa cudnn", "sdpa efficient"
COMPILE_SDPA, COMPILE_FLASH = "compile sdpa", "compile sdpa flash"
CUBLAS = "cublas and own kernels"
ALL_PEERS = (EAGER, COMPILE, MAX_AUTOTUNE, SDPA_FLASH, SDPA_CUDNN, SDPA_EFFICIENT, COMPILE_SDPA, COMPILE_FLASH, CUBLAS)
"""Every peer, in the order in which they are captured; compiling is over before anything is timed."""

_BACKENDS = {
    SDPA_FLASH: "FLASH_ATTENTION", SDPA_CUDNN: "CUDNN_ATTENTION", SDPA_EFFICIENT: "EFFICIENT_ATTENTION",
    COMPILE_FLASH: "FLASH_ATTENTION",
}  # fmt: skip
_AROUND_SDPA = (COMPILE_SDPA, COMPILE_FLASH)


MOST_COMPILED = 64
"""Functions of one wrapper that torch may compile; a program has four."""


@dataclass(frozen=True, slots=True)
class Peers:
    """The peers of a program, and those that there are not, with the reason."""

    contenders: tuple[Contender, ...]
    refused: tuple[Refusal, ...]


def find_peers(
    program: KernelGraph,
    *,
    device: str,
    names: Sequence[str] = ALL_PEERS,
    tolerance: float | None = None,
    torch: Any = None,
) -> Peers:
    """Return the peers of a program of predefined operators.

    tolerance: relative error allowed, for peers round every intermediate to its type; torch: the module, else it is
    imported where it is installed. A fused attention is a peer only where the program has one, and the compiled one only
    where there is more to compile. What torch compiled for an earlier program is forgotten.
    """
    contenders: list[Contender] = []
    refused: list[Refusal] = []
    if torch is None and importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")
    if torch is not None and hasattr(torch, "compiler"):
        torch.compiler.reset()  # it counts recompilations over all programs of a process, and gives up after a few
    if torch is not None and torch is sys.modules.get("torch"):
        forget_compiled()
    attention = find_attention(program)
    for name in names:
        is_attention = name in _BACKENDS or name in _AROUND_SDPA
        if is_attention and (not attention or (name in _AROUND_SDPA and _is_attention_alone(program))):
            continue
        try:
            if name == CUBLAS:
                executable = compile_graph(program, device)
                if not executable.library_calls:
                    continue
                made = contender_of(executable, CUBLAS)
                contenders.append(Contender(name=CUBLAS, prepare=made.prepare, tolerance=tolerance))
                continue
            if torch is None:
                refused.append(Refusal(name, "", "torch is not installed; pip install 'mugraph-workbench[torch]'"))
                continue
            function = torch_program(program, attention if is_attention else ()).load(torch)
            layouts = key_layouts(program, attention) if is_attention else {}
            contenders.append(_torch_contender(name, function, layouts, tolerance, torch))
        except (EmitError, KernelCompileError, LaunchError, MissingRuleError) as error:
            refused.append(Refusal(name, "", str(error)))
    return Peers(tuple(contenders), tuple(refused))


def forget_compiled() -> None:
    """Let torch forget what it compiled: functions made from text share one wrapper, which it refuses after a few programs."""
    importlib.import_module("torch._dynamo").reset()
    config = importlib.import_module("torch._dynamo.config")
    for name in ("recompile_limit", "cache_size_limit"):  # the second is what older versions call it
        if hasattr(config, name):
            setattr(config, name, MOST_COMPILED)


def _is_attention_alone(program: KernelGraph) -> bool:
    found = find_attention(program)
    return len(program.nodes) == sum(len(one.covered) + 1 for one in found)


def _torch_contender(
    name: str, function: Callable[..., Any], layouts: Mapping[int, Strides], tolerance: float | None, torch: Any
) -> Contender:
    """Return a torch function as a contender, under the mode that the name stands for."""
    if name in (COMPILE, *_AROUND_SDPA):
        function = torch.compile(function, fullgraph=True, dynamic=False)
    elif name == MAX_AUTOTUNE:  # graphs are captured by whoever times it, as for everyone
        function = torch.compile(function, fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs")

    def call(inputs: Sequence[Any]) -> Any:
        with torch.no_grad():
            if name not in _BACKENDS:
                return function(*inputs)
            attention = torch.nn.attention
            with attention.sdpa_kernel(getattr(attention.SDPBackend, _BACKENDS[name])):
                return function(*inputs)

    def prepare(inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> Launch:
        def launch() -> Sequence[Any]:
            found = call(inputs)
            return found if isinstance(found, tuple) else (found,)

        return launch

    return Contender(name=name, prepare=prepare, kind=ArrayKind.TORCH, layouts=layouts, tolerance=tolerance)


def product_parts(program: KernelGraph) -> list[tuple[str, KernelGraph]]:
    """Return each product that cuBLAS would compute, as a program of its own, with what it multiplies.

    Parts, timed apart, tell how far the products alone explain a time; no part computes the program, so none is a peer.
    Raises: EmitError.
    """
    if program.graph_defined:
        raise EmitError("parts are those of a program of predefined operators", program.name, "give the program itself")
    emitted = emit_program(program)
    parts = []
    for step in emitted.steps:
        if isinstance(step, LibraryMatmul):
            left, right = program.tensor(step.left), program.tensor(step.right)
            kernel = KernelBuilder(f"{step.left} @ {step.right}")
            kernel.output(
                kernel.input("A", left.shape, left.dtype, left.strides)
                @ kernel.input("B", right.shape, right.dtype, right.strides)
            )
            parts.append((f"{step.left} @ {step.right}", kernel.build()))
    return parts
