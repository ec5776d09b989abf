"""Stand-ins for a GPU: arrays that say they lie on one, and the few parts of CuPy that a launch uses."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np

from workbench.device.array_view import CUDA, _Tensor

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class FakeDeviceArray:
    """A NumPy array that claims, through DLPack, to lie on a device."""

    def __init__(self, array: Any, device: int = 0, device_type: int = CUDA, code: int | None = None) -> None:
        self.array, self.device, self.device_type = array, device, device_type
        self.code = CODES[array.dtype.kind] if code is None else code
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, self.device

    def __dlpack__(self, stream: Any = None) -> Any:
        self.streams.append(stream)
        a, n = self.array, self.array.ndim
        self._shape = (ctypes.c_int64 * max(n, 1))(*a.shape)
        self._strides = (ctypes.c_int64 * max(n, 1))(*(s // a.itemsize for s in a.strides))
        self._tensor = _Tensor(
            a.ctypes.data, self.device_type, self.device, n, self.code, 8 * a.itemsize, 1, self._shape, self._strides, 0
        )
        return _new_capsule(ctypes.addressof(self._tensor), b"dltensor", None)


class FakeStream:
    """A stream; `waited` lists the addresses of those that were waited for."""

    waited: ClassVar[list[int]] = []

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def synchronize(self) -> None:
        self.waited.append(self.ptr)


class FakeFunction:
    """Records launches; the kernel doubles its first array into its second."""

    def __init__(self) -> None:
        self.ptr = 77
        self.launches: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    def __call__(self, grid: Any, block: Any, arguments: Any, shared_bytes: int, stream: FakeStream) -> None:
        if self.error is not None:
            raise self.error
        self.launches.append((grid, block, arguments, shared_bytes, stream.ptr))
        n = 8
        source = np.ctypeslib.as_array((ctypes.c_float * n).from_address(int(arguments[0])))
        target = np.ctypeslib.as_array((ctypes.c_float * n).from_address(int(arguments[1])))
        target[:] = 2 * source


class FakeRawKernel:
    def __init__(self) -> None:
        self.kernel = FakeFunction()
        self.max_dynamic_shared_size_bytes = 48 * 1024


class FakeBuffer:
    """Device memory: `set` and `get` move bytes."""

    def __init__(self, n: int) -> None:
        self.memory = np.zeros(n, np.uint8)
        self.data = FakeStream(self.memory.ctypes.data)  # anything with .ptr

    def set(self, array: Any) -> None:
        self.memory[:] = array

    def get(self) -> Any:
        return self.memory.copy()


class FakeCupy:
    """What `launch.py` takes from CuPy."""

    def __init__(self, shared_bytes: int = 232448) -> None:
        self.raw = FakeRawKernel()
        self.paths: list[str] = []
        self.buffers: list[FakeBuffer] = []
        self.attributes_set: list[tuple[int, int, int]] = []
        outer = self

        class Device:
            id = 0
            attributes = {"MaxSharedMemoryPerBlockOptin": shared_bytes}  # noqa: RUF012  # as CuPy has it

        class Driver:
            @staticmethod
            def funcSetAttribute(function: int, attribute: int, value: int) -> None:
                outer.attributes_set.append((function, attribute, value))

        class Runtime:
            @staticmethod
            def deviceSynchronize() -> None:
                return None

        class Cuda:
            driver, runtime, ExternalStream = Driver, Runtime, FakeStream

            @staticmethod
            def Device() -> Any:
                return Device()

            @staticmethod
            def get_current_stream() -> FakeStream:
                return FakeStream(5)

        self.cuda = Cuda

    def RawModule(self, path: str) -> Any:
        self.paths.append(path)
        raw = self.raw

        class Module:
            @staticmethod
            def get_function(name: str) -> FakeRawKernel:
                if name != "k":
                    raise RuntimeError("CUDA_ERROR_NOT_FOUND: named symbol not found")
                return raw

        return Module()

    def empty(self, n: int, dtype: Any) -> FakeBuffer:
        assert dtype is np.uint8
        self.buffers.append(FakeBuffer(n))
        return self.buffers[-1]
