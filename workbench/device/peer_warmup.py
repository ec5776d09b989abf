"""Let torch compile a program's peers ahead, in a process of its own, so that many programs compile side by side.

Invariant: what is kept is compiled code (Triton's cache on disk) and nothing that was chosen by timing: several processes
share the GPU here, so a choice made now could be a poor one, and peers are to be at their best.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from workbench.core.tensors import DeviceTensor
from workbench.device.contenders import Contender
from workbench.device.peers import COMPILE, COMPILE_FLASH, COMPILE_SDPA, MAX_AUTOTUNE, find_peers
from workbench.ugraph.kernel_graph import KernelGraph

COMPILED = (COMPILE, MAX_AUTOTUNE, COMPILE_SDPA, COMPILE_FLASH)
CHOICE_CACHES = ("fx_graph_cache", "autotune_local_cache", "autotune_remote_cache", "bundle_triton_into_fx_graph_cache")
"""Settings of torch._inductor.config under which results of timing would be kept, by the names of torch 2.6 to 2.13."""

COMPILE_THREADS = "2"


def load_torch() -> bool:
    """Import torch in this process and return whether it is there; that takes seconds."""
    if importlib.util.find_spec("torch") is None:
        return False
    importlib.import_module("torch")
    return True


def warm_peers(job: tuple[KernelGraph, tuple[str, ...], str]) -> list[str]:
    """Compile and run the compiled peers of a program once; return what failed, since a peer that fails is told later.

    job: the program, names of peers, the device. Without torch or a GPU nothing is done.
    """
    program, names, device = job
    wanted = [name for name in names if name in COMPILED]
    if not wanted or importlib.util.find_spec("torch") is None:
        return []
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", COMPILE_THREADS)
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return []
    forget_choices(importlib.import_module("torch._inductor.config"))
    failed = []
    for contender in find_peers(program, device=device, names=wanted, torch=torch).contenders:
        try:
            contender.prepare(random_inputs(program.inputs, contender, torch), [], 0)()
            torch.cuda.synchronize()
        except Exception as error:  # whatever torch says, it is told when the peer is to be timed
            failed.append(f"{contender.name}: {type(error).__name__}: {error}")
    return failed


def forget_choices(config: Any) -> None:
    """Turn off, in this process, whatever keeps results of timing."""
    for name in CHOICE_CACHES:
        if hasattr(config, name):
            setattr(config, name, False)


def random_inputs(tensors: Sequence[DeviceTensor], contender: Contender, torch: Any) -> list[Any]:
    """Return random torch tensors in the layouts that a contender wants."""
    made = []
    for position, tensor in enumerate(tensors):
        strides = contender.layouts.get(position, tensor.strides)
        array = torch.empty_strided(tensor.shape, strides, dtype=getattr(torch, tensor.dtype.value), device="cuda")
        made.append(array.normal_(0.0, 0.3))
    return made
