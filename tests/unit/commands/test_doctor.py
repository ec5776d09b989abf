"""`workbench doctor`: every part has a finding, and nothing it probes can hurt it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.commands.calling import answer
from workbench.commands import doctor


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
