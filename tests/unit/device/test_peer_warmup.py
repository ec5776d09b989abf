"""Compiling peers ahead: nothing chosen by timing is kept, nothing is done without torch or a GPU, failures are told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import workbench as wb
from workbench.device.contenders import Contender
from workbench.device.peer_warmup import forget_choices, load_torch, random_inputs, warm_peers

PROGRAM = wb.programs.get("gqa", heads=2, rows=4, head_dim=8, context=16)


def test_choices_made_by_timing_are_not_kept() -> None:
    config = SimpleNamespace(fx_graph_cache=True, autotune_local_cache=True, max_autotune=False)
    forget_choices(config)
    assert vars(config) == {"fx_graph_cache": False, "autotune_local_cache": False, "max_autotune": False}


def test_without_torch_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert warm_peers((PROGRAM, ("compile",), "h200")) == []
    assert load_torch() is False


class FakeTorch:
    float16 = "half"

    def __init__(self) -> None:
        self.nn = SimpleNamespace(functional=None)
        self.cuda = SimpleNamespace(is_available=lambda: True, synchronize=lambda: None)
        self.ran: list[str] = []
        self.shapes: list[tuple[Any, Any]] = []

    def empty_strided(self, shape: Any, strides: Any, **options: Any) -> Any:
        self.shapes.append((shape, strides))
        return SimpleNamespace(normal_=lambda mean, deviation: "array")

    def compile(self, function: Any, **options: Any) -> Any:
        mode = options.get("mode", "default")

        def run(*inputs: Any) -> Any:
            self.ran.append(mode)
            if mode != "default":
                raise RuntimeError("no configuration fits")
            return "out"

        return run

    class no_grad:
        def __enter__(self) -> None:
            return None

        def __exit__(self, *error: object) -> None:
            return None


def test_compiled_peers_run_once_and_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, config = FakeTorch(), SimpleNamespace(fx_graph_cache=True)
    modules = {"torch": torch, "torch._inductor.config": config}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("importlib.import_module", lambda name: modules[name])
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    failed = warm_peers((PROGRAM, ("eager", "compile", "compile max-autotune", "sdpa flash"), "h200"))
    assert torch.ran == ["default", "max-autotune-no-cudagraphs"]
    assert failed == ["compile max-autotune: RuntimeError: no configuration fits"]
    assert config.fx_graph_cache is False
    torch.ran.clear()
    assert warm_peers((PROGRAM, ("eager",), "h200")) == []
    torch.cuda.is_available = lambda: False
    assert warm_peers((PROGRAM, ("compile",), "h200")) == []
    assert torch.ran == []


def test_inputs_have_the_layout_a_contender_wants() -> None:
    torch = FakeTorch()

    def prepare(inputs: Any, outputs: Any, stream: int) -> Any:
        raise AssertionError("not called")

    random_inputs(PROGRAM.inputs, Contender(name="c", prepare=prepare, layouts={1: (128, 1, 8)}), torch)
    assert torch.shapes == [((2, 4, 8), (32, 8, 1)), ((2, 8, 16), (128, 1, 8)), ((2, 16, 8), (128, 8, 1))]
