"""From counts to microseconds: waves of blocks over multiprocessors, each wave as slow as memory and computing let it be.

Works on numbers and on columns alike. A kernel's time is the sum of its parts by construction: within a group the busiest
unit counts whole, others by the share that does not hide behind it. Invariant: no part is negative.
Sources: Little's law for bytes in flight; CUDA C++ Programming Guide, "Occupancy"; `presets` for what is fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from workbench.core.dtypes import DType
from workbench.cost.counts import Counts
from workbench.cost.form import Array
from workbench.cost.hardware import Hardware
from workbench.cost.presets import Coefficients

PARTS = (
    "launch",
    "start",
    "device memory",
    "L2",
    "latency",
    "tensor cores",
    "fp32",
    "special functions",
    "shared memory",
    "barriers",
    "cluster",
    "tail",
    "bank conflicts",
)
MEMORY = ("device memory", "L2", "latency")
COMPUTE = ("tensor cores", "fp32", "special functions", "shared memory", "barriers")
LINE_BYTES = 128.0
REGISTER_LIMIT = 255.0
DIRECT_AHEAD = 64.0
"""Bytes that one thread has asked device memory for at a time: four loads of 16 bytes."""

WIDTH = 128.0
"""Threads of the block that `barrier_us` is for."""


UNFILLED = 0.1
"""Share of multiprocessors that clusters leave idle for every doubling above 2 blocks, as they stay within one graphics
processing cluster. Why 0.1: 64 clusters of 4 blocks, two blocks a multiprocessor, did not run at once on an H200
(data/records/gpu_tests.json, `speed`), and clusters of 8 took longer still."""

Parts = dict[str, Array]


def occupancy(counts: Counts, hardware: Hardware) -> Array:
    """Return the blocks one multiprocessor holds at a time, 0 where one does not fit."""
    taken = np.minimum(counts["shared_bytes"], hardware.shared_bytes_per_block) + hardware.shared_bytes_reserved
    shared = np.floor(hardware.shared_bytes_per_multiprocessor / taken)
    fits = counts["shared_at_least"] <= hardware.shared_bytes_per_block
    registers = np.minimum(np.ceil(counts["registers"] / 8.0) * 8.0, REGISTER_LIMIT + 1.0)
    by_registers = np.floor(hardware.registers_per_multiprocessor / (registers * counts["threads"]))
    by_registers = np.maximum(by_registers, 1.0)  # a compiler gives a thread no more than the block can have
    by_threads = np.floor(hardware.threads_per_multiprocessor / counts["threads"])
    found = np.minimum(np.minimum(shared, by_registers), np.minimum(by_threads, hardware.blocks_per_multiprocessor))
    return np.where(fits, found, 0.0)


def usable_multiprocessors(counts: Counts, hardware: Hardware) -> Array:
    """Return the multiprocessors that a launch with these clusters can fill."""
    cluster = counts["cluster"]
    filled = 1.0 - UNFILLED * np.log2(np.maximum(cluster, 2.0) / 2.0)
    return np.maximum(np.floor(hardware.multiprocessors * filled / cluster), 1.0) * cluster


def kernel_times(counts: Counts, hardware: Hardware, coefficients: Coefficients, *, cold: bool = True) -> Parts:
    """Return the parts of a block graph's kernel in microseconds, by the names of `PARTS`; infinite where it does not fit."""
    held = np.maximum(occupancy(counts, hardware), 1.0)
    capacity = held * usable_multiprocessors(counts, hardware)
    full = np.floor(counts["blocks"] / capacity)
    rest = counts["blocks"] - full * capacity
    whole = _wave(counts, hardware, coefficients, np.minimum(capacity, counts["blocks"]), full + (rest > 0), cold=cold)
    last = _wave(counts, hardware, coefficients, np.maximum(rest, 1.0), full + (rest > 0), cold=cold)
    share = rest / capacity
    several, any_rest = full >= 1.0, rest > 0.0
    parts: Parts = {name: np.zeros_like(counts["blocks"] * 1.0) for name in PARTS}
    tail = np.asarray(0.0)
    for name in (*MEMORY, *COMPUTE, "bank conflicts", "cluster"):
        even = whole[name] * (full + share)
        parts[name] = np.where(several, even, last[name])
        tail = tail + np.where(several & any_rest, last[name] - whole[name] * share, 0.0)
    parts["tail"] = np.maximum(tail, 0.0)
    parts["launch"] = np.full_like(parts["tail"], hardware.node_us)
    touches = (counts["unique_bytes"] > 0) & cold
    parts["start"] = coefficients.start_us + np.where(touches, coefficients.cold_us, 0.0) + parts["tail"] * 0.0
    refused = occupancy(counts, hardware) < 1.0
    return {name: np.where(refused, np.inf if name == "start" else 0.0, value) for name, value in parts.items()}


