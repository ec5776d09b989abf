"""What people run instead, in torch: eager, torch.compile, and the backends of scaled_dot_product_attention.

Peers get their own best layout: K as rows of keys, made before anything is timed. Each is compared with the formula in
float32 and left out, with the reason, where it differs. `warm_peers` compiles into torch's cache, in worker processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.gpu_timing import Maker

Function = Callable[..., Any]
AUTOTUNED = ("lora",)
"""Programs for which `max-autotune` was the best peer; it takes half a minute a program to compile."""


def formulas(program: str) -> Function:
    """Return the program in plain torch."""
    import torch
    from torch.nn import functional

    def rms(x: Any, dim: int = -1) -> Any:
        return torch.rsqrt(x.float().pow(2).mean(dim, keepdim=True) + 1e-6)

    def normed(x: Any, dim: int = -1) -> Any:
        return (x.float() * rms(x, dim)).to(x.dtype)

    def length(x: Any) -> Any:
        return torch.linalg.vector_norm(x, dim=-1, keepdim=True)

    def ntrans(h: Any, x: Any, alpha: Any) -> Any:
        h, x, alpha = h.float(), x.float(), alpha.float()
        y = x + alpha * (h / length(h) - x)
        return (y / length(y)).to(torch.float16)

    def two_linears(x: Any, g: Any, w1: Any, w2: Any) -> Any:
        y = normed(x) * g
        return y @ w1, y @ w2

    found: dict[str, Function] = {
        "rms_norm_linear": lambda x, g, w: (normed(x) * g) @ w,
        "gated_mlp": lambda x, w1, w2: functional.silu(x @ w1) * (x @ w2),
        "lora": lambda x, w, a, b: x @ w + (x @ a) @ b,
        "gqa": lambda q, k, v: torch.softmax(q @ k, -1) @ v,
        "gqa_decode": lambda q, k, v: torch.softmax(q @ k, -1) @ v,
        "qk_norm_attention": lambda q, k, v: torch.softmax(normed(q) @ normed(k, -2), -1) @ v,
        "ntrans": ntrans,
        "two_linears": two_linears,
        "biased_gate": lambda x, w1, w2, b1, b2: functional.silu(x @ w1 + b1) * (x @ w2 + b2),
    }
    return found[program]


def attention(program: str, backend: Any) -> Function:
    """Return attention of (groups, rows, width) by one backend; K has keys as rows."""
    import torch
    from torch.nn.attention import sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def normed(x: Any) -> Any:
        return torch.nn.functional.rms_norm(x, (x.shape[-1],), eps=1e-6)

    def run(q: Any, k: Any, v: Any) -> Any:
        if program == "qk_norm_attention":
            q, k = normed(q), normed(k)
        with sdpa_kernel([backend]):
            return scaled_dot_product_attention(q[None], k[None], v[None], scale=1.0)[0]

    return run


def functions_of(program: str) -> dict[str, tuple[Function, bool]]:
    """Return the peers of a program by name, each with whether it takes K with keys as rows."""
    import torch
    from torch.nn.attention import SDPBackend

    plain = formulas(program)
    found: dict[str, tuple[Function, bool]] = {
        "peer eager": (plain, False),
        "peer compile": (torch.compile(plain, dynamic=False), False),
    }
    if program in AUTOTUNED:
        found["peer max-autotune"] = (torch.compile(plain, mode="max-autotune-no-cudagraphs", dynamic=False), False)
    if program in ("gqa", "gqa_decode", "qk_norm_attention"):
        kinds = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
                 "cudnn": SDPBackend.CUDNN_ATTENTION}  # fmt: skip
        for name, backend in kinds.items():
            found[f"peer {name}"] = (attention(program, backend), True)
        if program == "qk_norm_attention":
            compiled = torch.compile(attention(program, SDPBackend.FLASH_ATTENTION), dynamic=False)
            found["peer compile norms + flash"] = (compiled, True)
    return found


def with_rows_of_keys(tensors: list[Any]) -> list[Any]:
    """Return Q, K, V with the keys of K as contiguous rows."""
    q, k, v = tensors
    return [q, k.transpose(-1, -2).contiguous(), v]


def peers_of(program: str, sets: Any, cupy: Any) -> tuple[dict[str, Maker], dict[str, str]]:
    """Return what prepares runs of each peer that works and is right, and what is wrong with the others."""
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
    tensors = [torch.as_tensor(array, device="cuda") for array in sets[0][0]]
    with torch.no_grad():
        right = formulas(program)(*(tensor.float() for tensor in tensors))
    rights = right if isinstance(right, tuple) else (right,)
    makers: dict[str, Maker] = {}
    problems: dict[str, str] = {}
    for name, (function, has_rows) in functions_of(program).items():
        try:
            with torch.no_grad():
                found = function(*(with_rows_of_keys(tensors) if has_rows else tensors))
            torch.cuda.synchronize()
            for one, other in zip(found if isinstance(found, tuple) else (found,), rights, strict=True):
                error = float((one.float() - other).norm() / other.norm())
                if not error < 2e-2:
                    raise ValueError(f"off by {error:.1e}")
            makers[name] = maker_of_peer(function, has_rows, torch)
        except Exception as error:  # whatever a peer does, the others are timed
            problems[name] = f"{type(error).__name__}: {str(error)[:200]}"
    return makers, problems


def maker_of_peer(function: Function, has_rows: bool, torch: Any) -> Maker:
    """Return what prepares runs of a peer on the arrays of a set."""

    def make(inputs: list[Any], outputs: list[Any], stream: Any) -> Callable[[], None]:
        tensors = [torch.as_tensor(array, device="cuda") for array in inputs]
        if has_rows:
            tensors = with_rows_of_keys(tensors)
        torch.cuda.synchronize()
        own = torch.cuda.ExternalStream(stream.ptr)

        def run() -> None:
            with torch.cuda.stream(own), torch.no_grad():
                function(*tensors)

        return run

    return make


def warm_peers(item: tuple[str, list[tuple[int, ...]]]) -> float:
    """Compile a program's peers at these input shapes into torch's cache; return the seconds it took."""
    import time

    import torch

    program, shapes = item
    started = time.perf_counter()
    tensors = [torch.randn(shape, device="cuda", dtype=torch.float16) * 0.3 for shape in shapes]
    for name, (function, has_rows) in functions_of(program).items():
        if "compile" in name or "autotune" in name:
            with torch.no_grad():
                function(*(with_rows_of_keys(tensors) if has_rows else tensors))
    torch.cuda.synchronize()
    return time.perf_counter() - started
