"""Numbers as the workbench prints them."""

from __future__ import annotations

import pytest

from workbench.units import counted, format_bytes, format_seconds


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (counted(0, "kernel"), "0 kernels"),
        (counted(1, "kernel"), "1 kernel"),
        (counted(2048, "random test"), "2,048 random tests"),
        (format_bytes(999), "999 B"),
        (format_bytes(1500), "1.5 kB"),
        (format_bytes(2e13), "20 TB"),
        (format_seconds(2), "2 s"),
        (format_seconds(0.0123), "12.3 ms"),
        (format_seconds(5e-8), "50 ns"),
    ],
)
def test_a_number_has_its_unit(printed: str, expected: str) -> None:
    assert printed == expected
