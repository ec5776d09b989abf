"""`workbench emit`: kernels of programs, files and runs, with and without NVRTC, and the folder it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.unit.commands.calling import SMALL, answer, ask, complaint
from workbench.commands import emit
from workbench.device.nvrtc import load_nvrtc
from workbench.errors import KernelCompileError
from workbench.ugraph.serialize import save

SIZES: dict[str, Any] = {"batch": 3, "hidden": 10, "out": 7}
KEYS = {"name", "source", "arch", "compile_s", "registers", "spills", "shared_bytes"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def has_nvrtc() -> bool:
    try:
        load_nvrtc()
    except KernelCompileError:
        return False
    return True


def test_a_program_is_its_first_known_good_graph(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "emit", "rms_norm_linear", *SMALL)
    graph = wb.programs.known_good("rms_norm_linear", **SIZES)[0]
    assert values["hash"] == graph.hash
    (kernel,) = values["kernels"]
    assert set(kernel) >= KEYS
    assert kernel["name"] == "rms_norm_linear"
    assert kernel["arch"] == values["arch"] == "sm_90a"
    assert 'extern "C" __global__' in kernel["source"]
    assert "load_a(" in kernel["source"]  # the device header is part of it
    assert kernel["shared_bytes"] > 0
    assert values["library_calls"] == []
    if has_nvrtc():
        assert values["note"] is None
        assert kernel["registers"] > 0
        assert kernel["spills"] == 0
        assert kernel["compile_s"] > 0
    code, out, _ = ask(capsys, "emit", "rms_norm_linear", *SMALL)
    assert code == 0
    assert 'extern "C" __global__' in out
    assert "void load_a(" not in out  # for people, without the header
    assert f"rms_norm_linear {graph.hash}: 1 kernel, 0 library calls" in out


def test_without_nvrtc_the_source_is_given_with_a_note(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise KernelCompileError("no NVRTC here; install the extra: pip install 'mugraph-workbench[cuda]' (a: b; c: d)")

    monkeypatch.setattr(emit, "load_nvrtc", missing)
    values = answer(capsys, "emit", "rms_norm_linear", *SMALL)
    (kernel,) = values["kernels"]
    assert "no NVRTC here; install the extra" in values["note"]
    assert (kernel["registers"], kernel["spills"], kernel["compile_s"]) == (None, None, None)
    assert len(kernel["source"]) > 10000
    assert kernel["shared_bytes"] > 0
    _, out, _ = ask(capsys, "emit", "rms_norm_linear", *SMALL)
    assert "not compiled: no NVRTC here" in out
    assert "[cuda]'; nvcc is no substitute" in out


def test_the_unfused_program_lists_library_calls(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "emit", "rms_norm_linear", "--unfused", *SMALL)
    assert values["hash"] == wb.programs.get("rms_norm_linear", **SIZES).hash
    (call,) = values["library_calls"]
    assert call["right"] == "W"
    assert call["result"] == "O"
    assert values["kernels"]
    own = answer(capsys, "emit", "rms_norm_linear", "--unfused", "--no-library", *SMALL)
    assert own["library_calls"] == []
    assert len(own["kernels"]) == len(values["kernels"]) + 1


def test_known_good_graphs_architectures_and_types(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--set", "heads=1", "rows=8", "head_dim=8", "context=64"]
    first, second = (
        answer(capsys, "emit", "gqa", "--known-good", str(number), "--arch", "a100", "--dtype", "bfloat16", *sizes)
        for number in (0, 1)
    )
    assert first["hash"] != second["hash"]
    assert first["arch"] == "sm_80"
    assert "bf16*" in first["kernels"][0]["source"].replace(" ", "")
    assert "there is no 9" in complaint(capsys, "emit", "gqa", "--known-good", "9", *sizes)


def test_files_and_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graphs = wb.programs.known_good("rms_norm_linear", **SIZES)
    save(tmp_path / "graphs.json", graphs)
    assert answer(capsys, "emit", tmp_path / "graphs.json")["hash"] == graphs[0].hash
    assert answer(capsys, "emit", tmp_path / "graphs.json", "--index", "1")["hash"] == graphs[1].hash
    run = tmp_path / "run"
    run.mkdir()
    assert "is a folder without best.ugraph.json" in complaint(capsys, "emit", run)
    save(run / "best.ugraph.json", graphs[1])
    assert answer(capsys, "emit", run)["hash"] == graphs[1].hash
    assert "only programs have known good" in complaint(capsys, "emit", run, "--known-good", "0")
    assert "--known-good N" in complaint(capsys, "emit", "gqa", "--index", "0")
    assert "exclude each other" in complaint(capsys, "emit", "gqa", "--unfused", "--known-good", "0")


def test_a_folder_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "made" / "here"
    values = answer(capsys, "emit", "rms_norm_linear", *SMALL, "-o", out)
    assert values["files"] == sorted(path.name for path in out.iterdir())
    assert {"kernel.cu", "launcher.cu", "description.json", "reference.bin"} <= set(values["files"])
    description = json.loads((out / "description.json").read_text())
    assert description["hash"] == values["hash"]
    assert description["kernels"][0]["needs"]["registers"] == values["kernels"][0]["registers"]
    values = answer(capsys, "emit", "rms_norm_linear", *SMALL, "-o", tmp_path / "bare", "--unchecked")
    assert "reference.bin" not in values["files"]


def test_a_folder_is_answered_in_short(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = ask(capsys, "emit", "rms_norm_linear", *SMALL, "-o", tmp_path / "out", "--arch", "a100")
    assert code == 0
    assert "__global__" not in out
    assert f"written to {tmp_path / 'out'}: description.json, kernel.cu, launcher.cu" in out
    built = [line.strip() for line in out.splitlines() if "nvcc -O2" in line]
    assert built[0].startswith("nvcc -O2 -std=c++17 -gencode=arch=compute_80,code=sm_80 launcher.cu -o launcher && ")
    assert built[0].partition(" && ")[0] in (tmp_path / "out" / "launcher.cu").read_text()
    _, out, _ = ask(capsys, "emit", "rms_norm_linear", "--unfused", *SMALL, "-o", tmp_path / "out")
    assert "1 kernel, 1 library call\n" in out
    assert "launcher.cu -o launcher -lcublas" in out
    _, out, _ = ask(capsys, "emit", "rms_norm_linear", *SMALL, "-o", tmp_path / "bare", "--unchecked")
    assert "torch_op" in out
    assert "launcher" not in out  # neither is there without right outputs
    assert "python load_kernel.py" not in out


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown device 'h2'" in complaint(capsys, "emit", "gqa", "--arch", "h2")
    assert "float64" in complaint(capsys, "emit", "rms_norm_linear", "--dtype", "float64", *SMALL)
    assert "did you mean gqa" in complaint(capsys, "emit", "gq")


def test_a_run_is_emitted_with_the_schedule_that_was_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = wb.programs.get("rms_norm_linear", **SIZES)
    result = wb.superoptimize(program, "a100-80", measure=False, out=tmp_path / "run")
    values = answer(capsys, "emit", tmp_path / "run", "-o", tmp_path / "out", "--unchecked")
    assert values["arch"] == "sm_80"
    sources = [kernel["source"] for kernel in values["kernels"]]
    assert sources != [kernel["source"] for kernel in answer(capsys, "emit", "rms_norm_linear", *SMALL)["kernels"]]
    if has_nvrtc():
        assert sources == [kernel.source for kernel in result.best.compile().kernels]
    description = json.loads((tmp_path / "out" / "description.json").read_text())
    assert description["certificate"]["verdict"] == "equal"
    save(tmp_path / "run" / "best.ugraph.json", wb.programs.known_good("rms_norm_linear", **SIZES)[1])
    assert "beside it is" in complaint(capsys, "emit", tmp_path / "run")
