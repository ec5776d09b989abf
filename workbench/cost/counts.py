"""How much one kernel does: bytes per level of memory, work per unit, memory and registers of a block.

Counts hold no rate and no coefficient, so records keep them and a preset can be fitted to them later. Every count is a
float or a column of floats. Invariant: tiles count full, as kernels compute them; bytes from device memory count exactly.
Sources: CUDA C++ Programming Guide, "Element-wise and warp-level matrix instructions" (tiles of mma.sync).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench.core.dtypes import DType
from workbench.cost.form import Array, BlockForm, Dims, Environment, Task, size_of
from workbench.cost.hardware import Hardware
from workbench.cost.launch import WARP
from workbench.cost.rules import Shape

Counts = Mapping[str, Array]
"""One kernel's counts by name; see `COUNTED`."""

COUNTED = {
    "blocks": "blocks of the launch, those of clusters included",
    "iterations": "iterations of one block",
    "threads": "threads of a block",
    "stages": "tiles of a looped input at a time",
    "cluster": "blocks of a cluster",
    "requested_bytes": "bytes that all blocks together ask the L2 cache for",
    "unique_bytes": "bytes of program inputs, each once",
    "made_bytes": "bytes of inputs that earlier kernels of the program made, each once",
    "stored_bytes": "bytes of program outputs",
    "handed_bytes": "bytes of results for later kernels",
    "stage_bytes": "bytes that one block loads in one iteration",
    "once_bytes": "bytes that one block loads once into shared memory",
    "read_bytes": "bytes of an iteration's tiles that threads read from device memory where they need them, unstaged",
    "direct_bytes": "bytes that the threads of one block read from device memory where they need them",
    "uneven_bytes": "bytes of an iteration's tiles that end early in some blocks or whose rows are no whole sectors",
    "last_uneven_bytes": "the same, outside the loop",
    "run_bytes": "contiguous bytes of a tile, averaged over what is loaded",
    "tensor_flops": "flops of tensor cores in one iteration, tiles padded, as if all were of 16 bits",
    "lanes": "instructions of ordinary lanes in one iteration",
    "wide": "elements of float32 factors that tensor cores read in one iteration, each warp's",
    "special": "results of special-function units in one iteration",
    "shared_traffic": "bytes to and from shared memory in one iteration",
    "conflict_traffic": "bytes that the banks' further passes could have moved, in one iteration, by the layouts of tiles",
    "across_bytes": "bytes of an iteration's tiles that are copied element by element, across their tensors' rows",
    "barriers": "block barriers in one iteration",
    "last_tensor_flops": "the same, outside the loop",
    "last_lanes": "the same, outside the loop",
    "last_wide": "the same, outside the loop",
    "last_special": "the same, outside the loop",
    "last_shared_traffic": "the same, outside the loop",
    "last_conflict_traffic": "the same, outside the loop",
    "last_across_bytes": "the same, outside the loop",
    "last_barriers": "the same, outside the loop",
    "exchanged_bytes": "bytes that the blocks of a cluster read from each other, per block",
    "shared_at_least": "bytes of shared memory without which no plan of a block does",
    "shared_bytes": "bytes of shared memory a block takes, estimated",
    "registers": "32-bit registers of a thread, estimated",
    "held": "floats of accumulators a thread holds",
}
BASE_REGISTERS, HELD_REGISTERS = 56.0, 1.3
"""Registers of a thread beside its accumulators, and for each of them: what kernels of 552 measured variants took."""

RING_ELEMENTS = 16384.0
"""Elements of a looped tile that no product reads as it is up to which it is staged in a loop with a product."""

RING_SHARE = 0.75
"""Share of a block's shared memory up to which larger ones are."""

LOAD_BYTES = 16.0  # of one cp.async
SECTOR = 32.0  # bytes that memory serves at once
LINE_PASS = 128.0  # bytes that the first-level cache and the banks move in one pass
ELEMENT_LANES = 6.0
"""Instructions by which one element is copied: its place here and there, the load, the store."""


