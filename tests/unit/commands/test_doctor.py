"""`workbench doctor`: every part has a finding, and nothing it probes can hurt it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.commands.calling import answer, ask
from workbench.commands import doctor
from workbench.device.nvrtc import load_nvrtc
from workbench.errors import KernelCompileError


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "doctor")
    for name in ("gpu", "cupy", "nvrtc", "nvcc", "ncu", "dot", "jupyterlab"):
        finding = values[name]
        assert set(finding) == {"ok", "version", "cure"}
        assert finding["ok"] is (finding["cure"] is None)
        assert finding["version"] or not finding["ok"]
    assert values["dot"]["ok"], "graphviz-pure is a dependency"


def test_doctor_survives_what_it_probes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "PROBE_TIMEOUT_S", 2.0)
    crash = doctor._probe("import os; os.abort()", "cure")
    hang = doctor._probe("while True: pass", "cure")
    wrong = doctor._probe("import nothing_of_this_name", "cure")
    right = doctor._probe("print('noise'); print('\"1.2\"')", "cure")
    assert [finding.ok for finding in (crash, hang, wrong, right)] == [False, False, False, True]
    assert hang.version == "no answer within 2 s"
    assert "nothing_of_this_name" in str(wrong.version)
    assert (right.version, right.cure) == ("1.2", None)
    tool = tmp_path / "nvcc"
    tool.write_text("#!/bin/sh\necho nonsense\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not doctor.look_for_nvcc().ok
    tool.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    assert doctor.look_for_nvcc().version == "13.0.88"
    monkeypatch.setenv("PATH", "")
    assert "graphviz-pure" in str(doctor.look_for_dot().version)
    assert doctor.look_for_ncu().cure is not None or Path("/usr/local/cuda/bin/ncu").exists()


def test_what_compiles_kernels_is_what_emit_uses() -> None:
    finding = doctor.look_for_nvrtc()
    try:
        assert (finding.ok, finding.version) == (True, load_nvrtc().version)
    except KernelCompileError:
        assert not finding.ok
    without = "import sys; sys.modules['cupy'] = sys.modules['cuda'] = None\n"
    missing = doctor._probe(without + doctor._NVRTC_PROBE, "cure")
    assert "cupy.cuda.nvrtc: " in str(missing.version)
    assert "cuda.bindings.nvrtc: " in str(missing.version)
    assert "install" not in str(missing.version), "the cure says that"


def test_the_toolkit_is_found_where_compiling_finds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "ncu"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'Version 2026.1.0 (build 1)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/bin")
    assert doctor.look_for_ncu().version == f"2026.1.0 at {tool}, not on the PATH"


def test_each_line_says_what_the_part_is_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_LOOKS", {"a": ("does b", lambda: doctor.Finding(False, None, "get it"))})
    code, out, _ = ask(capsys, "doctor")
    assert code == 0
    assert out.splitlines()[1:] == ["--  a          does b: not found", "               get it"]
