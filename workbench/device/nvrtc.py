"""NVRTC behind one small face, through CuPy or through cuda.bindings, whichever is installed; no GPU, no driver.

Invariant: `compile` never raises for a source that NVRTC refuses; it returns the log and says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from workbench.errors import KernelCompileError


class Nvrtc(Protocol):
    """What the workbench needs of NVRTC."""

    version: str

    def compile(self, source: str, options: Sequence[str], target: str) -> tuple[bytes, str, bool]:
        """Return output (target "cubin" or "ptx"; empty if refused), log, and whether it compiled."""
        ...


class CupyNvrtc:
    """NVRTC through `cupy.cuda.nvrtc`."""

    def __init__(self, module: Any) -> None:
        """Keep the module; ask its version, which loads the library."""
        self._module = module
        self.version = ".".join(map(str, module.getVersion()))

    def compile(self, source: str, options: Sequence[str], target: str) -> tuple[bytes, str, bool]:
        """Return output, log, and whether it compiled."""
        program = self._module.createProgram(source, "kernel.cu", [], [])
        try:
            try:
                self._module.compileProgram(program, list(options))
            except self._module.NVRTCError:
                return b"", str(self._module.getProgramLog(program)), False
            read = self._module.getCUBIN if target == "cubin" else self._module.getPTX
            output = read(program)
            data = output.encode() if isinstance(output, str) else bytes(output)
            return data, str(self._module.getProgramLog(program)), True
        finally:
            self._module.destroyProgram(program)


class BindingsNvrtc:
    """NVRTC through `cuda.bindings.nvrtc`, whose functions return (status, value, ...)."""

    def __init__(self, module: Any) -> None:
        """Keep the module; ask its version, which loads the library."""
        self._module = module
        self.version = ".".join(map(str, self._value(module.nvrtcVersion(), slice(1, 3))))

    def _value(self, result: Any, part: int | slice = 1) -> Any:
        if result[0] != self._module.nvrtcResult.NVRTC_SUCCESS:
            raise KernelCompileError(f"NVRTC fails: {result[0]}")
        return result[part]

    def _text(self, program: Any, size: Any, read: Any) -> bytes:
        buffer = b" " * self._value(size(program))
        self._value(read(program, buffer), 0)  # fills the buffer
        return bytes(buffer)

    def compile(self, source: str, options: Sequence[str], target: str) -> tuple[bytes, str, bool]:
        """Return output, log, and whether it compiled."""
        m = self._module
        program = self._value(m.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None))
        try:
            encoded = [option.encode() for option in options]
            status = m.nvrtcCompileProgram(program, len(encoded), encoded)[0]
            log = self._text(program, m.nvrtcGetProgramLogSize, m.nvrtcGetProgramLog).rstrip(b"\0").decode()
            if status != m.nvrtcResult.NVRTC_SUCCESS:
                return b"", log, False
            if target == "cubin":
                return self._text(program, m.nvrtcGetCUBINSize, m.nvrtcGetCUBIN), log, True
            return self._text(program, m.nvrtcGetPTXSize, m.nvrtcGetPTX), log, True
        finally:
            m.nvrtcDestroyProgram(program)


@cache
def load_nvrtc() -> Nvrtc:
    """Return NVRTC. Raises: KernelCompileError that says what to install."""
    reasons = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy tells that there is no GPU; none is needed here
            from cupy.cuda import nvrtc

        return CupyNvrtc(nvrtc)
    except (ImportError, OSError, RuntimeError) as error:
        reasons.append(f"cupy.cuda.nvrtc: {error}")
    try:
        from cuda.bindings import nvrtc as bindings

        return BindingsNvrtc(bindings)
    except (ImportError, OSError, RuntimeError) as error:
        reasons.append(f"cuda.bindings.nvrtc: {error}")
    raise KernelCompileError(
        "no NVRTC here; install the extra: pip install 'mugraph-workbench[cuda]' (" + "; ".join(reasons) + ")"
    )