def count(form: BlockForm, values: Environment, hardware: Hardware, launch: Environment) -> dict[str, Array]:
    """Return the counts of a kernel. values: extents and counts by name; launch: loop, cluster, threads, stages."""
    threads, stages = np.asarray(launch["threads"], float), np.asarray(launch["stages"], float)
    loop, cluster = np.asarray(launch["loop"], float), np.asarray(launch["cluster"], float)
    cells = np.asarray(1.0)
    for name in form.counts:
        cells = cells * values[name]
    found: dict[str, Array] = {name: np.asarray(0.0) for name in COUNTED}
    each = np.ceil(loop / cluster)
    ring = np.where((loop > 1.0) & form.looped, np.maximum(np.minimum(stages, each), np.minimum(stages, 2.0)), 1.0)
    stages = ring + each * 0.0  # no more tiles than iterations, at least two where there is a loop
    found |= {"blocks": cells * cluster, "iterations": each}
    found |= {"threads": threads, "stages": stages, "cluster": cluster}
    _count_loads(form, values, found, cells, loop, hardware.shared_bytes_per_block)
    warps = threads / WARP
    ring, fixed, handed = found["stage_bytes"], found["once_bytes"], np.asarray(0.0)
    widest = np.asarray(0.0)
    for task in form.tasks:
        prefix = "" if task.looped else "last_"
        work = _task_work(task, values, warps, hardware)
        for name, amount in work.items():
            if name == "handed":
                handed = handed + amount
            elif name == "fragment":
                widest = np.maximum(widest, amount)
            else:
                found[prefix + name] = found[prefix + name] + amount
    held, meeting = _count_kept(form, values, found, warps, threads)
    for store in form.stores:
        elements = size_of(store.device, values)
        where = "stored_bytes" if store.last else "handed_bytes"
        found[where] = found[where] + elements * store.nbytes
        found["last_lanes"] = found["last_lanes"] + 2.0 * elements / cells
    looped = 1.0 if form.looped else 0.0
    found["barriers"] = found["barriers"] + looped
    found["last_barriers"] = found["last_barriers"] + 1.0
    found["shared_at_least"] = ring * stages + fixed
    found["shared_bytes"] = np.maximum(ring * stages + fixed + handed, np.where(cluster > 1, meeting, 0.0))
    found["held"] = held + widest
    found["registers"] = BASE_REGISTERS + HELD_REGISTERS * found["held"]
    return found


def _count_loads(
    form: BlockForm, values: Environment, found: dict[str, Array], cells: Array, loop: Array, most: float
) -> None:
    runs, seen = np.asarray(0.0), set[str]()
    made = np.asarray(0.0)  # factors computed in the loop
    for task in form.tasks:
        for dims in task.hands_over if task.looped else ():
            made = made + size_of(dims, values) * min(task.dtype.nbytes, 4)
    for load in sorted(form.loads, key=lambda load: load.unstaged):  # first what a product reads: it is staged anyhow
        total = size_of(load.device, values) * load.nbytes
        tile = size_of(load.tile, values) * load.nbytes
        copies, covered = cells, tile * (loop if load.looped else 1.0)
        for name in load.cuts:
            copies, covered = copies / values[name], covered * values[name]
        run = size_of((load.innermost,), values) * load.nbytes
        piece, row = (size_of((names,), values) * load.nbytes for names in (load.piece, load.row))
        pieces = np.where((piece < row) & (piece < SECTOR), SECTOR / piece, 1.0)  # a sector comes whole
        requested = total * copies * pieces * (1.0 if load.looped else found["cluster"])
        found["requested_bytes"] = found["requested_bytes"] + requested
        if load.tensor not in seen:
            where = "made_bytes" if load.made else "unique_bytes"
            found[where] = found[where] + total
            runs = runs + total * size_of((load.innermost,), values) * load.nbytes
            seen.add(load.tensor)
        read: Array = np.asarray(0.0)
        if load.unstaged:
            more = (found["stage_bytes"] + tile) * found["stages"] + made
            fits = (size_of(load.tile, values) <= RING_ELEMENTS) | (more <= RING_SHARE * most)
            read = np.where(form.has_ring & fits, 0.0, tile)
        kind = "stage_bytes" if load.looped else "direct_bytes" if load.direct else "once_bytes"
        found["read_bytes"], found[kind] = found["read_bytes"] + read, found[kind] + tile - read
        if load.direct:
            continue
        tile = tile - read
        prefix = "" if load.looped else "last_"
        rows = tile > run  # one row alone has no next one to be out of step with
        uneven = np.where((covered > total) | ((run % SECTOR > 0) & rows), tile, 0.0)
        found[prefix + "uneven_bytes"] = found[prefix + "uneven_bytes"] + uneven
        load_bytes = np.where(piece < row, np.minimum(piece, LOAD_BYTES), LOAD_BYTES)
        found[prefix + "lanes"] = found[prefix + "lanes"] + tile / load_bytes
        found[prefix + "shared_traffic"] = found[prefix + "shared_traffic"] + tile
        if load.across:
            found[prefix + "across_bytes"] = found[prefix + "across_bytes"] + tile
            found[prefix + "lanes"] = found[prefix + "lanes"] + tile / load.nbytes * ELEMENT_LANES
            sectors = tile / load.nbytes * LINE_PASS  # a warp's 32 elements lie in 32 lines: a pass each
            found[prefix + "conflict_traffic"] = found[prefix + "conflict_traffic"] + sectors
    found["run_bytes"] = runs / np.maximum(found["unique_bytes"] + found["made_bytes"], 1.0)


def _task_work(task: Task, values: Environment, warps: Array, hardware: Hardware) -> dict[str, Array]:
    """Return the work of one operator by counted name; "handed": bytes of tiles between steps; "fragment": floats."""
    rule, result = task.rule, size_of(task.result, values)
    if rule.shape is Shape.FREE:
        return {}
    if rule.shape is Shape.PRODUCT:
        return _product_work(task, values, warps, hardware)
    sizes = [size_of(dims, values) for dims in task.operands]
    elements = sizes[0] if rule.shape is Shape.FOLD else result
    work = {"lanes": elements * rule.lanes, "special": elements * rule.special}
    for size, nbytes in zip(sizes, task.staged, strict=True):
        if nbytes and rule.shape is not Shape.MOVE:
            work["lanes"] = work["lanes"] + size
            work["shared_traffic"] = work.get("shared_traffic", np.asarray(0.0)) + size * nbytes
    if rule.shape is Shape.FOLD and task.name != "accumulate":
        work["barriers"] = np.asarray(0.5)
    if task.hands_over:
        _hand_over(task, values, work)
    return work