def _wave(
    counts: Counts, hardware: Hardware, coefficients: Coefficients, blocks: Array, waves: Array, *, cold: bool
) -> Parts:
    """Return the parts of one wave of `blocks` blocks."""
    processors = np.minimum(blocks, usable_multiprocessors(counts, hardware))
    resident = blocks / processors
    memory = _memory(counts, hardware, coefficients, blocks, processors, resident, waves, cold=cold)
    compute = _compute(counts, hardware, coefficients, resident)
    pipelined = (counts["stages"] > 1.0) & (counts["iterations"] > 1.0) & (counts["stage_bytes"] > 0.0)
    by_neighbours = 1.0 - 1.0 / np.maximum(resident, 1.0)
    hidden = np.where(pipelined, np.maximum(coefficients.memory_overlap, by_neighbours), by_neighbours)
    memory_us, compute_us = sum(memory.values()), sum(compute.values())
    memory_first = memory_us >= compute_us
    found = {name: value * np.where(memory_first, 1.0, 1.0 - hidden) for name, value in memory.items()}
    found |= {name: value * np.where(memory_first, 1.0 - hidden, 1.0) for name, value in compute.items()}
    meets = counts["cluster"] > 1.0
    per_cycle = hardware.shared_bytes_per_cycle * hardware.clock_ghz * 1e3
    # copies into shared memory queue for the same banks, so loads come later too: this hides behind nothing
    further = counts["conflict_traffic"] * counts["iterations"] + counts["last_conflict_traffic"]
    found["bank conflicts"] = further * resident * coefficients.shared_scale / per_cycle
    exchange = counts["exchanged_bytes"] * resident / per_cycle
    growth = 1.0 + 0.25 * np.log2(np.maximum(counts["cluster"], 2.0) / 2.0)
    found["cluster"] = np.where(meets, coefficients.cluster_us * growth + exchange, 0.0)
    return found


def _memory(
    counts: Counts,
    hardware: Hardware,
    coefficients: Coefficients,
    blocks: Array,
    processors: Array,
    resident: Array,
    waves: Array,
    *,
    cold: bool,
) -> Parts:
    share = blocks / counts["blocks"]
    unique, made = counts["unique_bytes"], counts["made_bytes"]
    room = 0.8 * hardware.l2_bytes
    missing = np.clip(1.0 - room / np.maximum(unique + made, 1.0), 0.0, 1.0)
    again = np.maximum(np.minimum(counts["requested_bytes"], (unique + made) * waves) - unique - made, 0.0)
    first = unique * (1.0 if cold else missing) + made * np.clip(1.0 - room / np.maximum(made, 1.0), 0.0, 1.0)
    stored = counts["stored_bytes"] + counts["handed_bytes"] * np.where(
        counts["handed_bytes"] > room, 1.0, coefficients.store_weight
    )
    device = (first + again * missing + stored) * share
    run = np.minimum(counts["run_bytes"] / LINE_BYTES, 1.0)
    reached = coefficients.memory_efficiency * np.maximum(run, 1e-3) ** coefficients.run_exponent
    through = (counts["requested_bytes"] + counts["stored_bytes"] + counts["handed_bytes"]) * share
    # one stage is in use, and of the next one half has come on average: tiles are waited for whole
    ahead = np.maximum(np.minimum(counts["stages"], counts["iterations"]) - 1.5, 0.5)
    direct = np.minimum(counts["direct_bytes"], counts["threads"] * DIRECT_AHEAD)
    flight = resident * np.maximum(counts["stage_bytes"] * ahead, counts["once_bytes"] + direct)
    loaded = counts["stage_bytes"] * counts["iterations"] + counts["once_bytes"]
    read = counts["read_bytes"] * counts["iterations"]
    across = counts["across_bytes"] * counts["iterations"] + counts["last_across_bytes"]  # loaded, but by no ring
    alone = (read + across) / np.maximum(read + loaded + counts["direct_bytes"], 1.0)  # share that no ring hides
    waited = np.maximum(np.maximum(counts["read_bytes"] + counts["across_bytes"], counts["last_across_bytes"]), 1.0)
    wait = np.minimum(waited, counts["threads"] * DIRECT_AHEAD) * resident
    uneven = counts["uneven_bytes"] * counts["iterations"] + counts["last_uneven_bytes"]
    checked = uneven / np.maximum(loaded, 1.0)
    ingest = 1e3 / ((1.0 - checked) / coefficients.ingest_gb_s + checked / coefficients.uneven_gb_s)
    per_processor = np.minimum(np.maximum(flight, 1.0) / coefficients.latency_us, ingest)
    unstaged = np.minimum(wait / (coefficients.latency_us * coefficients.read_wait), ingest)
    slowness = (1.0 - alone) / per_processor + alone / unstaged
    return _smooth(
        {
            "device memory": device / (hardware.bandwidth_tb_s * 1e6 * reached),
            "L2": through / (hardware.l2_tb_s * 1e6),
            "latency": counts["requested_bytes"] * share / processors * slowness,
        },
        coefficients.memory_sharpness,
    )


