"""Load a cubin and launch its kernel on arrays of the caller, on the caller's stream.

Invariant: after the first call nothing is allocated, and every argument is checked before the device sees it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.device.array_view import DEVICE_NAMES, ArrayView, contiguous_strides, view_array
from workbench.device.compile import CompiledKernel
from workbench.device.driver_launch import launch_programmatic
from workbench.device.streams import existing_stream
from workbench.errors import LaunchError

PORTABLE_CLUSTER = 8
NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14  # CU_FUNC_ATTRIBUTE_..., cuda.h
CURES = {
    "NO_BINARY_FOR_GPU": "the cubin is for another GPU; compile for this one's architecture",
    "OUT_OF_RESOURCES": "too many registers or threads; lower the threads a block or set __launch_bounds__",
    "INVALID_CLUSTER_SIZE": "the cluster does not fit this GPU; take 8 blocks or fewer and less shared memory",
    "ILLEGAL_ADDRESS": "the kernel used an address outside its arrays; run it on the host to find the line",
    "MISALIGNED_ADDRESS": "a vector access is not aligned; run it on the host to find the line",
}


@dataclass(frozen=True, slots=True)
class ArrayParameter:
    """A pointer the kernel takes: name, dtype name, shape, strides in elements (None: row-major), whether it is written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    is_output: bool = False


@dataclass(frozen=True, slots=True)
class ScalarParameter:
    """A number the kernel takes by value: name and NumPy dtype name."""

    name: str
    dtype: str


Parameter = ArrayParameter | ScalarParameter


def load_cupy() -> Any:
    """Return CuPy. Raises: LaunchError when it, or a GPU, is missing."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import cupy
    except ImportError as error:
        raise LaunchError("CuPy is not installed; pip install 'mugraph-workbench[cuda]'") from error
    if not cupy.is_available():
        raise LaunchError("no CUDA device here; compile works without one, a launch does not")
    return cupy


def explain_failure(kernel: str, what: str, error: BaseException) -> LaunchError:
    """Return an error with the driver's words and, where one is known, the cure."""
    text = f"{kernel} {what}: {error}"
    cure = next((cure for name, cure in CURES.items() if name in text), "")
    return LaunchError(f"{text}; {cure}" if cure else text)


def check_array(view: ArrayView, parameter: ArrayParameter, where: str, device: int) -> None:
    """Compare an array with what the kernel was made for. Raises: LaunchError naming both."""
    if not view.is_on_gpu or view.device_id != device:
        place = f"{DEVICE_NAMES.get(view.device_type, view.device_type)}:{view.device_id}"
        raise LaunchError(f"{where} lies on {place}, the kernel runs on cuda:{device}; move it there")
    if view.dtype != parameter.dtype:
        raise LaunchError(f"{where} is {view.dtype}, the kernel takes {parameter.dtype}; convert it")
    if view.shape != parameter.shape:
        raise LaunchError(f"{where} has shape {view.shape}, the kernel was made for {parameter.shape}")
    wanted = contiguous_strides(parameter.shape) if parameter.strides is None else parameter.strides
    for extent, found, step in zip(view.shape, view.strides, wanted, strict=True):
        if extent > 1 and found != step:
            raise LaunchError(f"{where} has strides {view.strides} (elements), the kernel takes {wanted}; copy it")
    if view.pointer % 16 and math.prod(view.shape):
        raise LaunchError(f"{where} begins at address {view.pointer:#x}; 16-byte alignment is needed, so copy it")


def stream_pointer(stream: Any, arguments: Sequence[Any], cupy: Any) -> int:
    """Return the address of the stream to launch on: the given one, torch's current one for tensors, else CuPy's."""
    if stream is not None:
        for name in ("ptr", "cuda_stream"):
            if hasattr(stream, name):
                return int(getattr(stream, name))
        return int(stream)
    torch = sys.modules.get("torch")  # whoever passes a tensor has imported it
    if torch is not None and any(isinstance(argument, torch.Tensor) for argument in arguments):
        return int(torch.cuda.current_stream().cuda_stream)
    return int(cupy.cuda.get_current_stream().ptr)


