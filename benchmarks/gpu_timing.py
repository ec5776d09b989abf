"""Times of programs by CUDA-graph replay: cold L2 by turning over inputs of more than 200 MB, and warm on one set.

For tuning: hundreds of variants that were checked one by one before, and peers that may lay their inputs out as they like.
Rows of `data/records/ablation.jsonl` and the emitter's report are timed so as well, each program checked before it. The
rows of `data/records/h200.jsonl`, where ours stands beside its peers, are timed by `workbench.device.timing`, which checks
each contender before and after and catches cheats.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workbench.codegen.cuda.storage import span
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device.executable import Executable

COLD_BYTES = 260e6
LEAST_LAUNCHES = 32
Run = Callable[[], None]
ArraySet = tuple[list[Any], list[Any]]
Maker = Callable[[list[Any], list[Any], Any], Run]
"""Inputs, outputs, stream -> what launches once."""


def random_array(tensor: DeviceTensor, cupy: Any) -> Any:
    """Return an array on the device, N(0, 0.3^2), of a tensor's shape, type and strides."""
    count = span(tensor)
    numbers = cupy.random.standard_normal(count, dtype=cupy.float32) * np.float32(0.3)
    if tensor.dtype is DType.BFLOAT16:
        numbers = (numbers.view(cupy.uint32) >> 16).astype(cupy.uint16)
    else:
        numbers = numbers.astype(tensor.dtype.value)
    strides = tuple(stride * tensor.dtype.nbytes for stride in tensor.strides)
    return cupy.ndarray(tensor.shape, numbers.dtype, numbers.data, strides)


def input_sets(executable: Executable, cupy: Any) -> list[ArraySet]:
    """Return as many sets of inputs and outputs as exceed the L2 cache several times over."""
    nbytes = sum(tensor.nbytes for tensor in (*executable.inputs, *executable.outputs))
    count = max(1, min(2000, math.ceil(COLD_BYTES / nbytes)))
    return [
        (
            [random_array(tensor, cupy) for tensor in executable.inputs],
            [random_array(tensor, cupy) for tensor in executable.outputs],
        )
        for _ in range(count)
    ]


def replay_us(runs: Sequence[Run], stream: Any, cupy: Any, repeats: int = 15) -> float:
    """Return microseconds a run: a CUDA graph that launches all of them in turn, the median of its replays.

    Every run must have been called before; `runs` launch on `stream`, which is current here.
    """
    count = max(len(runs), LEAST_LAUNCHES)
    stream.begin_capture()
    for number in range(count):
        runs[number % len(runs)]()
    graph = stream.end_capture()
    for _ in range(3):
        graph.launch(stream)
    stream.synchronize()
    times = []
    for _ in range(repeats):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        graph.launch(stream)
        end.record(stream)
        end.synchronize()
        times.append(float(cupy.cuda.get_elapsed_time(start, end)) * 1e3 / count)
    return statistics.median(times)


def time_makers(
    makers: dict[str, Maker], sets: Sequence[ArraySet], cupy: Any, rounds: int = 3
) -> dict[str, tuple[float, float]]:
    """Return (cold, warm) microseconds of each, on the same arrays, taken in turn so that drifting clocks touch all."""
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    cold: dict[str, list[float]] = {name: [] for name in makers}
    warm: dict[str, list[float]] = {name: [] for name in makers}
    with stream:
        prepared = {name: [make(inputs, outputs, stream) for inputs, outputs in sets] for name, make in makers.items()}
        for runs in prepared.values():
            runs[0]()
        stream.synchronize()
        for _ in range(rounds):
            for name, runs in prepared.items():
                cold[name].append(replay_us(runs, stream, cupy))
                warm[name].append(replay_us(runs[:1], stream, cupy))
    return {name: (statistics.median(cold[name]), statistics.median(warm[name])) for name in makers}


def maker_of(executable: Executable) -> Maker:
    """Return what prepares runs of a program."""
    return lambda inputs, outputs, stream: executable.prepare(*inputs, out=outputs, stream=stream)