def _hand_over(task: Task, values: Environment, work: dict[str, Array]) -> None:
    """Add what passing computed tiles through shared memory takes: written and read once each, and a barrier."""
    nbytes = min(task.dtype.nbytes, 4)
    for dims in task.hands_over:
        size = size_of(dims, values)
        work["lanes"] = work.get("lanes", np.asarray(0.0)) + 1.5 * size
        work["shared_traffic"] = work.get("shared_traffic", np.asarray(0.0)) + 2.0 * size * nbytes
        work["handed"] = work.get("handed", np.asarray(0.0)) + size * nbytes
        work["barriers"] = work.get("barriers", np.asarray(0.0)) + 1.0


def _product_work(task: Task, values: Environment, warps: Array, hardware: Hardware) -> dict[str, Array]:
    left, right = task.operands
    rows, inner, columns = (size_of((dim,), values) for dim in (left[-2], left[-1], right[-1]))
    batch = size_of(task.result[:-2], values)
    step = 8.0 if task.dtype is DType.FLOAT32 else 16.0
    m, n, k = (np.ceil(extent / tile) for extent, tile in ((rows, 16.0), (columns, 16.0), (inner, step)))
    flops = 2.0 * batch * (16.0 * m) * (16.0 * n) * (step * k)
    weight = hardware.tensor_rate(DType.FLOAT16) / hardware.tensor_rate(task.dtype)
    by_row, by_column = warp_grid(m, n, warps)
    nbytes = task.dtype.nbytes
    elements = batch * step * k * 16.0 * (m * by_column + n * by_row)
    read = elements * nbytes
    conflicts = elements * 0.0
    if task.passes:
        by_factor = (m * by_column, n * by_row)
        further = sum(tiles * (passes - 1.0) for tiles, passes in zip(by_factor, task.passes, strict=True))
        conflicts = batch * step * k * 16.0 * further * nbytes
    wide = elements if task.dtype is DType.FLOAT32 else elements * 0.0  # read one by one, and rounded
    fragment = 8.0 * batch * m * n / (by_row * by_column)
    work = {
        "tensor_flops": flops * weight,
        "shared_traffic": read,
        "conflict_traffic": conflicts,
        "wide": wide,
        "lanes": flops / 4096.0 * WARP + read / LOAD_BYTES,  # one mma and its share of ldmatrix per warp
        "fragment": fragment,
    }
    _hand_over(task, values, work)
    return work


def warp_grid(row_tiles: Array, column_tiles: Array, warps: Array) -> tuple[Array, Array]:
    """Return about how many warps stand along rows and columns of a product; the rest share its depth."""
    by_row = np.minimum(row_tiles, np.exp2(np.floor(np.log2(np.maximum(np.sqrt(warps), 1.0)))))
    by_row = np.maximum(by_row, np.minimum(row_tiles, warps / np.maximum(column_tiles, 1.0)))
    by_column = np.minimum(column_tiles, warps / by_row)
    return by_row, np.maximum(by_column, 1.0)


def _count_kept(
    form: BlockForm, values: Environment, found: dict[str, Array], warps: Array, threads: Array
) -> tuple[Array, Array]:
    """Return the floats a thread holds over the loop, and the bytes in which the blocks of a cluster meet."""
    held, meeting = np.asarray(0.0), np.asarray(0.0)
    for kept in form.kept:
        size = size_of(kept.dims, values)
        if kept.is_product:
            m = np.ceil(size_of((kept.dims[-2],), values) / 16.0)
            n = np.ceil(size_of((kept.dims[-1],), values) / 16.0)
            by_row, by_column = warp_grid(m, n, warps)
            held = held + 8.0 * size_of(kept.dims[:-2], values) * m * n / (by_row * by_column)
            slices = np.maximum(warps / (by_row * by_column), 1.0)
            sliced = np.where(slices > 1.0, size * kept.nbytes * 2.0 * slices, 0.0)
            found["last_shared_traffic"] = found["last_shared_traffic"] + sliced
            found["last_lanes"] = found["last_lanes"] + np.where(slices > 1.0, size * slices * 2.0, 0.0)
        else:
            held = held + size / threads
        meeting = meeting + size * kept.nbytes
    found["exchanged_bytes"] = meeting * (found["cluster"] - 1.0)
    return held, meeting


def as_numbers(counts: Counts) -> dict[str, float]:
    """Return the counts of one schedule as plain numbers."""
    return {name: float(value) for name, value in counts.items()}


def dims_of(name: str, shape: tuple[int, ...]) -> Dims:
    """Return dims whose names stand for the extents of one tensor."""
    return tuple((f"{name}#{axis}",) for axis in range(len(shape)))
