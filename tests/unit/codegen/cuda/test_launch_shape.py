"""Launches that no GPU takes are refused; attributes in the source are compared with the launch."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.codegen.cuda.launch_shape import LaunchShape, check_attributes
from workbench.errors import LaunchShapeError

GOOD: dict[str, Any] = {"kernel": "k", "grid": (8, 2, 1), "threads": 128, "cluster": (2, 1, 1), "shared_bytes": 4096}


def test_counts() -> None:
    launch = LaunchShape(**GOOD)
    assert (launch.blocks, launch.cluster_blocks) == (16, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernel": "no name"}, "no C\\+\\+ name"),
        ({"threads": 100}, "multiple of 32"),
        ({"threads": 0}, "multiple of 32"),
        ({"threads": 1056}, "multiple of 32"),
        ({"grid": (0, 1, 1)}, "not within"),
        ({"grid": (8, 65536, 1)}, "not within"),
        ({"cluster": (3, 1, 1)}, "no multiple of cluster"),
        ({"cluster": (0, 1, 1)}, "not 1 to 16"),
        ({"grid": (32, 1, 1), "cluster": (32, 1, 1)}, "not 1 to 16"),
        ({"shared_bytes": -1}, "zero or more"),
    ],
)
def test_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(LaunchShapeError, match=words):
        LaunchShape(**(GOOD | change))


KERNEL = 'extern "C" __global__ void __launch_bounds__({bounds}) WB_CLUSTER({cluster}) k(const float* x, int n) {{ }}'


@pytest.mark.parametrize(
    ("bounds", "cluster", "is_good"),
    [
        ("128", "2, 1, 1", True),
        ("128, 2", "2, 1, 1", True),
        ("THREADS", "S, 1, 1", True),
        ("64", "2, 1, 1", False),
        ("128", "4, 1, 1", False),
        ("256", "1, 2, 1", False),
    ],
)
def test_attributes(bounds: str, cluster: str, is_good: bool) -> None:
    source = KERNEL.format(bounds=bounds, cluster=cluster)
    if is_good:
        check_attributes(source, LaunchShape(**GOOD))
    else:
        with pytest.raises(LaunchShapeError):
            check_attributes(source, LaunchShape(**GOOD))


def test_a_cluster_must_be_declared() -> None:
    other = 'extern "C" __global__ void WB_CLUSTER(2, 1, 1) other() { }\n'
    source = other + 'extern "C" __global__ void k(float* x) { }'
    with pytest.raises(LaunchShapeError, match=r"says \(1, 1, 1\)"):
        check_attributes(source, LaunchShape(**GOOD))
    check_attributes(source, LaunchShape(**(GOOD | {"cluster": (1, 1, 1)})))