class LoadedKernel:
    """A kernel on the current device, called with arrays and numbers in the order of its parameters.

    Torch and CuPy arrays (anything with DLPack) are used where they lie. NumPy arrays are copied to buffers that are
    kept, and written ones copied back after the call, which then waits. A call is asynchronous otherwise and can be
    captured in a CUDA graph.
    """

    def __init__(
        self,
        compiled: CompiledKernel,
        launch: LaunchShape,
        parameters: Sequence[Parameter],
        *,
        programmatic: bool = False,
    ) -> None:
        """Load the cubin and allow the shared memory that the launch needs.

        programmatic: launch with programmatic stream serialization (sm_90; the kernel calls grid_dependency_wait).
        Raises: LaunchError when there is no GPU or it does not take the kernel.
        """
        self.launch, self.parameters, self._programmatic = launch, tuple(parameters), programmatic
        self._cupy = load_cupy()
        self._device = int(self._cupy.cuda.Device().id)
        self._buffers: dict[int, Any] = {}
        allowed = int(self._cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])
        static = compiled.usage(launch.kernel).shared_bytes if compiled.kernels else 0
        if launch.shared_bytes + static > allowed:
            raise LaunchError(
                f"{launch.kernel} needs {launch.shared_bytes + static:,} B of shared memory a block, the device allows "
                f"{allowed:,} B; reduce the stages or the tile"
            )
        try:
            raw = self._cupy.RawModule(path=str(compiled.path)).get_function(launch.kernel)
            if launch.shared_bytes > 48 * 1024:
                raw.max_dynamic_shared_size_bytes = launch.shared_bytes
            self._function = raw.kernel
            if launch.cluster_blocks > PORTABLE_CLUSTER:
                self._cupy.cuda.driver.funcSetAttribute(self._function.ptr, NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        except RuntimeError as error:
            raise explain_failure(launch.kernel, "does not load", error) from error

    def _pack(self, index: int, parameter: Parameter, value: Any) -> np.generic:
        where = f"{self.launch.kernel}: argument {index} ({parameter.name})"
        if isinstance(parameter, ScalarParameter):
            if isinstance(value, bool | int | float | np.generic):
                number: np.generic = np.dtype(parameter.dtype).type(value)
                return number
            raise LaunchError(f"{where} is {type(value).__name__}, the kernel takes {parameter.dtype}")
        if isinstance(value, np.ndarray):
            return np.uint64(self._copy_in(index, parameter, value, where))
        view = view_array(value, where)
        check_array(view, parameter, where, self._device)
        return np.uint64(view.pointer)

    def _copy_in(self, index: int, parameter: ArrayParameter, value: npt.NDArray[Any], where: str) -> int:
        name = "bfloat16" if parameter.dtype == "bfloat16" and value.dtype.name == "uint16" else value.dtype.name
        if name != parameter.dtype or value.shape != parameter.shape:
            raise LaunchError(
                f"{where} is {value.dtype} {value.shape}, the kernel takes {parameter.dtype} {parameter.shape}"
            )
        wanted = contiguous_strides(parameter.shape) if parameter.strides is None else parameter.strides
        if wanted != contiguous_strides(parameter.shape) or not value.flags.c_contiguous:
            raise LaunchError(f"{where}: NumPy arrays are taken row-major only; give an array on the device")
        if index not in self._buffers:
            self._buffers[index] = self._cupy.empty(value.nbytes, dtype=np.uint8)
        buffer = self._buffers[index]
        buffer.set(np.frombuffer(value.tobytes(), np.uint8))
        return int(buffer.data.ptr)

    def __call__(self, *arguments: Any, stream: Any = None) -> None:
        """Launch on arrays and numbers; see the class. `stream`: None for the caller's current one, or a stream.

        Raises: LaunchError for arguments that do not fit, or when the launch is refused.
        """
        if len(arguments) != len(self.parameters):
            raise LaunchError(f"{self.launch.kernel} takes {len(self.parameters)} arguments, got {len(arguments)}")
        packed = tuple(self._pack(i, p, v) for i, (p, v) in enumerate(zip(self.parameters, arguments, strict=True)))
        pointer = stream_pointer(stream, arguments, self._cupy)
        self.launch_packed(packed, pointer)
        if not any(isinstance(value, np.ndarray) for value in arguments):
            return
        existing_stream(self._cupy, pointer).synchronize()
        for index, (parameter, value) in enumerate(zip(self.parameters, arguments, strict=True)):
            if isinstance(value, np.ndarray) and isinstance(parameter, ArrayParameter) and parameter.is_output:
                value[...] = self._buffers[index].get().view(value.dtype).reshape(value.shape)

    def prepare(self, *arguments: Any, stream: Any = None) -> Callable[[], None]:
        """Check arguments once and return a function that launches on them; the arrays must stay alive.

        Raises: LaunchError as a call does, and for NumPy arrays, which a call copies.
        """
        if any(isinstance(value, np.ndarray) for value in arguments) or len(arguments) != len(self.parameters):
            raise LaunchError(f"{self.launch.kernel}: prepare takes {len(self.parameters)} arguments on the device")
        packed = tuple(self._pack(i, p, v) for i, (p, v) in enumerate(zip(self.parameters, arguments, strict=True)))
        pointer = stream_pointer(stream, arguments, self._cupy)
        return lambda: self.launch_packed(packed, pointer)

    def launch_packed(self, packed: tuple[np.generic, ...], stream: int) -> None:
        """Launch with arguments that are already addresses (uint64) and numbers of the kernel's own types."""
        launch = self.launch
        try:
            if self._programmatic:
                launch_programmatic(int(self._function.ptr), launch, packed, stream)
            else:
                there = existing_stream(self._cupy, stream)
                self._function(launch.grid, (launch.threads, 1, 1), packed, launch.shared_bytes, there)
        except RuntimeError as error:
            if isinstance(error, LaunchError):
                raise
            raise explain_failure(launch.kernel, "is not launched", error) from error


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """What a run on NumPy arrays gave: the output arrays in order."""

    outputs: tuple[npt.NDArray[Any], ...]


def run_on_device(
    compiled: CompiledKernel,
    launch: LaunchShape,
    arguments: Sequence[Any],
    outputs: Sequence[int],
    keep: frozenset[int] = frozenset(),
) -> DeviceRun:
    """Run a kernel once on NumPy arrays: the twin of `run_on_host`, for tests and for checks in a worker process.

    arguments: arrays and NumPy scalars of the kernel's types. outputs: indices of the arrays it writes; they are filled
    with NaN bits first unless in `keep`. Waits for the end, so a fault of the kernel is raised here.
    Raises: LaunchError with the driver's words.
    """
    parameters: list[Parameter] = []
    values = []
    for index, value in enumerate(arguments):
        if isinstance(value, np.ndarray):
            parameters.append(ArrayParameter(f"a{index}", value.dtype.name, value.shape, None, index in outputs))
            fresh = np.full(value.nbytes, 0xFF, np.uint8).view(value.dtype).reshape(value.shape)
            values.append(fresh if index in outputs and index not in keep else np.ascontiguousarray(value).copy())
        else:
            parameters.append(ScalarParameter(f"a{index}", np.asarray(value).dtype.name))
            values.append(value)
    kernel = LoadedKernel(compiled, launch, parameters)
    try:
        kernel(*values)
        load_cupy().cuda.runtime.deviceSynchronize()
    except RuntimeError as error:
        if isinstance(error, LaunchError):
            raise
        raise explain_failure(launch.kernel, "faulted on the device", error) from error
    return DeviceRun(tuple(values[index] for index in outputs))
