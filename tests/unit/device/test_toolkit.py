"""CUDA's tools are found on the PATH, then in Python's packages and the toolkit; a missing one names its cure."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from workbench.device import toolkit
from workbench.errors import KernelCompileError


@pytest.fixture(autouse=True)
def forget() -> None:
    toolkit.find_tool.cache_clear()


def tool(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tool(tmp_path / "bin", "nvdisasm")
    monkeypatch.setenv("PATH", str(path.parent))
    assert toolkit.find_tool("nvdisasm") == str(path)


def test_packages_then_the_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(toolkit.sysconfig, "get_path", lambda name: str(tmp_path / "packages"))  # type: ignore[attr-defined]
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    in_toolkit = tool(tmp_path / "toolkit" / "bin", "cuobjdump")
    assert toolkit.find_tool("cuobjdump") == str(in_toolkit)
    toolkit.find_tool.cache_clear()
    tool(tmp_path / "packages" / "nvidia" / "cu12" / "bin", "cuobjdump")
    newer = tool(tmp_path / "packages" / "nvidia" / "cu13" / "bin", "cuobjdump")
    assert toolkit.find_tool("cuobjdump") == str(newer)


def test_a_missing_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(toolkit, "tool_folders", lambda: [tmp_path])
    with pytest.raises(KernelCompileError, match="nvdisasm is not installed; pip install nvidia-cuda-nvdisasm"):
        toolkit.find_tool("nvdisasm")
