"""The three levels of a µGraph and the memory each lives in (Mirage OSDI'25, section 2 and figure 2)."""

from __future__ import annotations

from enum import Enum


class MemoryScope(Enum):
    """Where a tensor is stored; wider scopes are slower."""

    DEVICE = "device"
    SHARED = "shared"
    REGISTER = "register"


class Level(Enum):
    """Who executes a graph: all kernels of a device, one thread block, one thread."""

    KERNEL = "kernel"
    BLOCK = "block"
    THREAD = "thread"

    @property
    def scope(self) -> MemoryScope:
        """Memory that holds the level's tensors."""
        match self:
            case Level.KERNEL:
                return MemoryScope.DEVICE
            case Level.BLOCK:
                return MemoryScope.SHARED
            case Level.THREAD:
                return MemoryScope.REGISTER
