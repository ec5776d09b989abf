"""Rows as `workbench measure` writes them, made up: every program of the table, some losses, one that is not right."""

from __future__ import annotations

from typing import Any

from workbench.records.table_rows import TABLE_ROWS


def made_rows(*, broken: int | None = None) -> list[dict[str, Any]]:
    """Return the sixteen rows with made-up times; `broken`: the number of one that is not right."""
    rows = []
    for number, known in enumerate(TABLE_ROWS):
        ours = known.target_us * (1 + 0.07 * (number % 5))
        peers = {
            "eager": known.best_peer_us * 1.9, "compile": known.best_peer_us * (1.0 + 0.2 * (number % 2)),
            "compile max-autotune": known.best_peer_us * (1.2 - 0.2 * (number % 2)),
        }  # fmt: skip
        if "attention" in known.program or "gqa" in known.program:
            peers |= {"sdpa flash": known.best_peer_us * 1.05, "sdpa efficient": known.best_peer_us * 2.4}
        best = min(peers, key=lambda name: peers[name])
        row: dict[str, Any] = {
            "program": known.program, "parameters": dict(known.sizes), "style": "standard", "dtype": "float16",
            "table": True, "ours": "known good 0", "ours_us": ours, "ours_warm_us": ours * 0.9, "ours_spread_us": 0.1,
            "peers": peers, "best_peer": best, "best_peer_us": peers[best], "ratio": peers[best] / ours,
            "floor_us": known.floor_us, "target_us": known.target_us, "relative_error": 3e-4, "correct": True,
            "refused": {"sdpa cudnn": "No available kernel"} if "gqa" in known.program else {}, "references": {},
            "bytes": int(known.floor_us * 4.6e6), "flops": 5 * 10**8, "date": "2026-11-29T21:00:00+00:00",
            "gpu": "NVIDIA H200", "device": "h200", "driver": "580.159.04", "commit": "abc",
            "workbench": "0.1.0", "kernels_hash": "k",
            "versions": {"torch": "2.11.0+cu130", "python": "3.12.3", "triton": "3.6.0"},
            "ceilings": {"read_tb_s": 4.6, "product_tflops": 660.0}, "node_us": 1.2,
        }  # fmt: skip
        if number == broken:
            row |= {"ours": None, "ours_us": None, "ratio": None, "correct": False, "relative_error": None}
            row["refused"] = {"known good 0": "wrong result: output O is off by 2.1e-01"}
        rows.append(row)
    return rows