def _compute(counts: Counts, hardware: Hardware, coefficients: Coefficients, resident: Array) -> Parts:
    warps = resident * counts["threads"] / 32.0
    rate = hardware.tensor_rate(DType.FLOAT16) * 1e6 / hardware.multiprocessors * coefficients.mma_efficiency
    cycles = hardware.clock_ghz * 1e3
    busy_tensor = np.minimum(warps / coefficients.tensor_warps, 1.0)
    busy_lanes = np.minimum(warps / coefficients.issue_warps, 1.0)
    times = counts["iterations"] * resident
    lanes = coefficients.lane_scale / (hardware.fp32_lanes * cycles * busy_lanes)

    def total(name: str) -> Array:
        return counts[name] * times + counts[f"last_{name}"] * resident

    barriers = counts["barriers"] * counts["iterations"] + counts["last_barriers"]
    moved = coefficients.shared_scale / (hardware.shared_bytes_per_cycle * cycles)
    parts = {
        "tensor cores": total("tensor_flops") / (rate * busy_tensor),
        "fp32": (total("lanes") + total("wide") * coefficients.wide_lanes) * lanes,
        "special functions": total("special") / (hardware.special_lanes * cycles * busy_lanes),
        "shared memory": total("shared_traffic") * moved,
    }
    found = _whole_only(parts, coefficients.compute_overlap)
    slower = np.sqrt(counts["threads"] / WIDTH)  # more warps wait for the last one
    found["barriers"] = barriers * coefficients.barrier_us * slower + warps * 0.0
    return found


def _whole_only(parts: Mapping[str, Array], hidden: float) -> Parts:
    """Return the parts, the largest whole, of each other the share that does not hide behind it."""
    names = list(parts)
    columns = np.broadcast_arrays(*(parts[name] for name in names))
    stacked = np.stack(columns)
    first = np.argmax(stacked, axis=0)
    return {
        name: np.where(first == number, stacked[number], (1.0 - hidden) * stacked[number])
        for number, name in enumerate(names)
    }


def _smooth(parts: Mapping[str, Array], sharpness: float) -> Parts:
    """Return the parts of a smooth maximum: the largest whole, the excess of the p-norm over it shared by the others."""
    names = list(parts)
    stacked = np.stack(np.broadcast_arrays(*(parts[name] for name in names)))
    first, most = np.argmax(stacked, axis=0), np.maximum(np.max(stacked, axis=0), 1e-30)
    powers = (stacked / most) ** sharpness
    others = np.sum(powers, axis=0) - 1.0
    excess = most * ((1.0 + others) ** (1.0 / sharpness) - 1.0) / np.maximum(others, 1e-30)
    return {
        name: np.where(first == number, stacked[number], excess * powers[number]) for number, name in enumerate(names)
    }


def total_of(parts: Mapping[str, Array], names: Sequence[str] = PARTS) -> Array:
    """Return the sum of the parts, added in the order of `PARTS`."""
    total = np.asarray(0.0)
    for name in names:
        total = total + parts[name]
    return total
