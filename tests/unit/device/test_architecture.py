"""Names of devices and of compile targets."""

from __future__ import annotations

import pytest

from workbench.device.architecture import Architecture, architecture, architecture_name
from workbench.errors import UnknownNameError


def test_devices_and_targets() -> None:
    assert (
        architecture("h200")
        == architecture("H200")
        == architecture("sm_90a")
        == Architecture("sm_90a", 227 * 1024, True)
    )
    assert architecture("a100") == Architecture("sm_80", 163 * 1024, False)
    assert architecture("RTX 4090").shared_limit == 99 * 1024
    assert architecture("sm_90").name == "sm_90"


@pytest.mark.parametrize("name", ["h2000", "sm_70", "sm_90b", "", "gpu", "compute_90"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownNameError, match="unknown device"):
        architecture(name)


def test_a_near_name_is_offered() -> None:
    with pytest.raises(UnknownNameError, match="did you mean h200"):
        architecture("h20")


def test_compute_capabilities() -> None:
    assert [architecture_name(c) for c in ("80", "90", "100")] == ["sm_80", "sm_90a", "sm_100a"]
    assert all(architecture(architecture_name(str(c))) for c in (80, 86, 89, 90, 100, 120))
