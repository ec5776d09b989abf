"""What all tests share: one BLAS thread, a time limit per test, seeds, the golden files, and data kept outside the repository."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported; two threads are slower and far noisier

import gc
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

# bytecode is kept even where the environment says not to: tests start many processes, and each would compile all modules
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

REPOSITORY = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).resolve().parent / "golden"
TIMEOUT_S = {"notebook": 120, "browser": 180, "": 60}
SEED = 20250711
LONGEST = (
    "test_random_graphs", "test_superoptimize", "test_kernel", "test_whole_programs", "test_search_stepper",
    "test_programs", "test_executors", "test_round_trips", "test_false_accept_rate", "test_memory", "test_intrinsics",
    "test_driver", "test_host_run", "test_search_invariance", "test_schedules", "test_elements", "test_compile",
    "test_retile", "test_folder", "test_odd_graphs",
)  # fmt: skip
"""Test modules of ten seconds and more. They are begun first, so that no process is left alone with one of them at the end."""

if importlib.util.find_spec("hypothesis"):  # a machine that only runs the GPU tests may lack it
    from hypothesis import settings

    settings.register_profile("workbench", derandomize=True, deadline=None, max_examples=50)
    settings.load_profile("workbench")

# golden file -> the test module that read it in this run; `golden/test_no_orphans.py` compares it with the folder
golden_uses: dict[Path, str] = {}
failed_modules: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every test its time limit; the longest modules come first, the search for golden orphans after its readers."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            limits = [
                TIMEOUT_S[name] for name in ("browser", "notebook", "") if not name or item.get_closest_marker(name)
            ]
            item.add_marker(pytest.mark.timeout(limits[0]))
    places = {name: place for place, name in enumerate(LONGEST)} | {"test_no_orphans": len(LONGEST) + 1}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))  # stable: the others keep their order


def pytest_collection_finish() -> None:
    """Keep the collector from going over the thousands of tests and their modules again and again: an eighth of all time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failed_modules.add(Path(report.nodeid.partition("::")[0]).stem)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a GPU test with the reason where it cannot run; under WORKBENCH_REQUIRE_GPU=1 that is a failure."""
    if item.get_closest_marker("gpu") and (reason := why_no_gpu()):
        if os.environ.get("WORKBENCH_REQUIRE_GPU") == "1":
            pytest.fail(f"WORKBENCH_REQUIRE_GPU=1, but {reason}")
        pytest.skip(reason)


@cache
def why_no_gpu() -> str:
    """Return why GPU tests cannot run here, "" where they can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed: pip install '.[cuda]'"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns on import where it finds no CUDA
        import cupy
    return "" if cupy.is_available() else "there is no CUDA device"


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this run keeps what it compiles and finds: shared by all its processes, empty at its start, never the user's."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        if "MPLCONFIGDIR" not in os.environ:  # else every process with a cache of its own lists the fonts again
            patch.setenv("MPLCONFIGDIR", str(folder / "matplotlib"))
        yield folder


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers from the suite's seed, the same in every test and run."""
    return np.random.default_rng(SEED)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Data that is not ours to ship (Mirage's saved µGraphs): $WORKBENCH_SHARED_DATA, or shared/data beside the clone."""
    given = os.environ.get("WORKBENCH_SHARED_DATA")
    folder = Path(given) if given else REPOSITORY.parent / "shared" / "data"
    if given and not folder.is_dir():
        pytest.fail(f"WORKBENCH_SHARED_DATA names {folder}, which is not a folder")
    if not folder.is_dir():
        pytest.skip(
            "no shared data beside the repository; set WORKBENCH_SHARED_DATA to the folder with mirage_mugraphs"
        )
    return folder


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return `check(case, text)`: the text must be that of tests/golden/<test module without test_>/<case>."""
    folder = GOLDEN / request.path.stem.removeprefix("test_")
    update = request.config.getoption("--update-golden")

    def check(case: str, text: str) -> None:
        path = folder / case
        golden_uses[path] = request.path.stem
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if not path.is_file():
            pytest.fail(
                f"no golden file {path.relative_to(GOLDEN)}; look at the text, then run with --update-golden:\n{text}"
            )
        expected = path.read_text(encoding="utf-8")
        assert text == expected, f"differs from {path.relative_to(GOLDEN)}; read the difference before --update-golden"

    return check
