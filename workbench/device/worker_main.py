"""The child's side of `worker.Worker`: read a call, run it, answer; end when the parent does or the GPU has faulted.

Invariant: the pipe to the parent carries answers only; everything the work prints goes to standard error.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import traceback
from typing import Any, BinaryIO

from workbench.device.worker import LENGTH_BYTES, is_fatal, write_frame


def read_frame(stream: BinaryIO) -> bytes:
    """Return the next message, b"" at the end."""
    head = stream.read(LENGTH_BYTES)
    return stream.read(int.from_bytes(head, "little")) if len(head) == LENGTH_BYTES else b""


def find_function(module: str, name: str) -> Any:
    """Return a function by module and qualified name."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def answer(call: bytes) -> tuple[bytes, bool]:
    """Run one call; return the answer and whether the process must end after it."""
    try:
        module, name, args, kwargs = pickle.loads(call)
        return pickle.dumps(("done", find_function(module, name)(*args, **kwargs))), False
    except Exception as error:  # told to the parent, whatever it is: this is what the process is for
        text = f"{type(error).__name__}: {error}"
        print(traceback.format_exc(), file=sys.stderr, flush=True)
        try:
            reply = pickle.dumps(("error", (error, text)))
            pickle.loads(reply)
        except Exception:  # errors of foreign libraries may not survive pickling; their text does
            reply = pickle.dumps(("error", (None, text)))
        return reply, is_fatal(text)


def main() -> None:
    """Answer calls until the parent closes the pipe."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while call := read_frame(sys.stdin.buffer):
        reply, must_end = answer(call)
        write_frame(replies, reply)
        if must_end:
            os._exit(1)  # a dead CUDA context can hang an orderly exit


if __name__ == "__main__":
    main()
