"""Kernels that run on the host: one folder of built programs for the session, and a skip where there is no g++."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def host_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this session's host programs are kept; skips the test when no C++ compiler is there."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on the PATH: kernels cannot be built for the host")
    return tmp_path_factory.mktemp("host")
