"""The header's checks by name: compiled here, refused where there is no GPU or no such check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.codegen.cuda.selftest import intrinsic_cases
from workbench.device import selftest
from workbench.device.launch import DeviceRun
from workbench.errors import UnknownNameError


def test_a_complaint_and_the_numbers(cubin_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in intrinsic_cases() if case.name == "vectors")
    answer = [case.expected]
    monkeypatch.setattr(selftest, "run_on_device", lambda *_: DeviceRun(answer[0]))
    result = selftest.run_case("vectors", "sm_80", cubin_cache)
    assert result.complaint == ""
    assert result.registers > 8
    answer[0] = (np.zeros_like(case.expected[0]),)
    assert "vectors: output 1 is wrong" in selftest.run_case("vectors", "sm_80", cubin_cache).complaint


def test_an_unknown_check() -> None:
    with pytest.raises(UnknownNameError, match="no check 'nothing'"):
        selftest.run_case("nothing", "sm_80")
